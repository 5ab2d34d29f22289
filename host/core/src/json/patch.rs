//! The JSON patch (RFC 6902) from one JSON text to another, as text. Its length and its cost are linear in those of the texts,
//! whatever they say: where the operations within an object or a list would be longer than it is, they give way to one that
//! replaces it. It builds no tree.

use std::fmt::Write as _;

use serde_json::value::RawValue;

use super::level::{Level, Member, member};

#[cfg(test)]
mod tests;

/// Members and items that are looked at at once: some megabytes, and ten times what the longest lists of objects have. What has
/// more is replaced as a whole.
const MOST: usize = 1 << 16;
/// How often the texts are read. Each level of an object is read with all within it, and few are deeper; what is, is replaced
/// as a whole.
const READS: usize = 24;
/// Levels at most, for the stack. Objects of Kubernetes have some twenty.
const MAX_DEPTH: usize = 100;
/// An operation without its path and its value.
const OPERATION_BYTES: usize = 48;

/// The operations that make `after` of `before`, both at a path.
pub(crate) struct Patch {
    operations: String,
    /// Where the next ones apply: a JSON pointer.
    path: String,
    depth: usize,
    /// Bytes of text that may still be read.
    left: usize,
    /// Members and items that are looked at.
    open: usize,
}

impl Patch {
    /// For two texts of so many bytes together.
    pub(crate) fn new(bytes: usize) -> Self {
        let left = bytes.saturating_mul(READS);
        Self { operations: String::new(), path: String::new(), depth: 0, left, open: 0 }
    }

    /// Whether the texts say the same. False also for what would take too long to compare.
    pub(crate) fn is_same(before: &RawValue, after: &RawValue) -> bool {
        let mut patch = Self::new(before.get().len() + after.get().len());
        patch.between(before, after);
        patch.operations.is_empty()
    }

    /// The operations as a JSON list; None when there are none.
    pub(crate) fn into_text(self) -> Option<String> {
        (!self.operations.is_empty()).then(|| format!("[{}]", self.operations))
    }

    /// Adds what makes the members of an object `after` of those of `before`, but those that are left out.
    pub(crate) fn between_members(&mut self, before: &[Member<'_>], after: &[Member<'_>], without: &[&str]) {
        self.members((before, after), without, usize::MAX);
    }

    /// Adds what is within a member of the present object.
    pub(crate) fn within(&mut self, name: &str, add: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        self.path.push('/');
        for character in name.chars() {
            match character {
                '~' => self.path.push_str("~0"),
                '/' => self.path.push_str("~1"),
                other => self.path.push(other),
            }
        }
        add(self);
        self.path.truncate(length);
    }

    fn between(&mut self, before: &RawValue, after: &RawValue) {
        if before.get() == after.get() {
            return;
        }
        let begin = self.operations.len();
        let longest = OPERATION_BYTES + self.path.len() + after.get().len();
        if !self.is_patched(before, after, begin + longest) {
            self.operations.truncate(begin);
            self.operation("replace", Some(after));
        }
    }

    /// Adds the operations within a value; false when it has to be replaced.
    fn is_patched(&mut self, before: &RawValue, after: &RawValue, end: usize) -> bool {
        let bytes = before.get().len() + after.get().len();
        if self.depth == MAX_DEPTH || self.left < bytes {
            return false;
        }
        self.left -= bytes;
        let most = MOST.saturating_sub(self.open);
        let (before_level, after_level) = (Level::of(before, most), Level::of(after, most));
        let open = before_level.len() + after_level.len();
        self.open += open;
        self.depth += 1;
        let is_patched = match (&before_level, &after_level) {
            (Level::Object(before), Level::Object(after)) => self.members((before, after), &[], end),
            (Level::List(before), Level::List(after)) => self.items(before, after, end),
            (Level::Scalar, Level::Scalar) => is_same_scalar(before, after),
            _ => false,
        };
        self.depth -= 1;
        self.open -= open;
        is_patched
    }

    fn members(&mut self, (before, after): (&[Member<'_>], &[Member<'_>]), without: &[&str], end: usize) -> bool {
        let is_looked_at = |(name, _): &&Member<'_>| !without.contains(&&**name);
        for (name, _) in before.iter().filter(is_looked_at).filter(|(name, _)| member(after, name).is_none()) {
            self.within(name, |patch| patch.operation("remove", None));
            if self.operations.len() > end {
                return false;
            }
        }
        for (name, after) in after.iter().filter(is_looked_at) {
            self.within(name, |patch| match member(before, name) {
                Some(before) => patch.between(before, after),
                None => patch.operation("add", Some(after)),
            });
            if self.operations.len() > end {
                return false;
            }
        }
        true
    }

    fn items(&mut self, before: &[&RawValue], after: &[&RawValue], end: usize) -> bool {
        for index in (after.len()..before.len()).rev() {
            self.within(&index.to_string(), |patch| patch.operation("remove", None));
            if self.operations.len() > end {
                return false;
            }
        }
        for (index, after) in after.iter().enumerate() {
            self.within(&index.to_string(), |patch| match before.get(index) {
                Some(before) => patch.between(before, after),
                None => patch.operation("add", Some(after)),
            });
            if self.operations.len() > end {
                return false;
            }
        }
        true
    }

    fn operation(&mut self, operation: &str, value: Option<&RawValue>) {
        if !self.operations.is_empty() {
            self.operations.push(',');
        }
        let path = serde_json::to_string(&self.path).expect("a text has a JSON form");
        let _ = write!(self.operations, r#"{{"op":"{operation}","path":{path}"#);
        if let Some(value) = value {
            let _ = write!(self.operations, r#","value":{value}"#);
        }
        self.operations.push('}');
    }
}

/// Two notations of one text or number.
fn is_same_scalar(one: &RawValue, other: &RawValue) -> bool {
    let value = |text: &RawValue| serde_json::from_str::<serde_json::Value>(text.get()).ok();
    value(one).is_some_and(|one| value(other) == Some(one))
}
