//! `cargo xtask demo`: what mortise is, told by kubectl on a real control plane. Each kubectl command is shown as it is
//! typed, with its own output; every wait is on a condition with a deadline. Each system has a story in a file of its own,
//! and this one says which are told; `stage` is what they are played on.

mod crontab;
mod drain;
mod eru;
mod foo;
mod mydaemonset;
mod podset;
mod stage;

use anyhow::{Context, Result};

use crate::checkout::Checkout;
use crate::guests;
use crate::terminal::headline;

use stage::{After, Stage};

/// How much is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Length {
    /// The first story.
    Short,
    /// Each system's in turn.
    All,
}

/// A system's story. It may leave its sample's objects behind.
struct Story {
    /// The system's folder under plugins/.
    plugin: &'static str,
    tell: fn(&Checkout, &Stage) -> Result<()>,
}

/// In the order in which they are told. A new plugin's is one more line and one more file.
const STORIES: &[Story] = &[
    Story { plugin: "podset", tell: podset::tell },
    Story { plugin: "foo", tell: foo::tell },
    Story { plugin: "mydaemonset", tell: mydaemonset::tell },
    Story { plugin: "crontab", tell: crontab::tell },
    Story { plugin: "eru", tell: eru::tell },
    Story { plugin: "drain", tell: drain::tell },
];

/// What follows `demo` on the command line; None when something else does.
pub(crate) fn options(args: &[&str]) -> Option<(Length, After)> {
    let (mut length, mut after) = (Length::Short, After::End);
    for arg in args {
        match *arg {
            "--all" => length = Length::All,
            "--keep" => after = After::Keep,
            _ => return None,
        }
    }
    Some((length, after))
}

/// Builds what is missing, and tells the stories. On a failure the end of the host's log is shown, and all logs are kept.
pub(crate) fn run(checkout: &Checkout, length: Length, after: After) -> Result<()> {
    headline("Building the plugins and the host");
    guests::build(checkout)?;
    let host = checkout.build_host()?;
    let stage = Stage::open(checkout, &host)?;
    let stories = match length {
        Length::Short => &STORIES[..1],
        Length::All => STORIES,
    };
    match tell(checkout, &stage, stories) {
        Ok(()) => stage.close(after),
        Err(error) => Err(stage.fail(error)),
    }
}

/// Each story in turn. What one has left behind goes before the next begins, so that `kubectl get` shows one system alone.
fn tell(checkout: &Checkout, stage: &Stage, stories: &[Story]) -> Result<()> {
    for (at, story) in stories.iter().enumerate() {
        let tell = || (story.tell)(checkout, stage);
        tell().with_context(|| format!("tell the story of {}", story.plugin))?;
        if at + 1 < stories.len() {
            stage.collect(story.plugin)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_taken_in_any_order_and_others_are_refused() {
        assert_eq!(options(&[]), Some((Length::Short, After::End)));
        assert_eq!(options(&["--all"]), Some((Length::All, After::End)));
        assert_eq!(options(&["--keep", "--all"]), Some((Length::All, After::Keep)));
        assert_eq!(options(&["--al"]), None);
    }

    #[test]
    fn every_plugin_has_a_story_and_a_sample() {
        let plugins = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../plugins");
        let told = STORIES.iter().map(|story| story.plugin.to_owned()).collect::<std::collections::BTreeSet<_>>();
        let entries = std::fs::read_dir(&plugins).unwrap().map(Result::unwrap);
        let there = entries.filter(|entry| entry.path().join("sample.yaml").is_file());
        let there = there.map(|entry| entry.file_name().into_string().unwrap()).collect();
        assert_eq!(told, there);
    }
}
