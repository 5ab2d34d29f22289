//! pods/eviction: a deletion that disruption budgets may refuse. Input: an Eviction. Output: a Status. It must not know who
//! computes the budgets' status.

use std::sync::Arc;

use serde_json::{Value, json};

use super::posted::{admit, document, success};
use crate::attributes::Attributes;
use crate::condition;
use crate::context::Context;
use crate::deletion::{DeleteOptions, Propagation};
use crate::halt::{Halt, Status};
use crate::request::{Request, Response};
use crate::resource::Storage;
use crate::rest::{Update, delete, update};
use crate::selector::Labels;
use crate::store::Object;
use crate::{Cluster, time};

/// How many evictions a budget may have that its controller has not confirmed, as the API server has it.
const MAX_DISRUPTED: usize = 2000;
const REFUSED: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

pub(super) fn create(
    cluster: &mut Cluster,
    request: &Request,
    attributes: &Attributes,
    context: &mut Context<'_>,
) -> Result<Response, Halt> {
    let mut eviction = document(request, "policy/v1", "Eviction")?;
    if eviction["metadata"]["name"] != attributes.name.as_str() {
        return Err(Status::bad_request("name in URL does not match name in Eviction object").into());
    }
    let options = options(&eviction["deleteOptions"]);
    context.dry_run |= eviction["deleteOptions"]["dryRun"].as_array().is_some_and(|all| !all.is_empty());
    admit(cluster, context, attributes, &mut eviction)?;
    let storage = Storage::new("", "pods");
    let pod = cluster.store.get(&storage, &attributes.namespace, &attributes.name).cloned();
    let pod = pod.ok_or_else(|| attributes.not_found())?;
    // A Pod that does not run yet or any more disrupts nothing.
    let runs = !matches!(pod.value["status"]["phase"].as_str(), Some("Succeeded" | "Failed" | "Pending"));
    if runs && !pod.terminates() {
        let budgets = budgets(cluster, &pod);
        match budgets.as_slice() {
            [] => {}
            [budget] if is_free(&pod, budget) => {}
            [budget] => decrement(cluster, context, &pod, budget)?,
            _ => {
                let message =
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
                return Err(Status::unforeseen(message).into());
            }
        }
    }
    if !context.dry_run {
        let mut marked = pod.value.clone();
        let condition = json!({
            "type": "DisruptionTarget", "status": "True", "lastProbeTime": null,
            "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting",
        });
        condition::set(&mut marked["status"], condition, context.now);
        // A budget that was asked stays asked.
        match check_preconditions(&pod, &options) {
            Err(Halt::Status(status)) => return Ok(Response::json(status.code, status.to_json())),
            other => other?,
        }
        cluster.store.put(&storage, marked);
    }
    let deletion = Attributes { verb: "delete", subresource: String::new(), ..attributes.clone() };
    // The version was checked before the condition changed it.
    delete(cluster, context, &deletion, &DeleteOptions { revision: None, ..options })?;
    Ok(success())
}

fn options(sent: &Value) -> DeleteOptions {
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    DeleteOptions {
        grace_seconds: sent["gracePeriodSeconds"].as_i64(),
        propagation: match sent["propagationPolicy"].as_str() {
            Some("Background") => Some(Propagation::Background),
            Some("Foreground") => Some(Propagation::Foreground),
            Some("Orphan") => Some(Propagation::Orphan),
            _ => None,
        },
        uid: text(&sent["preconditions"]["uid"]),
        revision: text(&sent["preconditions"]["resourceVersion"]),
    }
}

fn check_preconditions(pod: &Object, options: &DeleteOptions) -> Result<(), Halt> {
    let revision = pod.revision.to_string();
    let refuse = |why: String| Err(Status::conflict("", "Pod", pod.name(), &why).into());
    if let Some(uid) = options.uid.as_deref().filter(|uid| *uid != pod.uid()) {
        let found = pod.uid();
        return refuse(format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({found}). The object might have been deleted and then recreated"
        ));
    }
    if let Some(wanted) = options.revision.as_deref().filter(|wanted| *wanted != revision) {
        return refuse(format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({revision}). The object might have been modified"
        ));
    }
    Ok(())
}

fn budgets(cluster: &Cluster, pod: &Object) -> Vec<Arc<Object>> {
    let all = cluster.store.list(&budget_storage(), Some(pod.namespace()), None);
    let selects = |budget: &&Arc<Object>| {
        let selector = &budget.value["spec"]["selector"];
        selector.is_object() && Labels::read(selector).matches(pod.labels())
    };
    all.filter(selects).cloned().collect()
}

