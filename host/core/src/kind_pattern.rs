//! Patterns of kinds that a manifest declares under `reads`, for kinds that objects name at run time: "apps/v1/*",
//! "apps/*", "*.example.com/*", and "v1/*" for the core group. Nothing here knows which kinds the API server serves.

use std::fmt;
use std::sync::Arc;

use crate::object::Kind;

/// Bytes of a group (a DNS subdomain, RFC 1123) and of a version and a kind (a DNS label), as the API server bounds them.
const MAX_GROUP_BYTES: usize = 253;
const MAX_NAME_BYTES: usize = 63;

/// Some kinds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KindPattern {
    /// The groups.
    pub groups: Groups,
    /// The version; None: any.
    pub version: Option<Arc<str>>,
}

/// The groups of a pattern.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Groups {
    /// This group; empty for the core group.
    One(Arc<str>),
    /// Every group below this one: of "example.com", "a.example.com" and "b.a.example.com", and not itself.
    Below(Arc<str>),
}

impl KindPattern {
    /// The pattern of the `apiVersion` of a manifest's entry whose kind is `*`.
    ///
    /// # Errors
    /// What is wrong, and what may be written.
    pub(crate) fn parse(api_version: &str) -> Result<Self, String> {
        let (group, version) = match api_version.split_once('/') {
            None => ("", api_version),
            Some((group, version)) => (group, version),
        };
        let groups = match group.strip_prefix("*.") {
            // One label alone, such as "com", is most of what there is.
            Some(below) if is_group(below) && below.contains('.') => Groups::Below(below.into()),
            None if group.is_empty() || is_group(group) => Groups::One(group.into()),
            _ => return Err(wrong(api_version)),
        };
        let is_core = group.is_empty();
        match version {
            "*" if !is_core => Ok(Self { groups, version: None }),
            version if is_version(version) && (is_core != api_version.contains('/')) => {
                Ok(Self { groups, version: Some(version.into()) })
            }
            _ => Err(wrong(api_version)),
        }
    }

    /// Whether it has this kind. No pattern has Secrets: a plugin declares them by name.
    pub fn matches(&self, kind: &Kind) -> bool {
        let group = kind.group();
        let is_group = match &self.groups {
            Groups::One(one) => **one == *group,
            Groups::Below(below) => group.strip_suffix(&**below).is_some_and(|label| label.ends_with('.')),
        };
        let is_secret = group.is_empty() && *kind.kind == *"Secret";
        is_group && self.version.as_deref().is_none_or(|version| version == kind.version()) && !is_secret
    }
}

impl fmt::Display for KindPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.groups {
            Groups::One(group) if group.is_empty() => {}
            Groups::One(group) => write!(f, "{group}/")?,
            Groups::Below(group) => write!(f, "*.{group}/")?,
        }
        match &self.version {
            Some(version) => write!(f, "{version}/*"),
            None => f.write_str("*"),
        }
    }
}

/// Whether text that a guest passed can name a kind. It becomes part of a path and stays in memory.
pub(crate) fn is_kind(kind: &Kind) -> bool {
    let version = kind.version();
    let is_core = !kind.api_version.contains('/');
    let is_camel = kind.kind.starts_with(|letter: char| letter.is_ascii_uppercase())
        && kind.kind.len() <= MAX_NAME_BYTES
        && kind.kind.bytes().all(|byte| byte.is_ascii_alphanumeric());
    (is_core || is_group(kind.group())) && is_version(version) && is_camel
}

/// Whether a kind that a manifest names may exist, as the API server checks a CRD's: its group a DNS subdomain, its version a
/// label, its kind one in lower case.
pub(crate) fn is_declarable(kind: &Kind) -> bool {
    let is_core = !kind.api_version.contains('/');
    (is_core || is_group(kind.group())) && is_label(kind.version()) && is_label(&kind.kind.to_ascii_lowercase())
}

/// Whether the API server accepts it as a version or a resource: a DNS label that begins with a letter (RFC 1035).
pub(crate) fn is_label(text: &str) -> bool {
    text.len() <= MAX_NAME_BYTES && is_dns_label(text) && text.starts_with(|first: char| first.is_ascii_lowercase())
}

