//! `mortise test`: builds plugins and runs their story files, `stories/*.yaml`, each in a cluster in this process. The work is in
//! mortise-stories.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Instant;

use anyhow::{Context, bail};
use clap::Args;
use mortise_core::digest;
use mortise_runtime::loader::Loader;
use mortise_runtime::log;
use mortise_stories::Guest;
use mortise_stories::report::{Case, junit};
use mortise_stories::script::{Script, check};
use mortise_wasm::compile::CompileError;
use mortise_wasm::engine::{EngineOptions, Pooling};

use self::guest::Component;
use crate::component::{not_loaded, read};
use crate::words;

mod guest;

/// The folder of a plugin's stories.
const STORIES: &str = "stories";

#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  mortise test                      the stories of the plugin of this folder
  mortise test plugins              those of all plugins of a workspace
  mortise test --update             record what the host does beside each story

A story is a YAML file in the plugin's folder stories: given objects, steps with the acts of others, and what must hold.
The real engine runs the component against a model of the cluster, in virtual time. Each story is run several times: with
the host started again, in another order, and with a crash after each write, of a long story after some of them; each must
end with the same objects.

Exit status:
  0 when all stories hold, 1 when one does not, or a plugin does not build.")]
pub struct TestArgs {
    /// Folders of plugins
    #[arg(value_name = "DIR", default_value = ".")]
    folders: Vec<PathBuf>,
    /// Write what the host did in each story into stories/NAME.txt, which later runs compare; what must hold in the story itself
    /// is for you to change
    #[arg(long)]
    update: bool,
    /// Write the results as JUnit's XML
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Take NAME.wasm from this folder instead of building the plugins
    #[arg(long, value_name = "DIR")]
    components: Option<PathBuf>,
    /// Folder for compiled plugins, as of `mortise run`
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
}

/// Runs all stories.
pub fn run(args: &TestArgs) -> ExitCode {
    match all(args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            log::print_error(&words::failure(&error));
            ExitCode::FAILURE
        }
    }
}

/// Whether every story holds.
fn all(args: &TestArgs) -> anyhow::Result<bool> {
    let loader = Loader::new(
        &crate::cache::folder(args.cache_dir.clone())?,
        EngineOptions { lines: true, pooling: Pooling::ProbeForOne, ..EngineOptions::default() },
    )?;
    let mut cases = Vec::new();
    for plugin in mortise_dev::components(&args.folders, args.components.as_deref())? {
        let files = stories(&plugin.folder)?;
        if files.is_empty() {
            words::print(&format!("{}: no stories in {}\n", plugin.name, plugin.folder.join(STORIES).display()))?;
            continue;
        }
        let bytes = read(&plugin.file)?;
        let loaded = loader.load(&digest::of(&bytes), || Ok::<_, CompileError>(&bytes));
        let loaded = loaded.map_err(|error| not_loaded(error, &plugin.file))?;
        let guest: Rc<dyn Guest> = Rc::new(Component(loaded.plugin));
        for file in files {
            let (case, runs) = story(&plugin.name, &file, &guest, args.update)?;
            words::print(&shown(&case, &runs, &file))?;
            cases.push(case);
        }
    }
    if cases.is_empty() {
        bail!("there is no story; write one as stories/NAME.yaml in a plugin's folder");
    }
    if let Some(file) = &args.junit {
        std::fs::write(file, junit(&cases)).with_context(|| format!("cannot write {}", file.display()))?;
    }
    let failed = cases.iter().filter(|case| !case.failures.is_empty()).count();
    words::print(&format!("{} stories, {failed} failed\n", cases.len()))?;
    Ok(failed == 0)
}

/// The story files of a plugin, sorted.
fn stories(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let folder = folder.join(STORIES);
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let entries = std::fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml" || extension == "yml"));
    files.sort();
    Ok(files)
}

/// Runs one story, and records its transcript if asked to. Also says what was run.
fn story(plugin: &str, file: &Path, guest: &Rc<dyn Guest>, update: bool) -> anyhow::Result<(Case, String)> {
    let began = Instant::now();
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let transcript = file.with_extension("txt");
    let recorded = if update { None } else { std::fs::read_to_string(&transcript).ok() };
    let (failures, runs) = match Script::parse(&text) {
        Err(why) => (vec![why], "no run".to_owned()),
        Ok(script) => {
            let checked = check(&script, recorded.as_deref(), guest);
            if update && !checked.transcript.is_empty() {
                std::fs::write(&transcript, &checked.transcript)
                    .with_context(|| format!("cannot write {}", transcript.display()))?;
            }
            let (crashes, writes) = checked.crashes;
            (checked.failures, format!("runs: {}, crashes after {crashes} of {writes} writes", checked.runs))
        }
    };
    Ok((Case { plugin: plugin.to_owned(), story: name, elapsed: began.elapsed(), failures }, runs))
}

fn shown(case: &Case, runs: &str, file: &Path) -> String {
    let (plugin, story) = (&case.plugin, &case.story);
    let seconds = case.elapsed.as_secs_f64();
    if case.failures.is_empty() {
        return format!("{plugin}: {story}: ok, {seconds:.3} s, {runs}\n");
    }
    let failures = case.failures.iter().map(|failure| format!("  {}\n", failure.trim_end().replace('\n', "\n  ")));
    format!("{plugin}: {story}: FAILED, {seconds:.3} s, {runs}\n{}:\n{}", file.display(), failures.collect::<String>())
}
