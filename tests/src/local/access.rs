//! Who may use a local cluster, and who may read what `mortise` writes: its user, and those to whom he gives credentials.

use std::path::{Path, PathBuf};

use kube::config::AuthInfo;
use serde_json::{Value, json};

use super::cluster::start;
use super::program::{Objects, Program, mortise, open_to_others};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const WHO: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

fn kubeconfig(folder: &Path) -> PathBuf {
    folder.join("kubeconfig")
}

fn token(token: &str) -> AuthInfo {
    AuthInfo { token: Some(token.to_owned().into()), ..AuthInfo::default() }
}

/// The name and the groups of the user as whom the cluster sees a client.
fn who(objects: &Objects) -> Value {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let (code, body) = objects.ask("POST", WHO, &review.to_string());
    assert_eq!(code, 201, "{body}");
    let info = serde_json::from_str::<Value>(&body).unwrap()["status"]["userInfo"].clone();
    json!([info["username"], info["groups"]])
}

#[test]
fn a_cluster_answers_none_but_those_who_have_credentials() {
    for (mode, code) in [("AlwaysAllow", 401), ("RBAC", 403)] {
        let folder = tempfile::tempdir().unwrap();
        let (program, objects) = start(folder.path(), &["--authorization-mode", mode]);
        assert_eq!(objects.ask("GET", SECRETS, "").0, 200);
        let nobody = Objects::with(&kubeconfig(folder.path()), AuthInfo::default());
        for (method, path) in
            [("GET", SECRETS), ("POST", SECRETS), ("DELETE", SECRETS), ("GET", "/api"), ("GET", "/metrics")]
        {
            assert_eq!(nobody.ask(method, path, "{}").0, code, "{mode}: {method} {path}");
        }
        for path in ["/livez", "/readyz", "/healthz", "/version"] {
            assert_eq!(nobody.ask("GET", path, "").0, 200, "{mode}: {path}");
        }
        let wrong = Objects::with(&kubeconfig(folder.path()), token("x.y.z"));
        assert_eq!((wrong.ask("GET", SECRETS, "").0, wrong.ask("GET", "/livez", "").0), (401, 401), "{mode}");
        program.stop();
    }
}

#[test]
fn the_ways_to_be_another_user_that_the_cluster_prints_work() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = folder.path().join("tokens");
    std::fs::write(&tokens, "the-token-of-jane,jane,1,\"devs,testers\"\n").unwrap();
    let (mut program, objects) = start(folder.path(), &["--token-auth-file", tokens.to_str().unwrap()]);
    let config = kubeconfig(folder.path());

    program.line("kubectl --as jane --as-group devs");
    let acting = Objects::changed(&config, |config| {
        config.auth_info.impersonate = Some("jane".to_owned());
        config.auth_info.impersonate_groups = Some(vec!["devs".to_owned()]);
    });
    assert_eq!(who(&acting), json!(["jane", ["devs", "system:authenticated"]]));

    program.line("kubectl create token robot");
    assert_eq!(objects.ask("POST", ACCOUNTS, r#"{"metadata": {"name": "robot"}}"#).0, 201);
    let (code, body) = objects.ask("POST", &format!("{ACCOUNTS}/robot/token"), r#"{"spec": {"audiences": []}}"#);
    assert_eq!(code, 201, "{body}");
    let made: Value = serde_json::from_str(&body).unwrap();
    let robot = Objects::with(&config, token(made["status"]["token"].as_str().unwrap()));
    assert_eq!(who(&robot)[0], "system:serviceaccount:default:robot");

    program.line("--token-auth-file FILE");
    let jane = Objects::with(&config, token("the-token-of-jane"));
    assert_eq!(who(&jane), json!(["jane", ["devs", "testers", "system:authenticated"]]));
    program.stop();
}

#[test]
fn all_that_a_cluster_writes_is_its_users_alone_whatever_the_umask() {
    let folder = tempfile::tempdir().unwrap();
    let (state, audit) = (folder.path().join("a/state"), folder.path().join("audit.jsonl"));
    let arguments = ["--state", state.to_str().unwrap(), "--audit-log-path", audit.to_str().unwrap()];
    for _ in 0..2 {
        let (program, objects) = start(folder.path(), &arguments);
        objects.ask("GET", SECRETS, "");
        for path in [&folder.path().join("a"), &kubeconfig(folder.path()), &audit] {
            assert_eq!(open_to_others(path), Vec::<PathBuf>::new());
        }
        program.stop();
    }
    // Not in a folder of all users, where another one may have put such a file before.
    let mut command = mortise(folder.path(), &["cluster"]);
    command.env("XDG_CACHE_HOME", folder.path().join("cache"));
    let mut program = Program::start(command);
    let file = folder.path().join("cache/mortise/cluster.kubeconfig");
    program.line(&format!("export KUBECONFIG={}", file.display()));
    assert_eq!(open_to_others(file.parent().unwrap()), Vec::<PathBuf>::new());
    program.stop();
}

#[test]
fn a_folder_of_state_that_others_may_write_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let made = std::process::Command::new("mkdir").args(["-m", "777", "state"]).current_dir(folder.path()).status();
    assert!(made.unwrap().success());
    let mut refused = Program::start(mortise(folder.path(), &["cluster", "--state", "state"]));
    refused.line("others may write into the folder state: chmod go-w it, or name another");
}
