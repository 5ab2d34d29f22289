//! Whether the host is live and ready, in the format of kube-apiserver's probes (`/readyz?verbose`).
//!
//! Live: no step of the event loop hangs. Ready: inputs do not wait long for it, every source was listed once, the
//! plugins found by then serve, and the kinds of serving plugins and the host's own were listed; so a rollout ends the
//! old host only when the new one can serve its webhooks. A plugin that was refused, is blocked, or came later is shown
//! but does not make the host unready: the others serve, and a restart would not help.

use mortise_core::engine::Health;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Plugins of the start do not serve yet.
    Starting,
    Running,
    Ending,
}

/// One line of a verbose result.
struct Check {
    /// "sources", "plugin/podset".
    name: String,
    failure: Option<String>,
    /// What a passed one shows.
    note: Option<String>,
    /// Whether the probe fails with it.
    required: bool,
}

/// The result of a probe.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Probe {
    pub(crate) passed: bool,
    pub(crate) text: String,
}

impl Check {
    fn required(name: impl Into<String>, failure: Option<String>) -> Self {
        Self { name: name.into(), failure, note: None, required: true }
    }
}

/// `/healthz`.
pub(crate) fn live(loop_failure: Option<String>, verbose: bool) -> Probe {
    result("healthz", &[Check::required("event-loop", loop_failure)], verbose)
}

/// Whether the sources were not listed, or a plugin is still starting.
pub(crate) fn is_starting(health: &Health) -> bool {
    !health.sources_listed || health.plugins.iter().any(|plugin| plugin.starting)
}

/// How late the event loop is.
pub(crate) struct Lateness {
    /// The highest lag of the last minute or two.
    pub(crate) most_ms: u64,
    pub(crate) failure: Option<String>,
}

/// `/readyz`.
pub(crate) fn ready(health: &Health, phase: Phase, lateness: Lateness, verbose: bool) -> Probe {
    let note = Some(format!("{} ms at most in the last minute", lateness.most_ms));
    let mut checks = vec![
        Check::required("event-loop", None),
        Check { note, ..Check::required("event-loop-lag", lateness.failure) },
        Check::required("shutdown", (phase == Phase::Ending).then(|| "the host is ending".to_owned())),
        Check::required("sources", (!health.sources_listed).then(|| "not listed yet".to_owned())),
    ];
    // A standby is ready too.
    if let Some(leads) = health.leads {
        let role = if leads { "leader-election/leader" } else { "leader-election/standby" };
        checks.push(Check::required(role, None));
    }
    for (slice, why) in &health.unlisted {
        let why = why.clone().unwrap_or_else(|| "not listed yet".to_owned());
        checks.push(Check::required(format!("kind/{slice}"), Some(why)));
    }
    for plugin in &health.plugins {
        let failure = (!plugin.ready).then(|| format!("{}: {}", plugin.reason, plugin.message));
        let required = phase == Phase::Starting && plugin.starting;
        checks.push(Check { required, ..Check::required(format!("plugin/{}", plugin.name), failure) });
    }
    result("readyz", &checks, verbose)
}

/// `/readyz` when the event loop hangs or has ended.
pub(crate) fn loop_failed(failure: String) -> Probe {
    result("readyz", &[Check::required("event-loop", Some(failure))], true)
}

