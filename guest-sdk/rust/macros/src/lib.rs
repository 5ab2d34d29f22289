//! The derives and attributes of mortise-sdk, documented where they are listed. Token streams go in and come out; what
//! the expansions name lives in `mortise_sdk::__private`. Errors are written for whoever wrote the attribute.

use proc_macro::TokenStream;

mod admission;
mod arguments;
mod conversion;
mod kind;
mod plugin;
mod projection;
mod reconciler;
mod resource;
#[cfg(test)]
mod tests;

/// Makes a kind of its own out of a spec: the type of its objects (`metadata`, `spec`, `status`) and its
/// CustomResourceDefinition, whose schema comes from the spec's and the status' `JsonSchema`.
///
/// Put it on the spec, beside `Serialize`, `Deserialize`, `JsonSchema`, `Clone` and `Debug`. The doc comment of the
/// spec becomes the description of the kind. Conditions are added to the schema of the status by themselves.
///
/// `#[resource(...)]` takes, the first three always:
///
/// | argument | meaning |
/// |---|---|
/// | `group = "example.com"` | the API group |
/// | `version = "v1"` | the version |
/// | `kind = "PodSet"` | the kind, and the name of the type that is made |
/// | `status = PodSetStatus` | the type of the status; without it the status holds conditions alone |
/// | `plural = "podsets"`, `singular = "podset"` | derived from the kind unless given |
/// | `short_name = "ps"`, `category = "all"` | for kubectl; may be repeated |
/// | `cluster` | objects live outside namespaces |
/// | `scale(spec = ".spec.replicas", status = ".status.replicas", selector = "...")` | the scale subresource |
/// | `column(name = "Desired", path = ".spec.replicas", type = "integer", wide, description = "...")` | a column of `kubectl get`, `type` is "string" unless given, `wide` shows it with `-o wide`; may be repeated, an Age column ends them |
/// | `annotation("example.com/key", "value")` | an annotation of the CustomResourceDefinition; may be repeated. A group under `k8s.io` or `kubernetes.io` needs `api-approved.kubernetes.io`, or the API server refuses the definition |
#[proc_macro_derive(CustomResource, attributes(resource))]
pub fn custom_resource(input: TokenStream) -> TokenStream {
    finish(resource::expand(input.into()))
}

/// Reads objects of any kind as a flat struct of the fields that matter, and asks the host for those alone.
///
/// ```text
/// #[derive(Projection)]
/// #[projection("v1/Pod")]
/// struct Pod<'a> {
///     #[field(child_key)]
///     key: Option<&'a str>,
///     #[field("metadata.name")]
///     name: &'a str,
///     #[field("status.phase")]
///     phase: Option<&'a str>,
/// }
/// ```
///
/// Every field says where it is read from. Dots separate; a name that has dots itself stands in brackets and quotes:
/// `metadata.annotations["example.com/owner"]`. `child_key` is the key under which the plugin asked for a child. A
/// field that may be missing is an `Option`; another one that is missing is an error that names its path. Fields may
/// borrow (`&'a str`) where the text has no escapes, as names and phases have none; use `String` for free text.
#[proc_macro_derive(Projection, attributes(projection, field))]
pub fn projection(input: TokenStream) -> TokenStream {
    finish(projection::expand(input.into()))
}

