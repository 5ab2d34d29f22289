//! The columns of built-in kinds, as kube-apiserver's printers have them. Input: a kind. Output: its columns. It must not
//! know custom resources.

use std::sync::OnceLock;

use serde_json::{Value, json};

use super::cells::Row;
use super::{pod, workloads};
use crate::published;

/// One column. What it is about is a sentence, or a field whose published description it has, such as `PodStatus.podIP`.
struct Column {
    name: &'static str,
    kind: &'static str,
    /// Whether only `-o wide` shows it.
    wide: bool,
    about: &'static str,
    cell: fn(Row<'_>) -> Value,
}

/// The columns of a kind.
pub(super) struct Printer {
    group: &'static str,
    kind: &'static str,
    /// Where the fields are described.
    document: &'static str,
    columns: &'static [Column],
    /// The columns as they are sent, made when they are first asked for.
    sent: OnceLock<Value>,
}

impl Printer {
    const fn new(group: &'static str, kind: &'static str, document: &'static str, columns: &'static [Column]) -> Self {
        Self { group, kind, document, columns, sent: OnceLock::new() }
    }

    pub(super) fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        self.columns.iter().map(|column| (column.cell)(*row)).collect()
    }

    pub(super) fn definitions(&self) -> &Value {
        self.sent.get_or_init(|| {
            let column = |column: &Column| {
                // `Attacher` has this format by an oversight that clients may see.
                let format = if matches!(column.name, "Name" | "Attacher") { "name" } else { "" };
                let about = match column.about.split_once('.') {
                    Some((kind, field)) if !column.about.contains(' ') => {
                        published::field_description(self.document, kind, field)
                    }
                    _ => column.about.to_owned(),
                };
                let priority = i32::from(column.wide);
                json!({"name": column.name, "type": column.kind, "format": format, "description": about, "priority": priority})
            };
            self.columns.iter().map(column).collect()
        })
    }
}

/// The columns of a kind; name and creation of one that has none of its own.
pub(super) fn of(group: &str, kind: &str) -> &'static Printer {
    static DEFAULT: Printer = Printer::new(
        "",
        "",
        "api/v1",
        &[
            NAME,
            Column {
                kind: "date",
                ..text("Created At", "ObjectMeta.creationTimestamp", |row| row.text("/metadata/creationTimestamp"))
            },
        ],
    );
    PRINTERS.iter().find(|printer| printer.group == group && printer.kind == kind).unwrap_or(&DEFAULT)
}

