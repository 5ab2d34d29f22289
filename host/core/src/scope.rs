//! Which objects of a kind are watched, cached and seen. A manifest declares a [`Scope`] for each kind; the informer's
//! scope is the union of all of them; each of its watches shows a [`Slice`]. Nothing here knows who declares or watches.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use crate::object::{Kind, Object};
use crate::selector::Selector;

#[cfg(test)]
pub(crate) mod tests;

/// Namespaces of one declaration. Each is a watch of its own; a plugin that reads more of them reads all.
pub const MAX_NAMESPACES: usize = 16;
/// Bytes of a declaration's label selector: a dozen labels. It is part of the URL of each list and watch.
pub const MAX_LABELS_BYTES: usize = 1 << 10;

/// A part of a kind's objects; the default is all of them.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Scope {
    /// Empty: every namespace.
    pub namespaces: BTreeSet<Arc<str>>,
    /// The labels of the objects.
    pub labels: Selector,
}

impl Scope {
    /// A scope without objects. A set of no namespaces would be all of them; no namespace has this name.
    pub fn nothing() -> Self {
        Self { namespaces: BTreeSet::from(["-".into()]), labels: Selector::default() }
    }

    /// Whether it has every object.
    pub fn is_everything(&self) -> bool {
        self.namespaces.is_empty() && self.labels.is_everything()
    }

    /// Whether it has objects of a namespace.
    pub fn has_namespace(&self, namespace: &str) -> bool {
        self.namespaces.is_empty() || self.namespaces.contains(namespace)
    }

    /// Whether it has an object.
    pub fn contains(&self, object: &Object) -> bool {
        self.has_namespace(&object.name.namespace) && self.labels.matches(&object.labels)
    }

    /// A scope with all objects of both, and perhaps more: namespaces unite, and label selectors that differ are
    /// dropped, since no selector says "or".
    #[must_use]
    pub fn union(mut self, other: &Self) -> Self {
        if other.namespaces.is_empty() || self.namespaces.is_empty() {
            self.namespaces.clear();
        } else {
            self.namespaces.extend(other.namespaces.iter().cloned());
        }
        if self.labels != other.labels {
            self.labels = Selector::default();
        }
        self
    }

    /// Where its objects are: its namespaces, or None for all.
    pub fn places(&self) -> impl Iterator<Item = Option<Arc<str>>> {
        let every = self.namespaces.is_empty().then_some(None);
        every.into_iter().chain(self.namespaces.iter().cloned().map(Some))
    }

    /// Its label selector as text; None: any labels.
    pub fn labels_text(&self) -> Option<Arc<str>> {
        (!self.labels.is_everything()).then(|| self.labels.to_string().into())
    }
}

/// "in the namespaces a, b, with the labels app=web"; nothing for every object.
impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let namespaces: Vec<&str> = self.namespaces.iter().map(|name| &**name).collect();
        let place = match namespaces.as_slice() {
            [] => None,
            [only] => Some(format!("in the namespace {only}")),
            several => Some(format!("in the namespaces {}", several.join(", "))),
        };
        let labels = self.labels_text().map(|labels| format!("with the labels {labels}"));
        f.write_str(&place.into_iter().chain(labels).collect::<Vec<_>>().join(", "))
    }
}

/// What one watch shows of a kind.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Slice {
    /// The kind.
    pub kind: Kind,
    /// The only namespace; None: every one.
    pub namespace: Option<Arc<str>>,
    /// A label selector; None: any labels.
    pub labels: Option<Arc<str>>,
}

impl From<Kind> for Slice {
    /// Every object of the kind.
    fn from(kind: Kind) -> Self {
        Self { kind, namespace: None, labels: None }
    }
}

impl From<&Kind> for Slice {
    fn from(kind: &Kind) -> Self {
        kind.clone().into()
    }
}

impl From<&Self> for Slice {
    fn from(slice: &Self) -> Self {
        slice.clone()
    }
}

impl fmt::Display for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)?;
        self.namespace.iter().try_for_each(|namespace| write!(f, " in {namespace}"))?;
        self.labels.iter().try_for_each(|labels| write!(f, " with {labels}"))
    }
}
