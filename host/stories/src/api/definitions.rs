//! Registers definitions as `core::crd` plans them: a definition comes in, and what the engine is to hear of it comes out. It
//! must not know when it is looked whether one is established.

use mortise_core::crd::{CrdError, CrdOwner, CrdPlan, Establishment, establishment, owner, plan};
use mortise_core::object::{Kind, Name, ObjectRef};
use mortise_core::refusal::Refusal;
use mortise_core::response::Refused;
use mortise_core::scope::Slice;
use mortise_core::write::WriteErrorClass;
use mortise_local_cluster::Method;
use serde_json::Value;

use super::{Answers, Api, Ask, Client};

fn target(crd: &str) -> ObjectRef {
    ObjectRef { kind: Kind::new("apiextensions.k8s.io/v1", "CustomResourceDefinition"), name: Name::new("", crd) }
}

impl<W: Answers> Api<W> {
    /// Creates or changes a definition as planned.
    ///
    /// # Errors
    /// Why it is not.
    pub fn define(&mut self, crd: &str, body: &str) -> Result<(), CrdError> {
        let target = target(crd);
        let live = self.get(Client::Host, &target).map_err(|refused| error(&refused))?;
        let live = live.map(|live| live.to_string());
        if live.as_deref().map(establishment) == Some(Establishment::Terminating) {
            return Err(CrdError::Unavailable("the one that exists is being deleted".to_owned()));
        }
        let mut next = plan(live.as_deref(), body, true);
        if let (CrdPlan::Narrows { .. }, Some(live)) = (&next, &live)
            && !self.objects_exist(live)
        {
            next = plan(Some(live), body, false);
        }
        let [object, collection] = self.path(&target).map_err(|refused| error(&refused))?;
        let (method, path, text) = match next {
            CrdPlan::Nothing(_) => return Ok(()),
            CrdPlan::Refuse(refusal) | CrdPlan::Narrows { refusal, kept: None } => {
                return Err(CrdError::Refused(refusal));
            }
            CrdPlan::Create(text) => (Method::Post, collection, text),
            CrdPlan::Update(text) | CrdPlan::Narrows { kept: Some(text), .. } => (Method::Put, object, text),
        };
        let ask = Ask { method, body: text.as_bytes(), ..Ask::get(path) };
        let written = self.json(Client::Host, ask);
        self.forget_resources();
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
        self.list(&slice).map_or(true, |list: Value| list["items"].as_array().is_some_and(|items| !items.is_empty()))
    }

    /// What has become of a definition that a plugin registers; None when it is neither established nor refused yet.
    pub fn established(&mut self, plugin: &str, crd: &str) -> Option<Result<CrdOwner, CrdError>> {
        let live = self.get(Client::Host, &target(crd)).ok().flatten()?.to_string();
        match establishment(&live) {
            Establishment::Established => Some(Ok(owner(&live, plugin))),
            Establishment::Refused(refusal) => Some(Err(CrdError::Refused(refusal))),
            _ => None,
        }
    }
}

fn error(refused: &Refused) -> CrdError {
    match refused.class() {
        WriteErrorClass::Denied => CrdError::Denied(refused.message.clone()),
        WriteErrorClass::Invalid => CrdError::Refused(Refusal::new("CrdInvalid", refused.message.clone())),
        _ => CrdError::Unavailable(refused.message.clone()),
    }
}
