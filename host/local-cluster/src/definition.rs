//! CustomResourceDefinitions: what they serve, whether they are right, and their conditions. Input: the definition's object.
//! Output: resources and causes. It must not know the verbs.

mod check;
mod condition;
mod conversion;
mod field;
mod finalize;
mod instance;
mod open_api;
mod prepare;
mod served;
mod structural;
mod types;

pub(crate) use self::check::causes;
pub(crate) use self::conversion::{all_at_version, at_version, for_storage};
pub(crate) use self::finalize::{hold, removed, written};
pub(crate) use self::instance::{may_create, prepare_create, prepare_update};
pub(crate) use self::prepare::{default, prepare};
pub(crate) use self::served::changed;

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::Cluster;
    use crate::Method::{Delete, Get, Post, Put};
    use crate::testing::{ask, quiet, request, start};
    use crate::{Answer, Body, Frame, Reply};

    const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

    fn definition(schema: &Value) -> Value {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
                "versions": [{
                    "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": schema},
                }],
            },
        })
    }

    fn schema() -> Value {
        json!({"type": "object", "properties": {
            "spec": {
                "type": "object", "required": ["size"],
                "x-kubernetes-validations": [
                    {"rule": "self.size < 100"},
                    {"rule": "self.size >= oldSelf.size", "message": "must not shrink", "fieldPath": ".size"},
                ],
                "properties": {
                    "size": {"type": "integer", "minimum": 1, "format": "int32"},
                    "mode": {"type": "string", "enum": ["a", "b"], "default": "a"},
                    "name": {"type": "string", "maxLength": 3, "minLength": 2, "pattern": "^[a-z]*$"},
                    "when": {"type": "string", "format": "date-time"},
                    "port": {"x-kubernetes-int-or-string": true},
                    "free": {"type": "object", "additionalProperties": true},
                    "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                    "list": {
                        "type": "array", "maxItems": 2, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                        "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "v": {"type": "integer", "maximum": 5}}},
                    },
                    "one": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
                },
            },
            "status": {"type": "object", "properties": {"ready": {"type": "boolean"}}},
        }})
    }

    fn served() -> Cluster {
        let mut cluster = quiet();
        let (code, made) = ask(&mut cluster, Post, DEFINITIONS, &definition(&schema()));
        assert_eq!(code, 201, "{made}");
        cluster
    }

    fn widget(spec: &Value) -> Value {
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": spec})
    }

    #[test]
    fn a_definition_is_established_and_deleted_with_its_instances() {
        let mut cluster = served();
        let (_, found) = ask(&mut cluster, Get, &format!("{DEFINITIONS}/widgets.example.com"), &Value::Null);
        let status = &found["status"];
        assert_eq!(
            status["acceptedNames"],
            json!({"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"})
        );
        assert_eq!(status["storedVersions"], json!(["v1"]));
        let words: Vec<_> = status["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| (&one["type"], &one["status"], &one["reason"]))
            .collect();
        let wanted = [("NamesAccepted", "True", "NoConflicts"), ("Established", "True", "InitialNamesAccepted")];
        assert_eq!(format!("{words:?}"), format!("{:?}", wanted.map(|(a, b, c)| (json!(a), json!(b), json!(c)))));

        let mut held = widget(&json!({"size": 1}));
        held["metadata"]["finalizers"] = json!(["example.com/hold"]);
        assert_eq!(ask(&mut cluster, Post, WIDGETS, &held).0, 201);
        let (code, gone) = ask(&mut cluster, Delete, &format!("{DEFINITIONS}/widgets.example.com"), &Value::Null);
        assert_eq!((code, &gone["kind"]), (200, &json!("CustomResourceDefinition")));
        let (_, mut found) = ask(&mut cluster, Get, &format!("{WIDGETS}/a"), &Value::Null);
        assert!(found["metadata"]["deletionTimestamp"].is_string());
        assert_eq!(ask(&mut cluster, Post, WIDGETS, &widget(&json!({"size": 1}))).0, 403);
        // Discovery has only verbs that read and delete; updates, which take the finalizers away, are served all the same.
        found["metadata"]["finalizers"] = json!([]);
        assert_eq!(ask(&mut cluster, Put, &format!("{WIDGETS}/a"), &found).0, 200);
        assert_eq!(ask(&mut cluster, Get, WIDGETS, &Value::Null).0, 404);
        assert_eq!(ask(&mut cluster, Get, &format!("{DEFINITIONS}/widgets.example.com"), &Value::Null).0, 404);
    }

    #[test]
    fn custom_resources_are_pruned_defaulted_and_counted() {
        let mut cluster = served();
        let mut given = widget(&json!({"size": 1, "extra": 1, "list": [{"k": "a", "x": 1}]}));
        given["status"] = json!({"ready": true});
        given["metadata"]["nonsense"] = 1.into();
        let strict = format!("{WIDGETS}?fieldValidation=Strict");
        let (code, refused) = ask(&mut cluster, Post, &strict, &given);
        assert_eq!(code, 400);
        let message = refused["message"].as_str().unwrap();
        for path in ["metadata.nonsense", "spec.extra", "spec.list[0].x"] {
            assert!(message.contains(&format!("unknown field \"{path}\"")), "{message}");
        }
        let (code, mut made) = ask(&mut cluster, Post, WIDGETS, &given);
        assert_eq!((code, &made["spec"]), (201, &json!({"size": 1, "mode": "a", "list": [{"k": "a"}]})));
        assert_eq!((&made["status"], &made["metadata"]["generation"]), (&Value::Null, &json!(1)));
        made["status"] = json!({"ready": true});
        made["spec"]["size"] = 2.into();
        let (_, status) = ask(&mut cluster, Put, &format!("{WIDGETS}/a/status"), &made);
        assert_eq!((&status["status"]["ready"], &status["spec"]["size"]), (&json!(true), &json!(1)));
        assert_eq!(status["metadata"]["generation"], 1);
        let mut next = status;
        next["spec"]["size"] = 3.into();
        next["status"] = json!({"ready": false});
        let (_, next) = ask(&mut cluster, Put, &format!("{WIDGETS}/a"), &next);
        assert_eq!((&next["status"]["ready"], &next["metadata"]["generation"]), (&json!(true), &json!(2)));
        let mut shrunk = next;
        shrunk["spec"]["size"] = 1.into();
        let (_, refused) = ask(&mut cluster, Put, &format!("{WIDGETS}/a"), &shrunk);
        let wanted = "Widget.example.com \"a\" is invalid: spec.size: Invalid value: must not shrink";
        assert_eq!(refused["message"], wanted);
    }

    #[test]
    fn wrong_values_are_refused_in_the_words_of_the_api_server() {
        let mut cluster = served();
        let unchecked = ", <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation]";
        for (spec, wanted) in [
            (json!({}), format!("[spec.size: Required value{unchecked}")),
            (json!({"size": "x"}), format!("[spec.size: Invalid value: \"string\": spec.size in body must be of type integer: \"string\"{unchecked}")),
            (json!({"size": 1, "labels": {"a": 1}, "free": {"a": {"b": 1}}}), format!("[spec.labels.a: Invalid value: \"integer\": spec.labels.a in body must be of type string: \"integer\"{unchecked}")),
            (json!({"size": 0}), "spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1".to_owned()),
            (json!({"size": 100}), "spec: Invalid value: failed rule: self.size < 100".to_owned()),
            (json!({"size": 1, "mode": "c"}), format!("[spec.mode: Unsupported value: \"c\": supported values: \"a\", \"b\"{unchecked}")),
            (json!({"size": 1, "name": "abcd"}), format!("[spec.name: Too long: may not be more than 3 bytes{unchecked}")),
            (json!({"size": 1, "name": "a"}), "spec.name: Invalid value: \"a\": spec.name in body should be at least 2 chars long".to_owned()),
            (json!({"size": 1, "name": "AB"}), "spec.name: Invalid value: \"AB\": spec.name in body should match '^[a-z]*$'".to_owned()),
            (json!({"size": 1, "when": "now"}), format!("[spec.when: Invalid value: \"now\": spec.when in body must be of type date-time: \"now\"{unchecked}")),
            (json!({"size": 1, "port": true}), format!("[spec.port: Invalid value: \"boolean\": spec.port in body must be of type integer,string: \"boolean\"{unchecked}")),
            (json!({"size": 1, "list": [{"k": "a"}, {"k": "a"}]}), "spec.list[1]: Duplicate value: {\"k\":\"a\"}".to_owned()),
            (json!({"size": 1, "list": [{"k": "a"}, {"k": "b"}, {"k": "c"}]}), format!("[spec.list: Too many: 3: must have at most 2 items{unchecked}")),
            (json!({"size": 1, "list": [{"k": "a", "v": 6}]}), "spec.list[0].v: Invalid value: 6: spec.list[0].v in body should be less than or equal to 5".to_owned()),
            (json!({"size": 1, "one": {"a": "x", "b": "y"}}), "<nil>: Invalid value: \"\": \"spec.one\" must validate one and only one schema (oneOf). Found 2 valid alternatives".to_owned()),
        ] {
            let (code, refused) = ask(&mut cluster, Post, WIDGETS, &widget(&spec));
            let wanted = format!("Widget.example.com \"a\" is invalid: {wanted}");
            assert_eq!((code, refused["message"].as_str()), (422, Some(wanted.as_str())), "{spec}");
        }
        for body in [json!([]), json!({"spec": 1}), json!({"metadata": 1}), json!({"metadata": {"labels": 1}})] {
            let mut body = body;
            if let Some(fields) = body.as_object_mut() {
                fields.insert("apiVersion".to_owned(), "example.com/v1".into());
                fields.insert("kind".to_owned(), "Widget".into());
            }
            assert!(ask(&mut cluster, Post, WIDGETS, &body).0 >= 400, "{body}");
        }
    }

    #[test]
    fn what_was_wrong_before_and_did_not_change_is_let_through() {
        let mut cluster = served();
        let (_, made) =
            ask(&mut cluster, Post, WIDGETS, &widget(&json!({"size": 1, "name": "ab", "list": [{"k": "a", "v": 5}]})));
        let (_, mut found) = ask(&mut cluster, Get, &format!("{DEFINITIONS}/widgets.example.com"), &Value::Null);
        let spec = &mut found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
        spec["name"] = json!({"type": "string", "maxLength": 1});
        spec["list"]["items"]["properties"]["v"]["maximum"] = 4.into();
        let (code, _) = ask(&mut cluster, Put, &format!("{DEFINITIONS}/widgets.example.com"), &found);
        assert_eq!(code, 200);
        let mut changed = made;
        changed["spec"]["size"] = 2.into();
        let (code, mut changed) = ask(&mut cluster, Put, &format!("{WIDGETS}/a"), &changed);
        assert_eq!(code, 200, "{changed}");
        changed["spec"]["list"] = json!([{"k": "b", "v": 5}, {"k": "a", "v": 5}]);
        let (_, refused) = ask(&mut cluster, Put, &format!("{WIDGETS}/a"), &changed);
        let wanted = "Widget.example.com \"a\" is invalid: spec.list[0].v: Invalid value: 5: spec.list[0].v in body should be less than or equal to 4";
        assert_eq!(refused["message"], wanted);
    }

    #[test]
    fn a_wrong_definition_is_refused_in_the_words_of_the_api_server() {
        let at = "spec.validation.openAPIV3Schema";
        let with = |change: &dyn Fn(&mut Value)| {
            let mut definition = definition(&schema());
            change(&mut definition);
            definition
        };
        let spec_with = |property: Value| definition(&json!({"type": "object", "properties": {"x": property}}));
        for (given, wanted) in [
            (
                with(&|it| it["metadata"]["name"] = "b".into()),
                "metadata.name: Invalid value: \"b\": must be spec.names.plural+\".\"+spec.group".to_owned(),
            ),
            (
                with(&|it| it["spec"]["versions"][0]["schema"] = json!({})),
                "spec.versions[0].schema.openAPIV3Schema: Required value".to_owned(),
            ),
            (
                spec_with(json!({})),
                format!("{at}.properties[x].type: Required value: must not be empty for specified object fields"),
            ),
            (
                spec_with(json!({"type": "array"})),
                format!("{at}.properties[x].items: Required value: must be specified"),
            ),
            (
                spec_with(json!({"type": "string", "default": 1})),
                format!(
                    "{at}.properties[x].default: Invalid value: \"integer\": {at}.properties[x].default in body must be of type string: \"integer\""
                ),
            ),
            (
                spec_with(json!({"type": "object", "default": {"y": 1}})),
                format!("{at}.properties[x].default: Invalid value: {{\"y\":1}}: must not have unknown fields"),
            ),
            (
                spec_with(json!({"type": "array", "x-kubernetes-list-type": "map", "items": {"type": "object"}})),
                format!(
                    "{at}.properties[x].x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map"
                ),
            ),
            (
                spec_with(json!({"type": "object", "anyOf": [{"type": "string"}]})),
                format!("{at}.properties[x].anyOf[0].type: Forbidden: must be empty to be structural"),
            ),
            (
                with(&|it| {
                    let version = &mut it["spec"]["versions"][0];
                    version["subresources"] = json!({});
                    version["schema"]["openAPIV3Schema"]["anyOf"] = json!([{"properties": {"z": {}}}]);
                }),
                format!("{at}.properties[z]: Required value: because it is defined in {at}.anyOf[0].properties[z]"),
            ),
        ] {
            let (code, refused) = ask(&mut quiet(), Post, DEFINITIONS, &given);
            let message = refused["message"].as_str().unwrap_or_default();
            assert!(code == 422 && message.ends_with(&format!("is invalid: {wanted}")), "{message}\nwanted {wanted}");
        }
        let (_, refused) =
            ask(&mut quiet(), Post, DEFINITIONS, &with(&|it| it["spec"]["versions"][0]["storage"] = false.into()));
        assert!(
            refused["message"].as_str().unwrap().contains("must have exactly one version marked as storage version")
        );
        let unparsed = spec_with(json!({"type": "string", "x-kubernetes-validations": [{"rule": "self ="}]}));
        let (_, refused) = ask(&mut quiet(), Post, DEFINITIONS, &unparsed);
        assert!(refused["message"].as_str().unwrap().contains("compilation failed: ERROR: <input>:1:"), "{refused}");
    }

    #[test]
    fn a_value_of_a_wrong_type_does_not_decode() {
        let mut cluster = quiet();
        for (path, body, wanted) in [
            (
                "/apis/apps/v1/namespaces/default/deployments",
                json!({"metadata": {"name": "a"}, "spec": {"replicas": "1"}}),
                "Deployment in version \"v1\" cannot be handled as a Deployment: json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32",
            ),
            (
                "/api/v1/namespaces/default/configmaps",
                json!({"metadata": {"name": "a", "labels": {"x": 1}}}),
                "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string",
            ),
            (
                "/api/v1/namespaces/default/pods",
                json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "a", "resources": {"limits": {"cpu": "x"}}}]}}),
                "Pod in version \"v1\" cannot be handled as a Pod: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
            ),
        ] {
            let (code, refused) = ask(&mut cluster, Post, path, &body);
            assert_eq!((code, refused["message"].as_str()), (400, Some(wanted)));
        }
        let pod = json!({"metadata": {"name": "a", "labels": {}, "creationTimestamp": null}, "spec": {"nodeName": null, "containers": [
            {"name": "a", "image": "a", "ports": [], "resources": {"limits": {"cpu": 0.5, "memory": "1024Mi"}}}]}});
        let (code, made) = ask(&mut cluster, Post, "/api/v1/namespaces/default/pods", &pod);
        let container = &made["spec"]["containers"][0];
        let amounts = json!({"cpu": "500m", "memory": "1Gi"});
        assert_eq!((code, &container["resources"]), (201, &json!({"limits": amounts, "requests": amounts})));
        assert_eq!(
            (&container["ports"], &made["metadata"]["labels"], &made["spec"]["nodeName"]),
            (&Value::Null, &Value::Null, &Value::Null)
        );
    }

    #[test]
    fn other_versions_are_renamed_or_converted_by_a_webhook() {
        let mut cluster = quiet();
        let mut two = definition(&schema());
        let mut older = two["spec"]["versions"][0].clone();
        (older["name"], older["storage"]) = ("v1beta1".into(), false.into());
        older["deprecated"] = true.into();
        two["spec"]["versions"].as_array_mut().unwrap().push(older);
        assert_eq!(ask(&mut cluster, Post, DEFINITIONS, &two).0, 201);
        assert_eq!(ask(&mut cluster, Post, WIDGETS, &widget(&json!({"size": 1}))).0, 201);
        let beta = WIDGETS.replace("v1/", "v1beta1/");
        let get = request(Get, &format!("{beta}/a"), &[], &Value::Null);
        let Reply::Done(response) = cluster.request(&get, &[], start()) else { panic!() };
        assert_eq!(
            response.headers,
            [("Warning", "299 - \"example.com/v1beta1 Widget is deprecated; use example.com/v1 Widget\"".to_owned())]
        );
        let found = response.body.document().unwrap();
        assert_eq!(found["apiVersion"], "example.com/v1beta1");

        let (_, mut two) = ask(&mut cluster, Get, &format!("{DEFINITIONS}/widgets.example.com"), &Value::Null);
        two["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {
            "conversionReviewVersions": ["v1"], "clientConfig": {"service": {"name": "s", "namespace": "n", "path": "/convert"}}}});
        assert_eq!(ask(&mut cluster, Put, &format!("{DEFINITIONS}/widgets.example.com"), &two).0, 200);
        let Reply::Call(call) = cluster.request(&get, &[], start()) else { panic!("no webhook is asked") };
        assert_eq!(
            (call.url.as_str(), call.server_name.as_deref()),
            ("https://s.n.svc:443/convert?timeout=30s", Some("s.n.svc"))
        );
        let asked = &call.review["request"];
        let mut object = asked["objects"][0].clone();
        object["apiVersion"] = asked["desiredAPIVersion"].clone();
        object["metadata"]["labels"] = json!({"a": "b"});
        object["spec"]["size"] = 7.into();
        let answer = |object: &Value| Answer {
            call: (*call).clone(),
            result: Ok(json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
                "response": {"uid": asked["uid"], "result": {"status": "Success"}, "convertedObjects": [object]}})),
        };
        let Reply::Done(response) = cluster.request(&get, &[answer(&object)], start()) else { panic!() };
        let found = response.body.document().unwrap();
        assert_eq!((&found["spec"]["size"], &found["metadata"]["labels"]), (&json!(7), &json!({"a": "b"})));
        object["metadata"]["name"] = "b".into();
        let Reply::Done(response) = cluster.request(&get, &[answer(&object)], start()) else { panic!() };
        let failed = response.body.document().unwrap();
        let wanted = "conversion webhook for example.com/v1, Kind=Widget returned invalid converted object at index 0: must have the same name: a != b";
        assert_eq!((response.status, failed["message"].as_str()), (500, Some(wanted)));
        // A watch converts as well: it waits for the webhook, and ends when that fails.
        let watch = request(Get, &format!("{beta}?watch=true"), &[], &Value::Null);
        let Reply::Done(response) = cluster.request(&watch, &[], start()) else { panic!() };
        let Body::Watch(mut watch) = response.body else { panic!("no watch") };
        let mut failing = watch.clone();
        let Reply::Call(again) = cluster.poll(&mut watch, &[], start()) else { panic!("no webhook is asked") };
        assert_eq!(again.review, call.review);
        object["metadata"]["name"] = "a".into();
        let Reply::Done(frames) = cluster.poll(&mut watch, &[answer(&object)], start()) else { panic!() };
        let [Frame::Event(event)] = frames.as_slice() else { panic!("{frames:?}") };
        assert_eq!(serde_json::from_str::<Value>(event).unwrap(), json!({"type": "ADDED", "object": found}));
        object["metadata"]["name"] = "b".into();
        let Reply::Done(frames) = cluster.poll(&mut failing, &[answer(&object)], start()) else { panic!() };
        assert!(
            matches!(&frames[..], [Frame::Event(error), Frame::End] if error.contains(r#""type":"ERROR""#)),
            "{frames:?}"
        );
    }

    #[test]
    fn names_that_are_taken_are_not_accepted_until_they_are_free() {
        let mut cluster = served();
        let mut second = definition(&schema());
        second["metadata"]["name"] = "gadgets.example.com".into();
        second["spec"]["names"]["plural"] = "gadgets".into();
        let (code, _) = ask(&mut cluster, Post, DEFINITIONS, &second);
        assert_eq!(code, 201);
        let path = format!("{DEFINITIONS}/gadgets.example.com");
        let (_, found) = ask(&mut cluster, Get, &path, &Value::Null);
        assert_eq!(found["status"]["conditions"][0]["message"], "\"WidgetList\" is already in use");
        assert_eq!(found["status"]["conditions"][1]["reason"], "NotAccepted");
        ask(&mut cluster, Delete, &format!("{DEFINITIONS}/widgets.example.com"), &Value::Null);
        let (_, found) = ask(&mut cluster, Get, &path, &Value::Null);
        assert_eq!(found["status"]["conditions"][1]["status"], "True");
    }
}
