//! MutatingAdmissionPolicies and their bindings. Input: attributes and objects. Output: the changed object, or a refusal. It
//! must not know how expressions are evaluated.

use serde_json::{Map, Value, json};

use super::condition::Scope;
use super::invocation::{self, Invocation};
use super::matching::Objects;
use super::policy::refusal;
use super::reading::{array, text};
use super::review;
use super::rounds::Rounds;
use crate::attributes::Attributes;
use crate::context::Context;
use crate::halt::{Halt, Status};
use crate::resource::Resource;
use crate::{Cluster, apply};

const PLURALS: [&str; 2] = ["mutatingadmissionpolicies", "mutatingadmissionpolicybindings"];

/// Lets the policies change an object one after the other.
pub(super) fn mutate(
    cluster: &Cluster,
    context: &Context<'_>,
    attributes: &Attributes,
    object: &mut Value,
    old: Option<&Value>,
    rounds: &mut Rounds,
) -> Result<(), Halt> {
    let mut errors = Vec::new();
    for invocation in invocation::all(cluster, attributes, Objects { new: Some(&*object), old }, PLURALS)? {
        let mut fails = |why: String| {
            if !invocation.ignores_failures() {
                let (policy, binding) = (invocation.policy.name(), invocation.binding.name());
                errors.push(format!("policy '{policy}' with binding '{binding}' denied request: {why}"));
            }
        };
        let params = match &invocation.params {
            Ok(params) => params,
            Err(why) => {
                fails(format!("failed to configure binding: {why}"));
                continue;
            }
        };
        for params in params {
            let id = id(&invocation, params);
            let objects = Objects { new: Some(&*object), old };
            let mut scope = Scope::new(cluster, context, attributes, &invocation.target, objects)?;
            scope.params = params.clone();
            match scope.holds(array(invocation.spec(), "matchConditions")) {
                Ok(true) if rounds.asks(&id) => {}
                Ok(_) => continue,
                Err(why) => {
                    fails(why);
                    continue;
                }
            }
            let before = scope.object.clone();
            scope.define(array(invocation.spec(), "variables"));
            for mutation in array(invocation.spec(), "mutations") {
                match mutated(&scope, &invocation.target, mutation) {
                    Ok(changed) => scope.object = changed,
                    Err(why) => fails(why),
                }
            }
            if scope.object != before {
                *object = review::taken_back(cluster, attributes, &invocation.target, scope.object, context.answers)?;
                rounds.changes();
            }
            rounds.asked(id, invocation.spec()["reinvocationPolicy"] == "IfNeeded");
        }
    }
    rounds.end(object);
    if errors.is_empty() { Ok(()) } else { Err(denied(attributes, Objects { new: Some(&*object), old }, &errors)) }
}

fn id(invocation: &Invocation, params: &Value) -> (String, usize) {
    let (of, params) = (&params["metadata"], [invocation.policy.name(), invocation.binding.name()]);
    (format!("{}/{}/{}/{}", params[0], params[1], text(of, "namespace"), text(of, "name")), 0)
}

fn denied(attributes: &Attributes, objects: Objects<'_>, errors: &[String]) -> Halt {
    let mut halt = refusal(attributes, objects, "", "Invalid");
    if let (Halt::Status(status), [first, ..]) = (&mut halt, errors) {
        let status: &mut Status = status;
        // The code stays that of a refusal for another reason.
        (status.code, status.message) = (403, first.clone());
        if let Some(Value::Object(details)) = &mut status.details {
            let causes = errors.iter().map(|message| json!({"message": message}));
            details.insert("causes".to_owned(), causes.collect());
        }
    }
    halt
}

/// The object after one mutation.
fn mutated(scope: &Scope, target: &Resource, mutation: &Value) -> Result<Value, String> {
    if mutation["patchType"] == "JSONPatch" {
        let operations = scope.evaluate(text(&mutation["jsonPatch"], "expression"))?;
        let operations: Vec<Value> = operations.as_array().into_iter().flatten().map(operation).collect();
        let patch: json_patch::Patch =
            serde_json::from_value(operations.into()).map_err(|error| format!("JSON Patch: {error}"))?;
        let mut object = scope.object.clone();
        return match json_patch::patch(&mut object, &patch) {
            Ok(()) => Ok(object),
            // A test that does not hold says that there is nothing to change.
            Err(error) if matches!(error.kind, json_patch::PatchErrorKind::TestFailed) => Ok(scope.object.clone()),
            Err(error) => Err(format!("JSON Patch: {error}")),
        };
    }
    let mut configuration = scope.evaluate(text(&mutation["applyConfiguration"], "expression"))?;
    if let (Some(configuration), Some(object)) = (configuration.as_object_mut(), scope.object.as_object()) {
        let types = ["apiVersion", "kind"].into_iter();
        configuration.extend(types.filter_map(|key| Some((key.to_owned(), object.get(key)?.clone()))));
    }
    apply::merged(target, &scope.object, &configuration).map_err(|why| format!("error applying patch: {why}"))
}

