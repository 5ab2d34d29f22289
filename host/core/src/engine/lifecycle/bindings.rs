//! Which ServiceAccounts the roles of a cluster concern, by the bindings that the cache shows, and as which somebody may act. It
//! says whom to ask about, and where; the API server says what they may. It must not know plugins.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Deserialize;

use crate::object::{Kind, Name, Object, ObjectRef};
use crate::permission::IMPERSONATE;
use crate::service_account::ServiceAccount;
use crate::store::{Change, Snapshot};

const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// Namespaces with a binding of one ServiceAccount that count: as many as `spec.namespaces` of a Plugin may name. Each is up to
/// three requests for each kind, and the administrator of any namespace can add it. The schema of Plugins and the bounds of a
/// manifest hold what those name.
pub(super) const MAX_BOUND_NAMESPACES: usize = 100;

/// The kinds that grant rights.
pub(super) fn kinds() -> [Kind; 4] {
    ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"].map(|kind| Kind::new(RBAC, kind))
}

pub(super) fn is_rbac(kind: &Kind) -> bool {
    &*kind.api_version == RBAC
}

/// The namespace that a change of a role or a binding concerns; None: it may concern all.
pub(super) fn place(change: &Change) -> Option<Arc<str>> {
    let namespace = &change.object()?.name.namespace;
    (!namespace.is_empty()).then(|| Arc::clone(namespace))
}

/// The bindings of a cluster.
#[derive(Debug, Default)]
pub(super) struct Bindings {
    all: BTreeMap<ObjectRef, Binding>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Binding {
    role: (String, String),
    subjects: BTreeSet<Subject>,
}

/// Somebody whom a binding names.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Default, Debug, Deserialize)]
#[serde(default)]
pub(super) struct Subject {
    kind: String,
    name: String,
    namespace: String,
}

impl Subject {
    fn new(kind: &str, name: impl Into<String>, namespace: &str) -> Self {
        Self { kind: kind.to_owned(), name: name.into(), namespace: namespace.to_owned() }
    }

    /// Those that mean a ServiceAccount, by its name or as one of a group.
    fn all_of(account: &ServiceAccount) -> Vec<Self> {
        let own =
            [Self::new("ServiceAccount", &*account.name, &account.namespace), Self::new("User", account.user(), "")];
        own.into_iter().chain(account.groups().map(|group| Self::new("Group", group, ""))).collect()
    }
}

/// Whether a ServiceAccount is meant by one of these. A binding may have ten thousand, so each is looked up.
pub(super) fn mean(subjects: &BTreeSet<Subject>, account: &ServiceAccount) -> bool {
    Subject::all_of(account).iter().any(|subject| subjects.contains(subject))
}

impl Bindings {
    /// Follows a change of a role or a binding. Whom it may concern.
    pub fn on_change(&mut self, change: &Change) -> BTreeSet<Subject> {
        let Some(object) = change.object() else { return BTreeSet::new() };
        let target = object.reference();
        if is_role(&target.kind) {
            let of_role = self.all.iter().filter(|(binding, Binding { role, .. })| {
                *role.0 == *target.kind.kind
                    && *role.1 == *target.name.name
                    && (role.0 == "ClusterRole" || binding.name.namespace == target.name.namespace)
            });
            return of_role.flat_map(|(_, binding)| binding.subjects.iter().cloned()).collect();
        }
        let after = change.after.as_ref().map(|after| read(after));
        let before = match &after {
            Some(after) => self.all.insert(target, after.clone()),
            None => self.all.remove(&target),
        };
        if before == after {
            return BTreeSet::new();
        }
        before.into_iter().chain(after).flat_map(|binding| binding.subjects).collect()
    }

    /// The namespaces where a RoleBinding has the ServiceAccount, up to the bound the first by name; and whether there are more.
    pub fn namespaces_of(&self, account: &ServiceAccount) -> (BTreeSet<Arc<str>>, bool) {
        let own = Subject::all_of(account);
        let names = |binding: &Binding| own.iter().any(|subject| binding.subjects.contains(subject));
        let of_account =
            self.all.iter().filter(|(target, binding)| &*target.kind.kind == "RoleBinding" && names(binding));
        let all: BTreeSet<Arc<str>> = of_account.map(|(target, _)| Arc::clone(&target.name.namespace)).collect();
        let has_more = all.len() > MAX_BOUND_NAMESPACES;
        (all.into_iter().take(MAX_BOUND_NAMESPACES).collect(), has_more)
    }
}

/// The ServiceAccounts as which a role lets somebody act.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Acting {
    /// All where the role counts.
    all: bool,
    names: BTreeSet<String>,
}

