//! JSON pointers (RFC 6901), as JSON patches use them. Input: a pointer's text and a document. Output: the place in it, or
//! none. It must not know patches.

use serde_json::Value;

/// The segments of a pointer, unescaped. The empty pointer is the whole document.
pub(super) struct Pointer(Vec<String>);

impl Pointer {
    pub(super) fn read(text: &str) -> Option<Self> {
        if text.is_empty() {
            return Some(Self(Vec::new()));
        }
        let segments = text.strip_prefix('/')?.split('/');
        Some(Self(segments.map(|segment| segment.replace("~1", "/").replace("~0", "~")).collect()))
    }

    pub(super) fn get<'v>(&self, document: &'v Value) -> Option<&'v Value> {
        self.0.iter().try_fold(document, |value, segment| match value {
            Value::Object(fields) => fields.get(segment),
            Value::Array(items) => items.get(index(segment, items.len())?),
            _ => None,
        })
    }

    /// Replaces a value. A field that is not there is added, as the library of the API server does.
    pub(super) fn replace(&self, document: &mut Value, value: Value) -> Option<()> {
        if let Some(place) = descend(document, &self.0) {
            *place = value;
            return Some(());
        }
        let above = descend(document, self.0.split_last()?.1)?;
        above.is_object().then(|| self.add(document, value)).flatten()
    }

    /// Puts a value before an item, at a list's end (`-`), or into a field.
    pub(super) fn add(&self, document: &mut Value, value: Value) -> Option<()> {
        let Some((last, above)) = self.0.split_last() else {
            *document = value;
            return Some(());
        };
        match descend(document, above)? {
            Value::Object(fields) => drop(fields.insert(last.clone(), value)),
            Value::Array(items) if last == "-" => items.push(value),
            Value::Array(items) => {
                // An index from the end counts the place behind the last item, too.
                let at = index(last, items.len() + 1).filter(|at| *at <= items.len())?;
                items.insert(at, value);
            }
            _ => return None,
        }
        Some(())
    }

    pub(super) fn remove(&self, document: &mut Value) -> Option<Value> {
        let (last, above) = self.0.split_last()?;
        match descend(document, above)? {
            Value::Object(fields) => fields.remove(last),
            Value::Array(items) => {
                let at = index(last, items.len()).filter(|at| *at < items.len())?;
                Some(items.remove(at))
            }
            _ => None,
        }
    }
}

fn descend<'v>(document: &'v mut Value, segments: &[String]) -> Option<&'v mut Value> {
    segments.iter().try_fold(document, |value, segment| match value {
        Value::Object(fields) => fields.get_mut(segment),
        Value::Array(items) => {
            let at = index(segment, items.len())?;
            items.get_mut(at)
        }
        _ => None,
    })
}

/// A list's index; negative ones count from the end.
fn index(segment: &str, length: usize) -> Option<usize> {
    let at: i64 = segment.parse().ok()?;
    if at < 0 { length.checked_sub(usize::try_from(at.unsigned_abs()).ok()?) } else { usize::try_from(at).ok() }
}
