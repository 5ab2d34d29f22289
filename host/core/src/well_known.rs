//! The names of mortise in a cluster: its API group, its field managers, and the labels and annotations that it writes.

/// The API group of the host's own kinds. Plugins may not reconcile or write them.
pub const GROUP: &str = "mortise.dev";
/// The apiVersion of Plugin objects and of plugins' manifests.
pub const API_VERSION: &str = "mortise.dev/v1alpha1";
/// The prefix of the host's labels, annotations and finalizers.
pub const PREFIX: &str = "mortise.dev/";

/// The host's name: the field manager of its own writes, and the value of [`MANAGED_BY_LABEL`].
pub const HOST: &str = "mortise";
/// The prefix of plugins' field managers: `mortise/<plugin>`.
pub const MANAGER_PREFIX: &str = "mortise/";

/// Kubernetes' common label for the tool that manages an object.
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";
/// Kubernetes' common label for what an object is a part of: "mortise" on the objects that install the host.
pub const PART_OF_LABEL: &str = "app.kubernetes.io/part-of";
/// The label with the namespace of an object's host. Hosts of other namespaces leave the object alone.
pub const HOST_NAMESPACE_LABEL: &str = "mortise.dev/host-namespace";
/// The label, "true", of ClusterRoles that Kubernetes aggregates into the host's.
pub const AGGREGATE_LABEL: &str = "mortise.dev/aggregate-to-host";
/// The label, "true", of a plugin's ConfigMap, and the annotation with the plugin's name on CRDs and webhook
/// configurations.
pub const PLUGIN: &str = "mortise.dev/plugin";
/// On the ConfigMap of a tenant's plugin: the ServiceAccount that it acts as. The ConfigMap's own name, unless given.
pub const SERVICE_ACCOUNT_ANNOTATION: &str = "mortise.dev/service-account";
/// The annotation with a child's key, as the guest named it ("0", a node's name, "config").
pub const CHILD_KEY_ANNOTATION: &str = "mortise.dev/child";
/// The label with the UID of the owner of a tracked child, which has no owner reference.
pub const OWNER_UID_LABEL: &str = "mortise.dev/owner-uid";
/// The annotation that names a tracked child and its owner: "example.com/v1/Replica a/x owns ConfigMap b/x".
pub const OWNER_ANNOTATION: &str = "mortise.dev/owner";
/// The annotation with the hash of the object that was wanted at its creation.
pub const DESIRED_ANNOTATION: &str = "mortise.dev/desired";
/// The annotation of a CRD with the hashes of the definitions that it allows: its own and, of those before, what it widened.
pub const FORMER_ANNOTATION: &str = "mortise.dev/former";
/// The annotation that says which of a Secret's values the host made, how and when.
pub const GENERATED_ANNOTATION: &str = "mortise.dev/generated";
/// The annotation, "true", of an object whose children may have had successors.
pub const SUCCESSORS_ANNOTATION: &str = "mortise.dev/successors";

/// The Secret in the host's namespace that holds the certificate authority of its webhooks.
pub const WEBHOOK_SECRET: &str = "mortise-webhook-ca";

/// The field manager of a plugin's writes.
pub fn field_manager(plugin: &str) -> String {
    format!("{MANAGER_PREFIX}{plugin}")
}
