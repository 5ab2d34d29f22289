//! The conditions of a live status as text: who may write them may write a million. Each pass reads the list once, and keeps
//! the few conditions that it is asked for. What the conditions should be `status.rs` decides.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer as _, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::json::level::{Level, Member, member};

/// The list, and those conditions of it that were asked for by their type.
#[derive(Debug)]
pub(super) struct Conditions<'t> {
    list: Option<&'t RawValue>,
    known: BTreeMap<String, Live<'t>>,
}

/// One condition. A field that is no text counts as absent.
#[derive(Clone, Debug, Default)]
pub(super) struct Live<'t> {
    pub name: Cow<'t, str>,
    pub status: Cow<'t, str>,
    pub reason: Cow<'t, str>,
    pub message: Cow<'t, str>,
    pub since: Option<Cow<'t, str>>,
    pub generation: Option<i64>,
    /// It has these fields and no others.
    is_plain: bool,
}

impl<'t> Conditions<'t> {
    /// Of the members of a status. Of two of one type the first is known.
    pub fn of<'a>(status: &[Member<'t>], names: impl IntoIterator<Item = &'a str>) -> Self {
        let list = member(status, "conditions").filter(|list| list.get().starts_with('['));
        let mut wanted: BTreeMap<&str, Option<Live<'t>>> = names.into_iter().map(|name| (name, None)).collect();
        let mut found = Self { list, known: BTreeMap::new() };
        found.each(|condition, _| {
            if let Some(place) = wanted.get_mut(&*condition.name).filter(|place| place.is_none()) {
                *place = Some(condition.clone());
            }
        });
        found.known = wanted.into_iter().filter_map(|(name, live)| Some((name.to_owned(), live?))).collect();
        found
    }

    pub fn find(&self, name: &str) -> Option<&Live<'t>> {
        self.known.get(name)
    }

    /// Looks at each condition and its text, in their order. What is no object has no fields.
    pub fn each(&self, mut look: impl FnMut(&Live<'t>, &'t RawValue)) {
        let Some(list) = self.list else { return };
        let items = Items(|text: &'t RawValue| look(&Live::read(text), text));
        // It is a list, since its text is valid and begins as one.
        let _ = serde_json::Deserializer::from_str(list.get()).deserialize_seq(items);
    }

    /// Whether one of them is so.
    pub fn any(&self, mut is_so: impl FnMut(&Live<'t>) -> bool) -> bool {
        let mut found = false;
        self.each(|condition, _| found = found || is_so(condition));
        found
    }
}

struct Items<F>(F);

impl<'de, F: FnMut(&'de RawValue)> Visitor<'de> for Items<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        while let Some(item) = list.next_element()? {
            (self.0)(item);
        }
        Ok(())
    }
}

impl<'t> Live<'t> {
    fn read(text: &'t RawValue) -> Self {
        let Level::Object(members) = Level::of(text, usize::MAX) else { return Self::default() };
        let generation = member(&members, "observedGeneration").and_then(|text| serde_json::from_str(text.get()).ok());
        let texts = ["type", "status", "reason", "message", "lastTransitionTime"]
            .map(|name| member(&members, name).and_then(as_text));
        let is_plain = texts.iter().all(Option::is_some) && members.len() == 5 + usize::from(generation.is_some());
        let [name, status, reason, message, since] = texts;
        let [name, status, reason, message] = [name, status, reason, message].map(Option::unwrap_or_default);
        Self { name, status, reason, message, since, generation, is_plain }
    }

    /// Whether it has all fields of a stamped condition and no others.
    pub fn is_plain(&self) -> bool {
        self.is_plain
    }
}

fn as_text(text: &RawValue) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
    serde_json::from_str::<Text<'_>>(text.get()).ok().map(|text| text.0)
}
