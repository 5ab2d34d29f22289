//! One level of a JSON text: the members of an object or the items of a list, each as text. So a text is looked at without a
//! tree of it. It must not know what the text says.

use std::borrow::Cow;
use std::fmt::{self, Formatter};

use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// A member of an object.
pub(crate) type Member<'a> = (Cow<'a, str>, &'a RawValue);

/// A value, read one level deep.
#[derive(Debug)]
pub(crate) enum Level<'a> {
    /// Its members by name, each once: of a name that is written twice, the last.
    Object(Vec<Member<'a>>),
    List(Vec<&'a RawValue>),
    /// A text, a number, a boolean or null.
    Scalar,
    /// It has more members or items than were asked for.
    Wide,
}

impl<'a> Level<'a> {
    /// Reads a value that has so many members or items at most.
    pub(crate) fn of(text: &'a RawValue, most: usize) -> Self {
        let mut parser = serde_json::Deserializer::from_str(text.get());
        // The text is valid JSON, so an error says that it is wide.
        match text.get().as_bytes().first() {
            Some(b'{') => parser.deserialize_map(Members(most)).map_or(Self::Wide, Self::Object),
            Some(b'[') => parser.deserialize_seq(Items(most)).map_or(Self::Wide, Self::List),
            _ => Self::Scalar,
        }
    }

    /// Its members; None when it is no object.
    pub(crate) fn into_members(self) -> Option<Vec<Member<'a>>> {
        match self {
            Self::Object(members) => Some(members),
            Self::List(_) | Self::Scalar | Self::Wide => None,
        }
    }

    /// Members or items.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Object(members) => members.len(),
            Self::List(items) => items.len(),
            Self::Scalar | Self::Wide => 0,
        }
    }
}

/// A text that somebody wrote who may write anything. A tree of it could be built: its nesting, numbers and strings are those that
/// [`serde_json`] reads.
pub(crate) fn parse(text: &str) -> Result<&RawValue, serde_json::Error> {
    serde_json::from_str::<Readable>(text)?;
    serde_json::from_str(text)
}

/// The value of a member of this name.
pub(crate) fn member<'a>(members: &[Member<'a>], name: &str) -> Option<&'a RawValue> {
    members.binary_search_by(|(of, _)| (**of).cmp(name)).ok().map(|index| members[index].1)
}

/// Looks at each item of a list, in their order, and keeps none; of what is no list at nothing.
pub(crate) fn each_item<'a>(list: &'a RawValue, look: impl FnMut(&'a RawValue)) {
    if list.get().starts_with('[') {
        let read = serde_json::Deserializer::from_str(list.get()).deserialize_seq(Each(look));
        read.expect("a raw value is valid");
    }
}

struct Each<F>(F);

impl<'de, F: FnMut(&'de RawValue)> Visitor<'de> for Each<F> {
    type Value = ();

    fn expecting(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        while let Some(item) = list.next_element()? {
            (self.0)(item);
        }
        Ok(())
    }
}

struct Members(usize);

impl<'de> Visitor<'de> for Members {
    type Value = Vec<Member<'de>>;

    fn expecting(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "an object of {} members at most", self.0)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members: Self::Value = Vec::new();
        while let Some((Key(name), value)) = map.next_entry::<Key<'de>, &'de RawValue>()? {
            if members.len() == self.0 {
                return Err(A::Error::invalid_length(self.0 + 1, &self));
            }
            members.push((name, value));
        }
        // The sort is stable: of one name, the last stays.
        members.sort_by(|(one, _), (other, _)| one.cmp(other));
        members.dedup_by(|later, earlier| {
            let is_same = later.0 == earlier.0;
            if is_same {
                earlier.1 = later.1;
            }
            is_same
        });
        Ok(members)
    }
}

struct Items(usize);

impl<'de> Visitor<'de> for Items {
    type Value = Vec<&'de RawValue>;

    fn expecting(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "a list of {} items at most", self.0)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut items: Self::Value = Vec::new();
        while let Some(item) = list.next_element()? {
            if items.len() == self.0 {
                return Err(A::Error::invalid_length(self.0 + 1, &self));
            }
            items.push(item);
        }
        Ok(items)
    }
}

/// A name, in the text itself where it has no escapes.
pub(crate) struct Key<'a>(pub(crate) Cow<'a, str>);

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(KeyVisitor)
    }
}

struct KeyVisitor;

impl<'de> Visitor<'de> for KeyVisitor {
    type Value = Key<'de>;

    fn expecting(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_borrowed_str<E: Error>(self, name: &'de str) -> Result<Self::Value, E> {
        Ok(Key(Cow::Borrowed(name)))
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(Key(Cow::Owned(name.to_owned())))
    }
}

/// Any value, of which nothing is kept.
struct Readable;

impl<'de> Deserialize<'de> for Readable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for Readable {
    type Value = Self;

    fn expecting(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self, A::Error> {
        while list.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self, A::Error> {
        while map.next_entry::<Self, Self>()?.is_some() {}
        Ok(self)
    }
}
