//! The levels of the standards, by the names that Kubernetes gives them. It must not know what they forbid.

use serde::Deserialize;

/// How strict the standards are, the least strict first. Written as Kubernetes' labels write it: `baseline`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub enum Level {
    /// Nothing is forbidden.
    Privileged,
    /// Known ways to gain privileges are forbidden.
    Baseline,
    /// A Pod also has to give up what it does not need.
    Restricted,
}

/// What a level that is not one should have been.
pub const LEVELS: &str = "must be one of privileged, baseline, restricted";

impl Level {
    /// The level that Kubernetes calls so.
    ///
    /// ```
    /// use mortise_pod_security::Level;
    ///
    /// assert_eq!(Level::named("baseline"), Some(Level::Baseline));
    /// assert_eq!(Level::named("strict"), None);
    /// ```
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::Privileged, Self::Baseline, Self::Restricted].into_iter().find(|level| level.name() == name)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Privileged => "privileged",
            Self::Baseline => "baseline",
            Self::Restricted => "restricted",
        }
    }
}

impl TryFrom<String> for Level {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        Self::named(&name).ok_or_else(|| format!("{name:?}: {LEVELS}"))
    }
}
