//! Which Pods are on which node, what they ask of it, and which Pods have none. Input: changes of Pods and nodes. Output: what
//! the scheduler and the models of nodes look up, without reading all Pods. It follows from the store alone.

use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use serde_json::Value;

use crate::amounts::{self, Amounts};
use crate::store::{Change, Event, Name, Object};

/// What the Pods of a node need together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Load {
    pub(crate) pods: u32,
    /// In thousandths, by resource.
    pub(crate) requests: Amounts,
}

/// An index of Pods.
#[derive(Clone, Debug, Default)]
pub(crate) struct Placement {
    loads: OrdMap<Arc<str>, Load>,
    /// The nodes that are there, those with the fewest Pods first.
    nodes: OrdSet<(u32, Arc<str>)>,
    /// Pods by their node; those that ended are among them.
    pods: OrdSet<(Arc<str>, Name)>,
    /// Pods without a node.
    waiting: OrdSet<Name>,
    /// The addresses of Pods.
    addresses: OrdSet<u32>,
}

/// The node of a Pod; none before it is bound.
pub(crate) fn node_of(pod: &Value) -> Option<&str> {
    pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty())
}

/// Whether a Pod's containers have ended for good.
pub(crate) fn has_ended(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

fn address(pod: &Value) -> Option<u32> {
    let own = pod["spec"]["hostNetwork"] != true;
    pod["status"]["podIP"].as_str().filter(|_| own)?.parse::<std::net::Ipv4Addr>().ok().map(u32::from)
}

impl Placement {
    /// Learns of a change.
    pub(crate) fn learn(&mut self, change: &Change) {
        match (&*change.storage.group, &*change.storage.plural) {
            ("", "pods") => self.pod(change),
            ("", "nodes") => self.node(change),
            _ => {}
        }
    }

    fn pod(&mut self, change: &Change) {
        let now = Some(&change.object).filter(|_| change.event != Event::Deleted);
        let name = change.object.key();
        let place = |pod: Option<&Arc<Object>>| {
            let pod = &pod?.value;
            Some((node_of(pod).map(str::to_owned), has_ended(pod), address(pod)))
        };
        let before = change.previous.as_ref();
        // Most changes leave a Pod where it is. What it requests does not change, except by a resize, which is not followed.
        if place(before) == place(now) {
            return;
        }
        if let Some(before) = before {
            self.leaves(before, &name);
        }
        if let Some(now) = now {
            self.comes(now, name);
        }
    }

    fn leaves(&mut self, pod: &Object, name: &Name) {
        self.waiting.remove(name);
        if let Some(address) = address(&pod.value) {
            self.addresses.remove(&address);
        }
        let Some(node) = node_of(&pod.value) else { return };
        self.pods.remove(&(node.into(), name.clone()));
        if !has_ended(&pod.value) {
            self.load(node, |load| {
                load.pods = load.pods.saturating_sub(1);
                for (name, amount) in amounts::of_pod(&pod.value, "requests") {
                    let sum = load.requests.entry(name).or_default();
                    *sum = sum.saturating_sub(amount);
                }
            });
        }
    }

    fn comes(&mut self, pod: &Object, name: Name) {
        if let Some(address) = address(&pod.value) {
            self.addresses.insert(address);
        }
        let Some(node) = node_of(&pod.value) else {
            if !has_ended(&pod.value) {
                self.waiting.insert(name);
            }
            return;
        };
        self.pods.insert((node.into(), name));
        if !has_ended(&pod.value) {
            self.load(node, |load| {
                load.pods += 1;
                for (name, amount) in amounts::of_pod(&pod.value, "requests") {
                    let sum = load.requests.entry(name).or_default();
                    *sum = sum.saturating_add(amount);
                }
            });
        }
    }

    /// Changes a node's load, and its place among the nodes.
    fn load(&mut self, node: &str, change: impl FnOnce(&mut Load)) {
        let node: Arc<str> = node.into();
        let load = self.loads.entry(node.clone()).or_default();
        let before = load.pods;
        change(load);
        let after = load.pods;
        if self.nodes.remove(&(before, node.clone())).is_some() {
            self.nodes.insert((after, node.clone()));
        }
        if after == 0 {
            self.loads.remove(&node);
        }
    }

    fn node(&mut self, change: &Change) {
        let name: Arc<str> = change.object.name().into();
        let entry = (self.on(&name).pods, name);
        if change.event == Event::Deleted {
            self.nodes.remove(&entry);
        } else {
            self.nodes.insert(entry);
        }
    }

    /// What is on a node.
    pub(crate) fn on(&self, node: &str) -> Load {
        self.loads.get(node).cloned().unwrap_or_default()
    }

    /// The nodes, those with the fewest Pods first.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &Arc<str>> {
        self.nodes.iter().map(|(_, node)| node)
    }

    /// The Pods of a node, in the order of their names.
    pub(crate) fn pods<'a>(&'a self, node: &'a str) -> impl Iterator<Item = &'a Name> + use<'a> {
        let start = (Arc::from(node), Name::default());
        self.pods.range(start..).take_while(move |(of, _)| **of == *node).map(|(_, name)| name)
    }

    /// The Pods that have no node.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Name> {
        self.waiting.iter()
    }

    /// A free address for a Pod: in 10.244.0.0/14, from a place that follows from its UID.
    pub(crate) fn address(&self, uid: &str) -> std::net::Ipv4Addr {
        const FIRST: u32 = 0x0AF4_0000;
        const COUNT: u32 = 1 << 18;
        let hash = uid.bytes().fold(0_u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
        let candidates = (0..COUNT).map(|step| FIRST + hash.wrapping_add(step) % COUNT);
        // Addresses that end in .0 and .255 are left to networks.
        let mut free = candidates.filter(|at| !matches!(at & 0xFF, 0 | 0xFF) && !self.addresses.contains(at));
        free.next().unwrap_or(FIRST + 1).into()
    }
}
