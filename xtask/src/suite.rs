//! `cargo xtask test`: runs every check of the project, each under a headline with its time. A failed step stops only
//! those that need it; the summary counts all.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write, stdout};
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::checkout::{Checkout, execute, line, start};
use crate::guests::{PLUGINS, TEST_GUESTS, target_dir};
use crate::summary::{Line, Summary, Tests};
use crate::terminal::{headline, time};
use crate::{control_plane, deny, fuzz, generated, guests};

/// The package of the integration tests: tidy, scenarios, simulation, end to end. They need everything built first.
const INTEGRATION: &str = "mortise-tests";

/// Top-level modules that the integration tests must have; the list of tests reveals new ones. A missing one would
/// silently turn off all of its checks.
const GROUPS: [&str; 6] = ["tidy", "outcomes", "scenarios", "simulation", "local", "e2e"];

/// The numbers of the end-to-end tests in a full run, as for a release. The tests' defaults are smaller and take
/// seconds.
const FULL: [(&str, &str); 15] = [
    ("MORTISE_E2E_KILLS", "100"),
    ("MORTISE_E2E_RELOAD_SETS", "200"),
    ("MORTISE_E2E_RELOADS", "20"),
    ("MORTISE_E2E_QUIET_SETS", "300"),
    ("MORTISE_E2E_IDLE_S", "60"),
    ("MORTISE_E2E_OUTAGE_S", "60"),
    ("MORTISE_E2E_NODES", "50"),
    ("MORTISE_E2E_NODES_S", "120"),
    ("MORTISE_E2E_PAUSE_S", "60"),
    ("MORTISE_E2E_TICKS", "10"),
    ("MORTISE_E2E_CREATES", "1000"),
    ("MORTISE_E2E_CRONTABS", "200"),
    ("MORTISE_E2E_CRON_MINUTES", "10"),
    ("MORTISE_E2E_HOSTILES", "1000"),
    ("MORTISE_E2E_ATTACK_S", "600"),
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Extent {
    /// Finds most mistakes; for every change.
    Quick,
    /// For a release.
    Full,
}

impl Extent {
    /// The environment variables to set; existing ones take precedence.
    fn variables(self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let all = match self {
            Self::Quick => &[][..],
            Self::Full => &FULL,
        };
        all.iter().copied().filter(|(name, _)| std::env::var_os(name).is_none())
    }
}

/// What the tests that need a control plane run on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RunOn {
    /// Binaries that Go builds.
    Kubernetes,
    /// `mortise cluster`.
    Local,
}

/// Tests that need what a local cluster has not, with the reason. With `--on local` they do not run, and the end of the
/// output says so.
const ONLY_ON_KUBERNETES: [(&str, &str); 8] = [
    ("the_real_one_answers_as_recorded", "it asks kube-apiserver itself"),
    (
        "x7_the_lease_of_the_deployed_host_has_the_priority_level_of_leader_election",
        "a local cluster has neither priority levels nor queues",
    ),
    (
        "with_an_authority_of_clients_the_api_servers_reviews_are_answered_and_those_of_others_refused",
        "a local cluster shows webhooks no certificate",
    ),
    (
        "a_certificate_of_another_authority_or_name_ends_the_handshake_and_kubectl_says_so",
        "a local cluster shows webhooks no certificate",
    ),
    ("kstatus_reads_stalled_before_reconciling_before_ready", "kstatus is a Go module"),
    ("kstatus_sees_of_a_plugin_whether_its_newest_version_comes_up_serves_or_was_refused", "kstatus is a Go module"),
    ("x12_whatever_stalls_an_object_kstatus_and_kubectl_wait_see_it", "kstatus is a Go module"),
    ("x12_so_do_they_with_a_child_whose_name_is_taken_and_one_that_is_refused", "kstatus is a Go module"),
];

impl RunOn {
    fn variables(self) -> impl Iterator<Item = (&'static str, &'static str)> {
        (self == Self::Local).then_some(("MORTISE_E2E_ON", "local")).into_iter()
    }

