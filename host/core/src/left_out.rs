//! Which of an owner's objects a read shows when they are more than one read may return, or more than one owner can have.
//! The marks and the references that make an object somebody's say nothing about who wrote them, so a user who may write
//! objects of a kind can give an owner any number of them. Such objects must not end the reads of the owner's plugin.
//!
//! Each namespace has a budget of its own. What the last outcome wanted is shown first, then the rest; of both, first what
//! is in the owner's namespace, then in the others from the one that has had such an object for longest, each as a whole
//! while it fits. The host makes an owner's children early, who forges some has to learn the owner's UID first, and the API
//! server alone says when an object was made. Of the rest, what is not as the host makes children comes last: anybody can
//! write as it does, so that sorts out copies and proves nothing. What was left out is not deleted for being unwanted
//! either. Nothing here reads a store or writes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use crate::heap::{HeapBytes, tree};
use crate::limits::MAX_CHILDREN;
use crate::object::{Kind, Name, Object, ObjectRef};

/// Objects of one kind that an owner can have: as many as an outcome may want, and a predecessor of each. With more, some
/// are others', however small they are.
pub(crate) const MAX_OWNED: usize = 2 * MAX_CHILDREN;
/// Places that the message names; the first ones are enough to look for who writes there.
const SHOWN_PLACES: usize = 3;

/// How much an object looks like a child that the host has made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Standing {
    /// The last outcome wanted it.
    Wanted,
    /// A plugin's field manager has written it, and it has the key that each child has.
    Child,
    /// So it is, and it is being deleted.
    Leaving,
    /// It is not.
    Other,
}

/// The objects of a namespace that look the same way.
type Place = (Arc<str>, Standing);

/// What one read did not show of an owner's objects of a kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeftOut {
    kind: Kind,
    places: BTreeSet<Place>,
    /// What the last outcome wanted.
    wanted: BTreeSet<Name>,
}

/// Objects of one owner, and a bound.
pub(crate) struct Owned<'a> {
    pub kind: &'a Kind,
    pub objects: Vec<&'a Arc<Object>>,
    /// The owner's namespace.
    pub home: &'a str,
    /// The children of the last outcome; None when there is none to remember.
    pub wanted: Option<BTreeSet<&'a ObjectRef>>,
    /// Bytes that the read may return.
    pub most_bytes: u64,
}

impl<'a> Owned<'a> {
    /// The objects that fit, in their order. None when what must be shown does not fit: in the owner's namespace, what the
    /// last outcome wanted or, without one, what looks like children. Elsewhere others may make a child as large as they like.
    pub(crate) fn fit(self, bytes_of: impl Fn(&Object) -> usize) -> Option<(Vec<&'a Arc<Object>>, LeftOut)> {
        let Self { kind, objects, home, wanted, most_bytes } = self;
        let is_wanted = |object: &Object| wanted.as_ref().is_some_and(|wanted| wanted.contains(&object.reference()));
        let mut left_out = LeftOut { kind: kind.clone(), places: BTreeSet::new(), wanted: BTreeSet::new() };
        let mut room = Room { bytes: most_bytes, objects: MAX_OWNED };
        let mut places: BTreeMap<Place, (Room, u32)> = BTreeMap::new();
        for object in &objects {
            if is_wanted(object) {
                left_out.wanted.insert(object.name.clone());
            }
            let place = left_out.place(object);
            let (of_place, since_s) = places.entry(place).or_insert((Room::default(), u32::MAX));
            of_place.add(Room { bytes: bytes_of(object) as u64, objects: 1 });
            *since_s = object.created_unix_s.min(*since_s);
        }
        let least = if wanted.is_some() { Standing::Wanted } else { Standing::Child };
        let is_home = |namespace: &str| namespace == home;
        let mut places: Vec<(Place, (Room, u32))> = places.into_iter().collect();
        places.sort_by_key(|((namespace, standing), (of_place, since_s))| {
            (*standing, !is_home(namespace), *since_s, of_place.bytes)
        });
        for (place, (of_place, _)) in places {
            match room.without(of_place) {
                Some(left) => room = left,
                None if is_home(&place.0) && place.1 == least => return None,
                None => _ = left_out.places.insert(place),
            }
        }
        Some((objects.into_iter().filter(|object| !left_out.has(object)).collect(), left_out))
    }
}

/// Bytes and a number of objects.
#[derive(Clone, Copy, Default)]
struct Room {
    bytes: u64,
    objects: usize,
}

impl Room {
    fn without(self, taken: Self) -> Option<Self> {
        let bytes = self.bytes.checked_sub(taken.bytes)?;
        Some(Self { bytes, objects: self.objects.checked_sub(taken.objects)? })
    }

