//! Reconciles the webhook configurations of plugins. `core::admission::configuration` decides what they contain.

use std::collections::BTreeMap;
use std::mem::replace;
use std::sync::Arc;

use mortise_core::admission::AdmissionBackend;
use mortise_core::admission::configuration::{Change, Configuration, Resources, change, name_of, plugin_of, wanted};
use mortise_core::refusal::Refusal;
use mortise_core::webhook::Endpoint;
use mortise_core::write::{WriteError, WriteErrorClass};
use serde_json::Value;

use super::Registrar;
use super::progress::{Due, Progress};

/// When at least one plugin of this many is due, one list reads all configurations, else one request for each.
const LIST_FROM_SHARE: usize = 4;

impl Registrar {
    /// Reconciles the configurations of these plugins. `known` is the number of all plugins.
    pub(super) async fn configurations(
        &self,
        due: Due,
        known: usize,
        endpoint: &Endpoint,
    ) -> Vec<(Arc<str>, Option<Arc<AdmissionBackend>>, Progress)> {
        let mut found: Vec<_> = due.into_iter().map(|(name, backend)| (name, backend, Progress::Done)).collect();
        if found.is_empty() {
            return found;
        }
        for of in Configuration::ALL {
            let names: Vec<_> = found.iter().map(|(name, ..)| name).collect();
            let mut live = self.live(of, &names, known).await;
            for (name, backend, progress) in &mut found {
                let one = match &live {
                    Ok(live) => self.configuration(of, name, backend.as_deref(), live.get(&**name), endpoint).await,
                    Err(refusal) => Err((WriteErrorClass::Unavailable, refusal.clone())),
                };
                let one = one.unwrap_or_else(|(class, refusal)| {
                    if matches!(class, WriteErrorClass::Unavailable | WriteErrorClass::Unknown) {
                        // Requests for the others would fail as well.
                        live = Err(refusal.clone());
                    }
                    Progress::Failed(refusal)
                });
                *progress = replace(progress, Progress::Done).and(one);
            }
        }
        found
    }

    /// The live configurations by plugin: at least those that are due.
    async fn live(
        &self,
        of: Configuration,
        due: &[&Arc<str>],
        known: usize,
    ) -> Result<BTreeMap<String, Value>, Refusal> {
        let mut found = Vec::new();
        if due.len() * LIST_FROM_SHARE >= known {
            found = self.api.list_configurations(of, None).await.map_err(|error| refused(of, "list", &error))?;
        } else {
            for name in due {
                let one = self.api.list_configurations(of, Some(&name_of(name))).await;
                found.extend(one.map_err(|error| refused(of, "list", &error))?);
            }
        }
        let by_plugin = |live: Value| Some((plugin_of(&live, &self.namespace)?.to_owned(), live));
        Ok(found.into_iter().filter_map(by_plugin).collect())
    }

    /// The resource names of the kinds that a plugin admits and does not define. A kind that is not served has no
    /// objects.
    async fn discovered(&self, backend: &AdmissionBackend) -> Result<Resources, (WriteErrorClass, Refusal)> {
        let mut discovered = Resources::new();
        for spec in backend.specs.iter().filter(|spec| !spec.is_own()) {
            let name = self.api.resource_name(&spec.kind).await;
            let name = name.map_err(|error| (error.class, Refusal::new("KindUnknown", error.message)))?;
            discovered.extend(name.map(|name| (spec.kind.clone(), name)));
        }
        Ok(discovered)
    }

    async fn configuration(
        &self,
        of: Configuration,
        name: &Arc<str>,
        backend: Option<&AdmissionBackend>,
        live: Option<&Value>,
        endpoint: &Endpoint,
    ) -> Result<Progress, (WriteErrorClass, Refusal)> {
        let wanted = match backend {
            Some(backend) => {
                let discovered = self.discovered(backend).await?;
                wanted(of, name, &self.namespace, backend, endpoint, &discovered)
            }
            None => None,
        };
        let Some(change) = change(live, wanted) else {
            return Ok(Progress::Done);
        };
        let verb = match &change {
            Change::Create(_) => "create",
            Change::Update(_) => "update",
            Change::Delete { .. } => "delete",
        };
        if !self.may_write() {
            return Ok(Progress::Held);
        }
        match self.api.change_configuration(of, &change, self.claim().not_after_ms()).await {
            Ok(()) => {
                tracing::info!(plugin = %name, kind = of.kind(), verb, "wrote a webhook configuration");
                Ok(Progress::Done)
            }
            // The list shows only configurations with the host's label.
            Err(error) if error.class == WriteErrorClass::AlreadyExists => {
                let message = format!(
                    "a webhook configuration named {:?} exists and is not mortise's; delete or rename it, or rename the \
                     plugin",
                    name_of(name)
                );
                Ok(Progress::Foreign(Refusal::new("WebhookForeign", message)))
            }
            Err(error) => Err((error.class, refused(of, verb, &error))),
        }
    }
}

fn refused(of: Configuration, verb: &str, error: &WriteError) -> Refusal {
    let message = &error.message;
    if error.class != WriteErrorClass::Denied {
        return Refusal::new("WebhookNotWritten", message.clone());
    }
    let message = format!(
        "{message}; the host needs the verb {verb} on {}: `mortise rbac --host | kubectl apply -f -` gives it all of its rights",
        of.resource()
    );
    Refusal::new("Forbidden", message)
}
