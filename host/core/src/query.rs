//! What a guest asks of a snapshot: a kind, perhaps a namespace and a label selector, and the fields it wants.
//!
//! [`Query`] is the question as it was asked; [`CompiledQuery`] is the same question after its selector and field paths
//! were parsed, and [`QueryCache`] remembers the step between them. Nothing here looks at a store: `view.rs` asks,
//! `read_set.rs` remembers what was asked.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::{Arc, Mutex, PoisonError};

use thiserror::Error;

use crate::object::{Kind, Object};
use crate::projection::{InvalidPath, Projection};
use crate::selector::{InvalidSelector, Selector};

#[cfg(test)]
mod tests;

/// Entries of each table of a cache. A plugin has a handful of field lists, but its selectors may name the object it
/// reconciles; a full table is emptied, and the next calls parse again.
const CACHE_ENTRIES: usize = 256;

/// A question about many objects of one kind, as a guest asks it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Query {
    /// What to look for.
    pub kind: Kind,
    /// None: every namespace. For cluster-scoped kinds it is always None.
    pub namespace: Option<String>,
    /// Kubernetes label selector syntax. None: all objects.
    pub selector: Option<String>,
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
    /// Which fields.
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
    /// A field path cannot be read.
    #[error(transparent)]
    Path(#[from] InvalidPath),
}

impl Query {
    /// Everything of a kind, whole.
    pub fn all(kind: Kind) -> Self {
        Self { kind, namespace: None, selector: None, fields: Vec::new(), limit: None }
    }

    /// Parses the selector and the field paths.
    pub fn compile(&self) -> Result<CompiledQuery, InvalidQuery> {
        Ok(CompiledQuery {
            kind: self.kind.clone(),
            namespace: self.namespace.as_deref().map(Into::into),
            selector: self.selector.as_deref().map_or(Ok(Selector::everything()), Selector::parse)?,
            fields: Projection::parse(&self.fields)?,
            limit: self.limit,
        })
    }
}

impl CompiledQuery {
    /// Whether the object is among those asked for, the limit aside.
    pub fn matches(&self, object: &Object) -> bool {
        object.kind == self.kind
            && self.namespace.as_ref().is_none_or(|namespace| *namespace == object.name.namespace)
            && self.selector.matches(&object.labels)
    }
}

/// Remembers what was compiled, so that a plugin's few questions are parsed once and not at each call.
#[derive(Debug, Default)]
pub struct QueryCache(Mutex<Tables>);

#[derive(Debug, Default)]
struct Tables {
    projections: HashMap<Vec<String>, Projection, BuildHasherDefault<DefaultHasher>>,
    queries: HashMap<Query, Arc<CompiledQuery>, BuildHasherDefault<DefaultHasher>>,
}

impl QueryCache {
    /// The projection of a field list.
    pub fn projection(&self, fields: &[String]) -> Result<Projection, InvalidPath> {
        let mut tables = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = tables.projections.get(fields) {
            return Ok(known.clone());
        }
        let new = Projection::parse(fields)?;
        if tables.projections.len() >= CACHE_ENTRIES {
            tables.projections.clear();
        }
        tables.projections.insert(fields.to_vec(), new.clone());
        Ok(new)
    }

    /// The compiled form of a query.
    pub fn query(&self, query: &Query) -> Result<Arc<CompiledQuery>, InvalidQuery> {
        let mut tables = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = tables.queries.get(query) {
            return Ok(known.clone());
        }
        let new = Arc::new(query.compile()?);
        if tables.queries.len() >= CACHE_ENTRIES {
            tables.queries.clear();
        }
        tables.queries.insert(query.clone(), new.clone());
        Ok(new)
    }
}
