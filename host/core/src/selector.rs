//! Kubernetes label selectors: `app=web,tier in (a, b),!legacy`.
//!
//! The syntax is that of `kubectl get -l`: `=`, `==`, `!=`, `in`, `notin`, `key`, `!key`, joined by commas that mean
//! "and". As in Kubernetes, `!=` and `notin` also match objects without the key.

use std::fmt;

use thiserror::Error;

use crate::heap::HeapBytes;
use crate::object::{Labels, is_object_name};

#[cfg(test)]
mod tests;

/// More than a URL can carry to the API server.
const MAX_SELECTOR_BYTES: usize = 8_192;
/// Terms of one selector, each of which is compared with each object. The selector of a workload has one to five.
const MAX_TERMS: usize = 64;
/// Kubernetes' bound for a label value, and for a label key without its prefix.
const MAX_NAME_BYTES: usize = 63;
const NOT_A_VALUE: &str =
    "this is not a label value: at most 63 letters, digits, -, _ and ., the first and last a letter or digit";

/// A parsed label selector. The default matches everything.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Selector {
    terms: Vec<Term>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Term {
    key: String,
    operator: Operator,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Operator {
    /// One of these values; `=` has one.
    In(Vec<String>),
    /// None of these values, or no such key.
    NotIn(Vec<String>),
    Exists,
    Absent,
}

/// Why a label selector cannot be parsed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("the label selector {selector:?} is invalid at byte {at}: {problem}")]
pub struct InvalidSelector {
    /// The selector.
    pub selector: String,
    /// The byte.
    pub at: usize,
    /// The error there.
    pub problem: &'static str,
}

impl Selector {
    /// Parses a selector, ignoring white space around its parts.
    pub fn parse(text: &str) -> Result<Self, InvalidSelector> {
        Parser { text, at: 0 }.selector()
    }

    /// The selector that matches what both match.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self { terms: self.terms.iter().chain(&other.terms).cloned().collect() }
    }

    /// Whether every match has some label that it names.
    pub fn is_positive(&self) -> bool {
        self.terms.iter().any(|term| matches!(term.operator, Operator::In(_) | Operator::Exists))
    }

    /// Whether it matches everything.
    pub fn is_everything(&self) -> bool {
        self.terms.is_empty()
    }

    /// Bytes in memory, without the struct itself.
    pub fn bytes(&self) -> usize {
        self.terms.heap_bytes()
    }

    /// Whether labels match every term.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.terms.iter().all(|term| {
            let value = labels.get(&term.key);
            match &term.operator {
                Operator::In(values) => value.is_some_and(|value| values.iter().any(|other| other == value)),
                Operator::NotIn(values) => value.is_none_or(|value| values.iter().all(|other| other != value)),
                Operator::Exists => value.is_some(),
                Operator::Absent => value.is_none(),
            }
        })
    }

    /// The labels that every match has, by which an index can be searched.
    pub fn required(&self) -> impl Iterator<Item = (&str, &str)> {
        self.terms.iter().filter_map(|term| match &term.operator {
            Operator::In(values) if values.len() == 1 => Some((term.key.as_str(), values[0].as_str())),
            _ => None,
        })
    }
}

impl HeapBytes for Term {
    fn heap_bytes(&self) -> usize {
        let of_values = match &self.operator {
            Operator::In(values) | Operator::NotIn(values) => values.heap_bytes(),
            Operator::Exists | Operator::Absent => 0,
        };
        self.key.heap_bytes() + of_values
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Term { key, operator }) in self.terms.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            match operator {
                Operator::In(values) if values.len() == 1 => write!(f, "{key}={}", values[0])?,
                Operator::NotIn(values) if values.len() == 1 => write!(f, "{key}!={}", values[0])?,
                Operator::In(values) => write!(f, "{key} in ({})", values.join(","))?,
                Operator::NotIn(values) => write!(f, "{key} notin ({})", values.join(","))?,
                Operator::Exists => f.write_str(key)?,
                Operator::Absent => write!(f, "!{key}")?,
            }
        }
        Ok(())
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn selector(mut self) -> Result<Selector, InvalidSelector> {
        if self.text.len() > MAX_SELECTOR_BYTES {
            self.text = "";
            return Err(self.invalid(0, "it is longer than 8192 bytes"));
        }
        let mut terms = Vec::new();
        self.space();
        while self.at < self.text.len() {
            if terms.len() == MAX_TERMS {
                return Err(self.invalid(self.at, "it has more than 64 terms"));
            }
            terms.push(self.term()?);
            self.space();
            if self.at == self.text.len() {
                break;
            }
            if !self.take(",") {
                return Err(self.invalid(self.at, "a comma or the end is expected"));
            }
            self.space();
            if self.at == self.text.len() {
                return Err(self.invalid(self.at, "a term is expected after the comma"));
            }
        }
        // Dependencies keep selectors, so spare capacity is freed.
        terms.shrink_to_fit();
        Ok(Selector { terms })
    }

    fn term(&mut self) -> Result<Term, InvalidSelector> {
        let absent = self.take("!");
        self.space();
        let key = self.key()?;
        if absent {
            return Ok(Term { key, operator: Operator::Absent });
        }
        self.space();
        let operator = if self.take("!=") {
            Operator::NotIn(vec![self.value()?])
        } else if self.take("==") || self.take("=") {
            Operator::In(vec![self.value()?])
        } else if self.at == self.text.len() || self.rest().starts_with(',') {
            Operator::Exists
        } else {
            let start = self.at;
            match self.word() {
                "in" => Operator::In(self.values()?),
                "notin" => Operator::NotIn(self.values()?),
                _ => return Err(self.invalid(start, "one of =, ==, !=, in, notin, a comma or the end is expected")),
            }
        };
        Ok(Term { key, operator })
    }

    fn key(&mut self) -> Result<String, InvalidSelector> {
        let start = self.at;
        let key = self.word();
        if key.is_empty() {
            return Err(self.invalid(start, "a label key is expected"));
        }
        let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
        if !is_name(name) || prefix.is_some_and(|prefix| !is_object_name(prefix)) {
            return Err(self.invalid(start, "this is not a label key"));
        }
        Ok(key.to_owned())
    }

    fn value(&mut self) -> Result<String, InvalidSelector> {
        self.space();
        let start = self.at;
        let value = self.word();
        if !value.is_empty() && !is_name(value) {
            return Err(self.invalid(start, NOT_A_VALUE));
        }
        Ok(value.to_owned())
    }

    /// `(a, b)`, sorted so that equal sets are equal selectors.
    fn values(&mut self) -> Result<Vec<String>, InvalidSelector> {
        self.space();
        if !self.take("(") {
            return Err(self.invalid(self.at, "an opening parenthesis is expected"));
        }
        let mut values = Vec::new();
        loop {
            values.push(self.value()?);
            self.space();
            if self.take(")") {
                break;
            }
            if !self.take(",") {
                return Err(self.invalid(self.at, "a comma or a closing parenthesis is expected"));
            }
        }
        values.sort();
        values.dedup();
        values.shrink_to_fit();
        Ok(values)
    }

    /// The longest run of characters that keys and values have.
    fn word(&mut self) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || "-_./".contains(c))).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn take(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start_matches([' ', '\t', '\n', '\r']).len();
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn invalid(&self, at: usize, problem: &'static str) -> InvalidSelector {
        InvalidSelector { selector: self.text.to_owned(), at, problem }
    }
}

fn is_name(name: &str) -> bool {
    let is_alphanumeric = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    name.len() <= MAX_NAME_BYTES
        && is_alphanumeric(bytes.first())
        && is_alphanumeric(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}
