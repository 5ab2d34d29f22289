//! `mortise rbac`: prints the rights that a plugin, or the host itself, needs: with an identity of the plugin's own, or as a
//! part of the host's.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use k8s_openapi::api::rbac::v1::{AggregationRule, ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use mortise_core::manifest::Manifest;
use mortise_core::tenant;
use mortise_core::well_known::{AGGREGATE_LABEL, GROUP, HOST, WEBHOOK_SECRET};
use mortise_runtime::config::Namespace;

use crate::yaml::documents;

/// The role of those who may read the metrics with --metrics-secure. The host binds it to nobody.
const METRICS_READER: &str = "mortise-metrics-reader";

mod rules;
mod service_account;
#[cfg(test)]
mod tests;

use rules::{account, aggregated, label, metadata, named_namespaces, role_name, role_ref, rule, rules, unnamed_groups};
pub use service_account::Identified;
use service_account::OfTenant;

#[derive(Debug, Args)]
#[command(
    override_usage = "mortise rbac <FILE.wasm> [OPTIONS]\n       mortise rbac --host [OPTIONS]",
    after_long_help = "\
Examples:
  Let the host run a plugin with an identity of its own, and no other rights than the plugin asks for:
      mortise rbac podset.wasm --service-account podset | kubectl apply -f -

  Let the host run a plugin with the host's own identity:
      mortise rbac podset.wasm | kubectl apply -f -

  Let the host run a plugin of a tenant, in the namespace team-a alone, for those who grant rights there:
      mortise rbac podset.wasm --tenant team-a | kubectl apply -f -

  Set up the host's own rights, and the role that gathers those of all plugins:
      mortise rbac --host | kubectl apply -f -

With --tenant it prints the ServiceAccount in that namespace, a Role with what the plugin may do there, and one by
which the host reads what the plugin reads, finds its ConfigMap, and acts as this ServiceAccount. A host that runs
with --tenant-namespaces also watches Namespaces: `mortise rbac --host --tenants` prints its roles with that. Nobody can
grant what they may not do, so --tenants with a plugin prints a ClusterRole that gives the administrators of namespaces
(Kubernetes' role `admin`) the plugin's own kinds, and Events.

With --service-account it prints the ServiceAccount in the host's namespace, its roles and their bindings, a
ClusterRole with what the host watches for it, a Role by which the host may act as it, and the Plugin
object that names it and grants its CustomResourceDefinitions and webhooks, which the host registers. Read
them before you apply them: the roles are what the plugin can do with objects.

Without, a plugin's ClusterRole carries the label mortise.dev/aggregate-to-host=true, by which Kubernetes
aggregates its rules into the host's ClusterRole; delete it to revoke them. What a plugin declares in some
namespaces alone becomes a Role and a RoleBinding in each, for the host's ServiceAccount in the namespace
of -n; they need no ClusterRole. RBAC knows no labels, so a label selector narrows nothing here. For kinds without a CRD in
the plugin, the resource is the English plural of the kind, as with Kubernetes' own kinds; correct it
where another CRD has another plural."
)]
pub struct RbacArgs {
    /// The plugin
    #[arg(value_name = "FILE.wasm", required_unless_present = "host", conflicts_with = "host")]
    file: Option<PathBuf>,
    /// Print the host's own roles and bindings instead
    #[arg(long)]
    host: bool,
    /// With --host, also the rights of a host that runs with --tenant-namespaces; with a plugin, those that tenants have to have
    /// to bring it, as a part of Kubernetes' role `admin`
    #[arg(long, conflicts_with_all = ["tenant", "service_account"])]
    tenants: bool,
    /// Namespace of the tenant whose plugin it is to be
    #[arg(long, value_name = "NAMESPACE", conflicts_with = "host")]
    tenant: Option<Namespace>,
    /// Name of the plugin in the cluster [default: the file's name]
    #[arg(long, value_name = "NAME", conflicts_with = "host")]
    name: Option<String>,
    /// Name of the ServiceAccount in the host's namespace, or the tenant's, that the plugin is to act as [default with
    /// --tenant: the plugin's name]
    #[arg(long, value_name = "NAME", conflicts_with = "host", value_parser = crate::kubernetes::service_account)]
    service_account: Option<String>,
    /// Namespace of the host
    #[arg(long, short, value_name = "NAMESPACE", default_value = "mortise-system")]
    namespace: Namespace,
    /// Folder for compiled plugins, as of `mortise run`
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
}

