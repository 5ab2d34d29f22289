//! Runs a script several times: once as it is written, then with the host started again, with another seed and lists in the
//! opposite order, and with a crash after each write. Every run must end with the same objects.

use std::rc::Rc;

use super::file::Script;
use super::run::{Played, play};
use crate::diff::diff;
use crate::guest::Guest;
use crate::state::{difference, state};
use crate::story::Settings;

/// How long a host that was started again is watched for writes. Not until it is idle: the next tick of a schedule is no
/// consequence of the start.
const AGAIN_MS: u64 = 5_000;
/// The seed of the run in another order: with it responses and events are late by different times.
const SEED: u64 = 7;
/// Steps of all runs with crashes together, which take a few seconds: a short story crashes after each of its writes, one of
/// ten days once.
const MAX_CRASH_STEPS: u64 = 40_000;
/// The least number of crashes.
const MIN_CRASHES: u64 = 1;

/// What a story came to.
#[derive(Debug)]
pub struct Checked {
    /// What does not hold, a sentence or a few lines each; empty when all does.
    pub failures: Vec<String>,
    /// What the host did in the first run, for a file beside the story.
    pub transcript: String,
    /// How many runs it had.
    pub runs: usize,
    /// After how many of the host's writes it crashed, each in a run of its own, and how many writes there are after the start.
    pub crashes: (usize, u64),
}

/// Checks a story, and its transcript if there is one.
pub fn check(script: &Script, recorded: Option<&str>, guest: &Rc<dyn Guest>) -> Checked {
    let settings = || {
        let mut settings = Settings { config: script.config.clone(), ..Settings::default() };
        if settings.config.is_null() {
            settings.config = Settings::default().config;
        }
        settings.cluster.nodes = script.nodes;
        settings.cluster.controllers.clone_from(&script.controllers);
        settings
    };
    let mut played = match play(script, Rc::clone(guest), settings(), true) {
        Ok(played) => played,
        Err(why) => return Checked { failures: vec![why], transcript: String::new(), runs: 1, crashes: (0, 0) },
    };
    let mut checked = Checked {
        failures: std::mem::take(&mut played.failures),
        transcript: std::mem::take(&mut played.transcript),
        runs: 1,
        crashes: (0, 0),
    };
    if let Some(recorded) = recorded.filter(|recorded| *recorded != checked.transcript) {
        let lines = diff(recorded, &checked.transcript);
        checked.failures.push(format!("the transcript differs (- recorded, + now); --update records it:\n{lines}"));
    }
    if !checked.failures.is_empty() {
        // Other runs would fail by the same mistake, and hide it.
        return checked;
    }
    let wanted = end(&mut played);
    let (sent, steps) = (played.story.sent(), played.story.steps());
    checked.failures.extend(again(&mut played));
    let mut other = |how: &str, settings: Settings| {
        checked.runs += 1;
        let found = play(script, Rc::clone(guest), settings, false).map(|mut played| end(&mut played));
        match found {
            Ok(found) => {
                let failure = |lines| format!("{how} it ends otherwise (- in the first run, + then):\n{lines}");
                checked.failures.extend(difference(&wanted, &found).map(failure));
            }
            Err(why) => checked.failures.push(format!("{how}: {why}")),
        }
    };
    let mut order = Settings { reversed: true, ..settings() };
    order.cluster.seed = SEED;
    other("in another order", order);
    let crashes = crashes(played.sent_at_start, sent, steps);
    for at in &crashes {
        other(&format!("with a crash after write {at}"), Settings { crash_after: Some(*at), ..settings() });
    }
    checked.crashes = (crashes.len(), sent - played.sent_at_start);
    checked
}

fn end(played: &mut Played) -> Vec<(String, String)> {
    state(&mut played.story, &played.kinds)
}

/// A host that starts again writes nothing.
fn again(played: &mut Played) -> Option<String> {
    let before = played.story.requests().len();
    played.story.crash_host();
    if let Err(why) = played.story.advance(AGAIN_MS) {
        return Some(format!("started again: {why}"));
    }
    let written = &played.story.requests()[before..];
    (!written.is_empty()).then(|| format!("a host that starts again writes:\n  {}", written.join("\n  ")))
}

/// After which writes the host crashes: after each, or evenly spread ones.
fn crashes(sent_at_start: u64, sent: u64, steps: u64) -> Vec<u64> {
    let writes = sent.saturating_sub(sent_at_start);
    let most = (MAX_CRASH_STEPS / steps.max(1)).max(MIN_CRASHES).min(writes);
    (1..=most).map(|n| sent_at_start + n * writes / most).collect()
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::testing::Sets;

    fn checked(text: &str) -> Checked {
        let guest: Rc<dyn Guest> = Rc::new(Sets);
        check(&Script::parse(text).unwrap(), None, &guest)
    }

    const SETS: &str = r#"
says: A set keeps its Pods.
given:
  - {apiVersion: v1, kind: ConfigMap, metadata: {name: other}, data: {a: b}}
steps:
  - when: a set is created
    acts:
      - apply: {apiVersion: example.com/v1, kind: Set, metadata: {name: web}, spec: {replicas: 2}}
    holds:
      - count: {times: 2, of: {apiVersion: v1, kind: Pod, status: {phase: Running}}}
      - exists: {apiVersion: example.com/v1, kind: Set, metadata: {name: web}, status: {running: 2}}
      - refused: {apply: {apiVersion: example.com/v1, kind: Set, metadata: {name: x}, spec: {replicas: 13}}, with: not so many}
  - when: somebody deletes a Pod
    acts:
      - delete: Pod default/web#1
    holds:
      - woken-by: {object: Set default/web, by: [Pod]}
      - writes: [create Pod default/web, status Set default/web, status Set default/web]
      - absent: {apiVersion: v1, kind: Pod, status: {phase: Pending}}
"#;

    #[test]
    fn a_story_that_holds_is_run_with_a_crash_after_each_write() {
        let checked = checked(SETS);
        assert_eq!(checked.failures, Vec::<String>::new(), "{}", checked.transcript);
        assert!(checked.runs > 6, "{}", checked.runs);
        assert_eq!(checked.crashes, (checked.runs - 2, checked.runs as u64 - 2), "one and another run have no crash");
    }

    #[test]
    fn what_does_not_hold_is_said_with_its_step_and_as_a_difference() {
        let checked = checked(&SETS.replace("status: {running: 2}", "status: {running: 3, more: 1}"));
        expect![[r#"
            a set is created: Set web is not so (- expected, + found):
             metadata:
               name: web
             status:
            -  more: 1
            -  running: 3
            +  running: 2
        "#]]
        .assert_eq(&checked.failures.join("\n"));
    }

    #[test]
    fn crashes_are_spread_over_a_long_story() {
        assert_eq!(crashes(2, 6, 1_000), [3, 4, 5, 6]);
        assert_eq!(crashes(0, 1_000, 20_000), [500, 1_000]);
        assert_eq!(crashes(0, 1_000, 1_000_000), [1_000]);
        assert_eq!(crashes(4, 4, 10), Vec::<u64>::new());
    }
}
