//! Whose rules count: a minor version of Kubernetes. It must not know which rules.

use std::fmt;

/// The newest minor version of Kubernetes whose standards are known; those of later versions are taken for the same.
const NEWEST: u32 = 35;

/// A minor version of Kubernetes 1, or the newest that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version(Option<u32>);

impl Version {
    /// The newest.
    pub const LATEST: Self = Self(None);

    /// The version that Kubernetes' labels call so: `latest`, `v1.34`.
    ///
    /// ```
    /// use mortise_pod_security::Version;
    ///
    /// assert_eq!(Version::named("latest"), Some(Version::LATEST));
    /// assert_eq!(Version::named("1.34"), None);
    /// ```
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        if name == "latest" {
            return Some(Self::LATEST);
        }
        let digits = name.strip_prefix("v1.")?;
        let canonical = digits == "0" || !digits.starts_with('0');
        let minor = digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?;
        minor.filter(|_| canonical).map(|minor| Self(Some(minor)))
    }

    /// The minor version whose checks count.
    pub(crate) fn minor(self) -> u32 {
        self.0.unwrap_or(NEWEST).min(NEWEST)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("latest"),
            Some(minor) => write!(f, "v1.{minor}"),
        }
    }
}