/// Without `verbose` a passed probe is just "ok"; a failed one always names every check.
fn result(probe: &str, checks: &[Check], verbose: bool) -> Probe {
    let passed = checks.iter().all(|check| check.failure.is_none() || !check.required);
    if passed && !verbose {
        return Probe { passed, text: "ok".to_owned() };
    }
    let mut text = String::new();
    for check in checks {
        match &check.failure {
            None => {
                let note = check.note.as_ref().map_or_else(String::new, |note| format!(": {note}"));
                text.push_str(&format!("[+]{} ok{note}\n", check.name));
            }
            Some(why) => text.push_str(&format!("[-]{} failed: {}\n", check.name, why.replace('\n', " "))),
        }
    }
    text.push_str(&format!("{probe} check {}\n", if passed { "passed" } else { "failed" }));
    Probe { passed, text }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mortise_core::digest::Digest;
    use mortise_core::engine::PluginHealth;
    use mortise_core::object::Kind;
    use mortise_core::scope::Slice;

    use super::*;

    fn ready(health: &Health, phase: Phase, verbose: bool) -> Probe {
        super::ready(health, phase, Lateness { most_ms: 3, failure: None }, verbose)
    }

    fn plugin(name: &str, ready: bool, reason: &str, message: &str) -> PluginHealth {
        PluginHealth {
            name: name.into(),
            digest: ready.then(|| Digest(Arc::from("sha256:00"))),
            ready,
            loading: false,
            starting: false,
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
    fn a_refused_plugin_is_shown_and_does_not_make_the_host_unready() {
        let probe = ready(&health(), Phase::Running, true);
        assert!(probe.passed);
        assert_eq!(
            probe.text,
            "[+]event-loop ok\n[+]event-loop-lag ok: 3 ms at most in the last minute\n[+]shutdown ok\n[+]sources ok\n\
             [-]plugin/crontab failed: InvalidManifest: the manifest is not valid: writes\n\
             [+]plugin/podset ok\nreadyz check passed\n"
        );
        assert_eq!(ready(&health(), Phase::Running, false), Probe { passed: true, text: "ok".to_owned() });
    }

    #[test]
    fn a_host_is_ready_once_the_plugins_of_its_start_serve_also_when_later_ones_do_not() {
        let mut health = health();
        assert!(!is_starting(&health), "a refused plugin is not starting");
        health.plugins.push(PluginHealth { starting: true, ..plugin("eru", false, "Starting", "it is compiled") });
        assert!(is_starting(&health));
        let starting = ready(&health, Phase::Starting, false);
        assert!(!starting.passed && starting.text.contains("[-]plugin/eru failed: Starting"), "{}", starting.text);
        assert!(ready(&health, Phase::Running, false).passed);
        health.plugins[2] = PluginHealth { loading: true, ..plugin("eru", true, "Serving", "it reconciles Eru") };
        assert!(!is_starting(&health), "a newer version does not count");
    }

    #[test]
    fn a_standby_says_so_and_is_ready() {
        let text = |leads| ready(&Health { leads, ..health() }, Phase::Running, true).text;
        assert!(text(Some(true)).contains("[+]leader-election/leader ok\n"), "{}", text(Some(true)));
        assert!(text(Some(false)).contains("[+]leader-election/standby ok\n"), "{}", text(Some(false)));
        assert!(!text(None).contains("leader-election"), "{}", text(None));
        assert!(ready(&Health { leads: Some(false), ..health() }, Phase::Running, false).passed);
    }

    #[test]
    fn a_kind_that_is_not_listed_is_named_also_without_verbose() {
        let mut health = health();
        let of_shop = Slice { namespace: Some("shop".into()), ..Kind::new("v1", "Secret").into() };
        health.unlisted.push((Kind::new("v1", "Pod").into(), Some("pods is forbidden".to_owned())));
        health.unlisted.push((of_shop, None));
        let probe = ready(&health, Phase::Running, false);
        assert!(!probe.passed);
        assert!(probe.text.contains("[-]kind/v1/Pod failed: pods is forbidden\n"), "{}", probe.text);
        assert!(probe.text.contains("[-]kind/v1/Secret in shop failed: not listed yet\n"), "{}", probe.text);
        assert!(probe.text.ends_with("readyz check failed\n"), "{}", probe.text);
    }

    #[test]
    fn a_host_whose_sources_are_unread_or_that_is_ending_is_not_ready() {
        let unread = ready(&Health { sources_listed: false, ..health() }, Phase::Running, false);
        assert!(!unread.passed && unread.text.contains("[-]sources failed: not listed yet"), "{}", unread.text);
        let ending = ready(&health(), Phase::Ending, false);
        assert!(!ending.passed && ending.text.contains("[-]shutdown failed: the host is ending"), "{}", ending.text);
    }

    #[test]
    fn a_host_whose_loop_is_late_is_not_ready_and_says_why() {
        let lateness = Lateness { most_ms: 7_000, failure: Some("inputs wait 7 s".to_owned()) };
        let probe = super::ready(&health(), Phase::Running, lateness, false);
        assert!(!probe.passed && probe.text.contains("[-]event-loop-lag failed: inputs wait 7 s\n"), "{}", probe.text);
    }

    #[test]
    fn a_host_whose_loop_failed_is_neither_live_nor_ready() {
        let probe = live(Some("it is stuck".to_owned()), false);
        assert!(!probe.passed);
        assert_eq!(probe.text, "[-]event-loop failed: it is stuck\nhealthz check failed\n");
        assert!(!loop_failed("it has ended".to_owned()).passed);
        assert_eq!(live(None, false).text, "ok");
        assert_eq!(live(None, true).text, "[+]event-loop ok\nhealthz check passed\n");
    }
}
