//! Objects that are being deleted and wait for their plugin: what is told of it, and what becomes of them when the plugin
//! finalizes no more. That a finalizer is put on and taken off in its turn is `carry_out.rs`' business.

use std::sync::Arc;

use super::Driver;
use super::keys::{Ending, Run, Stage};
use super::plugins::Active;
use super::report::plugin_object_of;
use crate::event::{Effect, Observation, ReconcileResult};
use crate::finalizer;
use crate::kube_event::Happening;
use crate::object::{Object, ObjectRef};
use crate::queue::Key;
use crate::selector::Selector;

/// Objects that are named one by one when their plugin goes; the command that releases them lists all.
const MAX_NAMED: usize = 10;

impl Driver {
    /// Tells once that an object waits for its plugin.
    pub(super) fn tell_of_finalizing(&mut self, key: &Key, primary: &Arc<Object>, effects: &mut Vec<Effect>) {
        let Some(state) = self.keys.get_mut(key).filter(|_| primary.deleting) else { return };
        if std::mem::replace(&mut state.told_finalizing, true) {
            return;
        }
        let Some(controller) = self.controllers.get(&key.controller) else { return };
        let note = format!("it goes when its plugin has cleaned up and {} is taken off", controller.finalizer);
        self.tell(key, primary, false, "Finalizing", &note, effects);
    }

    /// A version of the plugin that finalizes no more holds up no deletion: what an earlier one has put on is taken off.
    pub(super) fn release_finalizer(&mut self, key: &Key, primary: &Object, effects: &mut Vec<Effect>) {
        let Some(controller) = self.controllers.get(&key.controller) else { return };
        let stage = finalizer::remove(primary, &controller.finalizer).map(Stage::of_one);
        self.begin_run(key, Run::new(stage, Ending::new(ReconcileResult::Success, None), true), effects);
    }

    /// L3: objects that a plugin which goes leaves with its finalizer cannot be deleted any more, and only a person knows
    /// whether it comes back.
    pub(super) fn tell_of_finalizers(&mut self, name: &Arc<str>, active: Option<&Active>, effects: &mut Vec<Effect>) {
        let controllers = active.into_iter().flat_map(|active| &active.manifest.controllers);
        let snapshot = self.store.snapshot();
        let (finalizer, all) = (finalizer::name(name), Selector::default());
        let mut held: Vec<ObjectRef> = Vec::new();
        for kind in controllers.filter(|controller| controller.finalize).map(|controller| &controller.primary) {
            let objects = snapshot.list(kind, None, &all).filter(|object| finalizer::is_on(object, &finalizer));
            held.extend(objects.map(|object| object.reference()));
        }
        if held.is_empty() {
            return;
        }
        let count = held.len();
        let mut objects: Vec<String> = held.iter().take(MAX_NAMED).map(ToString::to_string).collect();
        if count > MAX_NAMED {
            objects.push(format!("{} more", count - MAX_NAMED));
        }
        let message = format!(
            "{count} objects keep the finalizer {finalizer} and cannot be deleted until the plugin is back or they are \
             released with: mortise finalizers release {name}\n{}",
            objects.join(", ")
        );
        let target = plugin_object_of(name);
        if let Some(about) = snapshot.get(&target.kind, &target.name).cloned() {
            let happening = Happening { warning: true, reason: "FinalizersLeft".to_owned(), note: message.clone() };
            self.send_event(None, &about, happening, effects);
        }
        effects.push(Effect::Observe(Observation::FinalizersLeft { plugin: Arc::clone(name), message }));
    }
}
