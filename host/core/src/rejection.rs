//! Rejections: what of an object's outcomes could not be written, and why. They are an input of the object's next calls.
//! This file does not know how a write is made; the reconciler says what is rejected and what is not any more.

use std::borrow::Cow;
use std::sync::Arc;

use crate::component::Version;
use crate::heap::{HeapBytes, allocation};
use crate::object::ObjectRef;
use crate::text::EXCERPT;

/// Rejections that are remembered for one object. More than that is one cause, which a hundred show.
pub const MAX_REJECTIONS: usize = 100;

/// A write of an outcome that could not be carried out.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Rejection {
    /// The object.
    pub target: ObjectRef,
    /// What of it is written; None is the object itself.
    pub subresource: Option<Arc<str>>,
    /// The key of the child; None for the target of an action.
    pub child: Option<Arc<str>>,
    /// The reason, as in the condition Stalled.
    pub reason: Arc<str>,
    /// What happened, for a person.
    pub message: Arc<str>,
}

impl Rejection {
    /// Whether two are of one write and for one reason. The key of the child does not count: an outcome that depends on it
    /// could change it for ever.
    fn is_same(&self, other: &Self) -> bool {
        self.place() == other.place() && (&self.reason, &self.message) == (&other.reason, &other.message)
    }

    fn place(&self) -> (&ObjectRef, Option<&str>) {
        (&self.target, self.subresource.as_deref())
    }
}

impl HeapBytes for Rejection {
    fn heap_bytes(&self) -> usize {
        let Self { target, subresource, child, reason, message } = self;
        target.heap_bytes() + subresource.heap_bytes() + child.heap_bytes() + reason.heap_bytes() + message.heap_bytes()
    }
}

/// The rejections of an object in one edition of its spec and one version of its plugin, ordered by target.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rejections {
    all: Arc<[Rejection]>,
    edition: u64,
    version: Option<Version>,
}

impl Rejections {
    /// Forgets all of another edition of the object ([`Object::edition`](crate::object::Object::edition)) or of another
    /// version of the plugin.
    pub fn begin(&mut self, edition: u64, version: &Version) {
        if self.edition != edition || self.version.as_ref() != Some(version) {
            *self = Self { all: Arc::default(), edition, version: Some(version.clone()) };
        }
    }

    /// All of them.
    pub fn all(&self) -> &Arc<[Rejection]> {
        &self.all
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        allocation(size_of::<Self>()) + self.all.heap_bytes()
    }

    /// Keeps so many at most. Whether there were more.
    pub fn truncate(&mut self, most: usize) -> bool {
        let has_more = self.all.len() > most;
        if has_more {
            self.all = self.all[..most].into();
        }
        has_more
    }

    /// Adds rejections up to `most`, each in place of an earlier one of the same write, and forgets those that do not hold any
    /// more. Whether that changed anything.
    pub fn replace(
        &mut self,
        holds: impl Fn(&Rejection) -> bool,
        new: impl IntoIterator<Item = Rejection>,
        most: usize,
    ) -> bool {
        let mut all: Vec<Rejection> = self.all.iter().filter(|known| holds(known)).cloned().collect();
        for rejection in new {
            let rejection = shortened(rejection);
            match all.binary_search_by(|known| known.place().cmp(&rejection.place())) {
                Ok(at) if all[at].is_same(&rejection) => {}
                Ok(at) => all[at] = rejection,
                Err(at) if all.len() < most => all.insert(at, rejection),
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

/// A hundred of them with their names are some 100 KiB of an object's state.
fn shortened(rejection: Rejection) -> Rejection {
    match EXCERPT.text(&rejection.message) {
        Cow::Borrowed(_) => rejection,
        Cow::Owned(message) => Rejection { message: message.into(), ..rejection },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest;
    use crate::object::{Kind, Name};

    fn rejection(name: &str, reason: &str) -> Rejection {
        let target = ObjectRef { kind: Kind::new("v1", "ConfigMap"), name: Name::new("shop", name) };
        let child = Some(name.into());
        Rejection { target, subresource: None, child, reason: reason.into(), message: "why".into() }
    }

    fn version(config: &str) -> Version {
        Version {
            digest: digest::of(b"1"),
            config: config.into(),
            service_account: None,
            namespaces: None,
            grants: Arc::default(),
            rights: None,
        }
    }

    #[test]
    fn they_are_ordered_one_for_each_target_and_forgotten_when_they_do_not_hold() {
        let mut rejections = Rejections::default();
        assert!(!rejections.replace(|_| true, [], MAX_REJECTIONS));
        assert!(rejections.replace(
            |_| true,
            [rejection("b", "Invalid"), rejection("a", "ChildExists")],
            MAX_REJECTIONS
        ));
        assert!(!rejections.replace(|_| true, [rejection("b", "Invalid")], MAX_REJECTIONS));
        assert!(rejections.replace(|_| true, [rejection("b", "Forbidden")], MAX_REJECTIONS));
        assert_eq!(**rejections.all(), [rejection("a", "ChildExists"), rejection("b", "Forbidden")]);
        assert!(rejections.replace(|known| &*known.reason != "Forbidden", [], MAX_REJECTIONS));
        assert_eq!(**rejections.all(), [rejection("a", "ChildExists")]);
    }

    #[test]
    fn they_are_those_of_one_edition_and_one_version_of_the_plugin() {
        let mut rejections = Rejections::default();
        rejections.begin(1, &version("{}"));
        rejections.replace(|_| true, [rejection("a", "Invalid")], MAX_REJECTIONS);
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
        rejections.replace(
            |_| true,
            (0..=MAX_REJECTIONS).map(|number| rejection(&number.to_string(), "Invalid")),
            MAX_REJECTIONS,
        );
        assert_eq!(rejections.all().len(), MAX_REJECTIONS);
        assert!(rejections.replace(|_| true, [rejection("0", "Forbidden")], MAX_REJECTIONS), "a known one is replaced");
    }

    #[test]
    fn a_childs_key_alone_changes_nothing() {
        let mut rejections = Rejections::default();
        rejections.replace(|_| true, [rejection("a", "ChildExists")], MAX_REJECTIONS);
        let renamed = Rejection { child: Some("other".into()), ..rejection("a", "ChildExists") };
        assert!(!rejections.replace(|_| true, [renamed], MAX_REJECTIONS));
        assert_eq!(rejections.all()[0].child.as_deref(), Some("a"));
    }

    #[test]
    fn an_object_and_each_subresource_of_it_have_their_own_and_messages_are_cut() {
        let mut rejections = Rejections::default();
        let of_scale = Rejection { subresource: Some("scale".into()), ..rejection("a", "NotFound") };
        rejections.replace(|_| true, [rejection("a", "Invalid"), of_scale], MAX_REJECTIONS);
        assert_eq!(rejections.all().len(), 2);
        let long = Rejection { message: "\u{e4}".repeat(512).into(), ..rejection("a", "Invalid") };
        assert!(
            rejections.replace(|_| true, [long.clone()], MAX_REJECTIONS)
                && !rejections.replace(|_| true, [long], MAX_REJECTIONS)
        );
        assert_eq!(*rejections.all()[0].message, *format!("{}…", "\u{e4}".repeat(254)), "512 bytes at most");
        assert!((1_024..2_048).contains(&rejections.bytes()), "{} bytes", rejections.bytes());
    }
}
