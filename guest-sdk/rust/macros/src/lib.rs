//! The derives and attributes of mortise-sdk. Token streams go in and come out; the expansions use
//! `mortise_sdk::__private`. Errors are written for the author of the attribute.

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

/// Defines a kind from its spec: the type of its objects (`metadata`, `spec`, `status`) and its
/// CustomResourceDefinition, whose schema comes from `JsonSchema` of spec and status.
///
/// Put it on the spec, beside `Serialize`, `Deserialize`, `JsonSchema`, `Clone` and `Debug`. The doc comment of the
/// spec becomes the description of the kind. The schema of the status always has conditions.
///
/// `#[resource(...)]` takes these arguments; the first three are required:
///
/// | argument | meaning |
/// |---|---|
/// | `group = "example.com"` | the API group |
/// | `version = "v1"` | the version |
/// | `kind = "PodSet"` | the kind, and the name of the type of its objects |
/// | `status = PodSetStatus` | the type of the status; without it the status has conditions alone |
/// | `plural = "podsets"`, `singular = "podset"` | derived from the kind unless given |
/// | `short_name = "ps"`, `category = "all"` | for kubectl; may be repeated |
/// | `cluster` | the kind is cluster-scoped |
/// | `scale(spec = ".spec.replicas", status = ".status.replicas", selector = "...")` | the scale subresource |
/// | `column(name = "Desired", path = ".spec.replicas", type = "integer", wide, description = "...")` | a column of `kubectl get`, `type` is "string" unless given, `wide` shows it with `-o wide` alone; may be repeated; an Age column is added |
/// | `annotation("example.com/key", "value")` | an annotation of the CustomResourceDefinition; may be repeated. A group under `k8s.io` or `kubernetes.io` needs `api-approved.kubernetes.io`, or the API server refuses the definition |
#[proc_macro_derive(CustomResource, attributes(resource))]
pub fn custom_resource(input: TokenStream) -> TokenStream {
    finish(resource::expand(input.into()))
}

/// Reads objects of any kind into a flat struct. The host sends the fields of the struct alone.
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
/// Every field has its path. Dots separate names; a name that contains dots is written in brackets and quotes:
/// `metadata.annotations["example.com/owner"]`. `child_key` is the key of a child. A field that may be missing is an
/// `Option`; if another field is missing, the read fails with an error that names its path. Strings may be borrowed
/// (`&'a str`), which costs nothing; one with escapes is copied.
#[proc_macro_derive(Projection, attributes(projection, field))]
pub fn projection(input: TokenStream) -> TokenStream {
    finish(projection::expand(input.into()))
}

