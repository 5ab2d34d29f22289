//! Errors of the host's own CRD are observed: without it no plugin's state can be shown.

use super::*;
use crate::refusal::Refusal;

/// Each registration of the host's CRD fails with the next error and is retried. How often each error was observed.
fn observed(errors: Vec<CrdError>) -> Vec<usize> {
    let mut engine = Engine::new(config());
    let (mut now, mut effects, mut observed) = (Now::default(), Vec::new(), Vec::new());
    engine.step(now, Event::Started, &mut effects);
    for error in errors {
        let is_registering = effects.iter().any(|effect| matches!(effect, Effect::RegisterCrd { .. }));
        assert!(is_registering, "it is retried: {effects:?}");
        let (plugin, crd) = ("".into(), plugin_object::CRD_NAME.into());
        effects.clear();
        engine.step(now, Event::CrdRegistered { plugin, crd, result: Err(error) }, &mut effects);
        let is_error = |effect: &&Effect| {
            let text = format!("{effect:?}");
            matches!(effect, Effect::Observe(_)) && text.contains("the error") && text.contains("mortise")
        };
        observed.push(effects.iter().filter(is_error).count());
        effects.clear();
        now.mono_ms += 60_000;
        engine.step(now, Event::Tick, &mut effects);
    }
    observed
}

#[test]
fn an_error_of_the_hosts_own_crd_is_observed_once_and_so_is_the_next_different_one() {
    let unavailable = || CrdError::Unavailable("the error: connection refused".to_owned());
    let denied = || CrdError::Denied("the error: forbidden".to_owned());
    let refused = || CrdError::Refused(Refusal::new("CrdOfAnother", "the error: another's CRD"));
    let errors = vec![unavailable(), unavailable(), denied(), denied(), refused(), refused(), unavailable()];
    assert_eq!(observed(errors), [1, 0, 1, 0, 1, 0, 1]);
}
