//! Which Plugin objects of people this host has claimed, so that it keeps them when somebody writes another host into
//! `status.host` by hand. Changes of Plugin objects come in; whether the claim counts comes out. It must not know sources or
//! versions.
//!
//! A host claims an object that no host has, or whose host lacks the source, and the API server takes its write only at the
//! version that shows that (`plugin_status.rs`). So no host replaces the claim of another, and what replaces it is written
//! back.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::object::Object;
use crate::plugin_object;
use crate::store::Change;
use crate::well_known::HOST_NAMESPACE_LABEL;

/// A claim that is replaced again within this time is given up: two hosts that both take an object for theirs, as when one of
/// them started while the status was edited, must not write in turns. A person who edits twice can wait for the plugin; two
/// hosts repeat it within seconds, and within minutes while a write fails.
const AGAIN_MS: u64 = 600_000;

#[derive(Debug)]
struct Claim {
    uid: Arc<str>,
    /// The object shows another host.
    is_replaced: bool,
    /// When it was replaced last.
    replaced_ms: Option<u64>,
}

/// The claims of this host, by plugin.
#[derive(Debug, Default)]
pub(super) struct Claims(BTreeMap<Arc<str>, Claim>);

impl Claims {
    /// Whether this host has the object, whatever its status shows.
    pub fn holds(&self, live: &Object) -> bool {
        let is_by_person = live.label(HOST_NAMESPACE_LABEL).is_none();
        is_by_person && self.0.get(&live.name.name).is_some_and(|claim| claim.uid == live.uid)
    }

    /// Follows a change of a Plugin object. A host that lacks the source has no claim: another one may take the plugin.
    pub fn follow(&mut self, change: &Change, namespace: &str, lacks_source: bool, now_ms: u64) {
        let Some(name) = change.object().map(|object| &object.name.name) else { return };
        let by_person = |live: &&Arc<Object>| live.label(HOST_NAMESPACE_LABEL).is_none();
        let shown = change.after.as_ref().filter(by_person).and_then(|live| Some((live, plugin_object::claim(live)?)));
        let Some((live, shown)) = shown else {
            self.0.remove(name);
            return;
        };
        let claim = self.0.get_mut(name).filter(|claim| claim.uid == live.uid);
        match (claim, &*shown.host == namespace) {
            (_, true) if shown.lacks_source => _ = self.0.remove(name),
            (Some(claim), true) => claim.is_replaced = false,
            (None, true) if may_be_claimed(change, live, namespace) => {
                let claim = Claim { uid: Arc::clone(&live.uid), is_replaced: false, replaced_ms: None };
                self.0.insert(Arc::clone(name), claim);
            }
            (Some(claim), false) if claim.is_replaced => {}
            (Some(claim), false) => {
                let is_again = claim.replaced_ms.is_some_and(|at_ms| now_ms < at_ms + AGAIN_MS);
                (claim.is_replaced, claim.replaced_ms) = (true, Some(now_ms));
                if is_again || lacks_source {
                    self.0.remove(name);
                }
            }
            (None, _) => _ = self.0.remove(name),
        }
    }
}

/// Whether this host may have claimed an object at this change. A claim that replaces another host's was written by hand.
fn may_be_claimed(change: &Change, live: &Object, namespace: &str) -> bool {
    let Some(before) = change.before.as_ref().filter(|before| before.uid == live.uid) else { return true };
    let had_label = before.label(HOST_NAMESPACE_LABEL) == Some(namespace);
    had_label || plugin_object::claim(before).is_none_or(|claim| claim.lacks_source)
}
