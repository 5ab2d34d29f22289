//! Whether the host lives and is ready, in the words of kube-apiserver's own probes, so that people and tools who know
//! `/readyz?verbose` there can read it here.
//!
//! Live: the event loop is in no step that does not end. Ready: the sources were read once, the plugins that they had then
//! have begun to serve, and the kinds of every plugin that serves were listed, as was the host's own; so the host that is
//! replaced by this one ends only when this one can answer for its webhooks. A plugin that was refused, that something holds
//! up, or that came later is shown and makes nobody unready: the others serve, and a restart would not help it.

use mortise_core::engine::{Health, PluginHealth};

/// Where the host is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Plugins that it found when it began do not serve yet.
    Starting,
    /// It is what it will be.
    Running,
    /// It has been told to end.
    Ending,
}

/// One line of a verbose answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Check {
    /// "sources", "plugin/podset".
    pub name: String,
    /// None when it is well, else why not.
    pub failure: Option<String>,
    /// Whether the whole fails with it.
    pub required: bool,
}

/// The answer to one probe.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// True for status 200, false for 500.
    pub passed: bool,
    /// The body.
    pub text: String,
}

impl Check {
    fn required(name: impl Into<String>, failure: Option<String>) -> Self {
        Self { name: name.into(), failure, required: true }
    }
}

/// The answer of `/healthz`: `loop_failure` says why the event loop does not turn.
pub fn live(loop_failure: Option<String>, verbose: bool) -> Answer {
    answer("healthz", &[Check::required("event-loop", loop_failure)], verbose)
}

/// Whether there is something to wait for before the host can do what it is there for.
pub fn is_starting(health: &Health) -> bool {
    !health.sources_listed || health.plugins.iter().any(is_on_its_way)
}

/// A first version that is being compiled, registered or listed for, with nothing in its way.
fn is_on_its_way(plugin: &PluginHealth) -> bool {
    plugin.digest.is_none() && plugin.loading && plugin.reason == "Starting"
}

/// The answer of `/readyz`.
pub fn ready(health: &Health, phase: Phase, verbose: bool) -> Answer {
    let mut checks = vec![
        Check::required("event-loop", None),
        Check::required("shutdown", (phase == Phase::Ending).then(|| "the host is ending".to_owned())),
        Check::required("sources", (!health.sources_listed).then(|| "not listed yet".to_owned())),
    ];
    // Which of the two it is makes nobody unready: a host that stands by is where it should be.
    match health.leads {
        Some(true) => checks.push(Check::required("leader-election/leader", None)),
        Some(false) => checks.push(Check::required("leader-election/standby", None)),
        None => {}
    }
    for (kind, why) in &health.unlisted {
        let why = why.clone().unwrap_or_else(|| "not listed yet".to_owned());
        checks.push(Check::required(format!("kind/{kind}"), Some(why)));
    }
    for plugin in &health.plugins {
        let failure = (!plugin.ready).then(|| format!("{}: {}", plugin.reason, plugin.message));
        let required = phase == Phase::Starting && is_on_its_way(plugin);
        checks.push(Check { name: format!("plugin/{}", plugin.name), failure, required });
    }
    answer("readyz", &checks, verbose)
}

/// The answer of `/readyz` when the event loop does not turn.
pub fn unanswered(failure: String) -> Answer {
    answer("readyz", &[Check::required("event-loop", Some(failure))], true)
}

