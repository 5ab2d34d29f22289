//! Compares JSON texts level by level, as the API server stores their values. A tree of what anybody may have written takes up to a
//! hundred times its text; this takes some times its text and reads it some times. It must not know what the texts say.

use serde_json::value::RawValue;

use super::is_same as is_same_value;
use super::level::{Level, Member, member};

/// How often the texts are read. Each level is read with all within it, and few objects are deeper; of those the answer is no.
const READS: usize = 24;
/// Levels at most, for the stack.
const MAX_DEPTH: usize = 100;

/// One comparison.
pub(crate) struct Comparison {
    /// Bytes of text that may still be read.
    left: usize,
    depth: usize,
}

impl Comparison {
    /// Of texts of so many bytes together.
    pub(crate) fn new(bytes: usize) -> Self {
        Self { left: bytes.saturating_mul(READS), depth: 0 }
    }

    /// Reads one level of a value; what would take too long is [`Level::Wide`].
    pub(crate) fn level<'a>(&mut self, text: &'a RawValue) -> Level<'a> {
        let bytes = text.get().len();
        if self.left < bytes {
            return Level::Wide;
        }
        self.left -= bytes;
        Level::of(text, usize::MAX)
    }

    /// One level deeper; false where there are too many. [`Self::leave`] follows.
    pub(crate) fn enter(&mut self) -> bool {
        let may_enter = self.depth < MAX_DEPTH;
        self.depth += usize::from(may_enter);
        may_enter
    }

    pub(crate) fn leave(&mut self) {
        self.depth -= 1;
    }

    fn deeper(&mut self, look: impl FnOnce(&mut Self) -> bool) -> bool {
        let may_enter = self.enter();
        let found = may_enter && look(self);
        if may_enter {
            self.leave();
        }
        found
    }

    /// Whether two values are equal. In doubt they are not.
    pub(crate) fn is_same(&mut self, one: &RawValue, other: &RawValue) -> bool {
        one.get() == other.get()
            || self.deeper(|comparison| match (comparison.level(one), comparison.level(other)) {
                (Level::Object(one), Level::Object(other)) => {
                    let is_there = |(name, value): &Member<'_>| {
                        member(&other, name).is_some_and(|other| comparison.is_same(value, other))
                    };
                    one.len() == other.len() && one.iter().all(is_there)
                }
                (Level::List(one), Level::List(other)) => {
                    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| comparison.is_same(one, other))
                }
                (Level::Scalar, Level::Scalar) => is_same_scalar(one, other),
                _ => false,
            })
    }

    /// Whether every value of `wanted` is in `live`, which may have more members, but not more items. `may_be_missing` says
    /// of which values a member may be absent.
    pub(crate) fn has(&mut self, live: &RawValue, wanted: &RawValue, may_be_missing: fn(&RawValue) -> bool) -> bool {
        live.get() == wanted.get()
            || self.deeper(|comparison| match (comparison.level(live), comparison.level(wanted)) {
                (Level::Object(live), Level::Object(wanted)) => comparison.has_members(&live, &wanted, may_be_missing),
                (Level::List(live), Level::List(wanted)) => {
                    live.len() == wanted.len()
                        && live.iter().zip(wanted).all(|(live, wanted)| comparison.has(live, wanted, may_be_missing))
                }
                (Level::Scalar, Level::Scalar) => is_same_scalar(live, wanted),
                _ => false,
            })
    }

    /// The same of two objects.
    pub(crate) fn has_members(
        &mut self,
        live: &[Member<'_>],
        wanted: &[Member<'_>],
        may_be_missing: fn(&RawValue) -> bool,
    ) -> bool {
        wanted.iter().all(|(name, wanted)| match member(live, name) {
            Some(live) => self.has(live, wanted, may_be_missing),
            None => may_be_missing(wanted),
        })
    }

    /// Whether a JSON merge patch (RFC 7396) would change nothing.
    pub(crate) fn is_merged(&mut self, live: &RawValue, patch: &RawValue) -> bool {
        self.deeper(|comparison| match (comparison.level(live), comparison.level(patch)) {
            (Level::Object(live), Level::Object(patch)) => {
                patch.iter().all(|(name, patch)| match (member(&live, name), patch.get()) {
                    (live, "null") => live.is_none(),
                    (Some(live), _) => comparison.is_merged(live, patch),
                    (None, _) => false,
                })
            }
            (_, Level::Object(_) | Level::Wide) => false,
            _ => comparison.is_same(live, patch),
        })
    }
}

/// Two notations of one text or number.
fn is_same_scalar(one: &RawValue, other: &RawValue) -> bool {
    let value = |text: &RawValue| serde_json::from_str::<serde_json::Value>(text.get()).ok();
    value(one).zip(value(other)).is_some_and(|(one, other)| is_same_value(&one, &other))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    const TEXTS: [&str; 16] = [
        "null",
        "1",
        "1.0",
        r#""\u0041""#,
        r#""A""#,
        "[]",
        "{}",
        "[1,2]",
        "[1,{}]",
        r#"{"a":1}"#,
        r#"{"a":1.0,"b":null}"#,
        r#"{"a":{"b":[1,{"c":2}]}}"#,
        r#"{"a":{"b":[1,{"c":2,"d":3}]},"e":{}}"#,
        r#"{"a":{"b":null}}"#,
        r#"{"a":{},"e":[]}"#,
        r#"{"\u0061":{"b":[1,{"c":2}]}}"#,
    ];

    fn has(live: &Value, wanted: &Value) -> bool {
        match (live, wanted) {
            (Value::Object(live), Value::Object(wanted)) => {
                wanted.iter().all(|(name, wanted)| live.get(name).is_some_and(|live| has(live, wanted)))
            }
            (Value::Array(live), Value::Array(wanted)) => {
                live.len() == wanted.len() && live.iter().zip(wanted).all(|(live, wanted)| has(live, wanted))
            }
            _ => is_same_value(live, wanted),
        }
    }

    #[test]
    fn texts_compare_as_their_trees_do() {
        for (one, other) in TEXTS.iter().flat_map(|one| TEXTS.map(|other| (*one, other))) {
            let raw = |text| -> &RawValue { serde_json::from_str(text).unwrap() };
            let tree = |text| -> Value { serde_json::from_str(text).unwrap() };
            let comparison = || Comparison::new(one.len() + other.len());
            let (is_same, is_there) = (comparison().is_same(raw(one), raw(other)), |_: &RawValue| false);
            assert_eq!(is_same, is_same_value(&tree(one), &tree(other)), "{one} and {other}");
            let found = comparison().has(raw(one), raw(other), is_there);
            assert_eq!(found, has(&tree(one), &tree(other)), "{one} has {other}");
            let mut merged = tree(one);
            json_patch::merge(&mut merged, &tree(other));
            let is_merged = comparison().is_merged(raw(one), raw(other));
            assert_eq!(is_merged, is_same_value(&merged, &tree(one)), "{other} merged into {one}");
        }
    }
}
