//! Queries: a kind with optional namespaces, label selector, field selector, projection and limit.
//!
//! [`Query`] is what a guest sends; [`CompiledQuery`] has its selectors and field paths parsed, and [`QueryCache`]
//! remembers compiled queries. `view.rs` evaluates them on a snapshot, `dependencies.rs` records them.

use std::collections::BTreeSet;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use thiserror::Error;

use crate::budget::Budget;
use crate::field_selector::{self, FieldSelector, FieldValue, InvalidFieldSelector};
use crate::heap::{HeapBytes, allocation, shared};
use crate::map::Map;
use crate::object::{Kind, Object};
use crate::projection::{InvalidPath, Projection};
use crate::scope::Scope;
use crate::selector::{InvalidSelector, Selector};

#[cfg(test)]
mod tests;

/// Namespaces of a query. Each is a walk of its own; a plugin that needs more lists all of them, or selects by a label.
pub const MAX_NAMESPACES: usize = 100;
/// Entries of each table of a cache. A plugin has few field lists, but its selectors may name the reconciled object. A
/// full table is cleared, and the next calls parse again.
const CACHE_ENTRIES: usize = 256;
/// Bytes of each table of a cache, as text and as parsed: 2 KiB per entry, where usual queries take some hundred bytes.
/// A query that is larger than the table is not kept.
const CACHE_BYTES: usize = 512 << 10;
/// The larger of two entries of the tables, which are less than half full after they have grown.
const ENTRY_BYTES: usize = 16 * (size_of::<(Query, Arc<CompiledQuery>)>() + 1) / 7;

/// A query for objects of one kind, as a guest sends it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Query {
    /// The kind.
    pub kind: Kind,
    /// Empty: every namespace. Always empty for cluster-scoped kinds.
    pub namespaces: Vec<String>,
    /// A label selector in Kubernetes' syntax. None: all objects.
    pub selector: Option<String>,
    /// Field paths with the value that selected objects have there. Empty: all objects.
    pub field_selector: Vec<(String, FieldValue)>,
    /// The field paths to keep, in the syntax of [`crate::projection`]. Empty: whole objects.
    pub fields: Vec<String>,
    /// The maximum number of objects, in the order of namespace and name.
    pub limit: Option<u32>,
}

/// A parsed query. Equal queries that are written differently are equal.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CompiledQuery {
    /// The kind.
    pub kind: Kind,
    /// Sorted. Empty: every namespace.
    pub namespaces: Box<[Arc<str>]>,
    /// The label selector.
    pub selector: Selector,
    /// The field selector.
    pub field_selector: FieldSelector,
    /// The fields to keep.
    pub fields: Projection,
    /// The maximum number of objects.
    pub limit: Option<u32>,
}

