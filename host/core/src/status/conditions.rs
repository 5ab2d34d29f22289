//! The conditions of a live status as text: who may write them may write a million. Each pass reads the list once, and keeps
//! the few conditions that it is asked for. What the conditions should be `status.rs` decides.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::json::level::{Level, Member, each_item, member};

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
    /// It has all of these but perhaps a generation, and no other field.
    pub is_plain: bool,
}

impl<'t> Conditions<'t> {
    /// Of the members of a status. Of two of one type the first is known.
    pub fn of<'a>(status: &[Member<'t>], names: impl IntoIterator<Item = &'a str>) -> Self {
        let list = member(status, "conditions");
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
        if let Some(list) = self.list {
            each_item(list, |text| look(&Live::read(text), text));
        }
    }

    /// Whether one of them is so.
    pub fn any(&self, mut is_so: impl FnMut(&Live<'t>) -> bool) -> bool {
        let mut found = false;
        self.each(|condition, _| found = found || is_so(condition));
        found
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
}

fn as_text(text: &RawValue) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
    serde_json::from_str::<Text<'_>>(text.get()).ok().map(|text| text.0)
}
