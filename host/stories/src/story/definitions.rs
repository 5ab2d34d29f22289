//! Registers the plugin's definitions, as `core::crd` plans them, and waits until they are established.

use std::sync::Arc;

use mortise_core::crd::{CrdError, CrdPlan, Establishment, establishment, plan};
use mortise_core::event::Event;
use mortise_core::object::{Kind, Name, ObjectRef};
use mortise_core::refusal::Refusal;
use mortise_core::response::Refused;
use mortise_core::scope::Slice;
use mortise_core::write::WriteErrorClass;
use mortise_local_cluster::Method;
use serde_json::Value;

use super::Story;
use super::due::Due;
use crate::api::{Ask, Client};

/// How often it is looked whether a definition is established, and for how long.
const LOOK_MS: u64 = 25;
const DEADLINE_MS: u64 = 30_000;

fn target(crd: &str) -> ObjectRef {
    ObjectRef { kind: Kind::new("apiextensions.k8s.io/v1", "CustomResourceDefinition"), name: Name::new("", crd) }
}

impl Story {
    pub(super) fn register(&mut self, plugin: Arc<str>, crd: Arc<str>, body: &str) {
        match self.written(&crd, body) {
            Ok(()) => {
                let until_ms = self.now_ms() + DEADLINE_MS;
                self.look_for_definition(plugin, crd, until_ms);
            }
            Err(error) => self.respond_with(Event::CrdRegistered { plugin, crd, result: Err(error) }),
        }
    }

    /// Creates or changes a definition as planned.
    fn written(&mut self, crd: &str, body: &str) -> Result<(), CrdError> {
        let target = target(crd);
        let live = self.api.get(Client::Host, &target).map_err(|refused| error(&refused))?;
        let live = live.map(|live| live.to_string());
        if live.as_deref().map(establishment) == Some(Establishment::Terminating) {
            return Err(CrdError::Unavailable("the one that exists is being deleted".to_owned()));
        }
        let mut next = plan(live.as_deref(), body, true);
        if let (CrdPlan::Narrows(_), Some(live)) = (&next, &live)
            && !self.objects_exist(live)
        {
            next = plan(Some(live), body, false);
        }
        let [object, collection] = self.api.path(&target).map_err(|refused| error(&refused))?;
        let (method, path, text) = match next {
            CrdPlan::Nothing => return Ok(()),
            CrdPlan::Refuse(refusal) | CrdPlan::Narrows(refusal) => return Err(CrdError::Refused(refusal)),
            CrdPlan::Create(text) => (Method::Post, collection, text),
            CrdPlan::Update(text) => (Method::Put, object, text),
        };
        let ask = Ask { method, body: text.as_bytes(), ..Ask::get(path) };
        let written = self.api.json(Client::Host, ask);
        self.api.forget_resources();
        written.map(drop).map_err(|refused| error(&refused))
    }

    fn objects_exist(&mut self, live: &str) -> bool {
        let live: Value = serde_json::from_str(live).unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let versions = live["spec"]["versions"].as_array().into_iter().flatten();
        let mut served = versions.filter(|version| version["served"] == true);
        let Some(version) = served.next() else { return true };
        let api_version = format!("{}/{}", text(&live["spec"]["group"]), text(&version["name"]));
        let slice = Slice::from(Kind::new(&api_version, &text(&live["spec"]["names"]["kind"])));
        self.api.list(&slice).map_or(true, |list| list["items"].as_array().is_some_and(|items| !items.is_empty()))
    }

    /// Responds when a definition is established, or looks again.
    pub(super) fn look_for_definition(&mut self, plugin: Arc<str>, crd: Arc<str>, until_ms: u64) {
        let live = self.api.get(Client::Host, &target(&crd)).ok().flatten().map(|live| live.to_string());
        let result = match live.as_deref().map(establishment) {
            Some(Establishment::Established) => Ok(()),
            Some(Establishment::Refused(refusal)) => Err(CrdError::Refused(refusal)),
            _ if self.now_ms() < until_ms => {
                let incarnation = self.incarnation;
                return self.schedule(LOOK_MS, Due::Established { incarnation, plugin, crd, until_ms });
            }
            _ => Err(CrdError::Unavailable(format!("CRD {crd}: the API server does not serve it"))),
        };
        self.respond_with(Event::CrdRegistered { plugin, crd, result });
    }
}

fn error(refused: &Refused) -> CrdError {
    match refused.class() {
        WriteErrorClass::Denied => CrdError::Denied(refused.message.clone()),
        WriteErrorClass::Invalid => CrdError::Refused(Refusal::new("CrdInvalid", refused.message.clone())),
        _ => CrdError::Unavailable(refused.message.clone()),
    }
}