/// The text of an answer. Without `verbose` a good one is just "ok"; a bad one always names every check.
fn answer(probe: &str, checks: &[Check], verbose: bool) -> Answer {
    let passed = checks.iter().all(|check| check.failure.is_none() || !check.required);
    if passed && !verbose {
        return Answer { passed, text: "ok".to_owned() };
    }
    let mut text = String::new();
    for check in checks {
        match &check.failure {
            None => text.push_str(&format!("[+]{} ok\n", check.name)),
            Some(why) => text.push_str(&format!("[-]{} failed: {}\n", check.name, why.replace('\n', " "))),
        }
    }
    text.push_str(&format!("{probe} check {}\n", if passed { "passed" } else { "failed" }));
    Answer { passed, text }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mortise_core::digest::Digest;
    use mortise_core::engine::PluginHealth;
    use mortise_core::object::Kind;

    use super::*;

    fn plugin(name: &str, ready: bool, reason: &str, message: &str) -> PluginHealth {
        PluginHealth {
            name: name.into(),
            digest: ready.then(|| Digest(Arc::from("sha256:00"))),
            ready,
            loading: false,
            reason: reason.to_owned(),
            message: message.to_owned(),
        }
    }

    fn health() -> Health {
        Health {
            sources_listed: true,
            unlisted: Vec::new(),
            leads: None,
            plugins: vec![
                plugin("crontab", false, "InvalidManifest", "the manifest is not valid:\nwrites"),
                plugin("podset", true, "Serving", "it reconciles PodSet"),
            ],
        }
    }

    #[test]
    fn a_refused_plugin_is_shown_and_makes_nobody_unready() {
        let answer = ready(&health(), Phase::Running, true);
        assert!(answer.passed);
        assert_eq!(
            answer.text,
            "[+]event-loop ok\n[+]shutdown ok\n[+]sources ok\n\
             [-]plugin/crontab failed: InvalidManifest: the manifest is not valid: writes\n\
             [+]plugin/podset ok\nreadyz check passed\n"
        );
        assert_eq!(ready(&health(), Phase::Running, false), Answer { passed: true, text: "ok".to_owned() });
    }

    #[test]
    fn a_plugin_that_the_host_began_with_is_waited_for_and_one_that_comes_later_is_not() {
        let mut health = health();
        assert!(!is_starting(&health), "what was refused does not come by waiting");
        health.plugins.push(PluginHealth { loading: true, ..plugin("eru", false, "Starting", "it is compiled") });
        assert!(is_starting(&health));
        let starting = ready(&health, Phase::Starting, false);
        assert!(!starting.passed && starting.text.contains("[-]plugin/eru failed: Starting"), "{}", starting.text);
        assert!(ready(&health, Phase::Running, false).passed);
        health.plugins[2].digest = Some(Digest(Arc::from("sha256:01")));
        assert!(!is_starting(&health), "a newer version is no start");
    }

    #[test]
    fn a_host_that_stands_by_says_so_and_is_ready() {
        let text = |leads| ready(&Health { leads, ..health() }, Phase::Running, true).text;
        assert!(text(Some(true)).contains("[+]leader-election/leader ok\n"), "{}", text(Some(true)));
        assert!(text(Some(false)).contains("[+]leader-election/standby ok\n"), "{}", text(Some(false)));
        assert!(!text(None).contains("leader-election"), "{}", text(None));
        assert!(ready(&Health { leads: Some(false), ..health() }, Phase::Running, false).passed);
    }

    #[test]
    fn a_kind_that_is_not_listed_is_named_also_without_verbose() {
        let mut health = health();
        health.unlisted.push((Kind::new("v1", "Pod"), Some("pods is forbidden".to_owned())));
        let answer = ready(&health, Phase::Running, false);
        assert!(!answer.passed);
        assert!(answer.text.contains("[-]kind/v1/Pod failed: pods is forbidden\n"), "{}", answer.text);
        assert!(answer.text.ends_with("readyz check failed\n"), "{}", answer.text);
    }

    #[test]
    fn a_host_whose_sources_are_unread_or_that_is_ending_is_not_ready() {
        let unread = ready(&Health { sources_listed: false, ..health() }, Phase::Running, false);
        assert!(!unread.passed && unread.text.contains("[-]sources failed: not listed yet"), "{}", unread.text);
        let ending = ready(&health(), Phase::Ending, false);
        assert!(!ending.passed && ending.text.contains("[-]shutdown failed: the host is ending"), "{}", ending.text);
    }

    #[test]
    fn a_loop_that_does_not_turn_is_neither_live_nor_ready() {
        let answer = live(Some("it is stuck".to_owned()), false);
        assert!(!answer.passed);
        assert_eq!(answer.text, "[-]event-loop failed: it is stuck\nhealthz check failed\n");
        assert!(!unanswered("it has ended".to_owned()).passed);
        assert_eq!(live(None, false).text, "ok");
        assert_eq!(live(None, true).text, "[+]event-loop ok\nhealthz check passed\n");
    }
}
