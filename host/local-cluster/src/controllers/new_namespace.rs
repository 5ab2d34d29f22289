//! What each namespace gets: the ServiceAccount `default` (serviceaccount-controller), and the ConfigMap `kube-root-ca.crt`
//! (root-ca-certificate-publisher-controller). Input: namespaces. Output: these objects, made anew when they are lost.

use serde_json::json;

use super::storages::{CONFIG_MAPS, NAMESPACES, SERVICE_ACCOUNTS};
use super::write;
use crate::Cluster;
use crate::context::Context;
use crate::controllers::controller::{Again, Controller, Key};
use crate::halt::Halt;
use crate::store::{Change, Event};

const ROOT_CA: &str = "kube-root-ca.crt";
const DESCRIPTION: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints \
    such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of \
    Kubernetes clusters.";

pub(super) const SERVICE_ACCOUNT: Controller = Controller {
    name: "serviceaccount-controller",
    user: "system:serviceaccount:kube-system:service-account-controller",
    watches: &[("", "namespaces"), ("", "serviceaccounts")],
    batches: false,
    keys: |_, change| keys(change, "default"),
    reconcile: service_account,
};

pub(super) const ROOT_CERTIFICATE: Controller = Controller {
    name: "root-ca-certificate-publisher-controller",
    user: "system:serviceaccount:kube-system:root-ca-cert-publisher",
    watches: &[("", "namespaces"), ("", "configmaps")],
    batches: false,
    keys: |_, change| keys(change, ROOT_CA),
    reconcile: root_certificate,
};

/// The namespaces that came, or whose object of this name changed.
fn keys(change: &Change, name: &str) -> Vec<Key> {
    let object = &change.object;
    let namespace = if change.storage == *NAMESPACES {
        object.name()
    } else if object.name() == name && change.event != Event::Added {
        object.namespace()
    } else {
        return Vec::new();
    };
    vec![("".into(), namespace.into())]
}

fn is_open(cluster: &Cluster, namespace: &str) -> bool {
    cluster.store.get(&NAMESPACES, "", namespace).is_some_and(|namespace| !namespace.terminates())
}

fn service_account(cluster: &mut Cluster, context: &Context<'_>, (_, namespace): &Key) -> Result<Again, Halt> {
    if is_open(cluster, namespace) && cluster.store.get(&SERVICE_ACCOUNTS, namespace, "default").is_none() {
        let object = json!({"metadata": {"name": "default"}});
        write::create(cluster, context, ("", "v1", "ServiceAccount"), namespace, object)?;
    }
    Ok(Again::No)
}

fn root_certificate(cluster: &mut Cluster, context: &Context<'_>, (_, namespace): &Key) -> Result<Again, Halt> {
    if !is_open(cluster, namespace) {
        return Ok(Again::No);
    }
    let data = json!({"ca.crt": cluster.options.root_ca});
    match cluster.store.get(&CONFIG_MAPS, namespace, ROOT_CA).cloned() {
        None => {
            let metadata = json!({"name": ROOT_CA, "annotations": {"kubernetes.io/description": DESCRIPTION}});
            let object = json!({"metadata": metadata, "data": data});
            write::create(cluster, context, ("", "v1", "ConfigMap"), namespace, object)?;
        }
        Some(known) if known.value["data"] != data => {
            write::change(cluster, context, &known, |object| write::set(object, "data", data))?;
        }
        Some(_) => {}
    }
    Ok(Again::No)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::Method::{Delete, Put};
    use crate::controllers::testing::{cluster, pass, post, read};
    use crate::testing::ask;

    #[test]
    fn each_namespace_has_its_account_and_the_root_certificate() {
        let mut cluster = cluster(&["serviceaccount-controller", "root-ca-certificate-publisher-controller"]);
        post(&mut cluster, "/api/v1/namespaces", &json!({"metadata": {"name": "a"}}));
        let (account, map) =
            ("/api/v1/namespaces/a/serviceaccounts/default", "/api/v1/namespaces/a/configmaps/kube-root-ca.crt");
        pass(&mut cluster, 0);
        assert_eq!(read(&mut cluster, account)["metadata"]["name"], "default");
        let mut changed = read(&mut cluster, map);
        assert_eq!(changed["data"], json!({"ca.crt": ""}));
        changed["data"] = json!({"ca.crt": "x"});
        ask(&mut cluster, Put, map, &changed);
        ask(&mut cluster, Delete, account, &json!(null));
        pass(&mut cluster, 1);
        assert_eq!(read(&mut cluster, map)["data"], json!({"ca.crt": ""}));
        assert_eq!(read(&mut cluster, account)["metadata"]["name"], "default");
    }
}
