//! clusterrole-aggregation-controller: ClusterRoles that have the rules of others. Input: ClusterRoles. Output: their rules.

use serde_json::Value;

use super::storages::CLUSTER_ROLES;
use super::write;
use crate::Cluster;
use crate::context::Context;
use crate::controllers::controller::{Again, Controller, Key, key};
use crate::halt::Halt;
use crate::selector::Labels;
use crate::store::Change;

pub(super) const CONTROLLER: Controller = Controller {
    name: "clusterrole-aggregation-controller",
    user: "system:serviceaccount:kube-system:clusterrole-aggregation-controller",
    watches: &[("rbac.authorization.k8s.io", "clusterroles")],
    batches: true,
    keys,
    reconcile,
};

/// Any ClusterRole may belong to any that aggregates.
fn keys(cluster: &Cluster, _: &Change) -> Vec<Key> {
    let all = cluster.store.list(&CLUSTER_ROLES, None, None);
    all.filter(|role| role.value["aggregationRule"].is_object()).map(|role| key(role)).collect()
}

fn reconcile(cluster: &mut Cluster, context: &Context<'_>, (_, name): &Key) -> Result<Again, Halt> {
    let Some(role) = cluster.store.get(&CLUSTER_ROLES, "", name).cloned() else { return Ok(Again::No) };
    let Some(selectors) = role.value["aggregationRule"]["clusterRoleSelectors"].as_array() else {
        return Ok(Again::No);
    };
    let mut rules: Vec<Value> = Vec::new();
    for selector in selectors.iter().map(Labels::read) {
        let all = cluster.store.list(&CLUSTER_ROLES, None, None).filter(|other| other.name() != &**name);
        for other in all.filter(|other| selector.matches(other.labels())) {
            for rule in other.value["rules"].as_array().into_iter().flatten() {
                if !rules.contains(rule) {
                    rules.push(rule.clone());
                }
            }
        }
    }
    if role.value["rules"].as_array().map_or(&[][..], Vec::as_slice) != rules {
        write::change(cluster, context, &role, |role| write::set(role, "rules", rules.into()))?;
    }
    Ok(Again::No)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::Method::Delete;
    use crate::controllers::testing::{cluster, pass, post, read};
    use crate::testing::ask;

    #[test]
    fn an_aggregated_role_has_the_rules_of_those_it_selects() {
        let mut cluster = cluster(&["clusterrole-aggregation-controller"]);
        let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
        let rule = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
        let selectors = json!({"clusterRoleSelectors": [{"matchLabels": {"to": "all"}}]});
        post(&mut cluster, roles, &json!({"metadata": {"name": "all"}, "aggregationRule": selectors, "rules": []}));
        for name in ["a", "b"] {
            post(&mut cluster, roles, &json!({"metadata": {"name": name, "labels": {"to": "all"}}, "rules": rule}));
        }
        pass(&mut cluster, 1);
        assert_eq!(read(&mut cluster, &format!("{roles}/all"))["rules"], rule);
        for name in ["a", "b"] {
            ask(&mut cluster, Delete, &format!("{roles}/{name}"), &json!(null));
        }
        pass(&mut cluster, 2);
        assert!(read(&mut cluster, &format!("{roles}/all"))["rules"].as_array().is_none_or(Vec::is_empty));
    }
}
