//! Claims: what only one plugin of a cluster may have, and the edges of ownership between kinds.

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

/// What only one plugin may have.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Claim {
    pub primary: Resource,
    /// None: the kind as a whole.
    pub children: Option<Resource>,
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

    /// Reads what `Display` writes, as Plugin objects show it.
    pub fn parse(text: &str) -> Self {
        let (primary, children) = text.split_once('/').map_or((text, None), |(primary, it)| (primary, Some(it)));
        Self { primary: Resource::parse(primary), children: children.map(Resource::parse) }
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.primary)?;
        self.children.iter().try_for_each(|children| write!(f, "/{children}"))
    }
}
