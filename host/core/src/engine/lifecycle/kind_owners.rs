//! Which plugin has which kind for itself (L2): the first that claimed it, until it goes.
//!
//! A kind whose status a plugin writes is its alone. A built-in kind may have any number of plugins, which leave its status
//! alone; but its children of one kind have one plugin, because what one wants another would prune. Which objects a controller
//! selects makes no difference: two predicates that never meet today may meet at the next label.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Lifecycle;
use super::plugin::RefusedBy;
use crate::manifest::{ControllerSpec, Manifest};
use crate::object::Kind;
use crate::refusal::Refusal;

/// A group and a kind: what the versions of one resource have in common.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Resource {
    group: Box<str>,
    kind: Arc<str>,
}

impl Resource {
    fn of(kind: &Kind) -> Self {
        Self { group: kind.group().into(), kind: Arc::clone(&kind.kind) }
    }
}

/// What a plugin has for itself.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Claim {
    primary: Resource,
    /// None: the kind as a whole.
    children: Option<Resource>,
}

impl Claim {
    pub fn all_of(controller: &ControllerSpec) -> Vec<Self> {
        let primary = Resource::of(&controller.primary);
        if !controller.builtin {
            return vec![Self { primary, children: None }];
        }
        let children = controller.owns.iter().map(|owned| Some(Resource::of(&owned.kind)));
        children.map(|children| Self { primary: primary.clone(), children }).collect()
    }
}

/// The owners.
#[derive(Debug, Default)]
pub(super) struct KindOwners {
    by_claim: BTreeMap<Claim, (Arc<str>, Kind)>,
}

impl KindOwners {
    /// Takes the claims of a plugin from `before` to `after`. True when something is free now.
    pub fn exchange(&mut self, name: &Arc<str>, before: &BTreeMap<Claim, Kind>, after: &BTreeMap<Claim, Kind>) -> bool {
        let released: Vec<&Claim> = before.keys().filter(|claim| !after.contains_key(*claim)).collect();
        for claim in &released {
            self.by_claim.remove(*claim);
        }
        for (claim, kind) in after {
            self.by_claim.insert(claim.clone(), (Arc::clone(name), kind.clone()));
        }
        !released.is_empty()
    }
}

impl Lifecycle {
    pub(super) fn owned_by_another(&self, name: &Arc<str>, manifest: &Manifest) -> Option<Refusal> {
        let claims = manifest.controllers.iter().flat_map(Claim::all_of);
        let mut held = claims.filter_map(|claim| Some((self.kind_owners.by_claim.get(&claim)?, claim)));
        let ((other, theirs), claim) = held.find(|((other, _), _)| other != name)?;
        let message = match claim.children {
            None => format!(
                "{theirs} is reconciled by the plugin {other:?} already; a kind has one plugin. Remove one of the two"
            ),
            Some(children) => format!(
                "the plugin {other:?} owns {} of {theirs} already; each would delete what the other wants. Remove one of \
                 the two, or let one of them own another kind",
                children.kind
            ),
        };
        Some(Refusal::new("KindClaimed", message))
    }

    /// Plugins that were refused for a kind that is free now.
    pub(super) fn may_own_now(&self) -> Vec<Arc<str>> {
        let waits = |name: &Arc<str>| {
            let plugin = self.plugins.get(name)?;
            plugin.refused.as_ref().filter(|refused| refused.by == RefusedBy::KindOwner)?;
            let manifest = &self.accepted(&plugin.offer.as_ref()?.digest)?.manifest;
            self.owned_by_another(name, manifest).is_none().then_some(())
        };
        self.plugins.keys().filter(|name| waits(name).is_some()).cloned().collect()
    }
}