/// Makes a plugin of one function: `fn reconcile(object: &PodSet, cx: &Context) -> Result<Outcome<PodSetStatus>, Failure>`,
/// or with `Outcome` alone for a kind without a status.
///
/// Defines the static `PLUGIN` beside it, for tests, and on wasm32 the component's exports. In a plugin that reconciles
/// several kinds, each function has [`macro@controller`] instead, and [`plugin!`] names them.
///
/// It takes the arguments of [`macro@controller`] and of [`plugin!`]:
///
/// | argument | meaning |
/// |---|---|
/// | `owns("v1/Pod", update = "recreate")` | kinds of children, by text or by type, and how the host changes them: "apply" (default) in place, "recreate" by deleting and creating, "rolling_recreate" likewise, a few at a time, "on_delete" not before somebody deletes them; may be repeated |
/// | `owns("v1/Pod", update = "rolling_recreate", max_unavailable = 2)` | how many of them may be unavailable at once, 1 unless given; a child is available when its conditions `Ready` and `Available`, if present, are true |
/// | `owns("v1/Pod", replace = "at-once")` | when a child that is being deleted gets a successor: "when-gone" (default), so that there is never a second one; "at-once" while it terminates, as ReplicaSets do, under a name of its own |
/// | `owns("v1/ConfigMap", namespaces = "any")` | the children may be in any namespace; see "Children in other namespaces" at the crate |
/// | `owns("v1/ConfigMap", namespaces = ["shared", "infra"])` | the same for these namespaces, 16 at most; a child elsewhere is refused |
/// | `owns("v1/ConfigMap", adopt = true)` | a child may be an object that exists already; see `Child::adopt` |
/// | `reads("v1/Node", ConfigMap)` | kinds to read, by text or by type; may be repeated |
/// | `reads("v1/Secret", namespaces = ["shared", "infra"], labels = "app=web")` | a part of them: in these namespaces, 16 at most, with labels that match, in the syntax of `kubectl get -l`; the host watches, caches and shows no more, and needs rights in these namespaces alone |
/// | `reads("apps/v1/*", "apps/*", "*.example.com/*")` | patterns of kinds to read that objects name at run time: of a group and version (`"v1/*"` of the core group, without Secrets), of a group, of all groups below a domain |
/// | `labels = "tier=web,!legacy"` | reconcile only objects whose labels match, in the syntax of `kubectl get -l` |
/// | `annotation("example.com/on", "true")` | reconcile only objects with this annotation; may be repeated, an object needs all of them |
/// | `writes("apps/v1/Deployment", "patch", subresource = "scale")` | a kind that actions may write, and the verbs: "apply", "patch", "delete", "evict" (of "v1/Pod"); delete and evict need the kind under `reads` too, and the host sends a patch of a kind under `reads` only when it would change something; may be repeated |
/// | `http("https://api.example.com", "GET", "PUT", secret = "token")` | where HTTP requests may be sent: scheme, exact host and port, the methods "GET", "HEAD", "POST", "PUT", "PATCH" and "DELETE", and the names of Secrets whose values headers may carry there; may be repeated, also `secret` |
/// | `finalize = true` | the host keeps a finalizer on the object: it calls the function with `metadata.deletionTimestamp` set until the outcome is `finalized` |
/// | `admission(mutate = complete, validate = check, operations("create", "delete"))` | functions that run before objects of the reconciled kind are stored: `fn complete(object: &mut PodSet, review: &Review<PodSet>)` sets defaults, `fn check(object: &PodSet, review: &Review<PodSet>) -> Verdict` checks; one of them is enough; "create" and "update" unless given; a "delete" is validated only |
/// | `conversion(v1alpha1::Gauge, v1beta1::Gauge)` | the other versions of the reconciled kind, which are served too: types of [`derive@CustomResource`] with the same group and kind, with `From` or `TryFrom` between the specs, and between the statuses where they differ |
/// | `concurrency = 4` | concurrent calls, 1 to 256; 8 unless given |
/// | `kind = "apps/v1/Deployment"` | the reconciled kind, for a type that does not implement `Resource`; a built-in kind, or one whose CustomResourceDefinition comes from elsewhere |
/// | `limits(memory_bytes = 134217728, deadline_ms = 2000)` | the bounds of one call: linear memory, 64 MiB unless given and 256 MiB at most, and processor time, 1 s unless given and 10 s at most |
/// | `name = "..."`, `version = "..."` | the plugin's name and version; the package's unless given |
///
/// The reconciled object is read into the type that the function takes: a kind of the plugin's own, a
/// [`derive@Projection`], or any type that serde deserializes.
#[proc_macro_attribute]
pub fn reconciler(arguments: TokenStream, item: TokenStream) -> TokenStream {
    finish(reconciler::expand(arguments.into(), item.into()))
}

/// Makes a controller of one function, for a plugin that has several and names them in [`plugin!`]. It takes the
/// arguments of [`macro@reconciler`], except `limits`, `name` and `version`.
#[proc_macro_attribute]
pub fn controller(arguments: TokenStream, item: TokenStream) -> TokenStream {
    finish(reconciler::expand_controller(arguments.into(), item.into()))
}

/// Makes a plugin of several functions with [`macro@controller`], each for a kind of its own: `plugin!(adopt,
/// restart)`, or by path, `plugin!(deployments::adopt, erus::restart)`. A crate has one of these, beside the functions
/// or above them.
///
/// ```text
/// plugin!(adopt, restart, limits(deadline_ms = 500));
///
/// /// A built-in kind.
/// #[controller(owns(Restart))]
/// fn adopt(deployment: &Deployment, cx: &Context) -> Result<Outcome, Failure> { ... }
///
/// /// The plugin's own kind.
/// #[controller(reads(Deployment))]
/// fn restart(restart: &Restart, cx: &Context) -> Result<Outcome, Failure> { ... }
/// ```
///
/// After the functions it takes `admission` and `conversion`, which are required when one of the controllers has them,
/// and `limits(...)`, `name = "..."` and `version = "..."`, as [`macro@reconciler`] does.
#[proc_macro]
pub fn plugin(input: TokenStream) -> TokenStream {
    finish(plugin::expand(input.into()))
}

fn finish(result: syn::Result<proc_macro2::TokenStream>) -> TokenStream {
    result.unwrap_or_else(|error| error.into_compile_error()).into()
}
