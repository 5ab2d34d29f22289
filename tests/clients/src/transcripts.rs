//! Transcripts of kubectl and helm: what the real control plane made them print is recorded in `transcripts/*.transcript`, and a
//! local cluster has to make them print the same. `MORTISE_RECORD=1` records first, which alone asks the real one: what it makes
//! them print depends on its speed too. `MORTISE_ONLY=NAME` takes one file;
//! `MORTISE_KUBECTL=PATH` takes another kubectl.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::thread;

use mortise_control_plane::{go_program, print_progress};
use similar::TextDiff;

use crate::cluster::{Cluster, Local, Real};
use crate::terminal::Terminal;
use crate::transcript::Transcript;

/// The one that needs helm.
const HELM: &str = "helm";
/// How often a transcript is run in which a step differs.
const RUNS: usize = 4;
/// What kubectl prints is its version's.
const RECORDED_WITH: &str = "v1.32.";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("transcripts")
}

fn transcripts(wanted: impl Fn(&str) -> bool) -> Vec<Transcript> {
    let only = std::env::var("MORTISE_ONLY").ok();
    let mut all = Transcript::all(&folder());
    all.retain(|found| wanted(found.name()) && only.as_deref().is_none_or(|only| only == found.name()));
    all
}

/// The folder of another kubectl than that on the PATH.
fn kubectl() -> Option<PathBuf> {
    Some(Path::new(&std::env::var_os("MORTISE_KUBECTL")?).parent().unwrap().to_owned())
}

/// What each step prints now.
fn printed(transcript: &Transcript, cluster: &dyn Cluster, programs: &[PathBuf]) -> Vec<String> {
    let terminal = Terminal::new(&cluster.within(transcript.name()), programs);
    transcript.steps.iter().map(|step| terminal.run(&step.command)).collect()
}

/// What a local cluster makes a transcript's commands print that the real control plane did not. Controllers move while kubectl
/// looks, on either: a step differs if it does so in each of some runs.
fn differences(transcript: &Transcript, programs: &[PathBuf]) -> String {
    let mut wrong = once(transcript, programs);
    for _ in 1..RUNS {
        if wrong.is_empty() {
            break;
        }
        let again = once(transcript, programs);
        wrong.retain(|step, _| again.contains_key(step));
    }
    wrong.into_values().collect()
}

/// The steps of one run that print something else than they should, by their number.
fn once(transcript: &Transcript, programs: &[PathBuf]) -> BTreeMap<usize, String> {
    let (local, mut wrong) = (Local::start(), BTreeMap::new());
    for (number, (step, is)) in transcript.steps.iter().zip(printed(transcript, &local, programs)).enumerate() {
        let (name, command) = (transcript.name(), &step.command);
        let text = match (is == step.printed, step.differs()) {
            (true, true) => format!("--- {name}: no difference any more: $ {command}\n\n"),
            (false, false) => {
                let diff = TextDiff::from_lines(&step.printed, &is).unified_diff().context_radius(3).to_string();
                format!("--- {name}: $ {command}\n{diff}\n")
            }
            _ => continue,
        };
        wrong.insert(number, text);
    }
    wrong
}

fn compare(transcripts: &[Transcript], programs: &[PathBuf]) {
    let wrong = thread::scope(|scope| {
        let running = transcripts.iter().map(|transcript| scope.spawn(|| differences(transcript, programs)));
        let running: Vec<_> = running.collect();
        running.into_iter().map(|one| one.join().unwrap()).collect::<String>()
    });
    let steps = transcripts.iter().flat_map(|transcript| &transcript.steps);
    println!(
        "{} steps, {} of them with a listed difference",
        steps.clone().count(),
        steps.filter(|s| s.differs()).count()
    );
    assert!(wrong.is_empty(), "(- real, + local)\n{wrong}");
}

fn record(transcripts: Vec<Transcript>, programs: &[PathBuf]) {
    let real = Real::start();
    for mut transcript in transcripts {
        let printed = printed(&transcript, &real, programs);
        for (step, is) in transcript.steps.iter_mut().zip(printed) {
            step.printed = is;
        }
        transcript.write();
    }
}

/// Whether there is a kubectl that prints what was recorded.
fn has_kubectl() -> bool {
    let version = std::process::Command::new("kubectl").args(["version", "--client"]).output();
    let version = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let same = version.contains(RECORDED_WITH) || kubectl().is_some();
    if !same {
        println!("SKIPPED: transcripts need kubectl {RECORDED_WITH}x on the PATH, not {version:?}");
    }
    same
}

/// Where kubectl is, if not on the PATH, and helm, if it is wanted.
fn programs(helm: bool) -> Vec<PathBuf> {
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("helm");
    let helm = helm.then(|| go_program(&module, "helm.sh/helm/v4/cmd/helm", "helm", &mut print_progress()).unwrap());
    kubectl().into_iter().chain(helm.map(|path| path.parent().unwrap().to_owned())).collect()
}

/// Compares with what is recorded, or records it first.
fn hold(wanted: impl Fn(&str) -> bool, helm: bool) {
    if !has_kubectl() {
        return;
    }
    let programs = programs(helm);
    if std::env::var_os("MORTISE_RECORD").is_some() {
        record(transcripts(&wanted), &programs);
    }
    compare(&transcripts(wanted), &programs);
}

#[test]
fn kubectl_prints_of_the_local_cluster_what_it_prints_of_the_real_one() {
    hold(|name| name != HELM, false);
}

#[test]
fn helm_installs_upgrades_rolls_back_and_removes_a_chart_as_on_the_real_one() {
    hold(|name| name == HELM, true);
}
