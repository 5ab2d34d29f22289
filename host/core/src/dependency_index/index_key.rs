//! The index keys of dependencies.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::dependencies::Dependency;
use crate::field_selector::FieldPath;
use crate::object::{Kind, Name};

/// A property of every object in a dependency's result.
#[derive(Hash)]
pub(super) enum IndexKey<'a> {
    Object(&'a Name),
    Owner(&'a str),
    Label {
        key: &'a str,
        value: &'a str,
        namespace: Option<&'a str>,
    },
    /// The hash of a path and a value.
    Field {
        hash: u64,
        namespace: Option<&'a str>,
    },
    Namespace(&'a str),
    Kind,
}

impl IndexKey<'_> {
    pub(super) fn hash_of(&self, kind: &Kind) -> u64 {
        let mut hasher = DefaultHasher::new();
        (kind, self).hash(&mut hasher);
        hasher.finish()
    }
}

/// The possible index keys by the fields that a dependency selects by; a kind has a bounded number of indexed fields.
pub(super) fn field_keys(dependency: &Dependency) -> impl Iterator<Item = (&FieldPath, IndexKey<'_>)> {
    let query = match dependency {
        Dependency::List(query) | Dependency::Keys(query) | Dependency::Count(query) => Some(query),
        Dependency::Get { .. }
        | Dependency::Owned { .. }
        | Dependency::Now
        | Dependency::Config
        | Dependency::Rejected
        | Dependency::Replies
        | Dependency::Kind(_) => None,
    };
    let requirements = query.into_iter().flat_map(|query| query.field_selector.requirements());
    let namespace = query.and_then(|query| query.namespace());
    requirements.map(move |field| (&field.path, IndexKey::Field { hash: field.hash(), namespace }))
}

/// The narrowest index key of a dependency without a field, or without a label too.
pub(super) fn other_key(dependency: &Dependency, by_label: bool) -> IndexKey<'_> {
    match dependency {
        Dependency::Get { target, .. } => IndexKey::Object(&target.name),
        Dependency::Owned { owner, .. } => IndexKey::Owner(&owner.uid),
        Dependency::List(query) | Dependency::Keys(query) | Dependency::Count(query) => {
            let namespace = query.namespace();
            match (query.selector.required().next().filter(|_| by_label), namespace) {
                (Some((key, value)), _) => IndexKey::Label { key, value, namespace },
                (None, Some(namespace)) => IndexKey::Namespace(namespace),
                (None, None) => IndexKey::Kind,
            }
        }
        Dependency::Now | Dependency::Config | Dependency::Rejected | Dependency::Replies | Dependency::Kind(_) => {
            IndexKey::Kind
        }
    }
}
