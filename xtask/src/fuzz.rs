//! `cargo xtask fuzz`: builds the fuzz targets with coverage counters and gives them to libFuzzer. What a target checks, and how
//! to add one, is in tests/fuzz/README.md. New inputs and failures are in target/fuzz; git has small inputs that reach most
//! of the code.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::checkout::{Checkout, execute, line, start};
use crate::summary::Tests;

/// The targets, in the order of tests/fuzz/src/lib.rs.
const TARGETS: [&str; 7] = ["config-map", "outcome", "admission", "conversion", "watch", "manifest", "http-response"];
/// How long a target runs unless a person says otherwise.
const SECONDS: u64 = 60;
/// How long it runs in the test suite, which finds what a change has broken: four times this in all, two at a time.
const TESTED_SECONDS: u64 = 40;
/// Targets of the test suite that run at once: CI has two cores.
const AT_ONCE: usize = 2;
/// Larger inputs find no other code, and make each run slower.
const MAX_INPUT_BYTES: u64 = 16 << 10;
/// An input that takes longer has found something without an end: most take less than a millisecond, and what is slow the targets
/// find by the processor's time, which a busy machine does not change.
const TIMEOUT_SECONDS: u64 = 60;
/// Slower inputs are kept as `slow-unit-*`.
const SLOW_SECONDS: u64 = 2;
/// The memory of the fuzzer, with its corpus: what it takes beside an input is some tens of MiB.
const MEMORY_MIB: u64 = 1_024;
/// The largest allocation of an input: a component that is unpacked is the largest thing that the host takes in one piece.
const ALLOCATION_MIB: u64 = 256;
/// The inputs of one target in git: a few hundred KiB in all, and the fuzzer finds the rest again within its minute.
const KEPT_INPUTS: usize = 100;
/// The largest of them.
const MAX_KEPT_BYTES: u64 = 8 << 10;
/// Lines of the output of a target that failed.
const SHOWN_LINES: usize = 60;

/// The passes of LLVM that count what is reached. They need no sanitizer, and so no nightly toolchain.
const FLAGS: [&str; 8] = [
    "--cfg",
    "fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Cllvm-args=-sanitizer-coverage-stack-depth",
];

/// What to do with a target.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Act {
    /// Look for new inputs.
    Run { seconds: u64 },
    /// Run one input.
    Input(String),
    /// Replace the corpus in git by the small inputs that reach most of what it and the new ones reach.
    Minimise,
}

/// Parses the arguments of `fuzz`; None when one is unknown.
pub(crate) fn options(args: &[&str]) -> Option<(&'static str, Act)> {
    let (name, rest) = args.split_first()?;
    let target = TARGETS.into_iter().find(|target| target == name)?;
    let act = match rest {
        [] => Act::Run { seconds: SECONDS },
        ["--seconds", seconds] => Act::Run { seconds: seconds.parse().ok()? },
        ["--minutes", minutes] => Act::Run { seconds: minutes.parse::<u64>().ok()?.checked_mul(60)? },
        ["--minimise"] => Act::Minimise,
        [file] if !file.starts_with('-') => Act::Input((*file).to_owned()),
        _ => return None,
    };
    Some((target, act))
}

pub(crate) fn run(checkout: &Checkout, target: &'static str, act: Act) -> Result<()> {
    let fuzzer = Fuzzer::build(checkout)?;
    match act {
        Act::Run { seconds } => execute(&mut fuzzer.run(target, seconds, &fuzzer.folder("corpus", target)?)?),
        Act::Input(file) => execute(fuzzer.command(target).arg(file)),
        Act::Minimise => fuzzer.minimise(target),
    }
}

