//! Role-based access control: the rules that bindings give a user, and whether they allow an action. Input: the roles and
//! bindings in the store. Output: decisions with their reasons. It must not know requests.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use super::action::Action;
use crate::Cluster;
use crate::resource::Storage;
use crate::store::Object;
use crate::user::User;

pub(crate) const GROUP: &str = "rbac.authorization.k8s.io";
/// Who is in this group may do everything.
pub(crate) const MASTERS: &str = "system:masters";

/// What an authorizer says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) allowed: bool,
    pub(crate) reason: String,
}

/// Whether a user may do something.
pub(crate) fn decide(cluster: &Cluster, user: &User, action: &Action<'_>) -> Decision {
    if !cluster.options.rbac || is_master(user) {
        return Decision { allowed: true, reason: String::new() };
    }
    let mut errors = BTreeSet::new();
    for grant in grants(cluster, user, action.namespace) {
        match grant.role(cluster) {
            Ok(role) => {
                if array(&role.value, "rules").iter().any(|rule| allows(rule, action)) {
                    return Decision { allowed: true, reason: format!("RBAC: allowed by {}", grant.words()) };
                }
            }
            Err(error) => {
                errors.insert(error);
            }
        }
    }
    let errors: Vec<String> = errors.into_iter().collect();
    let reason = match errors.as_slice() {
        [] => String::new(),
        [one] => format!("RBAC: {one}"),
        many => format!("RBAC: [{}]", many.join(", ")),
    };
    Decision { allowed: false, reason }
}

pub(crate) fn is_master(user: &User) -> bool {
    user.groups.iter().any(|group| group == MASTERS)
}

/// All rules that a user has in a namespace, those of the whole cluster among them.
pub(crate) fn rules(cluster: &Cluster, user: &User, namespace: &str) -> Vec<Value> {
    let grants = grants(cluster, user, namespace);
    let roles = grants.iter().filter_map(|grant| grant.role(cluster).ok());
    roles.flat_map(|role| array(&role.value, "rules").to_vec()).collect()
}

/// The role that a binding refers to. The error is the API's of a role that is not there.
pub(crate) fn referred(cluster: &Cluster, reference: &Value, namespace: &str) -> Result<Arc<Object>, String> {
    let name = text(reference, "name");
    let (plural, singular, namespace) = match text(reference, "kind") {
        "Role" => ("roles", "role", namespace),
        "ClusterRole" => ("clusterroles", "clusterrole", ""),
        other => return Err(format!("unsupported role reference kind: {other:?}")),
    };
    let found = cluster.store.get(&Storage::new(GROUP, plural), namespace, name).cloned();
    found.ok_or_else(|| format!("{singular}.{GROUP} {name:?} not found"))
}

/// A binding that gives a user its role's rules, because of one of its subjects.
struct Grant {
    binding: Arc<Object>,
    subject: usize,
}

impl Grant {
    fn role(&self, cluster: &Cluster) -> Result<Arc<Object>, String> {
        referred(cluster, &self.binding.value["roleRef"], self.binding.namespace())
    }

    fn words(&self) -> String {
        let (name, namespace) = (self.binding.name(), self.binding.namespace());
        let reference = &self.binding.value["roleRef"];
        let role = format!("{} {:?}", text(reference, "kind"), text(reference, "name"));
        let subject = array(&self.binding.value, "subjects").get(self.subject).unwrap_or(&Value::Null);
        let kind = text(subject, "kind");
        let subject = if kind == "ServiceAccount" {
            let own = Some(text(subject, "namespace")).filter(|own| !own.is_empty()).unwrap_or(namespace);
            format!("{kind} {:?}", format!("{}/{own}", text(subject, "name")))
        } else {
            format!("{kind} {:?}", text(subject, "name"))
        };
        if namespace.is_empty() {
            format!("ClusterRoleBinding {name:?} of {role} to {subject}")
        } else {
            format!("RoleBinding {:?} of {role} to {subject}", format!("{name}/{namespace}"))
        }
    }
}

/// The bindings of a user: those of the cluster first, then those of the namespace.
fn grants(cluster: &Cluster, user: &User, namespace: &str) -> Vec<Grant> {
    let wide = cluster.store.list(&Storage::new(GROUP, "clusterrolebindings"), None, None);
    let narrow = cluster.store.list(&Storage::new(GROUP, "rolebindings"), Some(namespace), None);
    let narrow = narrow.filter(|_| !namespace.is_empty());
    let grant = |binding: &Arc<Object>| {
        let mut subjects = array(&binding.value, "subjects").iter();
        let subject = subjects.position(|subject| is_subject(user, subject, binding.namespace()))?;
        Some(Grant { binding: binding.clone(), subject })
    };
    wide.chain(narrow).filter_map(grant).collect()
}

fn is_subject(user: &User, subject: &Value, namespace: &str) -> bool {
    let name = text(subject, "name");
    match text(subject, "kind") {
        "User" => user.name == name,
        "Group" => user.groups.iter().any(|group| group == name),
        "ServiceAccount" => {
            let own = Some(text(subject, "namespace")).filter(|own| !own.is_empty()).unwrap_or(namespace);
            let rest = user.name.strip_prefix("system:serviceaccount:").and_then(|rest| rest.strip_prefix(own));
            !own.is_empty() && rest.and_then(|rest| rest.strip_prefix(':')) == Some(name)
        }
        _ => false,
    }
}

fn allows(rule: &Value, action: &Action<'_>) -> bool {
    if !names(rule, "verbs", action.verb) {
        return false;
    }
    if let Some(path) = action.path {
        return texts(rule, "nonResourceURLs").any(|url| url_covers(url, path));
    }
    let combined = action.combined();
    let resource = texts(rule, "resources").any(|known| {
        let any_of = !action.subresource.is_empty() && known.strip_prefix("*/") == Some(action.subresource);
        known == "*" || known == combined || any_of
    });
    let mut allowed_names = texts(rule, "resourceNames").peekable();
    resource
        && names(rule, "apiGroups", action.group)
        && (allowed_names.peek().is_none() || allowed_names.any(|name| name == action.name))
}

/// Whether a rule's URL, which may end with `*`, covers a path.
pub(super) fn url_covers(url: &str, path: &str) -> bool {
    url == "*" || url == path || url.ends_with('*') && path.starts_with(url.trim_end_matches('*'))
}

/// Whether a list of a rule has a value or `*`.
pub(super) fn names(rule: &Value, key: &str, wanted: &str) -> bool {
    texts(rule, key).any(|known| known == "*" || known == wanted)
}

pub(super) fn texts<'a>(rule: &'a Value, key: &str) -> impl Iterator<Item = &'a str> + use<'a> {
    array(rule, key).iter().filter_map(Value::as_str)
}

pub(super) fn array<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}
