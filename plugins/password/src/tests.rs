//! The function, one call at a time.

use mortise_sdk::testing::Cluster;

use super::*;

fn password(secret_name: &str, length: u32) -> Password {
    Password::new("db", PasswordSpec { secret_name: secret_name.into(), length, rotation: String::new() })
}

/// A cluster with the Secret `login`, as the host made it for `login`.
fn made(login: &Password) -> Cluster {
    let annotations = json!({"mortise.dev/generated": r#"{"password": {"rotation": ""}}"#});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login", "annotations": annotations},
        "data": {"password": "c2VjcmV0"}});
    let mut cluster = Cluster::of(&PLUGIN);
    cluster.add_child(login, "login", &secret);
    cluster
}

#[test]
fn the_secret_has_a_password_and_no_outcome_repeats_it() {
    let login = password("login", 16);
    let first = Cluster::of(&PLUGIN).reconcile(&login).unwrap();
    assert_eq!((first.child_keys(), first.is_ready()), (vec!["login"], false));
    let outcome = made(&login).reconcile(&login).unwrap();
    assert!(outcome.is_ready());
    assert_eq!(outcome.status_value()["secretName"], "login");
    assert_eq!(outcome.child("login").unwrap()["metadata"]["name"], "login");
    assert!(!format!("{outcome:?}").contains("c2VjcmV0"));
}

#[test]
fn another_name_is_another_secret() {
    let outcome = made(&password("login", 16)).reconcile(&password("token", 16)).unwrap();
    assert_eq!(outcome.child_keys(), ["token"], "the host deletes the former one");
    assert_eq!(outcome.status_value()["secretName"], Value::Null);
    assert!(!outcome.is_ready(), "the password is not made yet");
}

#[test]
fn a_password_of_seven_characters_is_refused() {
    let refused = Cluster::of(&PLUGIN).reconcile(&password("login", 7)).unwrap_err();
    assert!(format!("{refused:?}").contains("length"), "{refused:?}");
    assert!(Cluster::of(&PLUGIN).reconcile(&password("login", 8)).is_ok());
}
