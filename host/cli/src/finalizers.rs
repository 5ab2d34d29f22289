//! `mortise finalizers`: objects that a plugin which is gone keeps from being deleted, and letting them go.

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use kube::api::{Api, DynamicObject, ListParams, PartialObjectMeta, Patch, PatchParams};
use kube::core::ApiResource;
use kube::discovery::{ApiCapabilities, Discovery, verbs};
use kube::{Client, ResourceExt};
use mortise_core::{finalizer, plugin_object};
use serde_json::json;

use crate::{kubernetes, words};

/// The field manager of what this command writes.
const MANAGER: &str = "mortise-finalizers";
/// Objects of one page of a list: kubectl's own.
const PAGE: u32 = 500;
/// How often an object that changes under the patch is looked at again. Whoever changes it more often than that is asked for
/// by the message.
const MAX_TRIES: u32 = 5;
/// 409.
const CONFLICT: u16 = 409;
/// 404.
const NOT_FOUND: u16 = 404;

/// What was typed.
#[derive(Debug, Args)]
pub struct FinalizersArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Take a plugin's finalizer off the objects that have it
    Release(ReleaseArgs),
}

#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  Which objects a plugin keeps from being deleted:
      mortise finalizers release drain --dry-run

  Let them go, without what the plugin would have done for them:
      mortise finalizers release drain

  Those of one kind only:
      mortise finalizers release drain --kind maintenance.mortise.dev/v1alpha1/NodeMaintenance

A plugin that cleans up after its objects puts the finalizer mortise.dev/PLUGIN on them. When it is
removed, they cannot be deleted any more: either bring it back, and it cleans up, or release them
here. Without --kind every kind that the API server lists is looked through.")]
struct ReleaseArgs {
    /// The plugin
    #[arg(value_name = "PLUGIN")]
    plugin: String,
    /// Look at this kind only, such as "example.com/v1/Team" or "v1/ConfigMap"
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// Print what has the finalizer, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Release although the plugin is there
    #[arg(long)]
    force: bool,
    /// Kubeconfig to reach the API server; without it, $KUBECONFIG, else the pod's ServiceAccount, else ~/.kube/config
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

/// Says of every object that has the finalizer what became of it.
pub fn run(args: &FinalizersArgs) -> anyhow::Result<()> {
    let Command::Release(args) = &args.command;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting I/O")?;
    runtime.block_on(release(args)).with_context(|| format!("cannot release what {} keeps", args.plugin))
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
            // Somebody who may not read all kinds may still release those that they can.
            Err(error) if args.kind.is_none() => {
                failed += 1;
                words::print(&format!("{} could not be looked through: {error}\n", resource.plural))?;
                continue;
            }
            Err(error) => return Err(error).with_context(|| format!("listing {}", resource.plural)),
        };
        for object in held {
            found += 1;
            let what = spoken(&resource, &object);
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
    }
    if failed > 0 {
        bail!("{failed} of the steps above failed");
    }
    Ok(())
}

/// Released objects go without their cleanup, which a plugin that is there would have done.
async fn refuse_while_it_serves(client: &Client, plugin: &str) -> anyhow::Result<()> {
    let kind = plugin_object::kind();
    let resource = ApiResource::from_gvk(&kube::core::GroupVersionKind::gvk(kind.group(), kind.version(), &kind.kind));
    let plugins: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    match plugins.get_opt(plugin).await {
        Ok(Some(_)) => bail!(
            "the plugin is there and cleans up by itself: delete the objects and wait, withdraw the plugin first, or \
             release without its cleanup by --force"
        ),
        Ok(None) => Ok(()),
        Err(error) => Err(error).context("looking whether the plugin is there"),
    }
}

/// The kinds to look through: one, or all that can be listed and patched, each in the version that the API server prefers.
async fn resources(client: &Client, kind: Option<&str>) -> anyhow::Result<Vec<ApiResource>> {
    let can = |capabilities: &ApiCapabilities| {
        capabilities.supports_operation(verbs::LIST) && capabilities.supports_operation(verbs::PATCH)
    };
    let Some(kind) = kind else {
        let discovery = Discovery::new(client.clone()).run().await.context("asking which kinds there are")?;
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

/// The objects of a kind that have the finalizer.
async fn held(
    client: &Client,
    resource: &ApiResource,
    finalizer: &str,
) -> kube::Result<Vec<PartialObjectMeta<DynamicObject>>> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), resource);
    let mut page = ListParams::default().limit(PAGE);
    let mut held = Vec::new();
    loop {
        let list = api.list_metadata(&page).await?;
        held.extend(list.items.into_iter().filter(|object| object.finalizers().iter().any(|name| name == finalizer)));
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(held),
        }
    }
}

/// Takes the finalizer off one object; the list is replaced as a whole, so it has to be the list that was seen.
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
            return Ok("is released already");
        }
        let goes = object.metadata.deletion_timestamp.is_some() && left.is_empty();
        let patch = json!({"metadata": {
            "uid": object.uid(), "resourceVersion": object.resource_version(), "finalizers": left,
        }});
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        match api.patch(&name, &params, &Patch::Merge(&patch)).await {
            Ok(_) if goes => return Ok("is released and deleted"),
            Ok(_) => return Ok("is released"),
            Err(kube::Error::Api(status)) if status.code == NOT_FOUND => return Ok("is gone already"),
            Err(kube::Error::Api(status)) if status.code == CONFLICT => match api.get_metadata_opt(&name).await? {
                Some(newer) => object = newer,
                None => return Ok("is gone already"),
            },
            Err(kube::Error::Api(status)) => bail!("{}", status.message),
            Err(error) => return Err(error.into()),
        }
    }
    bail!("it changed {MAX_TRIES} times while it was being released; run the command again")
}

fn spoken(resource: &ApiResource, object: &PartialObjectMeta<DynamicObject>) -> String {
    match object.namespace() {
        Some(namespace) => format!("{} {namespace}/{}", resource.kind, object.name_any()),
        None => format!("{} {}", resource.kind, object.name_any()),
    }
}
