//! Which page of a list is next. The tokens that the API server returns come in; the next page's token, or why the list would
//! never end, comes out. It must not know what is listed, or how.

use std::collections::BTreeSet;

use crate::digest::fingerprint;

/// Pages without an object in a row after which a list ends in a failure. The API server looks for objects until a page is full.
const MAX_EMPTY_PAGES: u32 = 16;
/// Bytes of a token: Kubernetes' have a key of etcd in base64, some hundred bytes. Servers accept 8 KiB of a request's line.
const MAX_TOKEN_BYTES: usize = 4 << 10;

/// The tokens of one list so far. A list that begins again begins with none.
#[derive(Debug, Default)]
pub struct Tokens {
    /// Their hashes: eighty pages are the longest list that most clusters have.
    seen: BTreeSet<u128>,
    empty_pages: u32,
}

impl Tokens {
    /// The token of the page that follows one with so many objects; None: it was the last.
    ///
    /// # Errors
    /// The list has no end: a token repeats, or page after page is empty.
    pub fn next(&mut self, of: &str, token: &str, objects: usize) -> Result<Option<String>, String> {
        if token.is_empty() {
            return Ok(None);
        }
        let endless = |why: &str| Err(format!("the list of {of} does not end: {why}"));
        self.empty_pages = if objects == 0 { self.empty_pages + 1 } else { 0 };
        if token.len() > MAX_TOKEN_BYTES {
            return endless("the token of a page is longer than a request may be");
        }
        if self.empty_pages > MAX_EMPTY_PAGES {
            return endless("page after page has no objects");
        }
        if !self.seen.insert(fingerprint(&[token])) {
            return endless("the token of a page is that of a page before it");
        }
        Ok(Some(token.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_without_an_end_fails() {
        let next = |tokens: &mut Tokens, token: &str, objects| tokens.next("pods", token, objects);
        let mut tokens = Tokens::default();
        assert_eq!(next(&mut tokens, "a", 500), Ok(Some("a".to_owned())));
        assert_eq!(next(&mut tokens, "b", 500), Ok(Some("b".to_owned())));
        assert_eq!(next(&mut tokens, "", 500), Ok(None));
        for repeated in ["a", "b"] {
            let why = next(&mut tokens, repeated, 500).unwrap_err();
            assert!(why.contains("the list of pods does not end") && why.contains("a page before it"), "{why}");
        }
        let mut tokens = Tokens::default();
        for page in 0..MAX_EMPTY_PAGES {
            assert!(next(&mut tokens, &page.to_string(), 0).is_ok(), "{page}");
        }
        assert!(next(&mut tokens, "found", 1).is_ok());
        for page in 100..100 + MAX_EMPTY_PAGES {
            assert!(next(&mut tokens, &page.to_string(), 0).is_ok(), "{page}");
        }
        assert!(next(&mut tokens, "one more", 0).unwrap_err().contains("no objects"));
        assert!(next(&mut Tokens::default(), &"x".repeat(MAX_TOKEN_BYTES), 1).is_ok());
        assert!(next(&mut Tokens::default(), &"x".repeat(MAX_TOKEN_BYTES + 1), 1).is_err());
    }
}
