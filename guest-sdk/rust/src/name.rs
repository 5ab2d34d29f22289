//! Names for children with a prefix that people recognize. The host names children that have no name in the outcome.

/// The longest name that Kubernetes accepts for most kinds.
const MAX_NAME_BYTES: usize = 253;
/// Letters of the hash. 27^8 is 2.8e11: among 500 children, the most of one object, two names are equal once in two
/// million objects, and then the host refuses the outcome.
const HASH_LETTERS: usize = 8;
/// Kubernetes' own alphabet for generated names: no vowels, so no words, and nothing that looks alike.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

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
    let mut hash = hash(parts);
    for _ in 0..HASH_LETTERS {
        let letter = hash % ALPHABET.len() as u64;
        name.push(char::from(ALPHABET[letter as usize]));
        hash /= ALPHABET.len() as u64;
    }
    name
}

/// FNV-1a with the finalizer of MurmurHash3, which spreads it over all bits. It must never change, because names are
/// made of it. It is a few bytes of code in every component; it need not resist attacks, since a collision gains nobody
/// anything.
fn hash(parts: &[&str]) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for part in parts {
        // The length keeps ("ab", "c") and ("a", "bc") apart.
        for byte in (part.len() as u64).to_le_bytes().iter().chain(part.as_bytes()) {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
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
