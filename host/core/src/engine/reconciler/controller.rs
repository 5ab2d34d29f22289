//! Serving controllers: made from a plugin's manifest, replaced by its next version, and removed with their keys.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Reconciler;
use super::key::{CallInFlight, KeyState, Run};
use super::live_reads::LiveRead;
use crate::component::Version;
use crate::engine::context::Context;
use crate::engine::message::Sender;
use crate::finalizer;
use crate::limits::CallLimits;
use crate::manifest::{ControllerSpec, Manifest};
use crate::object::{Kind, Object, ObjectRef};
use crate::permission::{self, Permission};
use crate::rights::within;
use crate::scope::Scope;
use crate::status::StatusShape;
use crate::tenant;
use crate::view::Access;
use crate::well_known::field_manager;
use crate::workqueue::{ControllerId, Key, Lane};
use crate::write::{Cause, WriteOp};

/// One controller of one plugin.
#[derive(Debug)]
pub(super) struct Controller {
    pub plugin: Arc<str>,
    /// Whose share of time, memory and calls it uses: the plugin's, or its tenant's.
    pub share: Arc<str>,
    /// "podset/PodSet".
    pub label: Arc<str>,
    pub field_manager: Arc<str>,
    /// The finalizer's name, also of a version that does not finalize: an earlier one may have.
    pub finalizer: String,
    pub version: Version,
    /// The host's namespace, for a built-in kind: its ConfigMaps are plugins.
    avoided: Option<Arc<str>>,
    pub spec: Arc<ControllerSpec>,
    pub access: Arc<Access>,
    /// What the plugin may do in some namespaces alone.
    in_namespaces: BTreeSet<Permission>,
    pub limits: CallLimits,
    pub shape: StatusShape,
    /// Its informers are current, so its keys may be called.
    pub ready: bool,
    /// Calls in flight.
    pub calls: u32,
    /// Objects that the outcomes of its keys want.
    pub objects: usize,
}

impl Controller {
    fn new(
        plugin: &Arc<str>,
        version: &Version,
        manifest: &Manifest,
        spec: &ControllerSpec,
        host_namespace: &Arc<str>,
    ) -> Self {
        let scopes = spec.scopes();
        let visible = visible(&scopes, version);
        let narrowed = scopes.into_iter().filter(|(_, scope)| !scope.is_everything());
        let mut crds = manifest.custom_resources.iter().chain(&manifest.described_resources);
        let crd = crds.find(|crd| crd.kinds.contains(&spec.primary));
        Self {
            plugin: Arc::clone(plugin),
            share: tenant::share(plugin),
            label: format!("{plugin}/{}", spec.primary.kind).into(),
            field_manager: field_manager(plugin).into(),
            finalizer: finalizer::name(plugin),
            version: version.clone(),
            avoided: (spec.builtin && !version.grants.host_namespace).then(|| Arc::clone(host_namespace)),
            spec: Arc::new(ControllerSpec { visible: visible.clone(), ..spec.clone() }),
            access: Arc::new(
                Access::new(spec.readable(), manifest.limits.read_bytes)
                    .with_patterns(spec.patterns.clone())
                    .with_tracked(spec.tracked().cloned().collect())
                    .with_narrowed(narrowed.map(|(kind, scope)| (kind, Arc::new(scope))).collect())
                    .with_visible(visible),
            ),
            in_namespaces: permission::needed(manifest).into_iter().filter(|it| it.namespace.is_some()).collect(),
            limits: version.grants.bound(manifest.limits),
            shape: match crd {
                Some(crd) => StatusShape::of(crd, &spec.primary),
                // A plugin does not write the status of a built-in kind.
                None if spec.builtin => StatusShape::default(),
                // The schema of another's CRD is unknown, but most kinds have a status subresource.
                None => StatusShape { subresource: true, ..StatusShape::default() },
            },
            ready: false,
            calls: 0,
            objects: 0,
        }
    }

    /// Whether it may have another call in flight.
    pub fn may_be_called(&self) -> bool {
        self.ready && self.calls < self.spec.concurrency
    }

    /// Whether an object of its kind is reconciled: one that the predicate selects, or one being deleted with its
    /// finalizer. What the plugin may not read is no object of its own.
    pub fn reconciles(&self, object: &Object) -> bool {
        let is_avoided = self.avoided.as_ref() == Some(&object.name.namespace);
        let is_selected = || {
            (self.spec.selects(object) && !is_avoided) || (object.deleting && finalizer::is_on(object, &self.finalizer))
        };
        self.access.shows(object) && is_selected()
    }

    /// The permission that a write needs: in its namespace alone, if the plugin needs it in some.
    pub fn permission(&self, op: &WriteOp) -> Permission {
        let everywhere = op.permission();
        let here = Permission { namespace: Some(Arc::clone(&op.target().name.namespace)), ..everywhere.clone() };
        if self.in_namespaces.contains(&here) { here } else { everywhere }
    }

    /// Who sends its writes.
    pub fn sender(&self) -> Sender {
        let Version { service_account, namespaces, grants, .. } = self.version.clone();
        let writes_per_minute = grants.writes_per_minute;
        Sender { plugin: Some(Arc::clone(&self.plugin)), service_account, namespaces, writes_per_minute }
    }

    /// A reconcile of a key by its serving version.
    pub fn cause(&self, key: &Key) -> Cause {
        Cause {
            controller: Arc::clone(&self.label),
            object: ObjectRef { kind: self.spec.primary.clone(), name: key.name.clone() },
            digest: self.version.digest.clone(),
        }
    }

