//! `mortise finalizers`: removes the finalizers of a removed plugin, so that its objects can be deleted.

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use kube::api::{Api, DynamicObject, ListParams, PartialObjectMeta, Patch, PatchParams};
use kube::core::ApiResource;
use kube::discovery::{ApiCapabilities, Discovery, verbs};
use kube::{Client, ResourceExt};
use mortise_core::pages::Tokens;
use mortise_core::well_known::OWNER_UID_LABEL;
use mortise_core::{finalizer, plugin_object};
use serde_json::json;

use crate::{kubernetes, words};

/// The field manager of what this command writes.
const MANAGER: &str = "mortise-finalizers";
/// Objects per page of a list, as kubectl has it.
const PAGE: u32 = 500;
/// Attempts per object when others change it between read and patch. After that the user has to repeat the command.
const MAX_TRIES: u32 = 5;
const CONFLICT: u16 = 409;
const NOT_FOUND: u16 = 404;

#[derive(Debug, Args)]
pub struct FinalizersArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Remove a plugin's finalizer from all objects
    Release(ReleaseArgs),
}

#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  List the objects that have a plugin's finalizer:
      mortise finalizers release drain --dry-run

  Remove it, without the plugin's cleanup:
      mortise finalizers release drain

  From objects of one kind only:
      mortise finalizers release drain --kind maintenance.mortise.dev/v1alpha1/NodeMaintenance

A plugin that cleans up after its objects, or whose objects have children in other namespaces, puts
the finalizer mortise.dev/PLUGIN on them. Once the plugin is removed, they cannot be deleted any
more: either install it again, and it cleans up, or release them here. Children in other namespaces
then stay; each has its owner's UID in the label mortise.dev/owner-uid. Without --kind the command
lists every kind that the API server serves.")]
struct ReleaseArgs {
    /// The plugin
    #[arg(value_name = "PLUGIN")]
    plugin: String,
    /// Only objects of this kind, such as "example.com/v1/Team" or "v1/ConfigMap"
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// Print the objects that have the finalizer, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Release although the plugin is installed
    #[arg(long)]
    force: bool,
    /// Kubeconfig to reach the API server; without it, $KUBECONFIG, else the pod's ServiceAccount, else ~/.kube/config
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

/// Prints the outcome for every object that has the finalizer.
pub fn run(args: &FinalizersArgs) -> anyhow::Result<()> {
    let Command::Release(args) = &args.command;
    let released = kubernetes::block_on(release(args))?;
    released.with_context(|| format!("cannot release the objects of {}", args.plugin))
}

async fn release(args: &ReleaseArgs) -> anyhow::Result<()> {
    let client = kubernetes::client(args.kubeconfig.as_deref()).await?;
    if !args.dry_run && !args.force {
        refuse_while_it_serves(&client, &args.plugin).await?;
    }
    let finalizer = finalizer::name(&args.plugin);
    let (mut found, mut failed) = (0_usize, 0_usize);
    for resource in resources(&client, args.kind.as_deref()).await? {
        let held = match held(&client, &resource, &finalizer).await {
            Ok(held) => held,
            // A user without the right to read some kinds may still release objects of the others.
            Err(error) if args.kind.is_none() => {
                failed += 1;
                words::print(&format!("{} cannot be listed: {error}\n", resource.plural))?;
                continue;
            }
            Err(error) => return Err(error).with_context(|| format!("listing {}", resource.plural)),
        };
        for object in held {
            found += 1;
            let what = display(&resource, &object);
            if args.dry_run {
                words::print(&format!("{what} has {finalizer}\n"))?;
                continue;
            }
            match release_one(&client, &resource, object, &finalizer).await {
                Ok(done) => words::print(&format!("{what} {done}\n"))?,
                Err(error) => {
                    failed += 1;
                    words::print(&format!("{what} was not released: {error:#}\n"))?;
                }
            }
        }
    }
    if found == 0 {
        words::print(&format!("no object has {finalizer}\n"))?;
    } else if !args.dry_run {
        words::print(&format!(
            "children in other namespaces stay; list those of an owner with: kubectl get KIND -A -l {OWNER_UID_LABEL}=UID\n"
        ))?;
    }
    if failed > 0 {
        bail!("{failed} of the steps above failed");
    }
    Ok(())
}

/// A plugin that is installed does its cleanup itself.
async fn refuse_while_it_serves(client: &Client, plugin: &str) -> anyhow::Result<()> {
    let kind = plugin_object::kind();
    let resource = ApiResource::from_gvk(&kube::core::GroupVersionKind::gvk(kind.group(), kind.version(), &kind.kind));
    let plugins: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    match plugins.get_opt(plugin).await {
        Ok(Some(_)) => bail!(
            "the plugin is installed and cleans up by itself: delete the objects and wait, withdraw the plugin first, or \
             release without its cleanup by --force"
        ),
        Ok(None) => Ok(()),
        Err(error) => Err(error).context("reading the Plugin object"),
    }
}

/// The kinds to list: one, or all that support list and patch, each in the API server's preferred version.
async fn resources(client: &Client, kind: Option<&str>) -> anyhow::Result<Vec<ApiResource>> {
    let can = |capabilities: &ApiCapabilities| {
        capabilities.supports_operation(verbs::LIST) && capabilities.supports_operation(verbs::PATCH)
    };
    let Some(kind) = kind else {
        let discovery = Discovery::new(client.clone()).run().await.context("discovering the API server's kinds")?;
        let all = discovery.groups().flat_map(|group| group.recommended_resources());
        return Ok(all.filter(|(_, capabilities)| can(capabilities)).map(|(resource, _)| resource).collect());
    };
    let Some((api_version, kind)) = kind.rsplit_once('/') else {
        bail!("{kind:?} names no kind; write \"v1/ConfigMap\" or \"example.com/v1/Team\"");
    };
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let wanted = kube::core::GroupVersionKind::gvk(group, version, kind);
    let (resource, _) = kube::discovery::pinned_kind(client, &wanted)
        .await
        .with_context(|| format!("the API server serves no {kind} in {api_version}"))?;
    Ok(vec![resource])
}

async fn held(
    client: &Client,
    resource: &ApiResource,
    finalizer: &str,
) -> anyhow::Result<Vec<PartialObjectMeta<DynamicObject>>> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), resource);
    let mut page = ListParams::default().limit(PAGE);
    let (mut held, mut tokens) = (Vec::new(), Tokens::default());
    loop {
        let list = api.list_metadata(&page).await?;
        let token = list.metadata.continue_.unwrap_or_default();
        let next = tokens.next(&resource.plural, &token, list.items.len()).map_err(anyhow::Error::msg)?;
        held.extend(list.items.into_iter().filter(|object| object.finalizers().iter().any(|name| name == finalizer)));
        match next {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(held),
        }
    }
}

