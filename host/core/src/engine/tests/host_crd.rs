//! What keeps the host's own CRD away is told: without it nothing else can be.

use super::*;
use crate::refusal::Refusal;

/// A engine whose requests for its own CRD are answered one after another, as they are tried again; how often each answer
/// was told of.
fn told_of(answers: Vec<CrdError>) -> Vec<usize> {
    let mut engine = Engine::new(config());
    let mut effects = Vec::new();
    engine.step(Now::default(), Event::Started, &mut effects);
    let mut now = Now::default();
    let mut told = Vec::new();
    for error in answers {
        let asked = effects.iter().any(|effect| matches!(effect, Effect::RegisterCrd { .. }));
        assert!(asked, "it is asked for again: {effects:?}");
        let (plugin, crd) = ("".into(), plugin_object::CRD_NAME.into());
        effects.clear();
        engine.step(now, Event::CrdRegistered { plugin, crd, result: Err(error) }, &mut effects);
        let is_told = |effect: &&Effect| {
            let words = format!("{effect:?}");
            matches!(effect, Effect::Observe(_)) && words.contains("away") && words.contains("mortise")
        };
        told.push(effects.iter().filter(is_told).count());
        effects.clear();
        now.mono_ms += 60_000;
        engine.step(now, Event::Tick, &mut effects);
    }
    told
}

#[test]
fn whatever_keeps_the_hosts_own_crd_away_is_told_once_and_again_when_it_is_something_else() {
    let unavailable = || CrdError::Unavailable("the API server is away".to_owned());
    let denied = || CrdError::Denied("the right was taken away".to_owned());
    let refused = || CrdError::Refused(Refusal::new("CrdOfAnother", "somebody took the name away"));
    let answers = vec![unavailable(), unavailable(), denied(), denied(), refused(), refused(), unavailable()];
    assert_eq!(told_of(answers), [1, 0, 1, 0, 1, 0, 1]);
}
