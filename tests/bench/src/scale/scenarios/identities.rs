//! What it costs that plugins have identities: small plugins without objects, restarted as the host and then with a ServiceAccount
//! each, and a change of one's rights.

use std::time::Duration;

use anyhow::{Context, Result};
use kube::Api;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use serde_json::json;

use super::super::figures::{Figures, Unit};
use super::super::side::{Side, Work, total};
use super::{cluster, figures, stop, turns, write_plugins};
use crate::programs::Host;
use crate::reader;

/// The host asks again ten seconds after a change, when every API server knows it.
const SETTLED: Duration = Duration::from_secs(12);
/// Gives all ServiceAccounts of the host's namespace what the plugins read, and one what it has already.
const ROLES: &str = r#"{"apiVersion": "v1", "kind": "List", "items": [
    {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "bench-reads"},
     "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}]},
    {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "bench-reads"},
     "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "bench-reads"},
     "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:serviceaccounts:default"}]}]}"#;

pub(in super::super) async fn run(hosts: &[Host], plugins: usize, rounds: usize) -> Result<Figures> {
    let title = format!(
        "{plugins} small plugins without objects, restarted as the host, then with a ServiceAccount each (medians of {rounds})"
    );
    let mut figures = figures(title, hosts);
    let mut sides = Vec::new();
    for host in hosts {
        let side = Side::new(host, hosts.len() > 1).await?;
        cluster::set_up(&side.cluster, false).await?;
        side.cluster.plane.apply(ROLES)?;
        write_plugins(&side, plugins, false)?;
        stop(side.start(&format!("{plugins} plugins"), Work::default()).await?.0).await?;
        side.pause()?;
        sides.push(side);
    }
    for (what, with_accounts) in [("as the host", false), ("a ServiceAccount each", true)] {
        for side in sides.iter().filter(|_| with_accounts) {
            side.resume()?;
            name_accounts(side, plugins).await?;
            stop(side.start("their first start with a ServiceAccount", Work::default()).await?.0).await?;
            side.pause()?;
        }
        for round in 0..rounds {
            for (number, side) in turns(&sides, round) {
                side.resume()?;
                let (operator, restart) = side.start(what, Work::default()).await?;
                restart.rows(&mut figures, number, what, None);
                if with_accounts {
                    let spent = side.phase(&operator, Work::default(), bind_one(side, round)).await?;
                    let change = "a binding of one plugin";
                    figures.add(number, format!("{change}: reviews"), Unit::Count, total(&spent.writes));
                    figures.add(number, format!("{change}: CPU"), Unit::Milliseconds, spent.cpu.as_secs_f64() * 1e3);
                }
                stop(operator).await?;
                side.pause()?;
            }
        }
    }
    Ok(figures)
}

/// Lets each plugin act as a ServiceAccount of its name.
async fn name_accounts(side: &Side<'_>, plugins: usize) -> Result<()> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("mortise.dev", "v1alpha1", "Plugin"));
    let api = Api::<DynamicObject>::all_with(side.cluster.client.clone(), &resource);
    for plugin in 0..plugins {
        let name = reader::name(plugin);
        let patch = json!({"spec": {"serviceAccountName": name}});
        cluster::merge(&api, &name, patch).await.context("name a ServiceAccount")?;
    }
    Ok(())
}

/// Binds a role to the first plugin's ServiceAccount.
async fn bind_one(side: &Side<'_>, round: usize) -> Result<()> {
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": format!("bench-one-{round}")},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "bench-reads"},
        "subjects": [{"kind": "ServiceAccount", "name": reader::name(0), "namespace": "default"}],
    });
    side.cluster.plane.apply(&binding.to_string())?;
    tokio::time::sleep(SETTLED).await;
    Ok(())
}