/// Runs every target on its corpus, some at once, and says what each has done.
pub(crate) fn run_all(checkout: &Checkout) -> Result<Tests> {
    let fuzzer = Fuzzer::build(checkout)?;
    let mut tests = Tests::default();
    for targets in TARGETS.chunks(AT_ONCE) {
        let running = targets.iter().map(|target| fuzzer.begin(target)).collect::<Result<Vec<_>>>()?;
        for (target, mut child) in targets.iter().zip(running) {
            let status = child.wait().with_context(|| format!("wait for the target {target}"))?;
            let log = String::from_utf8_lossy(&fs::read(fuzzer.log(target)).unwrap_or_default()).into_owned();
            let stats = Stats::read(&log);
            println!("{target}: {} executions, {} edges, {status}", stats.executions, stats.edges);
            if status.success() && stats.executions > 0 {
                tests.passed += 1;
            } else {
                tests.failed += 1;
                println!("{}", end_of(&log));
            }
        }
    }
    Ok(tests)
}

struct Fuzzer<'a> {
    checkout: &'a Checkout,
    binary: PathBuf,
}

impl<'a> Fuzzer<'a> {
    fn build(checkout: &'a Checkout) -> Result<Self> {
        let (folder, host) = (checkout.target("fuzz"), host(checkout)?);
        let mut cargo = checkout.cargo();
        // For a target, even if it is the host's: flags then leave build scripts and macros alone.
        cargo.args(["build", "--package", "mortise-fuzz", "--features", "libfuzzer", "--profile", "fuzz"]);
        cargo.args(["--target", &host, "--target-dir"]).arg(&folder);
        execute(cargo.env("CARGO_ENCODED_RUSTFLAGS", FLAGS.join("\x1f"))).context(
            "build the fuzz targets; libFuzzer needs a C++ compiler, such as g++ or clang++, beside the C compiler",
        )?;
        Ok(Self { checkout, binary: folder.join(host).join("fuzz/mortise-fuzz") })
    }

    fn command(&self, target: &str) -> Command {
        let mut command = self.checkout.tool(&self.binary);
        command.env("MORTISE_FUZZ_TARGET", target);
        command.arg(format!("-timeout={TIMEOUT_SECONDS}")).arg(format!("-rss_limit_mb={MEMORY_MIB}"));
        command.arg(format!("-malloc_limit_mb={ALLOCATION_MIB}"));
        command
    }

    /// A folder below target/fuzz, which exists then.
    fn folder(&self, name: &str, target: &str) -> Result<PathBuf> {
        let folder = self.checkout.target("fuzz").join(name).join(target);
        fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
        Ok(folder)
    }

    fn corpus(&self, target: &str) -> PathBuf {
        self.checkout.path("tests/fuzz/corpus").join(target)
    }

    fn log(&self, target: &str) -> PathBuf {
        self.checkout.target("fuzz").join(format!("{target}.log"))
    }

    /// New inputs are written to the folder `found`, which git does not have, and which the corpus has too.
    fn run(&self, target: &str, seconds: u64, found: &Path) -> Result<Command> {
        let failures = self.folder("failures", target)?;
        let mut command = self.command(target);
        command.args(["-print_final_stats=1", "-reload=0"]);
        command.arg(format!("-max_total_time={seconds}")).arg(format!("-max_len={MAX_INPUT_BYTES}"));
        command.arg(format!("-report_slow_units={SLOW_SECONDS}"));
        command.arg(format!("-artifact_prefix={}/", failures.display()));
        let dictionary = self.checkout.path(format!("tests/fuzz/dictionaries/{target}.txt"));
        if dictionary.is_file() {
            command.arg(format!("-dict={}", dictionary.display()));
        }
        command.arg(found).arg(self.corpus(target));
        Ok(command)
    }

    /// The same inputs in the same order on every machine, as far as a minute lasts: the corpus of git, and one seed. A person's
    /// runs have others.
    fn begin(&self, target: &str) -> Result<Child> {
        let log = self.log(target);
        let log = File::create(&log).with_context(|| format!("create {}", log.display()))?;
        let found = self.folder("tested", target)?;
        fs::remove_dir_all(&found).and_then(|()| fs::create_dir(&found)).context("empty the corpus of the test")?;
        let mut command = self.run(target, TESTED_SECONDS, &found)?;
        command.arg("-seed=1");
        println!("{}", line(&command));
        start(command.stdout(Stdio::null()).stderr(log))
    }

