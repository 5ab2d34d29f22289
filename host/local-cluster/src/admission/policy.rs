//! ValidatingAdmissionPolicies and their bindings. Input: attributes and objects. Output: a refusal, or warnings. It must
//! not know how expressions are evaluated.

use serde_json::{Value, json};

use super::condition::Scope;
use super::hook;
use super::invocation::{self, Invocation};
use super::matching::Objects;
use super::reading::{array, forbidden, text};
use crate::Cluster;
use crate::attributes::Attributes;
use crate::context::Context;
use crate::halt::{Halt, Status};

const PLURALS: [&str; 2] = ["validatingadmissionpolicies", "validatingadmissionpolicybindings"];

/// Longer messages of expressions are not shown, as the API server has it.
const MAX_MESSAGE: usize = 5 * 1024;

/// One validation that does not hold.
struct Denial {
    message: String,
    reason: String,
}

impl Denial {
    fn error(message: String) -> Self {
        Self { message, reason: String::new() }
    }
}

/// Refuses what a policy with a binding denies.
pub(super) fn validate(
    cluster: &Cluster,
    context: &Context<'_>,
    attributes: &Attributes,
    objects: Objects<'_>,
) -> Result<(), Halt> {
    let mut denied = None;
    for invocation in invocation::all(cluster, attributes, objects, PLURALS)? {
        let scope = Scope::new(cluster, context, attributes, &invocation.target, objects)?;
        let denials = match &invocation.params {
            Ok(params) => params.iter().flat_map(|params| denials(&invocation, &scope, params)).collect(),
            Err(why) => vec![Denial::error(format!("failed to configure binding: {why}"))],
        };
        let (policy, binding) = (invocation.policy.name(), invocation.binding.name());
        let actions = array(&invocation.binding.value["spec"], "validationActions");
        let has = |action: &str| actions.iter().any(|known| known == action);
        for Denial { message, reason } in denials {
            if has("Warn") {
                context.warn(format!(
                    "Validation failed for ValidatingAdmissionPolicy '{policy}' with binding '{binding}': {message}"
                ));
            }
            if has("Deny") && denied.is_none() {
                let message =
                    format!("ValidatingAdmissionPolicy '{policy}' with binding '{binding}' denied request: {message}");
                denied = Some((message, reason));
            }
        }
    }
    denied.map_or(Ok(()), |(message, reason)| Err(refusal(attributes, objects, &message, &reason)))
}

/// What a policy denies with these parameters.
fn denials(invocation: &Invocation, scope: &Scope, params: &Value) -> Vec<Denial> {
    let (spec, fails) = (invocation.spec(), !invocation.ignores_failures());
    let mut scope = scope.clone();
    scope.params = params.clone();
    match scope.holds(array(spec, "matchConditions")) {
        Ok(true) => {}
        Ok(false) => return Vec::new(),
        Err(_) if !fails => return Vec::new(),
        Err(error) => return vec![Denial::error(error)],
    }
    scope.define(array(spec, "variables"));
    let denial = |validation: &Value| match scope.evaluate(text(validation, "expression")) {
        Ok(Value::Bool(true)) => None,
        Ok(_) => Some(Denial { message: message(&scope, validation), reason: text(validation, "reason").to_owned() }),
        Err(error) => fails.then(|| Denial::error(error)),
    };
    array(spec, "validations").iter().filter_map(denial).collect()
}

/// The message of a validation: from its expression, as it is said, or the expression that does not hold.
fn message(scope: &Scope, validation: &Value) -> String {
    let expression = text(validation, "messageExpression");
    let made = if expression.is_empty() { Ok(Value::Null) } else { scope.evaluate(expression) };
    let made = made.ok().and_then(|made| made.as_str().map(|text| text.trim().to_owned()));
    let made = made.filter(|text| !text.is_empty() && text.len() <= MAX_MESSAGE && !text.contains('\n'));
    let said = Some(text(validation, "message").trim()).filter(|said| !said.is_empty()).map(str::to_owned);
    made.or(said).unwrap_or_else(|| format!("failed expression: {}", text(validation, "expression").trim()))
}