    /// The names of tests that cannot run on it, with the reason.
    fn skipped(self) -> &'static [(&'static str, &'static str)] {
        if self == Self::Local { &ONLY_ON_KUBERNETES } else { &[] }
    }

    /// Groups of tests without those that cannot run on it.
    fn runnable(self, mut groups: BTreeMap<String, Vec<String>>) -> BTreeMap<String, Vec<String>> {
        let runs = |test: &String| !self.skipped().iter().any(|(name, _)| test.ends_with(name));
        groups.values_mut().for_each(|tests| tests.retain(runs));
        groups.retain(|_, tests| !tests.is_empty());
        groups
    }
}

enum Act {
    Check(fn(&Checkout) -> Result<()>),
    Tests(fn(&Checkout) -> Command),
    Fuzz,
    Integration,
}

struct Step {
    name: &'static str,
    about: &'static str,
    needs: &'static [&'static str],
    act: Act,
}

/// In the order in which they run: steps that fail fast first, and each after those that it needs.
const STEPS: &[Step] = &[
    step("fmt", "formatting", &[], Act::Check(format)),
    step("clippy", "lints, warnings are errors", &[], Act::Check(clippy)),
    step("deny", "licences, sources, duplicates and advisories of dependencies", &[], Act::Check(deny::check)),
    step("guests", "plugins and the tests' guests", &[], Act::Check(guests::build)),
    step("host", "the binary mortise", &[], Act::Check(|checkout| checkout.build_host(&[]).map(drop))),
    step("gen", "generated files", &["host"], Act::Check(generated::check)),
    step("control-plane", "control plane binaries", &[], Act::Check(|_| control_plane::binaries().map(drop))),
    step("unit", "tests of every crate", BUILT, Act::Tests(unit)),
    step("plugins", "native tests of the plugins", &[], Act::Tests(plugins)),
    step("stories", "stories of the plugins", &["guests", "host"], Act::Check(stories)),
    step("integration", "integration tests", BUILT, Act::Integration),
    step("fuzz", "fuzz targets, a minute each", &[], Act::Fuzz),
];

/// The steps that build what tests run.
const BUILT: &[&str] = &["guests", "host", "control-plane"];

const fn step(name: &'static str, about: &'static str, needs: &'static [&'static str], act: Act) -> Step {
    Step { name, about, needs, act }
}