impl Acting {
    pub fn is_nobody(&self) -> bool {
        *self == Self::default()
    }

    pub fn has(&self, account: &str) -> bool {
        self.all || self.names.contains(account)
    }

    fn join(&mut self, other: Self) {
        self.all |= other.all;
        self.names.extend(other.names);
    }

    /// Those whom one of two has.
    fn difference(&self, other: &Self) -> Self {
        match (self.all, other.all) {
            (true, true) => Self::default(),
            (false, false) => {
                Self { all: false, names: self.names.symmetric_difference(&other.names).cloned().collect() }
            }
            _ => Self { all: true, names: BTreeSet::new() },
        }
    }
}

/// As which ServiceAccounts a change of a role or a binding may let somebody act, or not any more.
pub(super) fn acting_change(change: &Change, snapshot: &Snapshot) -> Acting {
    let Some(object) = change.object() else { return Acting::default() };
    let [before, after] = [&change.before, &change.after].map(Option::as_deref);
    if is_role(&object.kind) {
        let acting = |role: Option<&Object>| role.map(acting).unwrap_or_default();
        return acting(before).difference(&acting(after));
    }
    let bindings = [before, after].map(|binding| binding.map(read));
    let mut all = Acting::default();
    if bindings[0] == bindings[1] {
        return all;
    }
    for Binding { role: (kind, name), .. } in bindings.into_iter().flatten() {
        let namespace = if kind == "Role" { Arc::clone(&object.name.namespace) } else { Arc::from("") };
        let role = snapshot.get(&Kind::new(RBAC, &kind), &Name { namespace, name: name.into() });
        // The API server may know a role that the cache does not show.
        all.join(role.map_or(Acting { all: true, names: BTreeSet::new() }, |role| acting(role)));
    }
    all
}

fn is_role(kind: &Kind) -> bool {
    matches!(&*kind.kind, "Role" | "ClusterRole")
}

fn acting(role: &Object) -> Acting {
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Parts {
        rules: Option<Vec<Rule>>,
    }
    #[derive(Deserialize, Default)]
    #[serde(default, rename_all = "camelCase")]
    struct Rule {
        api_groups: BTreeSet<String>,
        resources: BTreeSet<String>,
        verbs: BTreeSet<String>,
        resource_names: BTreeSet<String>,
    }
    let Ok(Parts { rules }) = serde_json::from_str(role.json()) else {
        return Acting { all: true, names: BTreeSet::new() };
    };
    let has = |names: &BTreeSet<String>, name: &str| names.contains(name) || names.contains("*");
    let mut acting = Acting::default();
    for rule in rules.into_iter().flatten() {
        if has(&rule.verbs, IMPERSONATE) && has(&rule.api_groups, "") && has(&rule.resources, "serviceaccounts") {
            acting.join(Acting { all: rule.resource_names.is_empty(), names: rule.resource_names });
        }
    }
    acting
}

fn read(object: &Object) -> Binding {
    #[derive(Deserialize, Default)]
    #[serde(default, rename_all = "camelCase")]
    struct Parts {
        role_ref: Role,
        subjects: Vec<Subject>,
    }
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Role {
        kind: String,
        name: String,
    }
    let Parts { role_ref, subjects } = serde_json::from_str(object.json()).unwrap_or_default();
    let complete = |mut subject: Subject| {
        if subject.kind != "ServiceAccount" {
            subject.namespace.clear();
        } else if subject.namespace.is_empty() {
            // A RoleBinding may leave out the namespace of a ServiceAccount, which is its own then.
            subject.namespace = object.name.namespace.to_string();
        }
        subject
    };
    Binding { role: (role_ref.kind, role_ref.name), subjects: subjects.into_iter().map(complete).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocations::{Count, counted};

    #[test]
    fn a_binding_with_ten_thousand_subjects_costs_an_account_a_few_looks() {
        let subjects = (0..10_000).map(|number| Subject::new("Group", format!("group-{number}"), ""));
        let mut subjects: BTreeSet<Subject> = subjects.collect();
        let account = ServiceAccount { namespace: "team-a".into(), name: "podset".into() };
        let (Count { allocations, .. }, is_meant) = counted(|| mean(&subjects, &account));
        assert!(!is_meant && allocations < 20, "{allocations} allocations");
        for own in Subject::all_of(&account) {
            subjects.insert(own.clone());
            assert!(mean(&subjects, &account), "{own:?}");
            subjects.remove(&own);
        }
    }
}
