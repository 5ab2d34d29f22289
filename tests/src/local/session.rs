//! `mortise new` and `mortise dev`: from an empty folder to a plugin that is edited while it runs.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use kube::api::{Patch, PatchParams};
use kube::config::AuthInfo;
use serde_json::json;

use super::program::{Objects, Program, mortise, open_to_others, until};
use crate::checkout::root;

struct Session {
    program: Program,
    objects: Objects,
    source: PathBuf,
}

impl Session {
    /// A new plugin that serves, in a session of its own.
    fn of_a_new_plugin(folder: &Path) -> Self {
        let sdk = root().join("guest-sdk/rust");
        let made = mortise(folder, &["new", "web-site", "--sdk", sdk.to_str().unwrap()]).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        // The versions of the other plugins: nothing new has to be fetched.
        std::fs::copy(root().join("plugins/Cargo.lock"), folder.join("web-site/Cargo.lock")).unwrap();
        let mut command = mortise(folder, &["dev", "web-site", "--plain"]);
        // Kept between runs of this test.
        command.env("CARGO_TARGET_DIR", root().join("target/new-plugin"));
        let mut program = Program::start(command);
        program.line("local cluster at https://127.0.0.1:");
        program.line("web-site: serves");
        let objects = Objects::of(&folder.join(".mortise/kubeconfig"));
        Self { program, objects, source: folder.join("web-site/src/lib.rs") }
    }

    /// Saves the source with one text in the place of another.
    fn edit(&self, old: &str, new: &str) {
        let source = std::fs::read_to_string(&self.source).unwrap();
        assert!(source.contains(old), "no {old:?} in the template:\n{source}");
        std::fs::write(&self.source, source.replace(old, new)).unwrap();
    }

    fn scale(&self, replicas: usize) {
        let sites = self.objects.api("example.com/v1alpha1", "WebSite");
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        self.objects.block_on(sites.patch("example", &PatchParams::default(), &patch)).unwrap();
    }

    fn until_run(&self, pods: usize) {
        until(&format!("{pods} Pods run"), || (self.objects.running_pods().len() == pods).then_some(()));
    }

    /// The reason of the sample's condition Ready.
    fn until_reason(&self, reason: &str) {
        let sites = self.objects.api("example.com/v1alpha1", "WebSite");
        until(&format!("the reason is {reason}"), || {
            let site = self.objects.block_on(sites.get("example")).unwrap();
            let conditions = site.data["status"]["conditions"].as_array()?.clone();
            conditions.iter().any(|it| it["type"] == "Ready" && it["reason"] == reason).then_some(())
        });
    }
}

#[test]
fn what_a_session_keeps_is_its_users_alone_and_its_cluster_answers_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join(".mortise");
    // As a former session of another mode left it.
    std::fs::DirBuilder::new().mode(0o755).create(&kept).unwrap();
    std::fs::write(kept.join("host.log"), "old").unwrap();
    let session = Session::of_a_new_plugin(folder.path());
    let open = open_to_others(&kept);
    assert_eq!(open, std::slice::from_ref(&kept), "all but the folder, which others may not write");
    assert!(!std::fs::read_to_string(kept.join("host.log")).unwrap().starts_with("old"));
    let nobody = Objects::with(&kept.join("kubeconfig"), AuthInfo::default());
    assert_eq!(nobody.ask("GET", "/api/v1/secrets", "").0, 401);
    assert_eq!(nobody.ask("GET", "/apis/example.com/v1alpha1/websites", "").0, 401);
    session.program.stop();
}

#[test]
fn a_new_plugin_is_edited_while_it_serves() {
    let folder = tempfile::tempdir().unwrap();
    let mut session = Session::of_a_new_plugin(folder.path());
    session.until_run(3);
    session.until_reason("Counted");

    session.edit("\"Counted\"", "\"Recounted\"");
    let swapped = session.program.line("web-site: serves, ");
    assert!(swapped.contains("after the save (cargo "), "{swapped}");
    session.until_reason("Recounted");

    session.edit("let running = pods", "let running: String = pods");
    session.program.line("web-site: does not build; the version before serves on");
    session.program.line("error[E0308]: mismatched types");
    session.scale(4);
    session.until_run(4);

    session
        .edit("let running: String = pods", "assert!(pods.len() < 4, \"four are too many\");\n    let running = pods");
    session.program.line("web-site: serves, ");
    let source = std::fs::read_to_string(&session.source).unwrap();
    let number = 1 + source.lines().position(|line| line.contains("four are too many")).unwrap();
    session.program.line(&format!("panicked at src/lib.rs:{number}:"));
    let frame = session.program.line(&format!("src/lib.rs:{number}:"));
    assert!(frame.trim_start().starts_with("at "), "a frame of the backtrace has its line: {frame}");
    session.program.stop();
}
