//! How much of the host's memory the objects take that the plugins of tenants read: bounds for each tenant and for all, and
//! what happens at them. A tenant is counted when what it reads has changed by some MiB, and when a plugin of it comes up.

use std::collections::{BTreeMap, BTreeSet};
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
/// Bytes of one that does not end for the others, however many there are: some hundred Pods.
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

/// Which tenant ends: one that reads more than one may, and while all read more than all may, the one that reads most.
/// Of those that read as much, this one.
fn ends<'a>(this: &str, tenants: impl Iterator<Item = (&'a Arc<str>, usize)>) -> Option<&'a Arc<str>> {
    let (mut total, mut most) = (0, None);
    for (tenant, bytes) in tenants {
        total += bytes;
        most = most.max(Some((bytes, **tenant == *this, tenant)));
    }
    let (bytes, _, tenant) = most?;
    (bytes > MAX_BYTES || (total > MAX_TOTAL_BYTES && bytes > OWN_BYTES)).then_some(tenant)
}

impl Lifecycle {
    /// An object in some namespace has changed, a role too. A tenant whose plugins read more than it may have reads nothing.
    pub(in super::super) fn on_tenant_change(&mut self, change: &Change, cx: &mut Context<'_>) {
        let Some(namespace) = change.object().map(|object| Arc::clone(&object.name.namespace)) else { return };
        let Some(tenant) = self.tenants.by_namespace.get_mut(&namespace) else { return };
        let bytes = |side: &Option<Arc<Object>>| side.as_ref().map_or(0, |object| object.bytes());
        tenant.bytes.changed += bytes(&change.after).abs_diff(bytes(&change.before));
        if tenant.bytes.changed >= COUNT_EACH {
            self.end_for_bytes(&namespace, cx);
            self.sync_dirty(cx);
        }
    }

    /// Counts a tenant, and ends those that read too much. All are counted before one ends for the others: a plugin
    /// that has ended reads nothing. Whether this one has ended.
    pub(in super::super) fn end_for_bytes(&mut self, namespace: &Arc<str>, cx: &mut Context<'_>) -> bool {
        let own = self.count_bytes(namespace, cx);
        if own <= MAX_BYTES && self.bytes_of_each().map(|(_, bytes)| bytes).sum::<usize>() > MAX_TOTAL_BYTES {
            let tenants: Vec<Arc<str>> = self.tenants.by_namespace.keys().cloned().collect();
            tenants.iter().for_each(|tenant| _ = self.count_bytes(tenant, cx));
        }
        let mut has_ended = false;
        while let Some(tenant) = ends(namespace, self.bytes_of_each()).cloned() {
            has_ended |= tenant == *namespace;
            self.end_tenant(&tenant, cx);
        }
        has_ended
    }

    fn bytes_of_each(&self) -> impl Iterator<Item = (&Arc<str>, usize)> {
        self.tenants.by_namespace.iter().map(|(namespace, tenant)| (namespace, tenant.bytes.counted))
    }

    /// What the plugins of tenants read, by their shares.
    pub(in super::super) fn bytes_of_tenants(&self) -> BTreeMap<Arc<str>, usize> {
        let of = |plugin: &Arc<str>| {
            let bytes = self.tenants.by_namespace.get(tenant::of_plugin(plugin)?)?.bytes.counted;
            (bytes > 0).then(|| (tenant::share(plugin), bytes))
        };
        self.plugins.keys().filter_map(of).collect()
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
    fn end_tenant(&mut self, namespace: &Arc<str>, cx: &mut Context<'_>) {
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
            "the objects that the plugins of all tenants read have more than {} MiB together, and those of {namespace} the most of \
             them, {} MiB: delete some, or read fewer kinds. It is tried again every ten minutes",
            MAX_TOTAL_BYTES >> 20,
            own >> 20
        ),
    };
    Refusal::new("TooManyBytes", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g11_what_tenants_read_is_bounded_for_each_and_in_all_and_the_largest_ends() {
        let of = |this: &str, bytes: &[usize]| {
            let names: Vec<Arc<str>> = (0..bytes.len()).map(|number| number.to_string().into()).collect();
            ends(this, names.iter().zip(bytes.iter().copied())).map(|tenant| tenant.to_string())
        };
        let ends = |tenant: &str| Some(tenant.to_owned());
        assert_eq!(of("0", &[MAX_BYTES]), None);
        assert_eq!(of("1", &[MAX_BYTES + 1, 0]), ends("0"), "of one");
        let quarter = MAX_TOTAL_BYTES / 4;
        assert_eq!(of("4", &[quarter, quarter, quarter, quarter - 1, 1]), None);
        assert_eq!(of("4", &[quarter - 1, quarter, quarter - 1, quarter - 1, OWN_BYTES + 1]), ends("1"), "the largest");
        assert_eq!(of("2", &[quarter; 5]), ends("2"), "of equals the one that came");
        assert_eq!(of("0", &[OWN_BYTES; 100]), None, "it ends for no others");
        assert!(too_many_bytes("a", MAX_BYTES).message.contains("all tenants"));
    }
}
