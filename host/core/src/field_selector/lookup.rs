//! Reads the values at some paths from JSON text, in one pass without building a tree, and no further than the last of
//! them.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::value::FieldValue;

/// Paths of one pass, a bit for each.
pub(super) const MAX_PATHS: usize = 64;

/// Calls `found` with the number of each path that has a text, an integer or a boolean, and with that value. Of a member
/// that is there twice, the first counts.
pub(super) fn values_at(json: &str, paths: &[&[String]], mut found: impl FnMut(usize, FieldValue)) {
    debug_assert!(paths.len() <= MAX_PATHS, "a caller passes the bounded number of paths that it keeps");
    let wanted = (0..paths.len().min(MAX_PATHS)).fold(0, |bits, path| bits | 1 << path);
    let seek = Seek { paths, wanted, depth: 0, is_last: true, found: &mut found };
    // The visitor ends the parsing with an error when nothing is left to be found.
    _ = seek.deserialize(&mut serde_json::Deserializer::from_str(json));
}

/// Looks for the rest of some paths in one value.
struct Seek<'s, F> {
    paths: &'s [&'s [String]],
    /// Their bits.
    wanted: u64,
    /// The members of each that led here.
    depth: usize,
    /// Nothing is wanted after this value.
    is_last: bool,
    found: &'s mut F,
}

fn each(mut bits: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let path = (bits != 0).then(|| bits.trailing_zeros() as usize)?;
        bits &= bits - 1;
        Some(path)
    })
}

impl<F: FnMut(usize, FieldValue)> Seek<'_, F> {
    fn found<E>(self, value: &FieldValue) -> Result<(), E> {
        for path in each(self.wanted).filter(|path| self.paths[*path].len() == self.depth) {
            (self.found)(path, value.clone());
        }
        Ok(())
    }

    /// The bits of the paths whose next member this is.
    fn through(&self, wanted: u64, name: &str) -> u64 {
        let next = |path: &usize| self.paths[*path].get(self.depth).is_some_and(|member| member == name);
        each(wanted).filter(next).fold(0, |bits, path| bits | 1 << path)
    }
}

impl<'de, F: FnMut(usize, FieldValue)> DeserializeSeed<'de> for Seek<'_, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, F: FnMut(usize, FieldValue)> Visitor<'de> for Seek<'_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut wanted =
            each(self.wanted).filter(|path| self.paths[*path].len() > self.depth).fold(0, |b, p| b | 1 << p);
        loop {
            if wanted == 0 && self.is_last {
                return Err(A::Error::custom("everything was found"));
            }
            let Some(Name(name)) = map.next_key()? else { return Ok(()) };
            let inner = self.through(wanted, &name);
            if inner == 0 {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            wanted &= !inner;
            let (paths, depth, is_last) = (self.paths, self.depth + 1, self.is_last && wanted == 0);
            map.next_value_seed(Seek { paths, wanted: inner, depth, is_last, found: &mut *self.found })?;
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        if self.is_last {
            return Err(A::Error::custom("no path leads through a list"));
        }
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.found(&FieldValue::Text(text.into()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<(), E> {
        self.found(&FieldValue::Integer(number))
    }

    fn visit_u64<E>(self, number: u64) -> Result<(), E> {
        match i64::try_from(number) {
            Ok(number) => self.found(&FieldValue::Integer(number)),
            Err(_) => Ok(()),
        }
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.found(&FieldValue::Boolean(value))
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);