/// A refusal in a policy's words.
pub(super) fn refusal(attributes: &Attributes, objects: Objects<'_>, message: &str, reason: &str) -> Halt {
    let object = objects.new.or(objects.old).unwrap_or(&Value::Null);
    let mut halt = forbidden(attributes, object, message);
    if let Halt::Status(status) = &mut halt {
        let status: &mut Status = status;
        status.reason = hook::reason(if reason.is_empty() { "Invalid" } else { reason });
        status.code = match status.reason {
            "Unauthorized" => 401,
            "Forbidden" => 403,
            "RequestEntityTooLarge" => 413,
            _ => 422,
        };
        if let Some(Value::Object(details)) = &mut status.details {
            details.insert("causes".to_owned(), json!([{"message": message}]));
        }
    }
    halt
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Method::{Delete, Post};
    use crate::testing::{ask, quiet, request, respond};

    const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";
    const MAPS: &str = "/api/v1/namespaces/default/configmaps";

    fn policy(cluster: &mut Cluster, spec: &Value, binding: &Value) {
        let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]});
        let mut all = json!({"matchConstraints": {"resourceRules": [rule]}, "failurePolicy": "Fail"});
        let mut bound = json!({"policyName": "p", "validationActions": ["Deny"]});
        for (into, from) in [(&mut all, spec), (&mut bound, binding)] {
            for (key, value) in from.as_object().into_iter().flatten() {
                into[key.as_str()] = value.clone();
            }
        }
        for (plural, name, spec) in
            [("validatingadmissionpolicies", "p", all), ("validatingadmissionpolicybindings", "b", bound)]
        {
            let (code, made) = ask(
                cluster,
                Post,
                &format!("{ADMISSION}/{plural}"),
                &json!({"metadata": {"name": name}, "spec": spec}),
            );
            assert_eq!(code, 201, "{made}");
        }
    }

    #[test]
    fn a_validation_that_does_not_hold_refuses_in_its_words() {
        let start = "configmaps \"m\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: ";
        let cases = [
            (json!({"expression": "object.data.k == 'v'"}), 422, "Invalid", "failed expression: object.data.k == 'v'"),
            (
                json!({"expression": "object.data.k == 'v'", "message": "k is wrong", "reason": "Forbidden"}),
                403,
                "Forbidden",
                "k is wrong",
            ),
            (json!({"expression": "false", "messageExpression": "'not ' + variables.k"}), 422, "Invalid", "not x"),
            (json!({"expression": "request.operation != 'CREATE'", "message": "none"}), 422, "Invalid", "none"),
        ];
        for (validation, code, reason, message) in cases {
            let mut cluster = quiet();
            let variables = json!([{"name": "k", "expression": "object.data.k"}]);
            policy(&mut cluster, &json!({"validations": [validation], "variables": variables}), &json!({}));
            let (found, refused) =
                ask(&mut cluster, Post, MAPS, &json!({"metadata": {"name": "m"}, "data": {"k": "x"}}));
            assert_eq!((found, &refused["reason"]), (code, &json!(reason)), "{refused}");
            assert_eq!(refused["message"], json!(format!("{start}{message}")));
        }
    }

    #[test]
    fn conditions_parameters_and_actions_decide_what_a_policy_does() {
        let mut cluster = quiet();
        assert_eq!(
            ask(&mut cluster, Post, MAPS, &json!({"metadata": {"name": "limits"}, "data": {"most": "2"}})).0,
            201
        );
        policy(
            &mut cluster,
            &json!({
                "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
                "matchConditions": [{"name": "c", "expression": "object != null && has(object.data)"}],
                "validations": [{"expression": "size(object.data) <= int(params.data.most)", "message": "too many"}],
            }),
            &json!({"paramRef": {"name": "limits", "namespace": "default"}, "validationActions": ["Deny", "Warn"]}),
        );
        let map = |data: Value| json!({"metadata": {"generateName": "m"}, "data": data});
        assert_eq!(ask(&mut cluster, Post, MAPS, &map(json!({"a": "", "b": ""}))).0, 201);
        let refused = respond(&mut cluster, &request(Post, MAPS, &[], &map(json!({"a": "", "b": "", "c": ""}))));
        let warning = "299 - \"Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': too many\"";
        assert_eq!((refused.status, &refused.headers), (422, &vec![("Warning", warning.to_owned())]));
        assert_eq!(ask(&mut cluster, Delete, &format!("{MAPS}/limits"), &json!(null)).0, 200);
    }

    #[test]
    fn webhook_configurations_are_subject_to_policies_and_policies_are_not() {
        let mut cluster = quiet();
        let rule = json!({
            "apiGroups": ["admissionregistration.k8s.io"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"],
        });
        policy(
            &mut cluster,
            &json!({"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "false"}]}),
            &json!({}),
        );
        let hooks = format!("{ADMISSION}/validatingwebhookconfigurations");
        assert_eq!(ask(&mut cluster, Post, &hooks, &json!({"metadata": {"name": "w"}})).0, 422);
        assert_eq!(
            ask(&mut cluster, Delete, &format!("{ADMISSION}/validatingadmissionpolicies/p"), &json!(null)).0,
            200
        );
    }
}
