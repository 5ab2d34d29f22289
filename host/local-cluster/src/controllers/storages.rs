//! Where the built-in kinds that controllers read are stored. It must not know what is stored there.

use std::sync::LazyLock;

use crate::resource::Storage;

macro_rules! storages {
    ($($name:ident = $group:literal $plural:literal),* $(,)?) => {
        $(pub(super) static $name: LazyLock<Storage> = LazyLock::new(|| Storage::new($group, $plural));)*
    };
}

storages! {
    CLAIMS = "" "persistentvolumeclaims",
    CLUSTER_ROLES = "rbac.authorization.k8s.io" "clusterroles",
    CONFIG_MAPS = "" "configmaps",
    ENDPOINTS = "" "endpoints",
    EVENTS = "" "events",
    JOBS = "batch" "jobs",
    LEASES = "coordination.k8s.io" "leases",
    NAMESPACES = "" "namespaces",
    NODES = "" "nodes",
    PODS = "" "pods",
    QUOTAS = "" "resourcequotas",
    SECRETS = "" "secrets",
    SERVICES = "" "services",
    SERVICE_ACCOUNTS = "" "serviceaccounts",
    SLICES = "discovery.k8s.io" "endpointslices",
    VOLUMES = "" "persistentvolumes",
    BUDGETS = "policy" "poddisruptionbudgets",
    CLASSES = "storage.k8s.io" "storageclasses",
}
