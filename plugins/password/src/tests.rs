//! The function on clusters in memory.

use mortise_sdk::testing::Cluster;

use super::*;

fn password(secret_name: &str, length: u32) -> Password {
    Password::new("db", PasswordSpec { secret_name: secret_name.into(), length, rotation: String::new() })
}

#[test]
fn the_secret_has_a_password_and_no_outcome_repeats_it() {
    let mut cluster = Cluster::of(&PLUGIN);
    assert!(!cluster.reconcile(&password("login", 16)).unwrap().is_ready());
    let outcome = cluster.settle(&password("login", 16)).unwrap();
    assert!(outcome.is_ready());
    assert_eq!(outcome.status_value()["secretName"], "login");
    let secrets = cluster.objects("Secret");
    assert_eq!(secrets[0]["metadata"]["name"], "login");
    let made = secrets[0]["data"]["password"].as_str().unwrap();
    assert!(!made.is_empty() && !format!("{outcome:?}").contains(made));
}

#[test]
fn another_name_is_another_secret() {
    let mut cluster = Cluster::of(&PLUGIN);
    cluster.settle(&password("login", 16)).unwrap();
    let outcome = cluster.settle(&password("token", 16)).unwrap();
    assert_eq!(outcome.status_value()["secretName"], "token");
    let names: Vec<_> = cluster.objects("Secret").iter().map(|secret| secret["metadata"]["name"].clone()).collect();
    assert_eq!(names, ["token"]);
}

#[test]
fn a_password_of_seven_characters_is_refused() {
    let refused = Cluster::of(&PLUGIN).reconcile(&password("login", 7)).unwrap_err();
    assert!(format!("{refused:?}").contains("length"), "{refused:?}");
    assert!(Cluster::of(&PLUGIN).reconcile(&password("login", 8)).is_ok());
}
