//! Ownership of kinds: what only one plugin of a cluster may have, and the edges of ownership between kinds.

use std::fmt;
use std::sync::Arc;

use crate::manifest::ControllerSpec;
use crate::object::Kind;

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

/// One kind owns objects of another.
pub(super) type Edge = (Resource, Resource);

/// The edges of a controller.
pub(super) fn edges(controller: &ControllerSpec) -> impl Iterator<Item = Edge> {
    controller.owns.iter().map(|owned| (Resource::of(&controller.primary), Resource::of(&owned.kind)))
}

/// What only one plugin may have: a kind, or the children of one kind that it owns for a built-in kind.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct KindOwnership {
    pub primary: Resource,
    /// None: the kind as a whole.
    pub children: Option<Resource>,
}

impl KindOwnership {
    pub fn all_of(controller: &ControllerSpec) -> Vec<Self> {
        let primary = Resource::of(&controller.primary);
        if !controller.builtin {
            return vec![Self { primary, children: None }];
        }
        let children = controller.owns.iter().map(|owned| Some(Resource::of(&owned.kind)));
        children.map(|children| Self { primary: primary.clone(), children }).collect()
    }

    /// Reads what `Display` writes, as Plugin objects show it.
    pub fn parse(text: &str) -> Self {
        let (primary, children) = text.split_once('/').map_or((text, None), |(primary, it)| (primary, Some(it)));
        Self { primary: Resource::parse(primary), children: children.map(Resource::parse) }
    }

    /// Why nobody else may have it beside `owner`, such as `the plugin "a"`.
    pub fn conflict(&self, owner: &str) -> String {
        let primary = &self.primary;
        match &self.children {
            None => {
                format!("{primary} is reconciled by {owner}; a kind has one plugin in a cluster. Remove one of the two")
            }
            Some(children) => format!(
                "{owner} owns {children} of {primary}; each would delete what the other wants. Remove one of the two, or \
                 let one of them own another kind"
            ),
        }
    }
}

impl fmt::Display for KindOwnership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.primary)?;
        self.children.iter().try_for_each(|children| write!(f, "/{children}"))
    }
}
