//! Completion indexes of an Indexed Job, as its status writes them: `0,2,4-7`. It must not know Pods.

use std::fmt;

/// Ascending intervals that neither overlap nor touch. A Job may have millions of indexes; its intervals are as many as its
/// Pods that are out of order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Indexes(Vec<(i64, i64)>);

impl Indexes {
    /// Reads what a status or a policy says; indexes that the Job does not have, and what is no interval, are left out.
    pub(super) fn parse(text: &str, completions: i64) -> Self {
        let interval = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (first.parse().ok()?, last.parse::<i64>().ok()?.min(completions - 1));
            (0 <= first && first <= last).then_some((first, last))
        };
        Self(text.split(',').filter_map(interval).collect()).merged()
    }

    pub(super) fn with(mut self, indexes: impl IntoIterator<Item = i64>) -> Self {
        self.0.extend(indexes.into_iter().map(|index| (index, index)));
        self.merged()
    }

    fn merged(mut self) -> Self {
        self.0.sort_unstable();
        let mut merged: Vec<(i64, i64)> = Vec::with_capacity(self.0.len());
        for (first, last) in self.0 {
            match merged.last_mut() {
                Some(known) if first <= known.1.saturating_add(1) => known.1 = known.1.max(last),
                _ => merged.push((first, last)),
            }
        }
        Self(merged)
    }

    pub(super) fn total(&self) -> i64 {
        self.0.iter().map(|(first, last)| last - first + 1).sum()
    }

    /// How many indexes are in both.
    pub(super) fn shared(&self, other: &Self) -> i64 {
        let overlap = |one: &(i64, i64), other: &(i64, i64)| (one.1.min(other.1) - one.0.max(other.0) + 1).max(0);
        self.0.iter().map(|one| other.0.iter().map(|other| overlap(one, other)).sum::<i64>()).sum()
    }

    /// The first indexes that are not among these.
    pub(super) fn missing(&self, completions: i64, count: usize) -> Vec<i64> {
        let mut from = 0;
        let mut gaps = Vec::new();
        for (first, last) in self.0.iter().chain(&[(completions, completions)]) {
            gaps.push(from..*first);
            from = last + 1;
        }
        gaps.into_iter().flatten().take(count).collect()
    }
}

impl fmt::Display for Indexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (first, last)) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            match last - first {
                0 => write!(f, "{comma}{first}")?,
                1 => write!(f, "{comma}{first},{last}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_written_as_intervals_of_three_or_more() {
        for (text, added, expected, total) in [
            ("", vec![], "", 0),
            ("", vec![4, 0, 1], "0,1,4", 3),
            ("0,1", vec![2], "0-2", 3),
            ("0-2,9", vec![3, 7], "0-3,7,9", 6),
            ("3-900000000000,x,-4,7-5", vec![], "3-9", 7),
        ] {
            let indexes = Indexes::parse(text, 10).with(added);
            assert_eq!((indexes.to_string().as_str(), indexes.total()), (expected, total), "{text}");
        }
        let some = Indexes::parse("0-2,5", 10);
        assert_eq!(some.missing(10, 4), [3, 4, 6, 7]);
        assert_eq!(Indexes::default().missing(2, 4), [0, 1]);
        assert_eq!(some.shared(&Indexes::parse("2-5", 10)), 2);
    }
}