/// Runs all steps, or those that `filter` selects with their needs. Prints the summary last.
pub(crate) fn run(checkout: &Checkout, filter: Option<&str>, extent: Extent, run_on: RunOn) -> Result<ExitCode> {
    let began = Instant::now();
    let (mut selected, tests) = select(filter);
    if run_on == RunOn::Local {
        selected.remove("control-plane");
    }
    let mut suite = Suite { checkout, extent, run_on, summary: Summary::default(), broken: BTreeSet::new() };
    for step in STEPS.iter().filter(|step| selected.contains(step.name)) {
        match step.act {
            Act::Check(check) => suite.step(step, step.name, || Outcome::of_check(check(checkout))),
            Act::Tests(command) => {
                let skipped = run_on.skipped().iter().flat_map(|(test, _)| ["--skip", *test]);
                let arguments = ["--"].into_iter().chain(skipped);
                suite.step(step, step.name, || run_tests(command(checkout).envs(run_on.variables()).args(arguments)));
            }
            Act::Integration => suite.integration(step, tests),
            Act::Fuzz => suite.step(step, step.name, || Outcome::of_targets(fuzz::run_all(checkout))),
        }
    }
    print!("\n{}{}", skipped_text(run_on.skipped()), suite.summary.text(began.elapsed()));
    stdout().flush().context("write the summary")?;
    Ok(if suite.summary.failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The names of the steps to run, and the filter for the integration tests. A filter that names no step is a part of
/// the names of integration tests.
fn select(filter: Option<&str>) -> (BTreeSet<&'static str>, Option<&str>) {
    let named = |name: &str| STEPS.iter().find(|step| step.name == name);
    let (mut wanted, tests) = match filter {
        None => (STEPS.iter().collect::<Vec<_>>(), None),
        Some(filter) => match named(filter) {
            Some(step) => (vec![step], None),
            None => (named("integration").into_iter().collect(), Some(filter)),
        },
    };
    let mut selected = BTreeSet::new();
    while let Some(step) = wanted.pop() {
        if selected.insert(step.name) {
            wanted.extend(step.needs.iter().filter_map(|name| named(name)));
        }
    }
    (selected, tests)
}

struct Outcome {
    tests: Option<Tests>,
    error: Option<String>,
}

impl Outcome {
    fn of_check(result: Result<()>) -> Self {
        Self { tests: None, error: result.err().map(|error| format!("{error:#}")) }
    }

    fn of_targets(result: Result<Tests>) -> Self {
        match result {
            Ok(tests) if tests.failed == 0 => Self { tests: Some(tests), error: None },
            Ok(tests) => {
                let error =
                    format!("{} of {} targets failed; target/fuzz/failures has the inputs", tests.failed, tests.ran());
                Self { tests: Some(tests), error: Some(error) }
            }
            Err(error) => Self::failed(format!("{error:#}")),
        }
    }

    fn failed(error: impl Into<String>) -> Self {
        Self { tests: None, error: Some(error.into()) }
    }
}

struct Suite<'a> {
    checkout: &'a Checkout,
    extent: Extent,
    run_on: RunOn,
    summary: Summary,
    /// Failed steps; the steps that need them do not run.
    broken: BTreeSet<&'static str>,
}

impl Suite<'_> {
    fn step(&mut self, step: &Step, name: &str, act: impl FnOnce() -> Outcome) {
        headline(&format!("{name}: {}", step.about));
        let began = Instant::now();
        let Outcome { tests, error } = match step.needs.iter().find(|need| self.broken.contains(*need)) {
            Some(need) => Outcome::failed(format!("not run, since {need} failed")),
            None => act(),
        };
        let elapsed = began.elapsed();
        match &error {
            None => println!("{name}: ok, {}", time(elapsed)),
            Some(error) => {
                println!("{name}: FAILED, {}: {error}", time(elapsed));
                self.broken.insert(step.name);
            }
        }
        self.summary.add(Line { name: name.to_owned(), tests, error, elapsed });
    }

    /// Runs each top-level module of the integration tests as a step of its own. The test binary lists them, so none is
    /// forgotten; required ones that are missing fail.
    fn integration(&mut self, step: &Step, filter: Option<&str>) {
        let blocked = step.needs.iter().any(|need| self.broken.contains(need));
        let groups = if blocked { Ok(BTreeMap::new()) } else { integration_groups(self.checkout, filter) };
        match groups.map(|groups| self.run_on.runnable(groups)) {
            Ok(groups) if !groups.is_empty() => {
                let required = if filter.is_none() { missing(&groups) } else { Vec::new() };
                for group in required {
                    let error = format!("the package {INTEGRATION} has no tests in the module `{group}`");
                    self.step(step, group, || Outcome::failed(error));
                }
                for (group, tests) in groups {
                    let mut command = integration(self.checkout);
                    command
                        .envs(self.extent.variables())
                        .envs(self.run_on.variables())
                        .args(["--", "--exact"])
                        .args(tests);
                    self.step(step, &group, || run_tests(&mut command));
                }
            }
            Ok(_) => self.step(step, step.name, || Outcome::failed(nothing_to_run(filter))),
            Err(error) => self.step(step, step.name, || Outcome::failed(format!("{error:#}"))),
        }
    }
}

fn skipped_text(skipped: &[(&str, &str)]) -> String {
    let lines = skipped.iter().map(|(test, reason)| format!("    {test}: {reason}\n")).collect::<String>();
    let count = skipped.len();
    if count == 0 { lines } else { format!("{count} tests do not run on a local cluster:\n{lines}") }
}

fn nothing_to_run(filter: Option<&str>) -> String {
    let steps = STEPS.iter().map(|step| step.name).collect::<Vec<_>>().join(", ");
    match filter {
        Some(filter) => format!("`{filter}` is neither a step ({steps}) nor a part of an integration test's name"),
        None => format!("the package {INTEGRATION} has no tests"),
    }
}

