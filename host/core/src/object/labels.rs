//! The labels of an object. Few are shared with other objects, which have the same ones mostly; many are one text, since each by
//! itself takes ten times its bytes.

use std::sync::Arc;

use crate::heap::{HeapBytes, allocation};

/// A label's key and value.
pub type Label = (Arc<str>, Arc<str>);

/// Labels that are shared one by one. Nodes, which have the most, have some thirty.
pub(super) const MAX_SHARED: usize = 64;

/// Labels, sorted by key, each key once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Labels(Kept);

#[derive(Clone, PartialEq, Eq, Debug)]
enum Kept {
    Shared(Box<[Label]>),
    Text(Box<LabelText>),
}

/// All keys and values one after another, with their ends.
#[derive(Clone, PartialEq, Eq, Debug)]
struct LabelText {
    text: Box<str>,
    ends: Box<[(u32, u32)]>,
}

impl Default for Labels {
    fn default() -> Self {
        Self(Kept::Shared(Box::default()))
    }
}

impl From<Vec<Label>> for Labels {
    /// Of labels in any order; of those with the same key the first counts.
    fn from(mut labels: Vec<Label>) -> Self {
        // The API server sends maps sorted and without duplicates, so this is cheap; other servers may not.
        labels.sort_by(|(left, _), (right, _)| left.cmp(right));
        labels.dedup_by(|(right, _), (left, _)| left == right);
        Self(Kept::Shared(labels.into()))
    }
}

impl Labels {
    /// Of borrowed labels, as one text.
    pub(super) fn of_text<'a>(labels: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let mut labels: Vec<(&str, &str)> = labels.collect();
        labels.sort_by_key(|(key, _)| *key);
        labels.dedup_by_key(|(key, _)| *key);
        let mut text = String::with_capacity(labels.iter().map(|(key, value)| key.len() + value.len()).sum());
        let end_of = |text: &str| u32::try_from(text.len()).expect("no object has four GiB");
        let ends = labels.iter().map(|(key, value)| {
            text.push_str(key);
            let key_end = end_of(&text);
            text.push_str(value);
            (key_end, end_of(&text))
        });
        let ends = ends.collect();
        Self(Kept::Text(Box::new(LabelText { text: text.into(), ends })))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        match &self.0 {
            Kept::Shared(labels) => labels.len(),
            Kept::Text(labels) => labels.ends.len(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        let at = match &self.0 {
            Kept::Shared(labels) => labels.binary_search_by(|(other, _)| (**other).cmp(key)),
            Kept::Text(labels) => labels.search(key),
        };
        at.ok().map(|at| self.at(at).1)
    }

    /// Keys and values, by key. Equal texts of several objects are mostly the same one in memory.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        (0..self.len()).map(|at| self.at(at))
    }

    fn at(&self, at: usize) -> (&str, &str) {
        match &self.0 {
            Kept::Shared(labels) => (&labels[at].0, &labels[at].1),
            Kept::Text(labels) => labels.at(at),
        }
    }
}

impl LabelText {
    fn at(&self, at: usize) -> (&str, &str) {
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before].1);
        let (key_end, end) = self.ends[at];
        let [start, key_end, end] = [start, key_end, end].map(|place| place as usize);
        (&self.text[start..key_end], &self.text[key_end..end])
    }

    fn search(&self, key: &str) -> Result<usize, usize> {
        let (mut low, mut high) = (0, self.ends.len());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.at(middle).0.cmp(key) {
                std::cmp::Ordering::Equal => return Ok(middle),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }
}

impl HeapBytes for Labels {
    /// Without the texts of shared ones, which are the interner's.
    fn heap_bytes(&self) -> usize {
        match &self.0 {
            Kept::Shared(labels) => allocation(size_of_val(&**labels)),
            Kept::Text(labels) => {
                allocation(size_of::<LabelText>()) + labels.text.heap_bytes() + allocation(size_of_val(&*labels.ends))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_labels_are_found_as_few_are() {
        let all: Vec<(String, String)> =
            (0..200).rev().map(|number| (format!("k{number}"), format!("v{number}"))).collect();
        let borrowed = || all.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let twice = borrowed().chain([("k7", "another")]);
        let text = Labels::of_text(twice);
        let shared = Labels::from(Vec::from_iter(borrowed().map(|(key, value)| (key.into(), value.into()))));
        assert!(text.iter().eq(shared.iter()) && text.len() == 200 && text.iter().is_sorted());
        for (key, value) in borrowed().chain([("", ""), ("k", ""), ("k1990", ""), ("z", "")]) {
            let expected = key.strip_prefix('k').filter(|_| key.len() > 1 && key.len() < 5).map(|_| value);
            assert_eq!((text.get(key), shared.get(key)), (expected, expected), "{key}");
        }
        assert!(Labels::of_text(std::iter::empty()).is_empty() && Labels::default().get("a").is_none());
    }
}
