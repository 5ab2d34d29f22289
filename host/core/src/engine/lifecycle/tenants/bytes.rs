//! How much of the host's memory the objects take that the plugins of tenants read: bounds for each tenant and for all, and
//! what happens at them. A tenant is counted when what it reads has changed by some MiB, and when a plugin of it comes up.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::Lifecycle;
use super::super::plugin::RefusedBy;
use super::super::timers::BYTES_RETRY_MS;
use crate::engine::context::Context;
use crate::object::{Kind, Object};
use crate::refusal::Refusal;
use crate::selector::Selector;
use crate::store::Change;
use crate::tenant;

/// Bytes of the objects that the plugins of a tenant read: some thousand Pods. What the namespace may have is no bound.
const MAX_BYTES: usize = 64 << 20;
/// Bytes of all tenants: an eighth of the memory limit of the Deployment in deploy/, beside what is kept of calls, which has
/// a quarter.
const MAX_TOTAL_BYTES: usize = 256 << 20;
/// Bytes that a tenant has to itself, so that four others that read very much do not end it: some hundred Pods.
const OWN_BYTES: usize = 4 << 20;
/// How much they change before they are counted again.
const COUNT_EACH: usize = 4 << 20;

/// What a tenant reads.
#[derive(Debug, Default)]
pub(super) struct Bytes {
    /// When it was counted last.
    counted: usize,
    /// By how much objects in its namespace have changed since.
    changed: usize,
    /// Its plugins have read too much: they read nothing before this time, and why.
    ended: Option<(u64, Refusal)>,
}

/// Whether a tenant may read so much, while all tenants together read `total`.
fn fits(own: usize, total: usize) -> bool {
    own <= MAX_BYTES && (total <= MAX_TOTAL_BYTES || own <= OWN_BYTES)
}

impl Lifecycle {
    /// An object in some namespace has changed, a role too. A tenant whose plugins read more than it may have reads nothing.
    pub(in super::super) fn on_tenant_change(&mut self, change: &Change, cx: &mut Context<'_>) {
        let Some(namespace) = change.object().map(|object| Arc::clone(&object.name.namespace)) else { return };
        let Some(tenant) = self.tenants.by_namespace.get_mut(&namespace) else { return };
        let bytes = |side: &Option<Arc<Object>>| side.as_ref().map_or(0, |object| object.bytes());
        tenant.bytes.changed += bytes(&change.after).abs_diff(bytes(&change.before));
        if tenant.bytes.changed >= COUNT_EACH && self.reads_too_much(&namespace, cx) {
            self.end_for_bytes(&namespace, cx);
            self.sync_dirty(cx);
        }
    }

    /// Counts a tenant and, when all together seem to have too much, all of them: a plugin that has ended reads nothing.
    pub(in super::super) fn reads_too_much(&mut self, namespace: &str, cx: &Context<'_>) -> bool {
        let own = self.count_bytes(namespace, cx);
        if fits(own, self.total_bytes()) {
            return false;
        }
        let tenants: Vec<Arc<str>> = self.tenants.by_namespace.keys().cloned().collect();
        tenants.iter().for_each(|tenant| _ = self.count_bytes(tenant, cx));
        !fits(own, self.total_bytes())
    }

    fn total_bytes(&self) -> usize {
        self.tenants.by_namespace.values().map(|tenant| tenant.bytes.counted).sum()
    }

    fn count_bytes(&mut self, namespace: &str, cx: &Context<'_>) -> usize {
        let of_tenant = self.plugins.iter().filter(|(name, _)| tenant::of_plugin(name) == Some(namespace));
        let kinds: BTreeSet<&Kind> = of_tenant.flat_map(|(_, plugin)| plugin.requirements.kinds.keys()).collect();
        let (snapshot, all) = (cx.store.snapshot(), Selector::default());
        let objects = kinds.into_iter().flat_map(|kind| snapshot.list(kind, Some(namespace), &all));
        let counted = objects.map(|object| object.bytes()).sum();
        if let Some(tenant) = self.tenants.by_namespace.get_mut(namespace) {
            (tenant.bytes.counted, tenant.bytes.changed) = (counted, 0);
        }
        counted
    }

    /// The plugins of a tenant that read something end.
    pub(in super::super) fn end_for_bytes(&mut self, namespace: &Arc<str>, cx: &mut Context<'_>) {
        let Some(tenant) = self.tenants.by_namespace.get_mut(namespace) else { return };
        let refusal = too_many_bytes(namespace, std::mem::take(&mut tenant.bytes.counted));
        tenant.bytes.ended = Some((cx.now.mono_ms + BYTES_RETRY_MS, refusal.clone()));
        let of_tenant = self.plugins.iter().filter(|(name, _)| tenant::of_plugin(name) == Some(&**namespace));
        let reads = of_tenant.filter(|(_, plugin)| plugin.active.is_some() || plugin.candidate.is_some());
        for name in reads.map(|(name, _)| Arc::clone(name)).collect::<Vec<_>>() {
            if self.plugins.get(&name).is_some_and(|plugin| plugin.active.is_some()) {
                self.stop(&name, cx);
            }
            self.refuse(&name, RefusedBy::Bytes, refusal.clone(), cx);
        }
    }

    pub(in super::super) fn has_too_many_bytes(&self, plugin: &str, cx: &Context<'_>) -> Option<Refusal> {
        let tenant = self.tenants.by_namespace.get(tenant::of_plugin(plugin)?)?;
        let (until_ms, refusal) = tenant.bytes.ended.as_ref()?;
        (cx.now.mono_ms < *until_ms).then(|| refusal.clone())
    }
}

fn too_many_bytes(namespace: &str, own: usize) -> Refusal {
    let message = match own > MAX_BYTES {
        true => format!(
            "the objects that the plugins of the tenant {namespace} read have more than {} MiB together: delete some, or read \
             fewer kinds. It is tried again every ten minutes",
            MAX_BYTES >> 20
        ),
        false => format!(
            "the objects that the plugins of all tenants read have more than {} MiB together, and those of {namespace} more than \
             its own {}: delete some, or read fewer kinds. It is tried again every ten minutes",
            MAX_TOTAL_BYTES >> 20,
            OWN_BYTES >> 20
        ),
    };
    Refusal::new("TooManyBytes", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g11_what_tenants_read_is_bounded_for_each_and_in_all_and_each_has_some_of_its_own() {
        assert!(fits(MAX_BYTES, MAX_BYTES) && !fits(MAX_BYTES + 1, MAX_BYTES + 1), "of one");
        assert!(fits(OWN_BYTES + 1, MAX_TOTAL_BYTES) && !fits(OWN_BYTES + 1, MAX_TOTAL_BYTES + 1), "of all");
        assert!(fits(OWN_BYTES, usize::MAX), "its own");
        assert!(too_many_bytes("a", MAX_BYTES).message.contains("all tenants"));
    }
}