const fn text(name: &'static str, about: &'static str, cell: fn(Row<'_>) -> Value) -> Column {
    Column { name, kind: "string", wide: false, about, cell }
}

const fn wide(name: &'static str, about: &'static str, cell: fn(Row<'_>) -> Value) -> Column {
    Column { wide: true, ..text(name, about, cell) }
}

const fn count(name: &'static str, about: &'static str, cell: fn(Row<'_>) -> Value) -> Column {
    Column { kind: "integer", ..text(name, about, cell) }
}

const fn truth(name: &'static str, about: &'static str, cell: fn(Row<'_>) -> Value) -> Column {
    Column { kind: "boolean", ..text(name, about, cell) }
}

const NAME: Column = text("Name", "ObjectMeta.name", |row| row.name());
const AGE: Column = text("Age", "ObjectMeta.creationTimestamp", |row| row.age());
const CONTAINERS: Column =
    wide("Containers", "Names of each container in the template.", |row| row.containers("/spec/template/spec", "name"));
const IMAGES: Column = wide("Images", "Images referenced by each container in the template.", |row| {
    row.containers("/spec/template/spec", "image")
});
const WEBHOOKS: Column =
    count("Webhooks", "Webhooks indicates the number of webhooks registered in this configuration", |row| {
        row.length("/webhooks").into()
    });
const PARAM_KIND: Column = text(
    "ParamKind",
    "ParamKind specifies the kind of resources used to parameterize this policy",
    workloads::param_kind,
);
const BINDING: &[Column] = &[
    NAME,
    text("PolicyName", "PolicyName indicates the policy definition which the policy binding binded to", |row| {
        row.text("/spec/policyName")
    }),
    text("ParamRef", "ParamRef indicates the param resource which sets the configuration param", workloads::param_ref),
    AGE,
];

static PRINTERS: [Printer; 45] = [
    Printer::new(
        "",
        "Pod",
        "api/v1",
        &[
            NAME,
            text("Ready", "The aggregate readiness state of this pod for accepting traffic.", |row| {
                pod::summary(row).ready.into()
            }),
            text("Status", "The aggregate status of the containers in this pod.", |row| {
                pod::summary(row).status.into()
            }),
            text(
                "Restarts",
                "The number of times the containers in this pod have been restarted and when the last container in this pod has restarted.",
                |row| pod::summary(row).restarts.into(),
            ),
            AGE,
            wide("IP", "PodStatus.podIP", |row| row.or("/status/podIPs/0/ip", "<none>")),
            wide("Node", "PodSpec.nodeName", |row| row.or("/spec/nodeName", "<none>")),
            wide("Nominated Node", "PodStatus.nominatedNodeName", |row| row.or("/status/nominatedNodeName", "<none>")),
            wide("Readiness Gates", "PodSpec.readinessGates", pod::gates),
        ],
    ),
    Printer::new(
        "",
        "Node",
        "api/v1",
        &[
            NAME,
            text("Status", "The status of the node", workloads::node_status),
            text("Roles", "The roles of the node", workloads::node_roles),
            AGE,
            text("Version", "NodeSystemInfo.kubeletVersion", |row| row.text("/status/nodeInfo/kubeletVersion")),
            wide("Internal-IP", "NodeStatus.addresses", |row| workloads::node_address(row, "InternalIP")),
            wide("External-IP", "NodeStatus.addresses", |row| workloads::node_address(row, "ExternalIP")),
            wide("OS-Image", "NodeSystemInfo.osImage", |row| row.or("/status/nodeInfo/osImage", "<unknown>")),
            wide("Kernel-Version", "NodeSystemInfo.kernelVersion", workloads::kernel),
            wide("Container-Runtime", "NodeSystemInfo.containerRuntimeVersion", |row| {
                row.or("/status/nodeInfo/containerRuntimeVersion", "<unknown>")
            }),
        ],
    ),
    Printer::new(
        "",
        "Namespace",
        "api/v1",
        &[NAME, text("Status", "The status of the namespace", |row| row.text("/status/phase")), AGE],
    ),
    Printer::new(
        "",
        "Service",
        "api/v1",
        &[
            NAME,
            text("Type", "ServiceSpec.type", |row| row.text("/spec/type")),
            text("Cluster-IP", "ServiceSpec.clusterIP", |row| row.or("/spec/clusterIPs/0", "<none>")),
            text("External-IP", "ServiceSpec.externalIPs", workloads::external_ip),
            text("Port(s)", "ServiceSpec.ports", workloads::service_ports),
            AGE,
            wide("Selector", "ServiceSpec.selector", |row| row.labels("/spec/selector")),
        ],
    ),
    Printer::new("", "Endpoints", "api/v1", &[NAME, text("Endpoints", "Endpoints.subsets", workloads::subsets), AGE]),
    Printer::new(
        "",
        "ConfigMap",
        "api/v1",
        &[NAME, text("Data", "ConfigMap.data", |row| (row.length("/data") + row.length("/binaryData")).into()), AGE],
    ),
    Printer::new(
        "",
        "Secret",
        "api/v1",
        &[
            NAME,
            text("Type", "Secret.type", |row| row.text("/type")),
            text("Data", "Secret.data", |row| row.length("/data").into()),
            AGE,
        ],
    ),
    Printer::new("", "ServiceAccount", "api/v1", &[NAME, AGE]),
    Printer::new(
        "",
        "Event",
        "api/v1",
        &[
            text("Last Seen", "Event.lastTimestamp", workloads::last_seen),
            text("Type", "Event.type", |row| row.text("/type")),
            text("Reason", "Event.reason", |row| row.text("/reason")),
            text("Object", "Event.involvedObject", workloads::involved),
            wide("Subobject", "ObjectReference.fieldPath", |row| row.text("/involvedObject/fieldPath")),
            wide("Source", "Event.source", workloads::event_source),
            text("Message", "Event.message", |row| row.str("/message").trim().into()),
            wide("First Seen", "Event.firstTimestamp", |row| workloads::first_seen(row).into()),
            wide("Count", "Event.count", workloads::event_count),
            Column { wide: true, ..NAME },
        ],
    ),
    Printer::new(
        "",
        "ReplicationController",
        "api/v1",
        &[
            NAME,
            count("Desired", "ReplicationControllerSpec.replicas", |row| row.count("/spec/replicas")),
            count("Current", "ReplicationControllerStatus.replicas", |row| row.count("/status/replicas")),
            count("Ready", "ReplicationControllerStatus.readyReplicas", |row| row.count("/status/readyReplicas")),
            AGE,
            CONTAINERS,
            IMAGES,
            wide("Selector", "ReplicationControllerSpec.selector", |row| row.labels("/spec/selector")),
        ],
    ),
    Printer::new(
        "",
        "PodTemplate",
        "api/v1",
        &[
            NAME,
            text("Containers", "Names of each container in the template.", |row| {
                row.containers("/template/spec", "name")
            }),
            text("Images", "Images referenced by each container in the template.", |row| {
                row.containers("/template/spec", "image")
            }),
            text("Pod Labels", "The labels for the pod template.", |row| row.labels("/template/metadata/labels")),
        ],
    ),
    Printer::new(
        "",
        "PersistentVolume",
        "api/v1",
        &[
            NAME,
            text("Capacity", "PersistentVolumeSpec.capacity", |row| row.or("/spec/capacity/storage", "0")),
            text("Access Modes", "PersistentVolumeSpec.accessModes", |row| {
                workloads::access_modes(row, "/spec/accessModes")
            }),
            text("Reclaim Policy", "PersistentVolumeSpec.persistentVolumeReclaimPolicy", |row| {
                row.text("/spec/persistentVolumeReclaimPolicy")
            }),
            text("Status", "PersistentVolumeStatus.phase", workloads::volume_phase),
            text("Claim", "PersistentVolumeSpec.claimRef", workloads::claim),
            text("StorageClass", "StorageClass of the pv", workloads::storage_class),
            text("VolumeAttributesClass", "VolumeAttributesClass of the pv", |row| {
                row.or("/spec/volumeAttributesClassName", "<unset>")
            }),
            text("Reason", "PersistentVolumeStatus.reason", |row| row.text("/status/reason")),
            AGE,
            wide("VolumeMode", "PersistentVolumeSpec.volumeMode", |row| row.or("/spec/volumeMode", "<unset>")),
        ],
    ),
    Printer::new(
        "",
        "PersistentVolumeClaim",
        "api/v1",
        &[
            NAME,
            text("Status", "PersistentVolumeClaimStatus.phase", workloads::volume_phase),
            text("Volume", "PersistentVolumeClaimSpec.volumeName", |row| row.text("/spec/volumeName")),
            text("Capacity", "PersistentVolumeClaimStatus.capacity", |row| {
                if row.str("/spec/volumeName").is_empty() { "".into() } else { row.or("/status/capacity/storage", "0") }
            }),
            text("Access Modes", "PersistentVolumeClaimStatus.accessModes", |row| {
                if row.str("/spec/volumeName").is_empty() {
                    "".into()
                } else {
                    workloads::access_modes(row, "/status/accessModes")
                }
            }),
            text("StorageClass", "StorageClass of the pvc", workloads::storage_class),
            text("VolumeAttributesClass", "VolumeAttributesClass of the pvc", |row| {
                row.or("/spec/volumeAttributesClassName", "<unset>")
            }),
            AGE,
            wide("VolumeMode", "PersistentVolumeClaimSpec.volumeMode", |row| row.or("/spec/volumeMode", "<unset>")),
        ],
    ),
    Printer::new(
        "",
        "ResourceQuota",
        "api/v1",
        &[
            NAME,
            text("Request", "Request represents a minimum amount of cpu/memory that a container may consume.", |row| {
                workloads::quota(row, false)
            }),
            text(
                "Limit",
                "Limits control the maximum amount of cpu/memory that a container may use independent of contention on the node.",
                |row| workloads::quota(row, true),
            ),
            AGE,
        ],
    ),
    Printer::new(
        "",
        "ComponentStatus",
        "api/v1",
        &[
            NAME,
            text("Status", "Status of the component conditions", |row| match row.str("/conditions/0/status") {
                "True" => "Healthy".into(),
                "" => "Unknown".into(),
                _ => "Unhealthy".into(),
            }),
            text("Message", "Message of the component conditions", |row| row.text("/conditions/0/message")),
            text("Error", "Error of the component conditions", |row| row.text("/conditions/0/error")),
        ],
    ),
    Printer::new(
        "apps",
        "Deployment",
        "apis/apps/v1",
        &[
            NAME,
            text("Ready", "Number of the pod with ready state", workloads::ready),
            text("Up-to-date", "DeploymentStatus.updatedReplicas", |row| row.count("/status/updatedReplicas")),
            text("Available", "DeploymentStatus.availableReplicas", |row| row.count("/status/availableReplicas")),
            AGE,
            CONTAINERS,
            IMAGES,
            wide("Selector", "DeploymentSpec.selector", |row| super::cells::selector(row.at("/spec/selector")).into()),
        ],
    ),
    Printer::new(
        "apps",
        "ReplicaSet",
        "apis/apps/v1",
        &[
            NAME,
            count("Desired", "ReplicaSetSpec.replicas", |row| row.count("/spec/replicas")),
            count("Current", "ReplicaSetStatus.replicas", |row| row.count("/status/replicas")),
            count("Ready", "ReplicaSetStatus.readyReplicas", |row| row.count("/status/readyReplicas")),
            AGE,
            CONTAINERS,
            IMAGES,
            wide("Selector", "ReplicaSetSpec.selector", |row| row.selector("/spec/selector")),
        ],
    ),
    Printer::new(
        "apps",
        "StatefulSet",
        "apis/apps/v1",
        &[NAME, text("Ready", "Number of the pod with ready state", workloads::ready), AGE, CONTAINERS, IMAGES],
    ),
    Printer::new(
        "apps",
        "DaemonSet",
        "apis/apps/v1",
        &[
            NAME,
            count("Desired", "DaemonSetStatus.desiredNumberScheduled", |row| {
                row.count("/status/desiredNumberScheduled")
            }),
            count("Current", "DaemonSetStatus.currentNumberScheduled", |row| {
                row.count("/status/currentNumberScheduled")
            }),
            count("Ready", "DaemonSetStatus.numberReady", |row| row.count("/status/numberReady")),
            count("Up-to-date", "DaemonSetStatus.updatedNumberScheduled", |row| {
                row.count("/status/updatedNumberScheduled")
            }),
            count("Available", "DaemonSetStatus.numberAvailable", |row| row.count("/status/numberAvailable")),
            text("Node Selector", "PodSpec.nodeSelector", |row| row.labels("/spec/template/spec/nodeSelector")),
            AGE,
            CONTAINERS,
            IMAGES,
            wide("Selector", "DaemonSetSpec.selector", |row| row.selector("/spec/selector")),
        ],
    ),
    Printer::new(
        "apps",
        "ControllerRevision",
        "apis/apps/v1",
        &[
            NAME,
            text("Controller", "Controller of the object", workloads::controller),
            text("Revision", "ControllerRevision.revision", |row| row.count("/revision")),
            AGE,
        ],
    ),
    Printer::new(
        "batch",
        "Job",
        "apis/batch/v1",
        &[
            NAME,
            text("Status", "Status of the job.", workloads::job_status),
            text("Completions", "JobStatus.succeeded", workloads::completions),
            text("Duration", "Time required to complete the job.", workloads::job_duration),
            AGE,
            CONTAINERS,
            IMAGES,
            wide("Selector", "JobSpec.selector", |row| row.selector("/spec/selector")),
        ],
    ),
    Printer::new(
        "batch",
        "CronJob",
        "apis/batch/v1",
        &[
            NAME,
            text("Schedule", "CronJobSpec.schedule", |row| row.text("/spec/schedule")),
            text("Timezone", "CronJobSpec.timeZone", |row| row.or("/spec/timeZone", "<none>")),
            truth("Suspend", "CronJobSpec.suspend", |row| match row.at("/spec/suspend").as_bool() {
                Some(true) => "True".into(),
                Some(false) => "False".into(),
                None => "<unset>".into(),
            }),
            count("Active", "CronJobStatus.active", |row| row.length("/status/active").into()),
            text("Last Schedule", "CronJobStatus.lastScheduleTime", |row| match row.at("/status/lastScheduleTime") {
                Value::Null => "<none>".into(),
                _ => row.since("/status/lastScheduleTime").into(),
            }),
            AGE,
            wide(CONTAINERS.name, CONTAINERS.about, |row| {
                row.containers("/spec/jobTemplate/spec/template/spec", "name")
            }),
            wide(IMAGES.name, IMAGES.about, |row| row.containers("/spec/jobTemplate/spec/template/spec", "image")),
            wide("Selector", "JobSpec.selector", |row| row.selector("/spec/jobTemplate/spec/selector")),
        ],
    ),
    Printer::new(
        "policy",
        "PodDisruptionBudget",
        "apis/policy/v1",
        &[
            NAME,
            text("Min Available", "The minimum number of pods that must be available.", |row| {
                row.or("/spec/minAvailable", "N/A")
            }),
            text("Max Unavailable", "The maximum number of pods that may be unavailable.", |row| {
                row.or("/spec/maxUnavailable", "N/A")
            }),
            count("Allowed Disruptions", "Calculated number of pods that may be disrupted at this time.", |row| {
                row.count("/status/disruptionsAllowed")
            }),
            AGE,
        ],
    ),
    Printer::new(
        "autoscaling",
        "HorizontalPodAutoscaler",
        "apis/autoscaling/v2",
        &[
            NAME,
            text("Reference", "HorizontalPodAutoscalerSpec.scaleTargetRef", |row| {
                format!("{}/{}", row.str("/spec/scaleTargetRef/kind"), row.str("/spec/scaleTargetRef/name")).into()
            }),
            text("Targets", "HorizontalPodAutoscalerSpec.metrics", workloads::metrics),
            text("MinPods", "HorizontalPodAutoscalerSpec.minReplicas", |row| row.or("/spec/minReplicas", "<unset>")),
            text("MaxPods", "HorizontalPodAutoscalerSpec.maxReplicas", |row| row.count("/spec/maxReplicas")),
            text("Replicas", "HorizontalPodAutoscalerStatus.currentReplicas", |row| {
                row.count("/status/currentReplicas")
            }),
            AGE,
        ],
    ),
    Printer::new(
        "networking.k8s.io",
        "Ingress",
        "apis/networking.k8s.io/v1",
        &[
            NAME,
            text(
                "Class",
                "The name of the IngressClass resource that should be used for additional configuration",
                |row| row.or("/spec/ingressClassName", "<none>"),
            ),
            text("Hosts", "Hosts that incoming requests are matched against before the ingress rule", workloads::hosts),
            text("Address", "Address is a list containing ingress points for the load-balancer", |row| {
                workloads::load_balancer(row).into()
            }),
            text("Ports", "Ports of TLS configurations that open", |row| {
                if row.length("/spec/tls") > 0 { "80, 443" } else { "80" }.into()
            }),
            AGE,
        ],
    ),
    Printer::new(
        "networking.k8s.io",
        "IngressClass",
        "apis/networking.k8s.io/v1",
        &[
            text(NAME.name, NAME.about, |row| row.name_or_default(&["ingressclass.kubernetes.io/is-default-class"])),
            text("Controller", "Controller that is responsible for handling this class", |row| {
                row.text("/spec/controller")
            }),
            text("Parameters", "A reference to a resource with additional parameters", workloads::class_parameters),
            AGE,
        ],
    ),
    Printer::new(
        "networking.k8s.io",
        "NetworkPolicy",
        "apis/networking.k8s.io/v1",
        &[NAME, text("Pod-Selector", "NetworkPolicySpec.podSelector", |row| row.selector("/spec/podSelector")), AGE],
    ),
    Printer::new(
        "networking.k8s.io",
        "ServiceCIDR",
        "apis/networking.k8s.io/v1",
        &[NAME, text("CIDRs", "ServiceCIDRSpec.cidrs", |row| workloads::join(row.list("/spec/cidrs")).into()), AGE],
    ),
    Printer::new(
        "networking.k8s.io",
        "IPAddress",
        "apis/networking.k8s.io/v1",
        &[NAME, text("ParentRef", "IPAddressSpec.parentRef", workloads::parent_reference)],
    ),
    Printer::new(
        "discovery.k8s.io",
        "EndpointSlice",
        "apis/discovery.k8s.io/v1",
        &[
            NAME,
            text("AddressType", "EndpointSlice.addressType", |row| row.text("/addressType")),
            text("Ports", "EndpointSlice.ports", workloads::slice_ports),
            text("Endpoints", "EndpointSlice.endpoints", workloads::slice_endpoints),
            AGE,
        ],
    ),
    Printer::new(
        "coordination.k8s.io",
        "Lease",
        "apis/coordination.k8s.io/v1",
        &[NAME, text("Holder", "LeaseSpec.holderIdentity", |row| row.text("/spec/holderIdentity")), AGE],
    ),
    Printer::new(
        "rbac.authorization.k8s.io",
        "RoleBinding",
        "apis/rbac.authorization.k8s.io/v1",
        &[
            NAME,
            text("Role", "RoleBinding.roleRef", workloads::role),
            AGE,
            wide("Users", "Users in the roleBinding", |row| workloads::subjects(row, "User")),
            wide("Groups", "Groups in the roleBinding", |row| workloads::subjects(row, "Group")),
            wide("ServiceAccounts", "ServiceAccounts in the roleBinding", |row| {
                workloads::subjects(row, "ServiceAccount")
            }),
        ],
    ),
    Printer::new(
        "rbac.authorization.k8s.io",
        "ClusterRoleBinding",
        "apis/rbac.authorization.k8s.io/v1",
        &[
            NAME,
            text("Role", "ClusterRoleBinding.roleRef", workloads::role),
            AGE,
            wide("Users", "Users in the clusterRoleBinding", |row| workloads::subjects(row, "User")),
            wide("Groups", "Groups in the clusterRoleBinding", |row| workloads::subjects(row, "Group")),
            wide("ServiceAccounts", "ServiceAccounts in the clusterRoleBinding", |row| {
                workloads::subjects(row, "ServiceAccount")
            }),
        ],
    ),
    Printer::new(
        "admissionregistration.k8s.io",
        "MutatingWebhookConfiguration",
        "apis/admissionregistration.k8s.io/v1",
        &[NAME, WEBHOOKS, AGE],
    ),
    Printer::new(
        "admissionregistration.k8s.io",
        "ValidatingWebhookConfiguration",
        "apis/admissionregistration.k8s.io/v1",
        &[NAME, WEBHOOKS, AGE],
    ),
    Printer::new(
        "admissionregistration.k8s.io",
        "ValidatingAdmissionPolicy",
        "apis/admissionregistration.k8s.io/v1",
        &[
            NAME,
            count(
                "Validations",
                "Validations indicates the number of validation rules defined in this configuration",
                |row| row.length("/spec/validations").into(),
            ),
            PARAM_KIND,
            AGE,
        ],
    ),
    Printer::new(
        "admissionregistration.k8s.io",
        "ValidatingAdmissionPolicyBinding",
        "apis/admissionregistration.k8s.io/v1",
        BINDING,
    ),
    Printer::new(
        "admissionregistration.k8s.io",
        "MutatingAdmissionPolicy",
        "apis/admissionregistration.k8s.io/v1",
        &[
            NAME,
            count(
                "Mutations",
                "Mutation indicates the number of mutations rules defined in this configuration",
                |row| row.length("/spec/mutations").into(),
            ),
            PARAM_KIND,
            AGE,
        ],
    ),
    Printer::new(
        "admissionregistration.k8s.io",
        "MutatingAdmissionPolicyBinding",
        "apis/admissionregistration.k8s.io/v1",
        BINDING,
    ),
    Printer::new(
        "apiregistration.k8s.io",
        "APIService",
        "apis/apiregistration.k8s.io/v1",
        &[
            NAME,
            text("Service", "The reference to the service that hosts this API endpoint.", |row| {
                match row.at("/spec/service") {
                    Value::Null => "Local".into(),
                    _ => format!("{}/{}", row.str("/spec/service/namespace"), row.str("/spec/service/name")).into(),
                }
            }),
            text("Available", "Whether this service is available.", workloads::available),
            AGE,
        ],
    ),
    Printer::new(
        "storage.k8s.io",
        "StorageClass",
        "apis/storage.k8s.io/v1",
        &[
            text(NAME.name, NAME.about, |row| {
                row.name_or_default(&[
                    "storageclass.kubernetes.io/is-default-class",
                    "storageclass.beta.kubernetes.io/is-default-class",
                ])
            }),
            text("Provisioner", "StorageClass.provisioner", |row| row.text("/provisioner")),
            text("ReclaimPolicy", "StorageClass.reclaimPolicy", |row| row.or("/reclaimPolicy", "Delete")),
            text("VolumeBindingMode", "StorageClass.volumeBindingMode", |row| {
                row.or("/volumeBindingMode", "Immediate")
            }),
            text("AllowVolumeExpansion", "StorageClass.allowVolumeExpansion", |row| {
                row.truth("/allowVolumeExpansion").into()
            }),
            AGE,
        ],
    ),
    Printer::new(
        "scheduling.k8s.io",
        "PriorityClass",
        "apis/scheduling.k8s.io/v1",
        &[
            NAME,
            count("Value", "PriorityClass.value", |row| row.count("/value")),
            truth("Global-Default", "PriorityClass.globalDefault", |row| row.truth("/globalDefault").into()),
            AGE,
            text("PreemptionPolicy", "PriorityClass.preemptionPolicy", |row| row.text("/preemptionPolicy")),
        ],
    ),
    Printer::new(
        "node.k8s.io",
        "RuntimeClass",
        "apis/node.k8s.io/v1",
        &[NAME, text("Handler", "", |row| row.text("/handler")), AGE],
    ),
    Printer::new(
        "flowcontrol.apiserver.k8s.io",
        "FlowSchema",
        "apis/flowcontrol.apiserver.k8s.io/v1",
        &[
            NAME,
            text("PriorityLevel", "PriorityLevelConfigurationReference.name", |row| {
                row.text("/spec/priorityLevelConfiguration/name")
            }),
            text("MatchingPrecedence", "FlowSchemaSpec.matchingPrecedence", |row| {
                row.count("/spec/matchingPrecedence")
            }),
            text("DistinguisherMethod", "FlowSchemaSpec.distinguisherMethod", |row| {
                row.or("/spec/distinguisherMethod/type", "<none>")
            }),
            AGE,
            text("MissingPL", "references a broken or non-existent PriorityLevelConfiguration", |row| {
                let conditions = row.list("/status/conditions");
                conditions
                    .iter()
                    .find(|condition| condition["type"] == "Dangling")
                    .map_or("?".into(), |found| found["status"].clone())
            }),
        ],
    ),
    Printer::new(
        "flowcontrol.apiserver.k8s.io",
        "PriorityLevelConfiguration",
        "apis/flowcontrol.apiserver.k8s.io/v1",
        &[
            NAME,
            text("Type", "PriorityLevelConfigurationSpec.type", |row| row.text("/spec/type")),
            text("NominalConcurrencyShares", "LimitedPriorityLevelConfiguration.nominalConcurrencyShares", |row| {
                workloads::number_or_none(row, "/spec/limited/nominalConcurrencyShares")
            }),
            text("Queues", "QueuingConfiguration.queues", |row| {
                workloads::number_or_none(row, "/spec/limited/limitResponse/queuing/queues")
            }),
            text("HandSize", "QueuingConfiguration.handSize", |row| {
                workloads::number_or_none(row, "/spec/limited/limitResponse/queuing/handSize")
            }),
            text("QueueLengthLimit", "QueuingConfiguration.queueLengthLimit", |row| {
                workloads::number_or_none(row, "/spec/limited/limitResponse/queuing/queueLengthLimit")
            }),
            AGE,
        ],
    ),
];