    /// libFuzzer writes the inputs that add most first, so the first ones are kept.
    fn minimise(&self, target: &str) -> Result<()> {
        let (corpus, smallest) = (self.corpus(target), self.folder("smallest", target)?);
        fs::remove_dir_all(&smallest).with_context(|| format!("empty {}", smallest.display()))?;
        let smallest = self.folder("smallest", target)?;
        let mut command = self.command(target);
        command.args(["-set_cover_merge=1", "-use_counters=0"]).arg(format!("-max_len={MAX_KEPT_BYTES}"));
        execute(command.arg(&smallest).arg(&corpus).arg(self.folder("corpus", target)?))?;
        let mut inputs = Vec::new();
        for entry in fs::read_dir(&smallest).with_context(|| format!("list {}", smallest.display()))? {
            let entry = entry.with_context(|| format!("list {}", smallest.display()))?;
            inputs.push((entry.metadata().and_then(|of| of.modified()).context("read a file's time")?, entry.path()));
        }
        inputs.sort();
        fs::remove_dir_all(&corpus).and_then(|()| fs::create_dir(&corpus)).context("empty the corpus in git")?;
        for (_, input) in inputs.iter().take(KEPT_INPUTS) {
            let name = input.file_name().context("an input has no name")?;
            fs::copy(input, corpus.join(name)).with_context(|| format!("copy {}", input.display()))?;
        }
        println!("{}: {} inputs", self.checkout.shown(&corpus), inputs.len().min(KEPT_INPUTS));
        Ok(())
    }
}

/// The platform that rustc builds for by itself.
fn host(checkout: &Checkout) -> Result<String> {
    let output = checkout.tool("rustc").arg("-vV").output().context("run `rustc -vV`")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    let Some(host) = host else { bail!("`rustc -vV` names no host:\n{text}") };
    Ok(host.to_owned())
}

/// What libFuzzer says at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stats {
    executions: u64,
    /// Places of the code that the inputs reach.
    edges: u64,
}

impl Stats {
    fn read(log: &str) -> Self {
        let number = |text: &str| text.split_whitespace().next()?.parse().ok();
        let after = |line: &str, words: &str| line.split_once(words).and_then(|(_, rest)| number(rest));
        let last = |words: &str| log.lines().rev().find_map(|line| after(line, words)).unwrap_or(0);
        Self { executions: last("stat::number_of_executed_units:"), edges: last(" cov: ") }
    }
}

fn end_of(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_name_a_target_and_one_thing_to_do() {
        assert_eq!(options(&["watch"]), Some(("watch", Act::Run { seconds: 60 })));
        assert_eq!(options(&["watch", "--seconds", "5"]), Some(("watch", Act::Run { seconds: 5 })));
        assert_eq!(options(&["watch", "--minutes", "20"]), Some(("watch", Act::Run { seconds: 1_200 })));
        assert_eq!(options(&["outcome", "a/b"]), Some(("outcome", Act::Input("a/b".to_owned()))));
        assert_eq!(options(&["manifest", "--minimise"]), Some(("manifest", Act::Minimise)));
        for wrong in [&[][..], &["other"], &["watch", "--seconds"], &["watch", "--seconds", "x"], &["watch", "-x"]] {
            assert_eq!(options(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn the_targets_are_those_of_the_fuzz_package() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fuzz/src/lib.rs");
        let text = fs::read_to_string(file).unwrap();
        let names = text.split("Target { name: \"").skip(1).filter_map(|rest| rest.split('"').next());
        assert_eq!(names.collect::<Vec<_>>(), TARGETS);
    }

    #[test]
    fn executions_and_edges_are_read_from_the_end_of_the_output() {
        let log = "#2\tINITED cov: 9 ft: 10\n#512\tDONE   cov: 2345 ft: 9876 corp: 12/3Kb\nDone 512 runs in 61 second(s)\n\
                   stat::number_of_executed_units: 512\nstat::peak_rss_mb: 60\n";
        assert_eq!(Stats::read(log), Stats { executions: 512, edges: 2_345 });
        assert_eq!(Stats::read("==1== ERROR: libFuzzer: deadly signal"), Stats::default());
    }
}