fn is_group(text: &str) -> bool {
    text.len() <= MAX_GROUP_BYTES && text.split('.').all(is_dns_label)
}

fn is_dns_label(text: &str) -> bool {
    let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.bytes().all(is_name) && !text.starts_with('-') && !text.ends_with('-')
}

fn is_version(text: &str) -> bool {
    let number = text.strip_prefix('v').unwrap_or_default();
    let is_lower = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.len() <= MAX_NAME_BYTES
        && number.starts_with(|digit: char| digit.is_ascii_digit())
        && number.bytes().all(is_lower)
}

fn wrong(api_version: &str) -> String {
    format!(
        "apiVersion {api_version:?} with kind \"*\" is no pattern; name a group and a version (\"apps/v1\", \"v1\"), a group \
         (\"apps/*\"), or what is below a domain of at least two names (\"*.example.com/*\")"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(api_version: &str, shown: &str, has: &[&str], has_not: &[&str]) {
        let pattern = KindPattern::parse(api_version).unwrap();
        assert_eq!(pattern.to_string(), shown);
        for (kinds, expected) in [(has, true), (has_not, false)] {
            for text in kinds {
                let (api_version, kind) = text.rsplit_once('/').unwrap();
                assert_eq!(pattern.matches(&Kind::new(api_version, kind)), expected, "{shown} and {text}");
            }
        }
    }

    #[test]
    fn a_pattern_has_the_kinds_of_a_version_a_group_or_the_groups_below_a_domain() {
        check("apps/v1", "apps/v1/*", &["apps/v1/Deployment"], &["apps/v2/Deployment", "v1/Pod", "a.apps/v1/A"]);
        check("v1", "v1/*", &["v1/Pod", "v1/ConfigMap"], &["apps/v1/Deployment", "v2/Pod"]);
        check("apps/*", "apps/*", &["apps/v1/Deployment", "apps/v2/A"], &["v1/Pod", "apps.example.com/v1/A"]);
        let below = ["a.example.com/v1/A", "b.a.example.com/v2/B"];
        check("*.example.com/*", "*.example.com/*", &below, &["example.com/v1/A", "badexample.com/v1/A"]);
        check("*.example.com/v1", "*.example.com/v1/*", &below[..1], &below[1..]);
    }

    #[test]
    fn no_pattern_has_secrets() {
        check("v1", "v1/*", &["v1/ConfigMap"], &["v1/Secret"]);
        check("secrets.example.com/*", "secrets.example.com/*", &["secrets.example.com/v1/Secret"], &[]);
    }

    #[test]
    fn a_pattern_of_everything_or_without_a_group_is_refused() {
        for text in
            ["*", "*/*", "*.com/*", "*.*/*", "apps", "a*/v1", "*a.example.com/*", "apps/v1/*", "/v1", "", "A/v1"]
        {
            let why = KindPattern::parse(text).unwrap_err();
            assert!(why.starts_with(&format!("apiVersion {text:?} with kind \"*\" is no pattern")), "{why}");
        }
    }

    #[test]
    fn a_name_of_a_kind_has_the_api_servers_form_and_length() {
        let long = |bytes: usize| "K".repeat(bytes);
        assert!(is_kind(&Kind::new("example.com/v1beta1", &long(MAX_NAME_BYTES))));
        for (api_version, kind) in
            [("example.com/v1", &*long(MAX_NAME_BYTES + 1)), ("v1", "pod"), ("v1", "P/d"), ("1", "Pod"), ("/v1", "Pod")]
        {
            assert!(!is_kind(&Kind::new(api_version, kind)), "{api_version} {kind}");
        }
        let group = format!("{}.a", "g".repeat(MAX_GROUP_BYTES - 2));
        assert!(is_kind(&Kind::new(&format!("{group}/v1"), "Pod")));
        assert!(!is_kind(&Kind::new(&format!("{group}a/v1"), "Pod")));
    }
}
