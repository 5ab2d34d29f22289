//! Patterns of kinds in native tests, as the host has them: a declared kind `*` with the apiVersion "v1", "apps/v1",
//! "apps/*" or "*.example.com/*". The macros have checked their form.

use crate::object::Kind;

/// Whether a declared pattern has a kind. No pattern has Secrets.
pub(super) fn has(pattern: &Kind, api_version: &str, kind: &str) -> bool {
    let (groups, version) = split(pattern.api_version);
    let (group, of_group) = split(api_version);
    let is_group = match groups.strip_prefix("*.") {
        Some(below) => group.strip_suffix(below).is_some_and(|label| label.ends_with('.')),
        None => group == groups,
    };
    let is_secret = group.is_empty() && kind == "Secret";
    pattern.kind == "*" && is_group && (version == "*" || version == of_group) && !is_secret
}

fn split(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_has_what_the_host_lets_it_have() {
        let has = |api_version, wanted, kind| has(&Kind { api_version, kind: "*" }, wanted, kind);
        assert!(has("v1", "v1", "Pod") && !has("v1", "v1", "Secret") && !has("v1", "apps/v1", "Deployment"));
        assert!(has("apps/v1", "apps/v1", "Deployment") && !has("apps/v1", "apps/v2", "Deployment"));
        assert!(has("apps/*", "apps/v2", "Deployment") && !has("apps/*", "a.apps/v2", "Deployment"));
        assert!(has("*.example.com/*", "a.b.example.com/v1", "A") && !has("*.example.com/*", "example.com/v1", "A"));
    }
}
