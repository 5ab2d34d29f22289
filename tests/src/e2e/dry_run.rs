//! `mortise dev --dry-run`: what a plugin would write to a cluster is shown, and the cluster is only read.

use std::collections::BTreeSet;
use std::process::Command;

use super::pods::Witness;
use super::reload::{create_sets, scale, wait_converged};
use super::world::{CONTENDERS, World, built};
use crate::checkout::root;

#[test]
fn a_dry_run_shows_the_writes_and_only_reads_the_cluster() {
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
        .output()
        .unwrap();
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
