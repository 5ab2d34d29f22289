//! One kind's informer: its readers and its watches. Its scope is the union of what they declare. It decides which
//! watches there should be, and knows neither the cache nor how a watch is started.
//!
//! ```text
//! a reader of all comes    a ─────────────┬ stops      the first list of all is complete
//!                          all ──lists────┴─────────▶
//! all is denied            a, b, … start beside it     their readers have rights of their own
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::object::Kind;
use crate::scope::{Scope, Slice};
use crate::tenant;
use crate::watch::WatchError;

#[derive(Debug, Default)]
pub(super) struct Informer {
    /// What plugins read of the kind, and the host under its own name. The last one to leave stops the informer.
    pub readers: BTreeMap<Arc<str>, Scope>,
    /// By namespace; None: one of all namespaces.
    pub watches: BTreeMap<Option<Arc<str>>, Watch>,
    /// The kind is cluster-scoped: the error of those who declare namespaces of it, whose lists would be empty forever.
    pub no_namespaces: Option<WatchError>,
}

/// One watch, with the labels that all watches of its kind have.
#[derive(Debug, Default)]
pub(super) struct Watch {
    pub labels: Option<Arc<str>>,
    pub error: Option<WatchError>,
    /// The first list with these labels is complete.
    pub listed: bool,
    /// A list is complete, so that the cache shows its objects.
    pub serves: bool,
}

impl Watch {
    /// The API server denies reading the kind or does not serve it.
    pub fn is_denied_or_gone(&self) -> bool {
        self.error.as_ref().is_some_and(WatchError::is_denied_or_gone)
    }
}

impl Informer {
    /// What all readers read.
    pub fn scope(&self) -> Scope {
        let mut scopes = self.readers.values();
        let first = scopes.next().cloned().unwrap_or_default();
        scopes.fold(first, Scope::union)
    }

    /// What each watch shows.
    pub fn slices(&self, kind: &Kind) -> impl Iterator<Item = Slice> {
        self.watches.iter().map(|(namespace, watch)| Slice {
            kind: kind.clone(),
            namespace: namespace.clone(),
            labels: watch.labels.clone(),
        })
    }

    /// Whether a watch shows the slice.
    pub fn shows(&self, slice: &Slice) -> bool {
        self.watches.get(&slice.namespace).is_some_and(|watch| watch.labels == slice.labels)
    }

    /// Whether the watches that show a scope are up to date.
    pub fn is_current(&self, scope: &Scope) -> bool {
        let is_current = |place| self.watches.get(&place).is_some_and(|watch| watch.error.is_none());
        is_current(None) || scope.places().all(is_current)
    }

    /// Where the kind should be watched. If all namespaces cannot be read, those readers that name some still can.
    fn wanted(&self) -> BTreeSet<Option<Arc<str>>> {
        let mut places: BTreeSet<_> = self.scope().places().collect();
        if self.watches.get(&None).is_some_and(Watch::is_denied_or_gone) && places.contains(&None) {
            places.extend(self.readers.values().flat_map(Scope::places));
        }
        places
    }

    /// Where a watch is missing.
    pub fn missing(&self) -> Vec<Option<Arc<str>>> {
        self.wanted().into_iter().filter(|place| !self.watches.contains_key(place)).collect()
    }

    fn is_of_tenants(&self, place: &Option<Arc<str>>) -> bool {
        let mut readers = self.readers.iter().filter(|(_, scope)| scope.places().any(|other| other == *place));
        readers.all(|(reader, _)| tenant::of_plugin(reader).is_some())
    }

    /// Where a watch has become needless. One stays until those that replace it are listed, so that no reader waits.
    pub fn needless(&self) -> Vec<Option<Arc<str>>> {
        let wanted = self.wanted();
        let is_replaced = |place: &Option<Arc<str>>| {
            let overlapping = wanted.iter().filter(|other| place.is_none() || other.is_none() || *other == place);
            // Where the host is denied a tenant's namespace, no other reader waits for it: the tenant itself gave it no right.
            let replaces =
                |other, watch: &Watch| watch.listed || watch.is_denied_or_gone() && self.is_of_tenants(other);
            overlapping.into_iter().all(|other| self.watches.get(other).is_some_and(|watch| replaces(other, watch)))
        };
        let is_needless = |(place, watch): &(&Option<Arc<str>>, &Watch)| {
            !wanted.contains(*place) && (!watch.serves || is_replaced(place))
        };
        self.watches.iter().filter(is_needless).map(|(place, _)| place.clone()).collect()
    }

    /// Why a scope cannot be read: the namespace, if it is about one, and the error. None while some watch shows each
    /// of its namespaces.
    pub fn error(&self, scope: &Scope) -> Option<(Option<Arc<str>>, &WatchError)> {
        scope.places().find_map(|place| {
            let error = self.error_in(&place)?;
            let other = self.watches.get(&None).filter(|_| self.no_namespaces.is_none());
            other.is_none_or(|other| other.error.is_some()).then_some((place, error))
        })
    }

    /// The error of a namespace (None: of all): that of its own watch, or else of the one of all.
    pub fn error_in(&self, place: &Option<Arc<str>>) -> Option<&WatchError> {
        let own = self.watches.get(place).or_else(|| self.watches.get(&None));
        let of_kind = self.no_namespaces.as_ref().filter(|_| place.is_some());
        of_kind.or_else(|| own?.error.as_ref())
    }
}
