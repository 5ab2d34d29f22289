//! Ownership of kinds: what only one plugin of a cluster may have, or of a tenant beside those of the host's namespace, and the
//! edges of ownership between kinds.

use std::fmt;
use std::sync::Arc;

use crate::manifest::{ControllerSpec, OwnedKind};
use crate::object::Kind;
use crate::tenant;

/// A group and a kind: what the versions of one resource have in common.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Resource {
    pub group: Box<str>,
    pub kind: Arc<str>,
}

impl Resource {
    pub fn of(kind: &Kind) -> Self {
        Self { group: kind.group().into(), kind: Arc::clone(&kind.kind) }
    }

    /// Reads what `Display` writes: the name of a kind has no dot.
    fn parse(text: &str) -> Self {
        let (kind, group) = text.split_once('.').unwrap_or((text, ""));
        Self { group: group.into(), kind: kind.into() }
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dot = if self.group.is_empty() { "" } else { "." };
        write!(f, "{}{dot}{}", self.kind, self.group)
    }
}

/// One kind owns objects of another; in the namespace of a tenant alone, if there is one.
pub(super) type Edge = (Resource, Resource, Option<Arc<str>>);

/// The edges of a controller.
pub(super) fn edges(controller: &ControllerSpec) -> impl Iterator<Item = Edge> {
    let tenant = tenant_of(controller);
    let edge = move |owned: &OwnedKind| (Resource::of(&controller.primary), Resource::of(&owned.kind), tenant.clone());
    controller.owns.iter().map(edge)
}

/// The only namespace of a controller's objects: that of its tenant.
fn tenant_of(controller: &ControllerSpec) -> Option<Arc<str>> {
    controller.scope.namespaces.first().cloned()
}

/// What only one plugin may have: a kind, or the children of one kind that it owns for a built-in kind.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct KindOwnership {
    pub primary: Resource,
    /// None: the kind as a whole.
    pub children: Option<Resource>,
    /// The tenant who has it, of objects in its namespace; None: everybody's objects.
    pub tenant: Option<Arc<str>>,
}

impl KindOwnership {
    pub fn all_of(controller: &ControllerSpec) -> Vec<Self> {
        let primary = Resource::of(&controller.primary);
        let tenant = tenant_of(controller);
        if !controller.builtin {
            return vec![Self { primary, children: None, tenant }];
        }
        let children = controller.owns.iter().map(|owned| Some(Resource::of(&owned.kind)));
        children.map(|children| Self { primary: primary.clone(), children, tenant: tenant.clone() }).collect()
    }

    /// Reads what `Display` writes, as the Plugin object of a plugin shows it; its name says whose it is.
    pub fn parse(text: &str, plugin: &str) -> Self {
        let (primary, children) = text.split_once('/').map_or((text, None), |(primary, it)| (primary, Some(it)));
        let tenant = tenant::of_plugin(plugin).map(Arc::from);
        Self { primary: Resource::parse(primary), children: children.map(Resource::parse), tenant }
    }

    /// What nobody else may have beside it: of a tenant's, also the whole. A tenant's is no obstacle to the whole, which would be
    /// a tenant's to take from everybody.
    pub fn excluded(&self) -> impl Iterator<Item = Self> {
        let whole = self.tenant.as_ref().map(|_| Self { tenant: None, ..self.clone() });
        [self.clone()].into_iter().chain(whole)
    }

    /// Why the plugin `wanting` may not have it beside the plugin `other`, which is of another host if that has a namespace here.
    pub fn conflict(&self, wanting: &str, other: &str, host: Option<&str>) -> String {
        let primary = &self.primary;
        let place = host.map(|host| format!(" of the host of namespace {host}")).unwrap_or_default();
        let owner = format!("the plugin {other:?}{place}");
        let what = match &self.children {
            None => format!("{primary} is reconciled by {owner}"),
            Some(children) => format!("{owner} owns {children} of {primary}; each would delete what the other wants"),
        };
        let tenant = tenant::of_plugin(wanting);
        if tenant.is_some() && tenant != tenant::of_plugin(other) {
            return format!(
                "{what}. That plugin is no tenant's and has this in every namespace: an administrator of the cluster alone can \
                 change that"
            );
        }
        match (&self.children, tenant) {
            (None, None) => format!("{what}; a kind has one plugin in a cluster. Remove one of the two"),
            (None, Some(tenant)) => {
                format!("{what}; a kind has one plugin in the namespace {tenant}. Remove one of the two")
            }
            (Some(_), _) => format!("{what}. Remove one of the two, or let one of them own another kind"),
        }
    }
}

impl fmt::Display for KindOwnership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.primary)?;
        self.children.iter().try_for_each(|children| write!(f, "/{children}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conflict(owned: &str, wanting: &str, other: &str) -> String {
        KindOwnership::parse(owned, wanting).conflict(wanting, other, None)
    }

    #[test]
    fn l2_a_conflict_names_what_the_reader_can_change() {
        let of_cluster = conflict("Web.example.com", "second", "first");
        assert!(of_cluster.ends_with("a kind has one plugin in a cluster. Remove one of the two"), "{of_cluster}");
        let own = conflict("Web.example.com", "team-a.second", "team-a.first");
        assert!(own.ends_with("a kind has one plugin in the namespace team-a. Remove one of the two"), "{own}");
        let children = conflict("Pod/ConfigMap", "team-a.second", "team-a.first");
        assert!(children.ends_with("Remove one of the two, or let one of them own another kind"), "{children}");
        for owned in ["Web.example.com", "Pod/ConfigMap"] {
            let hosts = conflict(owned, "team-a.second", "first");
            assert!(hosts.contains("the plugin \"first\"") && !hosts.contains("Remove"), "{hosts}");
            assert!(hosts.ends_with("an administrator of the cluster alone can change that"), "{hosts}");
        }
    }
}
