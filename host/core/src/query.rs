//! What a guest asks of a snapshot: a kind, perhaps a namespace, a label selector and values of fields, and the fields it wants.
//!
//! [`Query`] is the question as it was asked; [`CompiledQuery`] is the same question after its selector and field paths
//! were parsed, and [`QueryCache`] remembers the step between them. Nothing here looks at a store: `view.rs` asks,
//! `dependencies.rs` remembers what was asked.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher, Hash};
use std::sync::{Arc, Mutex, PoisonError};

use thiserror::Error;

use crate::budget::Budget;
use crate::field_selector::{self, FieldSelector, FieldValue, InvalidFieldSelector};
use crate::object::{Kind, Object};
use crate::projection::{InvalidPath, Projection};
use crate::selector::{InvalidSelector, Selector};

#[cfg(test)]
mod tests;

/// Entries of each table of a cache. A plugin has a handful of field lists, but its selectors may name the object it
/// reconciles; a full table is emptied, and the next calls parse again.
const CACHE_ENTRIES: usize = 256;
/// Bytes of each table of a cache, as asked and as parsed together: 2 KiB for each entry, where real questions take some
/// hundred. What is larger than a table is not kept at all.
const CACHE_BYTES: usize = 512 << 10;
/// What a table and the allocator take for an entry beside its texts, rounded up.
const ENTRY_BYTES: usize = 128;

/// A question about many objects of one kind, as a guest asks it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Query {
    /// What to look for.
    pub kind: Kind,
    /// None: every namespace. For cluster-scoped kinds it is always None.
    pub namespace: Option<String>,
    /// Kubernetes label selector syntax. None: all objects.
    pub selector: Option<String>,
    /// Field paths with the values that every object has there. Empty: all objects.
    pub field_selector: Vec<(String, FieldValue)>,
    /// Field paths to keep, and nothing else, in the syntax of [`crate::projection`]. Empty: whole objects.
    pub fields: Vec<String>,
    /// At most this many, counted in the order of namespace and name.
    pub limit: Option<u32>,
}

/// A query whose parts were parsed. Two are equal when they ask the same, however it was written.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CompiledQuery {
    /// What to look for.
    pub kind: Kind,
    /// None: every namespace.
    pub namespace: Option<Arc<str>>,
    /// Which labels.
    pub selector: Selector,
    /// Which values of fields.
    pub field_selector: FieldSelector,
    /// Which fields of them to keep.
    pub fields: Projection,
    /// At most this many.
    pub limit: Option<u32>,
}

