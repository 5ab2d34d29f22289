//! What a ServiceAccount may read, and whether the host may act as it, as the API server says it: the reviews, their answers,
//! and what of a declaration is left. It must not know how it is asked, or what grants rights.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::object::Kind;
use crate::scope::Scope;
use crate::service_account::ServiceAccount;

/// The verbs that reading takes, in the order in which they are asked for: few may list and not get.
const READ: [&str; 3] = ["list", "watch", "get"];

/// Where may a plugin's ServiceAccount list, watch and get a kind?
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Review {
    /// Returned with the answer.
    pub id: u64,
    /// The plugin that it is for.
    pub plugin: Arc<str>,
    /// The ServiceAccount.
    pub account: Arc<ServiceAccount>,
    /// The kind.
    pub kind: Kind,
    /// Whether to ask about all namespaces first. If it may read there, no namespace is asked about.
    pub everywhere: bool,
    /// The namespaces to ask about, each by itself: no API says where somebody may do something.
    pub namespaces: BTreeSet<Arc<str>>,
    /// It is a dynamic kind, which is listed and watched, and never read live: roles for a pattern have no `get`, which for all
    /// resources of a group has subresources too.
    pub is_dynamic: bool,
}

impl Review {
    /// The verbs to ask for.
    pub fn verbs(&self) -> &'static [&'static str] {
        if self.is_dynamic { &READ[..2] } else { &READ }
    }
}

/// May the host act as a ServiceAccount?
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IdentityReview {
    /// Returned with the answer.
    pub id: u64,
    /// The plugin that it is for.
    pub plugin: Arc<str>,
    /// The ServiceAccount.
    pub account: Arc<ServiceAccount>,
}

/// Where a kind may be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Readable {
    /// Everywhere, and where it has no namespaces.
    Everywhere,
    /// In these namespaces; nowhere, if there are none.
    In(BTreeSet<Arc<str>>),
}

/// Where each kind that a plugin declares may be read.
pub type Rights = BTreeMap<Kind, Readable>;

/// The namespaces in which a plugin sees and acts.
pub type Namespaces = Arc<BTreeSet<Arc<str>>>;

/// What is left of a declaration in these namespaces. Objects without a namespace are in none, and stay.
pub fn within(declared: &Scope, namespaces: &Namespaces) -> Scope {
    if declared.namespaces.is_empty() {
        let namespaces = namespaces.iter().cloned().chain([Arc::from("")]).collect();
        return Scope { namespaces, labels: declared.labels.clone() };
    }
    let both: BTreeSet<Arc<str>> = declared.namespaces.intersection(namespaces).cloned().collect();
    if both.is_empty() { Scope::nothing() } else { Scope { namespaces: both, labels: declared.labels.clone() } }
}

impl Readable {
    /// What is left of a declaration; None: nothing.
    pub fn narrow(&self, declared: &Scope) -> Option<Scope> {
        let Self::In(readable) = self else { return Some(declared.clone()) };
        let declares = |namespace: &&Arc<str>| declared.has_namespace(namespace);
        let namespaces: BTreeSet<Arc<str>> = readable.iter().filter(declares).cloned().collect();
        (!namespaces.is_empty()).then(|| Scope { namespaces, labels: declared.labels.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_a_declaration_is_never_wider_and_nothing_is_not_everything() {
        let scope = |names: &[&str]| Scope {
            namespaces: names.iter().map(|name| Arc::from(*name)).collect(),
            ..Scope::default()
        };
        let within = |names: &[&str]| Readable::In(scope(names).namespaces);
        for (readable, declared, left) in [
            (Readable::Everywhere, &[][..], Some(&[][..])),
            (Readable::Everywhere, &["a"], Some(&["a"])),
            (within(&["a", "b"]), &[], Some(&["a", "b"])),
            (within(&["a", "b"]), &["b", "c"], Some(&["b"])),
            (within(&["a"]), &["b"], None),
            (within(&[]), &[], None),
        ] {
            assert_eq!(readable.narrow(&scope(declared)), left.map(scope), "{readable:?} of {declared:?}");
        }
    }

    #[test]
    fn within_namespaces_a_declaration_keeps_what_has_none() {
        let namespaces: Namespaces = BTreeSet::from(["a".into(), "b".into()]).into();
        let scope = |names: &[&str]| Scope {
            namespaces: names.iter().map(|name| Arc::from(*name)).collect(),
            ..Scope::default()
        };
        assert_eq!(within(&Scope::default(), &namespaces), scope(&["", "a", "b"]));
        assert_eq!(within(&scope(&["b", "c"]), &namespaces), scope(&["b"]));
        assert_eq!(within(&scope(&["c"]), &namespaces), Scope::nothing());
        assert_eq!(within(&Scope::nothing(), &namespaces), Scope::nothing());
    }

    #[test]
    fn a_dynamic_kind_is_not_asked_about_with_get_which_roles_for_patterns_do_not_have() {
        let review = |is_dynamic| Review {
            id: 1,
            plugin: "podset".into(),
            account: Arc::new(ServiceAccount { namespace: "mortise-system".into(), name: "podset".into() }),
            kind: Kind::new("v1", "Pod"),
            everywhere: true,
            namespaces: BTreeSet::new(),
            is_dynamic,
        };
        assert_eq!(review(true).verbs(), ["list", "watch"]);
        assert_eq!(review(false).verbs(), ["list", "watch", "get"]);
    }
}
