//! How often in a row a CRD could not be registered, and how long its next registration waits. Results come in, delays come out.
//!
//! Nothing here knows a definition, or what a result means for a plugin.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::backoff::doubled_ms;

/// The first delay. A person who grants a permission should see the effect while watching.
const FIRST_MS: u64 = 3_000;
/// The first delay after a refusal: a person changes the definition that is there.
const REFUSED_FIRST_MS: u64 = 15_000;
/// The longest delay. What is refused for good costs a read and a write in five minutes.
const LONGEST_MS: u64 = 300_000;
/// The longest delay while the API server does not answer as it should: its return is no event here, and a plugin that comes up
/// waits for it.
const UNAVAILABLE_LONGEST_MS: u64 = 30_000;

/// Why a registration is tried again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Why {
    Denied,
    Refused,
    Unavailable,
    /// It succeeded, and the kind is not served yet, or was deleted again.
    NotServed,
}

/// A plugin, and the name of a CRD.
pub(super) type Place = (Arc<str>, Arc<str>);

#[derive(Debug, Default)]
pub(super) struct Attempts(BTreeMap<Place, (Why, u32)>);

impl Attempts {
    /// One more has failed. Returns the delay of the next; another reason begins with the first delay.
    pub fn failed(&mut self, place: &Place, why: Why) -> u64 {
        let (last, failures) = self.0.entry(place.clone()).or_insert((why, 0));
        *failures = if *last == why { failures.saturating_add(1) } else { 1 };
        *last = why;
        self.delay_ms(place)
    }

    /// How long the next one waits from now.
    pub fn delay_ms(&self, place: &Place) -> u64 {
        let Some((why, failures)) = self.0.get(place) else { return FIRST_MS };
        let (first_ms, longest_ms) = match why {
            Why::Refused => (REFUSED_FIRST_MS, LONGEST_MS),
            Why::Denied | Why::NotServed => (FIRST_MS, LONGEST_MS),
            Why::Unavailable => (FIRST_MS, UNAVAILABLE_LONGEST_MS),
        };
        doubled_ms(first_ms, longest_ms, *failures, &format!("{} {}", place.0, place.1))
    }

    /// Also when what it depends on has changed. Whether the last one had failed.
    pub fn succeeded(&mut self, place: &Place) -> bool {
        self.0.remove(place).is_some()
    }

    /// The plugin has another version, or none.
    pub fn forget_plugin(&mut self, plugin: &Arc<str>) {
        let of_plugin = self.0.range((Arc::clone(plugin), "".into())..).map(|(place, _)| place);
        let gone: Vec<Place> = of_plugin.take_while(|(of, _)| of == plugin).cloned().collect();
        gone.iter().for_each(|place| _ = self.succeeded(place));
    }

    /// Everything is as if it had not been tried.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(plugin: &str, crd: &str) -> Place {
        (plugin.into(), crd.into())
    }

    /// The delays in seconds.
    fn delays(attempts: &mut Attempts, why: Why) -> Vec<u64> {
        (0..9).map(|_| attempts.failed(&place("a", "x"), why) / 1_000).collect()
    }

    #[test]
    fn q4_the_delays_double_up_to_five_minutes_and_begin_anew_for_another_reason() {
        let mut attempts = Attempts::default();
        let denied = delays(&mut attempts, Why::Denied);
        let doubled = [3, 6, 12, 24, 48, 96, 192, 300, 300];
        assert!(denied.iter().zip(doubled).all(|(found, at)| (at..=at + at / 10).contains(found)), "{denied:?}");
        let refused = delays(&mut attempts, Why::Refused);
        assert!((15..=16).contains(&refused[0]) && (300..=330).contains(&refused[8]), "{refused:?}");
        let unavailable = delays(&mut attempts, Why::Unavailable);
        assert!(unavailable[0] == 3 && (30..=33).contains(&unavailable[8]), "{unavailable:?}");
        attempts.succeeded(&place("a", "x"));
        assert_eq!(attempts.delay_ms(&place("a", "x")), FIRST_MS);
    }

    #[test]
    fn another_version_of_a_plugin_begins_anew_and_other_plugins_do_not() {
        let mut attempts = Attempts::default();
        for (plugin, crd) in [("a", "x"), ("a", "y"), ("ab", "x"), ("b", "x")] {
            attempts.failed(&place(plugin, crd), Why::Denied);
        }
        attempts.forget_plugin(&"a".into());
        let left: Vec<&str> = attempts.0.keys().map(|(plugin, _)| &**plugin).collect();
        assert_eq!(left, ["ab", "b"]);
    }
}