/// Why a query cannot be compiled.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error(transparent)]
pub enum InvalidQuery {
    /// The label selector.
    Selector(#[from] InvalidSelector),
    /// The field selector.
    FieldSelector(#[from] InvalidFieldSelector),
    /// A field path to keep.
    Path(#[from] InvalidPath),
    /// The namespaces.
    Namespaces(#[from] TooManyNamespaces),
}

/// A query names more namespaces than [`MAX_NAMESPACES`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("the query names {0} namespaces, and {MAX_NAMESPACES} are the most: select by a label, or list all of them")]
pub struct TooManyNamespaces(usize);

impl Query {
    /// All objects of a kind, whole.
    pub fn all(kind: Kind) -> Self {
        Self {
            kind,
            namespaces: Vec::new(),
            selector: None,
            field_selector: Vec::new(),
            fields: Vec::new(),
            limit: None,
        }
    }

    /// Bytes in memory beside its own size.
    fn bytes(&self) -> usize {
        let of_field = |(path, value): &(String, FieldValue)| path.heap_bytes() + value.heap_bytes();
        self.kind.api_version.heap_bytes()
            + self.kind.kind.heap_bytes()
            + self.selector.heap_bytes()
            + allocation(self.field_selector.capacity() * size_of::<(String, FieldValue)>())
            + self.field_selector.iter().map(of_field).sum::<usize>()
            + self.fields.heap_bytes()
            + self.namespaces.heap_bytes()
    }

    /// Parses the selectors and the field paths.
    pub fn compile(&self) -> Result<CompiledQuery, InvalidQuery> {
        self.compile_with(Projection::parse(&self.fields)?, None)
    }

    /// Narrowed to a scope: of the namespaces that the query names, those of the scope are left.
    fn compile_with(&self, fields: Projection, scope: Option<&Scope>) -> Result<CompiledQuery, InvalidQuery> {
        if self.namespaces.len() > MAX_NAMESPACES {
            return Err(TooManyNamespaces(self.namespaces.len()).into());
        }
        let mut namespaces: BTreeSet<Arc<str>> = self.namespaces.iter().map(|name| Arc::from(name.as_str())).collect();
        let mut selector = self.selector.as_deref().map(Selector::parse).transpose()?.unwrap_or_default();
        if let Some(scope) = scope {
            let named = !namespaces.is_empty();
            namespaces.retain(|name| scope.has_namespace(name));
            if named && namespaces.is_empty() {
                namespaces = Scope::nothing().namespaces;
            } else if !named {
                namespaces.clone_from(&scope.namespaces);
            }
            selector = selector.and(&scope.labels);
        }
        Ok(CompiledQuery {
            kind: self.kind.clone(),
            namespaces: namespaces.into_iter().collect(),
            selector,
            field_selector: FieldSelector::parse(&self.field_selector)?,
            fields,
            limit: self.limit,
        })
    }
}

impl CompiledQuery {
    /// Bytes in memory without its projection, which others may share.
    pub fn bytes(&self) -> usize {
        shared(size_of::<Self>()) + self.namespaces.heap_bytes() + self.selector.bytes() + self.field_selector.bytes()
    }

    /// The namespace, if there is one alone.
    pub(crate) fn namespace(&self) -> Option<&str> {
        match &*self.namespaces {
            [only] => Some(only),
            _ => None,
        }
    }

    /// Whether the query selects the object, apart from the limit. The field selector spends units of the budget; None
    /// when it is used up.
    pub(crate) fn matches_within(&self, object: &Object, budget: &Budget) -> Option<bool> {
        let may_match = object.kind == self.kind
            && (self.namespaces.is_empty() || self.namespaces.contains(&object.name.namespace))
            && self.selector.matches(&object.labels);
        if may_match {
            field_selector::matches_within(self.field_selector.requirements(), object, budget)
        } else {
            Some(false)
        }
    }
}

/// Compiled queries of a plugin, which are parsed once and not at each call. Guests choose the queries, so each table
/// is bounded in entries and in bytes.
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

    /// The compiled form of a query, narrowed to a scope, which is always the same for its kind. Queries of the same
    /// field list share their projection.
    pub fn query(&self, query: &Query, scope: Option<&Scope>) -> Result<Arc<CompiledQuery>, InvalidQuery> {
        let mut tables = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = tables.queries.entries.get(query) {
            return Ok(known.clone());
        }
        let new = Arc::new(query.compile_with(tables.projection(&query.fields)?, scope)?);
        tables.queries.add(query.bytes() + new.bytes() + new.fields.bytes(), || (query.clone(), new.clone()));
        Ok(new)
    }

    /// Bytes in memory.
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
        let fields = fields.to_vec();
        self.projections.add(fields.heap_bytes() + new.bytes(), || (fields, new.clone()));
        Ok(new)
    }
}

/// One table of a cache.
#[derive(Debug)]
struct Remembered<K, V> {
    entries: Map<K, V>,
    bytes: usize,
}

impl<K, V> Default for Remembered<K, V> {
    fn default() -> Self {
        Self { entries: Map::default(), bytes: 0 }
    }
}

impl<K: Hash + Eq, V> Remembered<K, V> {
    /// Adds an entry of this size; first clears the table if the entry would exceed a bound.
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