fn format(checkout: &Checkout) -> Result<()> {
    for workspace in [".", PLUGINS, TEST_GUESTS] {
        execute(checkout.cargo().args(["fmt", "--all", "--check"]).current_dir(checkout.path(workspace)))
            .with_context(|| format!("{workspace} is not formatted: run `cargo fmt --all` there"))?;
    }
    Ok(())
}

fn clippy(checkout: &Checkout) -> Result<()> {
    execute(checkout.cargo().args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))?;
    // Natively, as a plugin's tests run.
    for workspace in [PLUGINS, TEST_GUESTS] {
        let mut guests = checkout.cargo();
        guests.args(["clippy", "--workspace", "--all-targets", "--locked", "--target-dir"]).arg(target_dir(checkout));
        execute(guests.args(["--", "-D", "warnings"]).current_dir(checkout.path(workspace)))?;
    }
    Ok(())
}

fn unit(checkout: &Checkout) -> Command {
    let mut command = checkout.cargo();
    command.args(["test", "--no-fail-fast", "--workspace", "--exclude", INTEGRATION]);
    command
}

fn plugins(checkout: &Checkout) -> Command {
    let mut command = checkout.cargo();
    command.args(["test", "--no-fail-fast", "--workspace", "--locked", "--target-dir"]).arg(target_dir(checkout));
    command.current_dir(checkout.path(PLUGINS));
    command
}

fn stories(checkout: &Checkout) -> Result<()> {
    let mut command = Command::new(checkout.build_host(&[])?);
    command.args(["test", PLUGINS, "--components"]).arg(checkout.target("plugins"));
    execute(command.current_dir(checkout.path(".")))
}

fn integration(checkout: &Checkout) -> Command {
    let mut command = checkout.cargo();
    // Of the whole workspace, so that no dependency is compiled again with fewer features.
    command.args(["test", "--workspace", "--test", "it"]);
    command
}

/// The integration tests whose names contain `filter`, by top-level module.
fn integration_groups(checkout: &Checkout, filter: Option<&str>) -> Result<BTreeMap<String, Vec<String>>> {
    let mut command = integration(checkout);
    command.args(["--", "--list", "--format=terse"]).args(filter).stdout(Stdio::piped());
    let output = start(&mut command)?.wait_with_output().with_context(|| format!("run `{}`", line(&command)))?;
    if !output.status.success() {
        bail!("`{}` failed ({})", line(&command), output.status);
    }
    Ok(groups(&String::from_utf8_lossy(&output.stdout)))
}

/// Parses lines such as `e2e::reload::a_name: test`.
fn groups(list: &str) -> BTreeMap<String, Vec<String>> {
    let mut groups = BTreeMap::<String, Vec<String>>::new();
    for test in list.lines().filter_map(|line| line.strip_suffix(": test")) {
        let group = test.split("::").next().unwrap_or(test);
        groups.entry(group.to_owned()).or_default().push(test.to_owned());
    }
    groups
}

fn missing(groups: &BTreeMap<String, Vec<String>>) -> Vec<&'static str> {
    GROUPS.into_iter().filter(|group| !groups.contains_key(*group)).collect()
}

/// Runs a test harness with its output shown, and counts its tests. It fails if no test ran: a filter or a moved module
/// must not turn off a check unnoticed.
fn run_tests(command: &mut Command) -> Outcome {
    match count_tests(command) {
        Err(error) => Outcome::failed(format!("{error:#}")),
        Ok((tests, status)) => {
            let error = match tests {
                Tests { failed, .. } if failed > 0 => Some(format!("{failed} of {} tests failed", tests.ran())),
                _ if !status.success() => Some(format!("`{}` failed ({status})", line(command))),
                Tests { passed: 0, .. } => Some("no test ran".to_owned()),
                Tests { .. } => None,
            };
            Outcome { tests: Some(tests), error }
        }
    }
}