    /// The same of the version that was called last.
    pub fn cause_of(&self, key: &Key, state: &KeyState) -> Cause {
        let mut cause = self.cause(key);
        if let Some(last) = &state.last {
            cause.digest = last.version.digest.clone();
        }
        cause
    }
}

/// What a plugin sees of the kinds of which it may not read all that is declared. A kind that nobody asked about is one that it
/// may not read.
fn visible(declared: &[(Kind, Scope)], version: &Version) -> Vec<(Kind, Arc<Scope>)> {
    let seen = |(kind, declared): &(Kind, Scope)| {
        let readable = match &version.rights {
            Some(rights) => {
                rights.get(kind).and_then(|readable| readable.narrow(declared)).unwrap_or_else(Scope::nothing)
            }
            None => declared.clone(),
        };
        let seen =
            version.namespaces.as_ref().map_or_else(|| readable.clone(), |namespaces| within(&readable, namespaces));
        (seen != *declared).then(|| (kind.clone(), Arc::new(seen)))
    };
    declared.iter().filter_map(seen).collect()
}

impl Reconciler {
    /// A version takes over. Controllers of kinds that the previous version had keep their ids and keys.
    pub(super) fn serve(&mut self, plugin: &Arc<str>, version: &Version, manifest: &Manifest, cx: &mut Context<'_>) {
        self.forget_faults(plugin, cx);
        let mut before: BTreeMap<Kind, ControllerId> =
            self.controllers_of(plugin).map(|(id, controller)| (controller.spec.primary.clone(), id)).collect();
        for spec in &manifest.controllers {
            let mut controller = Controller::new(plugin, version, manifest, spec, &self.reserved.namespace);
            let id = before.remove(&spec.primary).unwrap_or_else(|| {
                self.last_controller += 1;
                ControllerId(self.last_controller)
            });
            if let Some(replaced) = self.controllers.get(&id) {
                (controller.ready, controller.calls) = (replaced.ready, replaced.calls);
                controller.objects = replaced.objects;
                if replaced.spec.http != controller.spec.http {
                    self.exchanges.keep_declared(id, &controller.spec.http);
                }
            }
            self.controllers.insert(id, controller);
            self.queue.unpark(id);
            let known = self.reconcilers_of(&spec.primary);
            if !known.contains(&id) {
                self.by_primary.insert(spec.primary.clone(), known.iter().copied().chain([id]).collect());
            }
            self.enqueuing.add(id, Lane::Resync, cx.now.mono_ms);
        }
        for id in before.into_values() {
            self.remove_controller(id);
        }
        self.exchanges.retry_denied(plugin, cx.now.mono_ms);
    }

    pub(super) fn withdraw(&mut self, plugin: &Arc<str>, cx: &mut Context<'_>) {
        // A share of a tenant is not the plugin's alone.
        self.throttled.remove(plugin);
        self.suspended.remove(plugin);
        self.confined.remove(plugin);
        self.forget_faults(plugin, cx);
        self.forget_kinds(plugin, cx);
        let ids: Vec<ControllerId> = self.controllers_of(plugin).map(|(id, _)| id).collect();
        for id in ids {
            self.remove_controller(id);
        }
    }

    pub(super) fn set_ready(&mut self, plugin: &str, primary: &Kind, ready: bool) {
        let ids = self.reconcilers_of(primary);
        for id in ids.iter() {
            if let Some(controller) = self.controllers.get_mut(id).filter(|found| *found.plugin == *plugin) {
                controller.ready = ready;
                self.queue.unpark(*id);
            }
        }
    }

    /// Enqueues every object: earlier wake-ups had no effect without a claim, and no event shows what another leader
    /// has left unfinished. Calls and plans from before know nothing of what it wrote.
    pub(super) fn resync(&mut self, cx: &mut Context<'_>) {
        self.calls.values_mut().for_each(CallInFlight::make_void);
        for id in self.controllers.keys().copied().collect::<Vec<_>>() {
            if self.controllers[&id].spec.has_finalizer() {
                self.keys.states_of(id).for_each(|state| state.expect_others_writes(cx.now.mono_ms));
            }
            for state in self.keys.states_of(id) {
                state.memory.replacements.inherit();
                state.run_mut().into_iter().for_each(Run::make_void);
            }
            self.enqueuing.add(id, Lane::Resync, cx.now.mono_ms);
        }
    }

    /// The API server's versions went backwards: no key waits for a version any more, and calls, reads and writes in
    /// flight may be based on undone state.
    pub fn on_restored(&mut self, cx: &mut Context<'_>) {
        self.waiting.clear();
        self.calls.values_mut().for_each(CallInFlight::make_void);
        self.live_reads.values_mut().for_each(LiveRead::make_void);
        for id in self.controllers.keys().copied().collect::<Vec<_>>() {
            self.keys.states_of(id).for_each(KeyState::forget_versions);
            self.enqueuing.add(id, Lane::Resync, cx.now.mono_ms);
        }
    }

    pub(super) fn controllers_of(&self, plugin: &str) -> impl Iterator<Item = (ControllerId, &Controller)> {
        let of_plugin = self.controllers.iter().filter(move |(_, controller)| *controller.plugin == *plugin);
        of_plugin.map(|(id, controller)| (*id, controller))
    }

    pub(super) fn reconcilers_of(&self, kind: &Kind) -> Arc<[ControllerId]> {
        self.by_primary.get(kind).cloned().unwrap_or_default()
    }
}