/// An operation without the fields that expressions leave empty.
fn operation(said: &Value) -> Value {
    let fields = said.as_object().into_iter().flatten().filter(|(key, value)| *key != "from" || *value != "");
    Value::Object(fields.map(|(key, value)| (key.clone(), value.clone())).collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Method::Post;
    use crate::testing::{ask, quiet};

    const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";
    const MAPS: &str = "/api/v1/namespaces/default/configmaps";

    fn policy(cluster: &mut Cluster, name: &str, spec: &Value) {
        let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps", "pods"]});
        let mut all = json!({"matchConstraints": {"resourceRules": [rule]}, "reinvocationPolicy": "Never"});
        for (key, value) in spec.as_object().into_iter().flatten() {
            all[key.as_str()] = value.clone();
        }
        let metadata = json!({"name": name});
        for (plural, spec) in
            [("mutatingadmissionpolicies", all), ("mutatingadmissionpolicybindings", json!({"policyName": name}))]
        {
            let made =
                ask(cluster, Post, &format!("{ADMISSION}/{plural}"), &json!({"metadata": metadata, "spec": spec}));
            assert_eq!(made.0, 201, "{}", made.1);
        }
    }

    fn applies(expression: &str) -> Value {
        json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}})
    }

    fn patches(expression: &str) -> Value {
        json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}})
    }

    #[test]
    fn mutations_are_merged_or_patched_one_after_the_other() {
        let mut cluster = quiet();
        let first = applies("Object{metadata: Object.metadata{labels: {'from': variables.source}}}");
        let second = patches(
            "[JSONPatch{op: 'test', path: '/metadata/labels/from', value: 'a.b'}, \
              JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('x/y'), value: object.data.k}]",
        );
        let unmet =
            patches("[JSONPatch{op: 'test', path: '/data/k', value: 'no'}, JSONPatch{op: 'remove', path: '/data'}]");
        policy(
            &mut cluster,
            "p",
            &json!({
                "variables": [{"name": "source", "expression": "'a.b'"}], "mutations": [first, second, unmet],
                "matchConditions": [{"name": "c", "expression": "has(object.data)"}],
            }),
        );
        let map = json!({"metadata": {"name": "m", "labels": {"own": "1"}}, "data": {"k": "v"}});
        let (code, made) = ask(&mut cluster, Post, MAPS, &map);
        assert_eq!(code, 201, "{made}");
        assert_eq!(made["metadata"]["labels"], json!({"own": "1", "from": "a.b", "x/y": "v"}));
        assert_eq!(made["data"], json!({"k": "v"}));
        assert!(!made["metadata"]["managedFields"].to_string().contains("f:from"), "nobody owns what a policy sets");
        let (_, without) = ask(&mut cluster, Post, MAPS, &json!({"metadata": {"name": "n"}}));
        assert_eq!(without["metadata"]["labels"], Value::Null);
    }

    #[test]
    fn a_policy_sees_a_later_change_again_if_it_wants_to() {
        let mut cluster = quiet();
        let counts = "Object{metadata: Object.metadata{annotations: {'seen': string(size(object.metadata.labels))}}}";
        let spec = |mutation: Value, again: &str| json!({"mutations": [mutation], "reinvocationPolicy": again});
        policy(&mut cluster, "a", &spec(applies(counts), "IfNeeded"));
        policy(&mut cluster, "b", &spec(applies("Object{metadata: Object.metadata{labels: {'b': 'b'}}}"), "Never"));
        let (_, made) = ask(&mut cluster, Post, MAPS, &json!({"metadata": {"name": "m", "labels": {"own": "1"}}}));
        assert_eq!(made["metadata"]["annotations"], json!({"seen": "2"}));
    }

    #[test]
    fn what_cannot_be_mutated_is_refused_unless_failures_are_ignored() {
        let atomic = "Object{spec: Object.spec{containers: [Object.spec.containers{name: 'c', args: ['x']}]}}";
        let start = "policy 'p' with binding 'p' denied request: ";
        for (mutation, why) in [
            (
                applies(atomic),
                "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.containers[0].args",
            ),
            (
                applies("Object{metadata: Object.wrong{name: 'x'}}"),
                "type mismatch: unexpected type name \"Object.wrong\", expected \"Object.metadata\", which matches field name path from root Object type",
            ),
            (
                applies("Object{metadata: Object.metadata{labels: {'a': object.data.x}}}"),
                "expression 'Object{metadata: Object.metadata{labels: {'a': object.data.x}}}' resulted in error: no such key: data",
            ),
        ] {
            for (policy_of_failures, code) in [("Fail", 403), ("Ignore", 201)] {
                let mut cluster = quiet();
                policy(&mut cluster, "p", &json!({"mutations": [mutation], "failurePolicy": policy_of_failures}));
                let pod = json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
                let (found, answer) = ask(&mut cluster, Post, "/api/v1/namespaces/default/pods", &pod);
                assert_eq!(found, code, "{answer}");
                if code != 201 {
                    assert_eq!(
                        (&answer["message"], &answer["reason"]),
                        (&json!(format!("{start}{why}")), &json!("Invalid"))
                    );
                }
            }
        }
    }
}
