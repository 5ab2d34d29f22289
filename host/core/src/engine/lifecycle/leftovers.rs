//! What a removed plugin leaves behind for a person to decide (L3): objects with its finalizer, and CRDs that it
//! converts.

use std::sync::Arc;

use super::Lifecycle;
use super::plugin::Plugin;
use crate::engine::context::Context;
use crate::finalizer;
use crate::kube_event::{EventRecord, Words};
use crate::object::ObjectRef;
use crate::observation::Observation;
use crate::plugin_object;
use crate::selector::Selector;

/// Objects in a message. `mortise finalizers release --dry-run` lists all.
const MAX_NAMED: usize = 10;

impl Lifecycle {
    pub(super) fn record_leftovers(&self, name: &Arc<str>, plugin: &Plugin, cx: &mut Context<'_>) {
        if let Some(message) = conversion_left(name, plugin) {
            record(name, "ConversionLeft", &message, cx);
            cx.observe(Observation::ConversionLeft { plugin: Arc::clone(name), message });
        }
        if let Some(message) = finalizers_left(name, plugin, cx) {
            record(name, "FinalizersLeft", &message, cx);
            cx.observe(Observation::FinalizersLeft { plugin: Arc::clone(name), message });
        }
    }
}

fn record(name: &Arc<str>, reason: &str, message: &str, cx: &mut Context<'_>) {
    let target = plugin_object::of(name);
    if let Some(about) = cx.store.snapshot().get(&target.kind, &target.name).cloned() {
        let record =
            EventRecord { warning: true, reason: reason.to_owned(), note: message.to_owned(), words: Words::Host };
        cx.say(name, &about, record);
    }
}

/// CRDs stay when their plugin is removed. When this host ends, nothing converts their objects.
fn conversion_left(name: &str, plugin: &Plugin) -> Option<String> {
    plugin.conversion.as_ref()?;
    let crds = plugin.registered().map(|(manifest, _)| manifest.conversion.as_slice()).unwrap_or_default();
    let crds: Vec<String> = crds.iter().map(|spec| format!("{} ({})", spec.crd, spec.versions.join(", "))).collect();
    Some(format!(
        "the plugin {name:?} is gone, and the API server still calls its conversion webhook for {}: this host serves it until \
         it ends; after that, objects can be read and written in their stored version only. Offer the plugin again, or delete \
         the CRDs when nobody needs their objects",
        crds.join(", ")
    ))
}

/// Objects with the finalizer of a removed plugin cannot be deleted, and only a person knows whether it comes back.
fn finalizers_left(name: &str, plugin: &Plugin, cx: &Context<'_>) -> Option<String> {
    let controllers = plugin.active.iter().flat_map(|active| &active.manifest.controllers);
    let snapshot = cx.store.snapshot();
    let (finalizer, all) = (finalizer::name(name), Selector::default());
    let mut held: Vec<ObjectRef> = Vec::new();
    for kind in controllers.filter(|controller| controller.has_finalizer()).map(|controller| &controller.primary) {
        let objects = snapshot.list(kind, None, &all).filter(|object| finalizer::is_on(object, &finalizer));
        held.extend(objects.map(|object| object.reference()));
    }
    let count = held.len();
    let mut objects: Vec<String> = held.iter().take(MAX_NAMED).map(ToString::to_string).collect();
    if count > MAX_NAMED {
        objects.push(format!("{} more", count - MAX_NAMED));
    }
    (count > 0).then(|| {
        format!(
            "{count} objects keep the finalizer {finalizer} and cannot be deleted until the plugin is back or they are \
             released with `mortise finalizers release {name}`:\n{}",
            objects.join(", ")
        )
    })
}
