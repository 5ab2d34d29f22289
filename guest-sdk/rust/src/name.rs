//! Names for children with a prefix that people recognize. The host names children that have no name in the outcome.

use crate::hash::Hash;

/// The longest name that Kubernetes accepts for most kinds.
const MAX_NAME_BYTES: usize = 253;
/// Letters of the hash. 27^8 is 2.8e11: of 5,000 children of one object, the most, with equal beginnings, two names are
/// equal once in 22,000 objects, and then the host refuses the outcome.
const HASH_LETTERS: usize = 8;

/// `begin`, a dash and a hash of `parts`, in 253 bytes at most: `begin`, which is (the beginning of) a Kubernetes name,
/// is cut if necessary. Equal parts give the same name in every call and every build; other parts give another name.
///
/// It is for a child whose name should show another object's, such as its node's. The parts make it unique: the owner's
/// `metadata.uid`, and what distinguishes the child from its siblings.
///
/// ```
/// use mortise_sdk::child_name;
///
/// let name = child_name("node-1.example.com", &["3f0d7a52", "node-1.example.com"]);
/// assert_eq!(name, "node-1.example.com-bb74nbv6");
/// ```
pub fn child_name(begin: &str, parts: &[&str]) -> String {
    let room = MAX_NAME_BYTES - HASH_LETTERS - 1;
    let cut = begin.get(..room).unwrap_or(begin);
    let mut name = String::with_capacity(cut.len() + 1 + HASH_LETTERS);
    // Each label of a name has to end in a letter or digit, also after the cut.
    name.push_str(cut.trim_end_matches(['.', '-']));
    name.push('-');
    let mut hash = Hash::new();
    parts.iter().for_each(|part| hash.text(part));
    hash.letters(HASH_LETTERS, &mut name);
    name
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_the_same_in_every_release_and_differ_by_every_part() {
        assert_eq!(child_name("a", &["uid", "a"]), child_name("a", &["uid", "a"]));
        let parts: [&[&str]; 5] = [&["uid", "a"], &["uid", "b"], &["uie", "a"], &["uida"], &["ui", "da"]];
        let names: BTreeSet<String> = parts.iter().map(|parts| child_name("a", parts)).collect();
        assert_eq!(names.len(), parts.len(), "{names:?}");
        let of_many: BTreeSet<String> = (0..100_000).map(|n| child_name("", &["uid", &n.to_string()])).collect();
        assert_eq!(of_many.len(), 100_000);
    }

    #[test]
    fn a_beginning_that_is_too_long_is_cut_where_a_name_may_end() {
        let longest = format!("{}.{}.{}.{}", "a".repeat(63), "b".repeat(63), "c".repeat(63), "d".repeat(61));
        let name = child_name(&longest, &["uid", &longest]);
        assert_eq!(name.len(), 253);
        assert!(longest.starts_with(&name[..244]));
        for end in ["-", ".", "--", "-.-"] {
            let begin = format!("{}{end}{}", "a".repeat(244 - end.len()), "b".repeat(9));
            let name = child_name(&begin, &["uid"]);
            assert!(name.starts_with(&format!("{}-", "a".repeat(244 - end.len()))), "{name}");
        }
    }
}
