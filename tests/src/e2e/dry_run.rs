//! `mortise dev --dry-run`: what a plugin would write to a cluster is shown, and the cluster is only read.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use super::pods::Witness;
use super::reload::{create_sets, scale, wait_converged};
use super::world::{CONTENDERS, World, built};
use crate::checkout::root;

/// Until the copy is served, which the build of the plugin precedes: minutes, where nothing of it is built.
const SERVED: Duration = Duration::from_secs(300);

/// The HTTP status that the Secrets of a kubeconfig's cluster have for somebody without credentials; None if nothing answers.
fn status_for_nobody(world: &World, kubeconfig: &Path) -> Option<u16> {
    let file = Kubeconfig::read_from(kubeconfig).ok()?;
    world.block_on(async {
        let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.ok()?;
        config.auth_info = AuthInfo::default();
        let request = http::Request::get("/api/v1/secrets").body(Vec::new()).unwrap();
        match Client::try_from(config).unwrap().request_text(request).await {
            Ok(_) => Some(200),
            Err(kube::Error::Api(status)) => Some(status.code),
            Err(_) => None,
        }
    })
}

#[test]
fn a_dry_run_shows_the_writes_only_reads_the_cluster_and_shows_its_copy_to_nobody_else() {
    let user = CONTENDERS[0];
    let mut world = World::with_podset("dry-run");
    let binding = ["create", "clusterrolebinding", "dry-run", "--clusterrole=cluster-admin"];
    world.kubectl(&[&binding[..], &[&format!("--user={user}")]].concat());
    let witness = Witness::watch(&world);
    create_sets(&world, 1, 2);
    wait_converged(&world, &witness, 1, 2);
    world.stop_host();
    scale(&world, 0, 3);
    world.mark_audit();

    let folder = tempfile::tempdir().unwrap();
    let run = Command::new(built("debug/mortise"))
        .args(["dev", "--dry-run", "--kubeconfig"])
        .arg(world.plane.kubeconfig(user).unwrap())
        .arg(root().join("plugins/podset"))
        .current_dir(folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The copy has what this user may read of the cluster, which others on this machine may not.
    let copy = folder.path().join(".mortise/dry-run.kubeconfig");
    let status = world.until_within(SERVED, "the copy is served", &mut || status_for_nobody(&world, &copy));
    assert_eq!(status, 401);
    let run = run.wait_with_output().unwrap();
    let (diff, errors) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{diff}\n{errors}");
    let made: Vec<&str> = diff.lines().filter(|line| line.starts_with("+++ Pod ")).collect();
    assert_eq!(made.len(), 1, "one Pod is missing:\n{diff}\n{errors}");
    assert!(diff.contains("--- /dev/null\n+++ Pod "), "{diff}");
    for line in ["\n-  replicas: 2\n", "\n+  replicas: 3\n"] {
        assert!(diff.contains(line), "the status follows:\n{diff}");
    }

    let requests = world.requests_by(user);
    let writes: Vec<_> = requests.iter().filter(|request| request.is_write()).collect();
    assert!(!requests.is_empty() && writes.is_empty(), "the cluster is only read: {writes:#?}");
    world.kubectl(&["delete", "clusterrolebinding", "dry-run"]);
    let requests = world.requests_by(user);
    let verbs: BTreeSet<&str> = requests.iter().map(|record| record.verb.as_str()).collect();
    assert!(verbs.contains("list") && verbs.iter().all(|verb| ["get", "list"].contains(verb)), "{verbs:?}");
}
