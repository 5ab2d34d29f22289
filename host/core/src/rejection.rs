//! Rejections: what of an object's outcomes could not be written, and why. They are an input of the object's next calls.
//! This file does not know how a write is made; the reconciler says what is rejected and what is not any more.

use std::sync::Arc;

use crate::component::Version;
use crate::object::ObjectRef;

/// Rejections that are remembered for one object. More than that is one cause, which a hundred show.
const MAX_REJECTIONS: usize = 100;

/// A write of an outcome that could not be carried out.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Rejection {
    /// The object.
    pub target: ObjectRef,
    /// The key of the child; None for the target of an action.
    pub child: Option<Arc<str>>,
    /// The reason, as in the condition Stalled.
    pub reason: Arc<str>,
    /// What happened, for a person.
    pub message: Arc<str>,
}

/// The rejections of an object in one state of its spec and its plugin, ordered by target.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rejections {
    all: Arc<[Rejection]>,
    generation: i64,
    version: Option<Version>,
}

impl Rejections {
    /// Forgets all of another generation of the object or of another version of the plugin.
    pub fn begin(&mut self, generation: i64, version: &Version) {
        if self.generation != generation || self.version.as_ref() != Some(version) {
            *self = Self { all: Arc::default(), generation, version: Some(version.clone()) };
        }
    }

    /// All of them.
    pub fn all(&self) -> &Arc<[Rejection]> {
        &self.all
    }

    /// Adds rejections, each in place of an earlier one of its target, and forgets those that do not hold any more.
    /// Whether that changed anything.
    pub fn replace(&mut self, holds: impl Fn(&Rejection) -> bool, new: impl IntoIterator<Item = Rejection>) -> bool {
        let mut all: Vec<Rejection> = self.all.iter().filter(|known| holds(known)).cloned().collect();
        for rejection in new {
            match all.binary_search_by(|known| known.target.cmp(&rejection.target)) {
                Ok(at) => all[at] = rejection,
                Err(at) if all.len() < MAX_REJECTIONS => all.insert(at, rejection),
                Err(_) => {}
            }
        }
        let has_changed = *all != *self.all;
        if has_changed {
            self.all = all.into();
        }
        has_changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest;
    use crate::object::{Kind, Name};

    fn rejection(name: &str, reason: &str) -> Rejection {
        let target = ObjectRef { kind: Kind::new("v1", "ConfigMap"), name: Name::new("shop", name) };
        Rejection { target, child: Some(name.into()), reason: reason.into(), message: "why".into() }
    }

    fn version(config: &str) -> Version {
        Version { digest: digest::of(b"1"), config: config.into() }
    }

    #[test]
    fn they_are_ordered_one_for_each_target_and_forgotten_when_they_do_not_hold() {
        let mut rejections = Rejections::default();
        assert!(!rejections.replace(|_| true, []));
        assert!(rejections.replace(|_| true, [rejection("b", "Invalid"), rejection("a", "ChildExists")]));
        assert!(!rejections.replace(|_| true, [rejection("b", "Invalid")]));
        assert!(rejections.replace(|_| true, [rejection("b", "Forbidden")]));
        assert_eq!(**rejections.all(), [rejection("a", "ChildExists"), rejection("b", "Forbidden")]);
        assert!(rejections.replace(|known| &*known.reason != "Forbidden", []));
        assert_eq!(**rejections.all(), [rejection("a", "ChildExists")]);
    }

    #[test]
    fn they_are_those_of_one_generation_and_one_version_of_the_plugin() {
        let mut rejections = Rejections::default();
        rejections.begin(1, &version("{}"));
        rejections.replace(|_| true, [rejection("a", "Invalid")]);
        rejections.begin(1, &version("{}"));
        assert_eq!(rejections.all().len(), 1);
        let mut later = rejections.clone();
        later.begin(2, &version("{}"));
        rejections.begin(1, &version("{\"a\":1}"));
        assert!(later.all().is_empty() && rejections.all().is_empty());
    }

    #[test]
    fn at_most_a_hundred_are_remembered() {
        let mut rejections = Rejections::default();
        rejections.replace(|_| true, (0..=MAX_REJECTIONS).map(|number| rejection(&number.to_string(), "Invalid")));
        assert_eq!(rejections.all().len(), MAX_REJECTIONS);
        assert!(rejections.replace(|_| true, [rejection("0", "Forbidden")]), "a known one is replaced");
    }
}