pub fn run(args: &RbacArgs) -> anyhow::Result<()> {
    let Some(file) = &args.file else {
        return crate::words::print(&host(args.namespace.as_str(), args.tenants)?);
    };
    let name = crate::kubernetes::valid_plugin_name(args.name.as_deref(), file)?;
    if let Some(tenant) = &args.tenant {
        check_tenant(tenant.as_str(), &name, args.namespace.as_str())?;
    }
    let component = crate::component::load(file, args.cache_dir.clone())?;
    if args.tenants {
        return crate::words::print(&documents(&[service_account::for_tenants(&name, &component.manifest)])?);
    }
    if let Some(tenant) = &args.tenant {
        let of_tenant = OfTenant {
            name: &name,
            manifest: &component.manifest.of_tenant(&tenant.as_str().into())?,
            tenant: tenant.as_str(),
            host_namespace: args.namespace.as_str(),
            service_account: args.service_account.as_deref().unwrap_or(&name),
        };
        return crate::words::print(&of_tenant.documents()?);
    }
    if let Some(service_account) = &args.service_account {
        let (manifest, namespace) = (&component.manifest, args.namespace.as_str());
        let identified = Identified { plugin: &name, manifest, namespace, service_account };
        return crate::words::print(&identified.documents()?);
    }
    let mut text = [unnamed_groups(&component.manifest), documents(&[plugin(&name, &component.manifest)])?].concat();
    for (role, binding) in in_namespaces(&name, &component.manifest, args.namespace.as_str()) {
        text = [text, documents(&[role])?, documents(&[binding])?].concat();
    }
    crate::words::print(&text)
}

/// A tenant's plugin has a name with its namespace in it, and the host's own namespace is no tenant.
fn check_tenant(tenant: &str, name: &str, host_namespace: &str) -> anyhow::Result<()> {
    anyhow::ensure!(
        tenant != host_namespace,
        "the namespace {tenant} is the host's own, which is no tenant: leave out --tenant, or name the host's namespace with -n"
    );
    match tenant::cannot_be_named(tenant, name) {
        Some(refusal) => anyhow::bail!("{}", refusal.message),
        None => Ok(()),
    }
}

/// The ClusterRole with the rights that one plugin needs everywhere. Kubernetes aggregates it into the host's role.
fn plugin(name: &str, manifest: &Manifest) -> ClusterRole {
    let metadata = aggregated(metadata(&role_name(name), None));
    ClusterRole { metadata, rules: Some(rules(manifest, None)), aggregation_rule: None }
}

/// A Role with the rights that it needs in one namespace alone, and its binding to the host's ServiceAccount, for each.
fn in_namespaces(name: &str, manifest: &Manifest, host_namespace: &str) -> Vec<(Role, RoleBinding)> {
    let both = |namespace: &Arc<str>| {
        let here = || metadata(&role_name(name), Some(namespace));
        let role = Role { metadata: here(), rules: Some(rules(manifest, Some(namespace))) };
        let role_ref = role_ref("Role", &role_name(name));
        let binding = RoleBinding { metadata: here(), role_ref, subjects: Some(vec![account(host_namespace)]) };
        (role, binding)
    };
    named_namespaces(manifest).iter().map(both).collect()
}