/// Removes the finalizer from one object. The patch replaces the whole list, so it carries the resourceVersion that was
/// read.
async fn release_one(
    client: &Client,
    resource: &ApiResource,
    mut object: PartialObjectMeta<DynamicObject>,
    finalizer: &str,
) -> anyhow::Result<&'static str> {
    let name = object.name_any();
    let api: Api<DynamicObject> = match object.namespace() {
        Some(namespace) => Api::namespaced_with(client.clone(), &namespace, resource),
        None => Api::all_with(client.clone(), resource),
    };
    for _ in 0..MAX_TRIES {
        let left: Vec<&String> = object.finalizers().iter().filter(|name| *name != finalizer).collect();
        if left.len() == object.finalizers().len() {
            return Ok("was released already");
        }
        let is_last = object.metadata.deletion_timestamp.is_some() && left.is_empty();
        let patch = json!({"metadata": {
            "uid": object.uid(), "resourceVersion": object.resource_version(), "finalizers": left,
        }});
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        match api.patch(&name, &params, &Patch::Merge(&patch)).await {
            Ok(_) if is_last => return Ok("is released and deleted"),
            Ok(_) => return Ok("is released"),
            Err(kube::Error::Api(status)) if status.code == NOT_FOUND => return Ok("was deleted already"),
            Err(kube::Error::Api(status)) if status.code == CONFLICT => match api.get_metadata_opt(&name).await? {
                Some(newer) => object = newer,
                None => return Ok("was deleted already"),
            },
            Err(kube::Error::Api(status)) => bail!("{}", status.message),
            Err(error) => return Err(error.into()),
        }
    }
    bail!("it changed {MAX_TRIES} times during the release; run the command again")
}

fn display(resource: &ApiResource, object: &PartialObjectMeta<DynamicObject>) -> String {
    match object.namespace() {
        Some(namespace) => format!("{} {namespace}/{}", resource.kind, object.name_any()),
        None => format!("{} {}", resource.kind, object.name_any()),
    }
}