/// Makes a plugin of one function: `fn reconcile(object: &PodSet, cx: &Context) -> Result<Outcome, Failure>`.
///
/// Defines the static `PLUGIN` beside it, for tests, and on wasm32 the component's exports. Where a plugin reconciles
/// several kinds, each function bears [`macro@controller`] instead, and [`plugin!`] names them.
///
/// It takes what a [`macro@controller`] takes, and what [`plugin!`] takes:
///
/// | argument | meaning |
/// |---|---|
/// | `owns("v1/Pod", update = "recreate")` | a kind of children, by text or by type, and how they change: "apply" (default) in place, "recreate" by deleting and creating, "rolling_recreate" the same a few at a time, "on_delete" not before somebody deletes them; may be repeated |
/// | `owns("v1/Pod", update = "rolling_recreate", max_unavailable = 2)` | how many of them may be unavailable at once, 1 unless given; a child is available when its conditions `Ready` and `Available` hold, those that it has |
/// | `reads("v1/Node", ConfigMap)` | kinds that are read, by text or by type |
/// | `labels = "tier=web,!legacy"` | reconcile only objects whose labels match, in the syntax of `kubectl get -l` |
/// | `annotation("example.com/on", "true")` | reconcile only objects with this annotation; may be repeated, then all have to be there |
/// | `writes("apps/v1/Deployment", "patch", subresource = "scale")` | a kind whose objects actions may write though they are no children, and what may be done: "apply", "patch", "delete", "evict" (of "v1/Pod"); a delete and an eviction need the kind under `reads` too, and a patch of what is read is only sent when it would change something; may be repeated |
/// | `finalize` | an object that is deleted goes when the function has said `finalized` of it: until then it is called with `metadata.deletionTimestamp` set |
/// | `admission(mutate = complete, validate = check, operations("create", "delete"))` | functions that are asked before objects of the reconciled kind are stored: `fn complete(object: &mut PodSet, review: &Review<PodSet>)` fills in defaults, `fn check(object: &PodSet, review: &Review<PodSet>) -> Verdict` checks; one of them is enough; "create" and "update" unless given, and "delete" is only checked |
/// | `conversion(v1alpha1::Gauge, v1beta1::Gauge)` | the other versions of the reconciled kind, which are served too: types made by [`derive@CustomResource`] with the same group and kind; `From` or `TryFrom` between the specs, and between the statuses where they differ, say how one becomes the other |
/// | `concurrency = 4` | calls at once, 1 to 256; 8 unless given |
/// | `kind = "apps/v1/Deployment"` | the reconciled kind, when its type does not tell; its CustomResourceDefinition comes from elsewhere, or it is a kind of Kubernetes itself |
/// | `limits(memory_bytes = 134217728, deadline_ms = 2000)` | what one call may use: linear memory, 64 MiB unless given and 256 MiB at most, and wall time, 1 s unless given and 10 s at most |
/// | `name = "..."`, `version = "..."` | the plugin's, the package's unless given |
///
/// The reconciled object is read as the type that the function takes: a kind of the plugin's own, a
/// [`derive@Projection`] of any other, or whatever serde reads.
#[proc_macro_attribute]
pub fn reconciler(arguments: TokenStream, item: TokenStream) -> TokenStream {
    finish(reconciler::expand(arguments.into(), item.into()))
}

/// Makes a controller of one function, for a plugin that has several: what [`macro@reconciler`] is, without the plugin.
/// It takes `owns`, `reads`, `labels`, `annotation`, `admission`, `conversion`, `concurrency` and `kind`, and is named in [`plugin!`].
#[proc_macro_attribute]
pub fn controller(arguments: TokenStream, item: TokenStream) -> TokenStream {
    finish(reconciler::expand_controller(arguments.into(), item.into()))
}

/// Makes a plugin of several functions that bear [`macro@controller`], each for a kind of its own:
/// `plugin!(adopt, restart)`, or by path, `plugin!(deployments::adopt, erus::restart)`. Goes where `#[reconciler]` would:
/// once in a crate, beside what it names or above it.
///
/// ```text
/// plugin!(adopt, restart, limits(deadline_ms = 500));
///
/// /// A kind of Kubernetes itself: its status is Kubernetes' business.
/// #[controller(owns(Restart))]
/// fn adopt(deployment: &Deployment, cx: &Context) -> Result<Outcome, Failure> { ... }
///
/// /// The plugin's own kind.
/// #[controller(reads(Deployment))]
/// fn restart(restart: &Restart, cx: &Context) -> Result<Outcome, Failure> { ... }
/// ```
///
/// Behind the functions it takes `admission` and `conversion`, which go with a controller that has them, and `limits(...)`,
/// `name = "..."` and `version = "..."`, as [`macro@reconciler`] does.
#[proc_macro]
pub fn plugin(input: TokenStream) -> TokenStream {
    finish(plugin::expand(input.into()))
}

fn finish(result: syn::Result<proc_macro2::TokenStream>) -> TokenStream {
    result.unwrap_or_else(|error| error.into_compile_error()).into()
}
