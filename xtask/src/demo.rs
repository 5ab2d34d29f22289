//! `cargo xtask demo`: shows mortise through kubectl on a real control plane. It prints each kubectl command as it is
//! typed, with its output; every wait has a condition and a deadline. Each plugin has a demo in a file of its own, and
//! the small ones of the cookbook have one in common; this one selects them, and `cluster` is what they run on.

mod cluster;
mod cookbook;
mod crontab;
mod drain;
mod eru;
mod foo;
mod mydaemonset;
mod podset;

use anyhow::{Context, Result};

use crate::checkout::Checkout;
use crate::guests;
use crate::terminal::headline;

use cluster::{After, Cluster};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Length {
    /// The first one.
    Short,
    All,
}

/// The demo of one plugin. It may leave its sample's objects behind.
struct Demo {
    plugin: &'static str,
    run: fn(&Checkout, &Cluster) -> Result<()>,
}

/// In the order in which they run.
const DEMOS: &[Demo] = &[
    Demo { plugin: "podset", run: podset::run },
    Demo { plugin: "foo", run: foo::run },
    Demo { plugin: "mydaemonset", run: mydaemonset::run },
    Demo { plugin: "crontab", run: crontab::run },
    Demo { plugin: "eru", run: eru::run },
    Demo { plugin: "drain", run: drain::run },
    Demo { plugin: "memcached", run: cookbook::memcached },
    Demo { plugin: "bluegreen", run: cookbook::bluegreen },
    Demo { plugin: "janitor", run: cookbook::janitor },
    Demo { plugin: "tenancy", run: cookbook::tenancy },
    Demo { plugin: "expose", run: cookbook::expose },
    Demo { plugin: "replicator", run: cookbook::replicator },
    Demo { plugin: "password", run: cookbook::password },
];

/// Parses the arguments of `demo`; None when one is unknown.
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

/// Builds what is missing and runs the demos. On a failure it prints the end of the host's log and keeps all logs.
pub(crate) fn run(checkout: &Checkout, length: Length, after: After) -> Result<()> {
    headline("Building the plugins and the host");
    guests::build(checkout)?;
    let host = checkout.build_host(&[])?;
    let cluster = Cluster::start(checkout, &host)?;
    let demos = match length {
        Length::Short => &DEMOS[..1],
        Length::All => DEMOS,
    };
    match run_all(checkout, &cluster, demos) {
        Ok(()) => cluster.close(after),
        Err(error) => Err(cluster.fail(error)),
    }
}

/// Deletes what one demo left behind before the next begins, so that `kubectl get` shows one plugin alone.
fn run_all(checkout: &Checkout, cluster: &Cluster, demos: &[Demo]) -> Result<()> {
    for (at, demo) in demos.iter().enumerate() {
        (demo.run)(checkout, cluster).with_context(|| format!("run the demo of {}", demo.plugin))?;
        if at + 1 < demos.len() {
            cluster.clean_up(demo.plugin)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_accepted_in_any_order_and_others_are_refused() {
        assert_eq!(options(&[]), Some((Length::Short, After::End)));
        assert_eq!(options(&["--all"]), Some((Length::All, After::End)));
        assert_eq!(options(&["--keep", "--all"]), Some((Length::All, After::Keep)));
        assert_eq!(options(&["--al"]), None);
    }

    #[test]
    fn every_plugin_has_a_demo_and_a_sample() {
        let plugins = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../plugins");
        let demos = DEMOS.iter().map(|demo| demo.plugin.to_owned()).collect::<std::collections::BTreeSet<_>>();
        let entries = std::fs::read_dir(&plugins).unwrap().map(Result::unwrap);
        let samples = entries.filter(|entry| entry.path().join("sample.yaml").is_file());
        assert_eq!(demos, samples.map(|entry| entry.file_name().into_string().unwrap()).collect());
    }
}