/// The rights of the host without any plugin, in the cluster and in its own namespace; and the role that aggregates
/// them with every plugin's, bound to the host's ServiceAccount. The role of scrapers is for others to bind.
fn host(namespace: &str, has_tenants: bool) -> anyhow::Result<String> {
    let label = LabelSelector { match_labels: Some(label(AGGREGATE_LABEL, "true")), ..LabelSelector::default() };
    let gathered = ClusterRole {
        metadata: metadata(HOST, None),
        aggregation_rule: Some(AggregationRule { cluster_role_selectors: Some(vec![label]) }),
        rules: None,
    };
    let (metadata_of_own, rules) = (aggregated(metadata("mortise-host", None)), Some(of_the_cluster(has_tenants)));
    let own = ClusterRole { metadata: metadata_of_own, rules, aggregation_rule: None };
    let scrapes = ClusterRole {
        metadata: metadata(METRICS_READER, None),
        rules: Some(vec![PolicyRule {
            non_resource_urls: Some(vec!["/metrics".to_owned()]),
            verbs: vec!["get".to_owned()],
            ..PolicyRule::default()
        }]),
        aggregation_rule: None,
    };
    let binding = ClusterRoleBinding {
        metadata: metadata(HOST, None),
        role_ref: role_ref("ClusterRole", HOST),
        subjects: Some(vec![account(namespace)]),
    };
    let here = || metadata(HOST, Some(namespace));
    let own_here = Role { metadata: here(), rules: Some(of_the_namespace()) };
    let binding_here =
        RoleBinding { metadata: here(), role_ref: role_ref("Role", HOST), subjects: Some(vec![account(namespace)]) };
    let roles = [documents(&[gathered, own, scrapes])?, documents(&[binding])?];
    Ok([roles.concat(), documents(&[own_here])?, documents(&[binding_here])?].concat())
}

fn of_the_cluster(has_tenants: bool) -> Vec<PolicyRule> {
    // Which namespaces are tenants.
    let of_tenants = has_tenants.then(|| rule("", &["namespaces"], &["list", "watch"]));
    let rules = vec![
        // Admission webhooks. The host writes only those with its own label.
        rule(
            "admissionregistration.k8s.io",
            &["mutatingwebhookconfigurations", "validatingwebhookconfigurations"],
            &["list", "create", "update", "delete"],
        ),
        // No delete: the API server would delete all objects of a deleted CRD.
        rule("apiextensions.k8s.io", &["customresourcedefinitions"], &["get", "create", "update"]),
        // For --metrics-secure: whose a scraper's token is. It reads no object.
        rule("authentication.k8s.io", &["tokenreviews"], &["create"]),
        // What the ServiceAccounts of plugins may read, and when to ask again; and for --metrics-secure.
        rule("authorization.k8s.io", &["subjectaccessreviews"], &["create"]),
        rule(
            "rbac.authorization.k8s.io",
            &["clusterroles", "clusterrolebindings", "roles", "rolebindings"],
            &["list", "watch"],
        ),
        rule("events.k8s.io", &["events"], &["create", "patch"]),
        rule(GROUP, &["plugins"], &["get", "list", "watch", "create", "delete"]),
        rule(GROUP, &["plugins/status"], &["patch"]),
    ];
    rules.into_iter().chain(of_tenants).collect()
}

fn of_the_namespace() -> Vec<PolicyRule> {
    // The webhooks' certificate. RBAC cannot restrict `create` by name, so it has a rule of its own.
    let of_secret = rule("", &["secrets"], &["get", "update"]);
    vec![
        rule("", &["configmaps"], &["get", "list", "watch"]),
        // For --leader-elect. Without a name, since RBAC cannot restrict `create` by name.
        rule("coordination.k8s.io", &["leases"], &["get", "list", "watch", "create", "update"]),
        PolicyRule { resource_names: Some(vec![WEBHOOK_SECRET.to_owned()]), ..of_secret },
        rule("", &["secrets"], &["create"]),
    ]
}