    fn add(&mut self, taken: Self) {
        self.bytes += taken.bytes;
        self.objects += taken.objects;
    }
}

impl LeftOut {
    /// Whether an object of the owner was not shown, or would not have been.
    pub fn has(&self, object: &Object) -> bool {
        object.kind == self.kind && self.places.contains(&self.place(object))
    }

    fn place(&self, object: &Object) -> Place {
        let is_as_made = object.is_written && object.child_key.is_some();
        let standing = if self.wanted.contains(&object.name) {
            Standing::Wanted
        } else if !is_as_made {
            Standing::Other
        } else if object.deleting {
            Standing::Leaving
        } else {
            Standing::Child
        };
        (Arc::clone(&object.name.namespace), standing)
    }

    /// Of which kind.
    pub(crate) fn kind(&self) -> &Kind {
        &self.kind
    }
}

impl HeapBytes for LeftOut {
    /// Kinds are shared with the manifest, namespaces with the objects.
    fn heap_bytes(&self) -> usize {
        tree(self.places.len(), size_of::<Place>()) + self.wanted.heap_bytes()
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "more objects of {} name this one as their owner than it can have or than a read may return, so the plugin \
             does not see, and the host does not delete, ",
            self.kind
        )?;
        for (number, (namespace, standing)) in self.places.iter().take(SHOWN_PLACES).enumerate() {
            let comma = if number > 0 { ", " } else { "" };
            let which = match standing {
                Standing::Wanted => " that the last outcome wanted",
                Standing::Child => "",
                Standing::Leaving => " that are being deleted",
                Standing::Other => " that are not as the host makes them",
            };
            write!(f, "{comma}those in {namespace:?}{which}")?;
        }
        match self.places.len().saturating_sub(SHOWN_PLACES) {
            0 => Ok(()),
            more => write!(f, ", and {more} more such places"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::tests::Sample;

    /// As the host makes a child.
    const CHILD: (&str, &str) = ("mortise/podset", r#""annotations":{"mortise.dev/child":"0"}"#);
    const LEAVING: (&str, &str) =
        ("mortise/podset", r#""annotations":{"mortise.dev/child":"0"},"deletionTimestamp":"2026-11-21T10:00:00Z""#);
    const KEYLESS: (&str, &str) = ("mortise/podset", r#""annotations":{"a":"b"}"#);
    const KUBECTL: (&str, &str) = ("kubectl-client-side-apply", r#""annotations":{"mortise.dev/child":"0"}"#);

    /// Objects of a namespace that were made in the year, by this field manager and with these metadata.
    fn made(
        year: u32,
        namespace: &'static str,
        names: std::ops::Range<usize>,
        (manager, metadata): (&str, &str),
    ) -> Vec<Arc<Object>> {
        let metadata = format!(r#"{metadata},"creationTimestamp":"{year}-11-21T10:00:00Z""#);
        let of = |name: usize| {
            Sample::pod(namespace, &format!("{name:05}")).owner("77").manager(manager).metadata(&metadata).shared()
        };
        names.map(of).collect()
    }

    fn in_place(namespace: &'static str, names: std::ops::Range<usize>, made_by: (&str, &str)) -> Vec<Arc<Object>> {
        made(2026, namespace, names, made_by)
    }

    /// What is shown, by namespace, of objects that have ten bytes each, and the message about the rest.
    fn check(objects: &[Arc<Object>], wanted: Option<&[&Arc<Object>]>, most_bytes: u64, expected: &str) {
        let kind = Kind::new("v1", "Pod");
        let wanted: Option<Vec<ObjectRef>> =
            wanted.map(|wanted| wanted.iter().map(|object| object.reference()).collect());
        let owned = Owned {
            kind: &kind,
            objects: objects.iter().collect(),
            home: "home",
            wanted: wanted.as_ref().map(|wanted| wanted.iter().collect()),
            most_bytes,
        };
        let Some((shown, left_out)) = owned.fit(|_| 10) else { return assert_eq!("too large", expected) };
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        shown.iter().for_each(|object| *counts.entry(&object.name.namespace).or_default() += 1);
        let counts: Vec<String> = counts.iter().map(|(namespace, count)| format!("{count} of {namespace}")).collect();
        let text = left_out.to_string();
        let (_, rest) = text.split_once("does not delete, ").unwrap();
        assert_eq!(format!("{}; {rest}", counts.join(", ")), expected);
        let not_shown = objects.iter().filter(|object| left_out.has(object));
        assert_eq!(not_shown.count() + shown.len(), objects.len());
    }

    #[test]
    fn x3_a_namespace_that_is_full_of_forged_objects_fills_its_own_budget_alone() {
        let mut objects = in_place("home", 0..3, CHILD);
        objects.extend(in_place("a", 0..2, CHILD));
        objects.extend(in_place("forged", 0..20, CHILD));
        check(&objects, None, 250, "2 of a, 20 of forged, 3 of home; ");
        check(&objects, None, 249, r#"2 of a, 3 of home; those in "forged""#);
        check(&objects, None, 50, r#"2 of a, 3 of home; those in "forged""#);
        check(&objects, None, 49, r#"3 of home; those in "a", those in "forged""#);
        check(&objects, None, 29, "too large");
    }

    #[test]
    fn x3_what_the_last_outcome_wanted_is_shown_also_beside_forged_objects_in_its_own_namespace() {
        let mut objects = in_place("home", 0..4, CHILD);
        objects.extend(in_place("forged", 0..20, CHILD));
        let wanted = [&objects[0], &objects[5]];
        check(&objects, Some(&wanted), 239, r#"1 of forged, 4 of home; those in "forged""#);
        check(&objects, Some(&wanted), 50, r#"1 of forged, 4 of home; those in "forged""#);
        check(&objects, Some(&wanted), 49, r#"1 of forged, 1 of home; those in "forged", those in "home""#);
        let left_out = r#"those in "forged" that the last outcome wanted, those in "forged", those in "home""#;
        check(&objects, Some(&wanted), 19, &format!("1 of home; {left_out}"));
        check(&objects, Some(&wanted), 9, "too large");
    }

    #[test]
    fn x3_what_no_plugin_has_written_is_left_out_first_unless_it_was_wanted() {
        let mut objects = in_place("a", 0..2, KUBECTL);
        objects.extend(in_place("b", 0..3, CHILD));
        check(&objects, None, 49, r#"3 of b; those in "a" that are not as the host makes them"#);
        check(&objects, None, 19, r#"; those in "a" that are not as the host makes them, those in "b""#);
        let wanted = [&objects[0]];
        check(&objects, Some(&wanted), 49, r#"1 of a, 3 of b; those in "a" that are not as the host makes them"#);
    }

    #[test]
    fn x3_of_other_namespaces_the_one_with_the_oldest_child_is_shown_first_however_large_it_is() {
        let mut objects = made(2025, "own", 0..1, CHILD);
        objects.extend(in_place("own", 1..15, CHILD));
        objects.extend(in_place("forged", 0..2, CHILD));
        check(&objects, None, 170, "2 of forged, 15 of own; ");
        check(&objects, None, 169, r#"15 of own; those in "forged""#);
        check(&objects, None, 149, r#"2 of forged; those in "own""#);
        objects.extend(made(2024, "forged", 2..3, KUBECTL));
        objects.extend(made(2024, "forged", 3..4, KEYLESS));
        objects.extend(made(2024, "forged", 4..5, LEAVING));
        let left_out = r#"those in "forged", those in "forged" that are being deleted, those in "forged" that are not as the host makes them"#;
        check(&objects, None, 150, &format!("15 of own; {left_out}"));
    }

    #[test]
    fn q4_x3_what_the_host_has_not_made_ends_no_read_in_the_owners_namespace_either() {
        for forged in [KUBECTL, KEYLESS, LEAVING] {
            let mut objects = in_place("home", 0..3, CHILD);
            objects.extend(in_place("home", 3..21, forged));
            objects.extend(in_place("a", 0..2, CHILD));
            let which =
                if forged == LEAVING { "that are being deleted" } else { "that are not as the host makes them" };
            check(&objects, None, 229, &format!(r#"2 of a, 3 of home; those in "home" {which}"#));
            check(&objects, None, 30, &format!(r#"3 of home; those in "a", those in "home" {which}"#));
            check(&objects, None, 29, "too large");
        }
    }

    #[test]
    fn x3_a_number_of_objects_that_no_owner_can_have_is_cut_however_small_they_are() {
        let mut objects = in_place("home", 0..1, CHILD);
        objects.extend(in_place("forged", 0..MAX_OWNED - 1, CHILD));
        check(&objects, None, 1 << 20, &format!("{} of forged, 1 of home; ", MAX_OWNED - 1));
        objects.extend(in_place("forged", MAX_OWNED..MAX_OWNED + 1, CHILD));
        check(&objects, None, 1 << 20, r#"1 of home; those in "forged""#);
    }

    #[test]
    fn the_message_names_three_places_and_counts_the_rest() {
        let objects: Vec<_> = ["a", "b", "c", "d", "e"].into_iter().flat_map(|at| in_place(at, 0..2, CHILD)).collect();
        check(&objects, None, 10, r#"; those in "a", those in "b", those in "c", and 2 more such places"#);
    }
}