fn count_tests(command: &mut Command) -> Result<(Tests, ExitStatus)> {
    let mut child = start(command.stdout(Stdio::piped()))?;
    let output = child.stdout.take().context("read the output of the tests")?;
    let mut tests = Tests::default();
    for bytes in BufReader::new(output).split(b'\n') {
        // A test may print anything, also invalid UTF-8.
        let text = String::from_utf8_lossy(&bytes.context("read the output of the tests")?).into_owned();
        tests.count(&text);
        println!("{text}");
    }
    let status = child.wait().with_context(|| format!("wait for `{}`", line(command)))?;
    Ok((tests, status))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn every_step_comes_after_those_that_it_needs() {
        for (i, step) in STEPS.iter().enumerate() {
            for need in step.needs {
                assert!(STEPS[..i].iter().any(|earlier| earlier.name == *need), "{} needs {need}", step.name);
            }
        }
    }

    #[test]
    fn a_filter_selects_a_step_with_its_needs_or_integration_tests_by_name() {
        assert_eq!(select(None).0.len(), STEPS.len());
        assert_eq!(select(Some("gen")), (BTreeSet::from(["gen", "host"]), None));
        let integration = BTreeSet::from(["integration", "guests", "host", "control-plane"]);
        assert_eq!(select(Some("e2e")), (integration, Some("e2e")));
    }

    #[test]
    fn every_number_of_a_full_run_is_read_by_an_end_to_end_test() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/src/e2e");
        let files =
            std::fs::read_dir(folder).unwrap().map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap());
        let tests = files.collect::<String>();
        for (name, _) in FULL {
            assert!(tests.contains(&format!("count_from_env(\"{name}\"")), "no test reads {name}");
        }
        assert_eq!(Extent::Quick.variables().count(), 0);
    }

    #[test]
    fn every_test_that_is_skipped_exists_and_is_named() {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests");
        let files = [
            "conformance/src/lib.rs",
            "control-plane/tests/kstatus.rs",
            "src/e2e/deploy.rs",
            "src/e2e/stalled.rs",
            "src/e2e/plugin_objects.rs",
            "src/e2e/webhook_clients.rs",
        ];
        let text = files.map(|file| std::fs::read_to_string(tests.join(file)).unwrap()).concat();
        let shown = skipped_text(RunOn::Local.skipped());
        for (name, _) in ONLY_ON_KUBERNETES {
            assert!(text.contains(&format!("fn {name}()")) && shown.contains(name), "{name}");
        }
        assert_eq!(skipped_text(RunOn::Kubernetes.skipped()), "");
        let all = groups(&format!("a::{}: test\nb::c: test\n", ONLY_ON_KUBERNETES[0].0));
        assert_eq!(RunOn::Local.runnable(all.clone()), groups("b::c: test\n"));
        assert_eq!(RunOn::Kubernetes.runnable(all.clone()), all);
    }

    #[test]
    fn integration_tests_are_grouped_by_their_module() {
        let found = groups("e2e::a: test\ntidy::b: test\ne2e::deep::c: test\nalone: test\n\n0 benchmarks\n");
        let names = found.iter().map(|(group, tests)| (group.as_str(), tests.len())).collect::<Vec<_>>();
        assert_eq!(names, [("alone", 1), ("e2e", 2), ("tidy", 1)]);
    }

    #[test]
    fn missing_groups_of_integration_tests_are_found() {
        let some = groups("e2e::a: test\ntidy::b: test\nsimulation::tests::c: test\nnew::d: test\n");
        assert_eq!(missing(&some), ["outcomes", "scenarios", "local"]);
        let all = groups(&GROUPS.map(|group| format!("{group}::a: test\n")).concat());
        assert!(missing(&all).is_empty());
    }

    #[test]
    fn a_harness_that_runs_no_test_fails_its_step() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo 'test result: ok. 0 passed; 0 failed; 0 ignored'"]);
        assert_eq!(run_tests(&mut command).error.as_deref(), Some("no test ran"));
        let mut command = Command::new("sh");
        command.args(["-c", "echo 'test result: ok. 3 passed; 0 failed; 0 ignored'; exit 1"]);
        let outcome = run_tests(&mut command);
        assert!(outcome.error.is_some() && outcome.tests == Some(Tests { passed: 3, failed: 0 }));
    }
}