/// Why a query cannot be compiled.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum InvalidQuery {
    /// The selector cannot be read.
    #[error(transparent)]
    Selector(#[from] InvalidSelector),
    /// The field selector cannot be used.
    #[error(transparent)]
    FieldSelector(#[from] InvalidFieldSelector),
    /// A field path cannot be read.
    #[error(transparent)]
    Path(#[from] InvalidPath),
}

impl Query {
    /// Everything of a kind, whole.
    pub fn all(kind: Kind) -> Self {
        Self { kind, namespace: None, selector: None, field_selector: Vec::new(), fields: Vec::new(), limit: None }
    }

    /// What the texts of the question take in memory.
    fn bytes(&self) -> usize {
        let of_text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        size_of::<Self>()
            + self.kind.api_version.len()
            + self.kind.kind.len()
            + of_text(&self.namespace)
            + of_text(&self.selector)
            + self
                .field_selector
                .iter()
                .map(|(path, value)| size_of_val(path) + path.len() + value.bytes())
                .sum::<usize>()
            + bytes_of_texts(&self.fields)
    }

    /// Parses the selector and the field paths.
    pub fn compile(&self) -> Result<CompiledQuery, InvalidQuery> {
        self.compile_with(Projection::parse(&self.fields)?)
    }

    /// As [`Self::compile`], with the field paths parsed already.
    fn compile_with(&self, fields: Projection) -> Result<CompiledQuery, InvalidQuery> {
        Ok(CompiledQuery {
            kind: self.kind.clone(),
            namespace: self.namespace.as_deref().map(Into::into),
            selector: self.selector.as_deref().map_or(Ok(Selector::everything()), Selector::parse)?,
            field_selector: FieldSelector::parse(&self.field_selector)?,
            fields,
            limit: self.limit,
        })
    }
}

impl CompiledQuery {
    /// What it takes in memory, its field paths included, which it may share with others.
    pub fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.namespace.as_ref().map_or(0, |namespace| namespace.len())
            + self.selector.bytes()
            + self.field_selector.bytes()
            + self.fields.bytes()
    }

    /// Whether the object is among those asked for, the limit aside. Values of fields take units of the budget to look at; None
    /// when there are not enough.
    pub(crate) fn matches_within(&self, object: &Object, budget: &Budget) -> Option<bool> {
        let may_match = object.kind == self.kind
            && self.namespace.as_ref().is_none_or(|namespace| *namespace == object.name.namespace)
            && self.selector.matches(&object.labels);
        if may_match {
            field_selector::matches_within(self.field_selector.requirements(), object, budget)
        } else {
            Some(false)
        }
    }
}

/// Remembers what was compiled, so that a plugin's few questions are parsed once and not at each call. What a guest asks
/// decides what stands here, so each table has a bound in entries and one in bytes.
#[derive(Debug, Default)]
pub struct QueryCache(Mutex<Tables>);

#[derive(Debug, Default)]
struct Tables {
    projections: Remembered<Vec<String>, Projection>,
    queries: Remembered<Query, Arc<CompiledQuery>>,
}

impl QueryCache {
    /// The projection of a field list.
    pub fn projection(&self, fields: &[String]) -> Result<Projection, InvalidPath> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).projection(fields)
    }

    /// The compiled form of a query. Queries of the same field list share its projection.
    pub fn query(&self, query: &Query) -> Result<Arc<CompiledQuery>, InvalidQuery> {
        let mut tables = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = tables.queries.entries.get(query) {
            return Ok(known.clone());
        }
        let new = Arc::new(query.compile_with(tables.projection(&query.fields)?)?);
        tables.queries.add(query.bytes() + new.bytes(), || (query.clone(), new.clone()));
        Ok(new)
    }

    /// What both tables hold.
    pub fn bytes(&self) -> usize {
        let tables = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tables.projections.bytes + tables.queries.bytes
    }
}

impl Tables {
    fn projection(&mut self, fields: &[String]) -> Result<Projection, InvalidPath> {
        if let Some(known) = self.projections.entries.get(fields) {
            return Ok(known.clone());
        }
        let new = Projection::parse(fields)?;
        let bytes = bytes_of_texts(fields) + new.bytes();
        self.projections.add(bytes, || (fields.to_vec(), new.clone()));
        Ok(new)
    }
}

/// One table of a cache. The hasher has no random key: a run is the same each time.
#[derive(Debug)]
struct Remembered<K, V> {
    entries: HashMap<K, V, BuildHasherDefault<DefaultHasher>>,
    bytes: usize,
}

impl<K, V> Default for Remembered<K, V> {
    fn default() -> Self {
        Self { entries: HashMap::default(), bytes: 0 }
    }
}

impl<K: Hash + Eq, V> Remembered<K, V> {
    /// Adds an entry of this size, after which the table is within its bounds.
    fn add(&mut self, bytes: usize, entry: impl FnOnce() -> (K, V)) {
        let bytes = bytes + ENTRY_BYTES;
        if bytes > CACHE_BYTES {
            return;
        }
        if self.entries.len() >= CACHE_ENTRIES || self.bytes + bytes > CACHE_BYTES {
            self.entries.clear();
            self.bytes = 0;
        }
        self.bytes += bytes;
        self.entries.extend([entry()]);
    }
}

fn bytes_of_texts(texts: &[String]) -> usize {
    size_of_val(texts) + texts.iter().map(String::len).sum::<usize>()
}