fn budget_storage() -> Storage {
    Storage::new("policy", "poddisruptionbudgets")
}

fn count(status: &Value, key: &str) -> i64 {
    status[key].as_i64().unwrap_or(0)
}

/// Whether a Pod that is not ready may go without a disruption of its budget.
fn is_free(pod: &Object, budget: &Object) -> bool {
    let conditions = pod.value["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    let ready = conditions.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
    let status = &budget.value["status"];
    let healthy =
        count(status, "currentHealthy") >= count(status, "desiredHealthy") && count(status, "desiredHealthy") > 0;
    !ready && (budget.value["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow" || healthy)
}

/// Takes one disruption from the budget, or refuses.
fn decrement(cluster: &mut Cluster, context: &Context<'_>, pod: &Object, budget: &Object) -> Result<(), Halt> {
    let (name, status) = (budget.name(), &budget.value["status"]);
    if count(status, "observedGeneration") < budget.value["metadata"]["generation"].as_i64().unwrap_or(0) {
        let why = format!("The disruption budget {name} is still being processed by the server.");
        return Err(refusal(&why, Some(10)));
    }
    let allowed = count(status, "disruptionsAllowed");
    let forbidden = |why: &str| Err(Status::forbidden("policy", "poddisruptionbudget", name, why).into());
    if allowed < 0 {
        return forbidden("pdb disruptions allowed is negative");
    }
    if status["disruptedPods"].as_object().is_some_and(|pods| pods.len() > MAX_DISRUPTED) {
        return forbidden("DisruptedPods map too big - too many evictions not confirmed by PDB controller");
    }
    if allowed == 0 {
        return Err(refusal(&why(name, status), None));
    }
    let mut changed = budget.value.clone();
    changed["status"]["disruptionsAllowed"] = (allowed - 1).into();
    if allowed == 1 {
        let generation = count(status, "observedGeneration");
        let condition = json!({
            "type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": "",
            "observedGeneration": generation,
        });
        condition::set(&mut changed["status"], condition, context.now);
    }
    if !changed["status"]["disruptedPods"].is_object() {
        changed["status"]["disruptedPods"] = json!({});
    }
    changed["status"]["disruptedPods"][pod.name()] = time::seconds(context.now).into();
    let Some(resource) = cluster.kind("policy", "v1", "PodDisruptionBudget").cloned() else { return Ok(()) };
    let mut attributes = Attributes::of("update", &resource, budget.namespace(), name);
    "status".clone_into(&mut attributes.subresource);
    let system = Context::system("system:apiserver", context.answers, context.now);
    let system = Context { manager: "kube-apiserver".to_owned(), dry_run: context.dry_run, ..system };
    update(cluster, &system, &attributes, changed, Update::Whole).map(drop)
}

/// Why a budget allows no disruption.
fn why(name: &str, status: &Value) -> String {
    let conditions = status["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    let refused = conditions.iter().find(|condition| {
        let said = condition["message"].as_str().is_some_and(|message| !message.is_empty());
        condition["type"] == "DisruptionAllowed" && condition["status"] == "False" && said
    });
    let text = |key: &str| refused.and_then(|condition| condition[key].as_str()).unwrap_or_default();
    let (needed, found) = (count(status, "desiredHealthy"), count(status, "currentHealthy"));
    if text("reason") == "SyncFailed" {
        let message = text("message");
        format!("The disruption budget {name} does not allow evicting pods currently because it failed sync: {message}")
    } else if found <= needed {
        format!("The disruption budget {name} needs {needed} healthy pods and has {found} currently")
    } else if refused.is_some() {
        let (reason, message) = (text("reason"), text("message"));
        format!("The disruption budget {name} does not allow evicting pods currently ({reason}): {message}")
    } else {
        format!("The disruption budget {name} does not allow evicting pods currently")
    }
}

fn refusal(why: &str, retry_after_seconds: Option<u64>) -> Halt {
    let mut status = Status::too_many_requests(REFUSED, 0);
    let mut details = json!({"causes": [{"reason": "DisruptionBudget", "message": why}]});
    if let Some(seconds) = retry_after_seconds {
        details["retryAfterSeconds"] = seconds.into();
    }
    status.details = Some(details);
    status.into()
}
