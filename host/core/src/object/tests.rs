//! Decoding: the header, the cut of managedFields, and the errors. Other modules' tests build objects with `Sample`.

use std::collections::BTreeMap;

use super::*;

/// Builds an object for a test.
pub(crate) struct Sample {
    kind: Kind,
    namespace: &'static str,
    name: String,
    uid: Option<String>,
    version: u64,
    labels: BTreeMap<String, String>,
    owner: Option<String>,
    manager: Option<String>,
    metadata: String,
    body: String,
}

impl Sample {
    pub(crate) fn new(kind: &str, namespace: &'static str, name: &str) -> Self {
        let kind = Kind::new("v1", kind);
        let name = name.to_owned();
        let (uid, labels, owner, manager, metadata, body) = Default::default();
        Self { kind, namespace, name, uid, version: 1, labels, owner, manager, metadata, body }
    }

    pub(crate) fn pod(namespace: &'static str, name: &str) -> Self {
        Self::new("Pod", namespace, name)
    }

    pub(crate) fn uid(mut self, uid: &str) -> Self {
        self.uid = Some(uid.to_owned());
        self
    }

    pub(crate) fn version(mut self, version: u64) -> Self {
        self.version = version;
        self
    }

    pub(crate) fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    pub(crate) fn owner(mut self, uid: &str) -> Self {
        self.owner = Some(uid.to_owned());
        self
    }

    /// Created by this field manager.
    pub(crate) fn manager(mut self, manager: &str) -> Self {
        self.manager = Some(manager.to_owned());
        self
    }

    /// Adds members to the metadata: `"annotations":{"a":"b"}`.
    pub(crate) fn metadata(mut self, members: &str) -> Self {
        self.metadata = format!(",{members}");
        self
    }

    /// Adds members to the object: `"status":{"phase":"Running"}`.
    pub(crate) fn body(mut self, members: &str) -> Self {
        self.body = format!(",{members}");
        self
    }

    pub(crate) fn text(&self) -> String {
        let uid = self.uid.clone().unwrap_or_else(|| format!("uid-{}-{}", self.namespace, self.name));
        let namespace =
            if self.namespace.is_empty() { String::new() } else { format!(r#""namespace":"{}","#, self.namespace) };
        let owners = self.owner.as_ref().map_or(String::new(), |uid| {
            format!(
                r#","ownerReferences":[{{"apiVersion":"v1","kind":"Owner","name":"o","uid":"{uid}","controller":true}}]"#
            )
        });
        let managers = self.manager.as_ref().map_or(String::new(), |manager| {
            format!(r#","managedFields":[{{"manager":"{manager}","operation":"Update","fieldsV1":{{"f:data":{{}}}}}}]"#)
        });
        format!(
            r#"{{"apiVersion":"{}","kind":"{}","metadata":{{"name":"{}",{namespace}"uid":"{uid}","resourceVersion":"{}","labels":{}{owners}{managers}{}}}{}}}"#,
            self.kind.api_version,
            self.kind.kind,
            self.name,
            self.version,
            serde_json::to_string(&self.labels).unwrap(),
            self.metadata,
            self.body,
        )
    }

    pub(crate) fn build(&self) -> Object {
        decode(&self.text())
    }

    pub(crate) fn shared(&self) -> Arc<Object> {
        Arc::new(self.build())
    }
}

pub(crate) fn decode(text: &str) -> Object {
    Object::decode(text.as_bytes(), &mut Interner::default()).unwrap()
}

fn error(text: &str) -> String {
    Object::decode(text.as_bytes(), &mut Interner::default()).unwrap_err().to_string()
}

const POD: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-0","generateName":"web-","namespace":"shop",
"uid":"6a0b","resourceVersion":"1789","generation":3,"creationTimestamp":"2026-11-21T10:00:00Z",
"deletionTimestamp":"2026-11-21T10:00:00Z","labels":{"tier":"front","app":"web"},
"annotations":{"a":"b","mortise.dev/child":"0","mortise.dev/desired":"ab\"12"},
"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n1","uid":"n"},
{"apiVersion":"app.example.com/v1alpha1","kind":"PodSet","name":"web","uid":"77","controller":true,"blockOwnerDeletion":true}],
"managedFields":[{"manager":"mortise/podset","operation":"Apply","apiVersion":"v1","time":"2026-11-21T10:00:00Z",
"fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:containers":{}}}}]},
"spec":{"containers":[{"name":"c","image":"i"}]},"status":{"phase":"Running"}}"#;

#[test]
fn the_header_has_every_field_that_the_host_reads() {
    let pod = decode(POD);
    assert_eq!(pod.reference().to_string(), "Pod shop/web-0");
    assert_eq!(pod.kind, Kind::new("v1", "Pod"));
    assert_eq!(
        (&*pod.uid, pod.resource_version, pod.generation, pod.deleting),
        ("6a0b", ResourceVersion(1789), 3, true)
    );
    assert_eq!((pod.label("app"), pod.label("tier"), pod.label("none")), (Some("web"), Some("front"), None));
    assert_eq!(pod.child_key.as_deref(), Some("0"));
    assert_eq!(pod.created_unix_s, 1_795_255_200);
    assert_eq!(pod.desired.as_deref(), Some("ab\"12"));
    let controller = pod.controller.as_ref().unwrap();
    assert_eq!(controller.kind, Kind::new("app.example.com/v1alpha1", "PodSet"));
    assert_eq!((&*controller.name, &*controller.uid), ("web", "77"));
    assert_eq!(pod.own_fields[0].fields.as_ref(), r#"{"f:spec":{"f:containers":{}}}"#);
}

#[test]
fn the_marks_of_a_tracked_child_name_its_owner_unless_it_has_a_controller_or_is_a_copy() {
    let owner = |metadata: &str, kind: &str| {
        let text = format!(
            r#"{{"apiVersion":"apps/v1","kind":"{kind}","metadata":{{"name":"x","namespace":"b","uid":"u","resourceVersion":"1",{metadata}}}}}"#
        );
        decode(&text)
            .controller
            .map(|OwnerReference { kind, namespace, name, uid }| format!("{kind} {namespace}/{name} {uid}"))
    };
    let label = r#""labels":{"mortise.dev/owner-uid":"77"}"#;
    let written = r#""managedFields":[{"manager":"mortise/podset","operation":"Update"}]"#;
    let mark = |owner: &str, child: &str| {
        format!(r#"{label},"annotations":{{"mortise.dev/owner":"{owner} owns {child}"}},{written}"#)
    };
    let good = mark("example.com/v1/Replica a/x", "Deployment.apps b/x");
    assert_eq!(owner(&good, "Deployment").as_deref(), Some("example.com/v1/Replica a/x 77"));
    let cluster_scoped = mark("v1/Node n", "Deployment.apps b/x");
    assert_eq!(owner(&cluster_scoped, "Deployment").as_deref(), Some("v1/Node /n 77"));
    let reference = r#""ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n1","uid":"n","controller":true}]"#;
    assert_eq!(owner(&format!("{good},{reference}"), "Deployment").as_deref(), Some("v1/Node b/n1 n"));
    assert_eq!(owner(&good.replace(label, r#""labels":{}"#), "Deployment"), None);
    assert_eq!(owner(label, "Deployment"), None);
    for child in ["Deployment.apps b/y", "Deployment.apps c/x", "Deployment b/x", "Deployment.apps x", ""] {
        assert_eq!(owner(&mark("example.com/v1/Replica a/x", child), "Deployment"), None, "{child}");
    }
    for manager in ["kubectl-create", "mortise", "MORTISE/podset", "x-mortise/podset"] {
        let by_another = good.replace("mortise/podset", manager);
        assert_eq!(owner(&by_another, "Deployment"), None, "{manager}");
    }
    assert_eq!(owner(&good, "ReplicaSet"), None, "its marks were copied to an object of another kind");
    for broken in ["", "x", "Replica a/x"] {
        assert_eq!(owner(&mark(broken, "Deployment.apps b/x"), "Deployment"), None, "{broken}");
    }
}

#[test]
fn labels_are_sorted_and_each_key_is_kept_once() {
    let keys = |text: &str| decode(text).labels.iter().map(|(key, _)| key.to_string()).collect::<Vec<_>>();
    assert_eq!(keys(POD), ["app", "tier"]);
    assert_eq!(keys(&POD.replace(r#""tier":"front""#, r#""tier":"front","app":"db","tier":"back""#)), ["app", "tier"]);
}

#[test]
fn an_object_without_optional_parts_has_none() {
    let node = decode(
        r#"{"kind":"Node","apiVersion":"v1","metadata":{"uid":"u","resourceVersion":"0","name":"n","labels":null,"annotations":null,"ownerReferences":null,"managedFields":null,"deletionTimestamp":null}}"#,
    );
    assert_eq!(&*node.name.namespace, "");
    assert_eq!((node.generation, node.deleting, node.controller.is_none()), (0, false, true));
    assert!(node.labels.is_empty() && node.own_fields.is_empty() && node.child_key.is_none());
}

#[test]
fn only_applies_and_status_writes_of_mortise_are_kept() {
    let entry = |manager: &str, operation: &str, subresource: &str| {
        format!(r#"{{"manager":"{manager}","operation":"{operation}"{subresource},"fieldsV1":{{"f:x":{{}}}}}}"#)
    };
    let status = r#","subresource":"status""#;
    let entries = [
        entry("mortise/podset", "Apply", ""),
        entry("mortise/podset", "Update", ""),
        entry("mortise/podset", "Update", status),
        entry("mortise/podset", "Apply", status),
        entry("kubectl", "Apply", ""),
        entry("not-mortise/x", "Apply", ""),
    ];
    let text = POD.replace(
        &POD[POD.find("[{\"manager\"").unwrap()..POD.find("},\n\"spec\"").unwrap()],
        &format!("[{}]", entries.join(",")),
    );
    let kept: Vec<_> = decode(&text)
        .own_fields
        .iter()
        .map(|own| format!("{} {} {:?}", own.manager, own.applied, own.subresource))
        .collect();
    assert_eq!(
        kept,
        [r#"mortise/podset true """#, r#"mortise/podset false "status""#, r#"mortise/podset true "status""#]
    );
}

/// Decodes a text whose managedFields are between `<<` and `>>`, and expects that exactly this part is cut.
fn check_cut(marked: &str) {
    let text = marked.replace("<<", "").replace(">>", "");
    let (before, rest) = marked.split_once("<<").unwrap();
    let (_, after) = rest.split_once(">>").unwrap();
    let object = decode(&text);
    assert_eq!(**object.json(), format!("{before}{after}"));
    assert_status_is_found(&object);
    assert_content_hash_skips_the_version(&object);
}

fn assert_status_is_found(object: &Object) {
    let parse = |text| serde_json::from_str::<serde_json::Value>(text).unwrap();
    assert_eq!(object.status().map(parse).as_ref(), parse(object.json()).get("status"));
}

fn assert_content_hash_skips_the_version(object: &Object) {
    let other = object.json().replacen(r#""resourceVersion":"7""#, r#""resourceVersion":"1234567""#, 1);
    assert_ne!(other, **object.json());
    assert_eq!(decode(&other).content_hash(), object.content_hash());
}

#[test]
fn managed_fields_are_cut_at_any_position() {
    let rest = r#""name":"n","uid":"u","resourceVersion":"7""#;
    let value = r#"[{"manager":"a","fieldsV1":{"f:s":{}}}]"#;
    let object =
        |metadata: &str| format!(r#"{{"apiVersion":"v1","kind":"A","metadata":{{{metadata}}},"status":{{"ü":1}}}}"#);
    check_cut(&object(&format!(r#"<<"managedFields":{value},>>{rest}"#)));
    check_cut(&object(&format!(r#"{rest}<<,"managedFields":{value}>>"#)));
    check_cut(&format!(
        r#"{{"status":"s","kind":"A","metadata":{{{rest}<<,"managedFields":{value}>>}},"apiVersion":"v1"}}"#
    ));
    check_cut(&object(&format!(r#""name":"n","uid":"u"<<,"managedFields":{value}>>,"resourceVersion":"7""#)));
    check_cut(&object(&format!("<<\"managedFields\" :\n {value} \t,>> {rest}")));
    check_cut(&object(&format!("{rest} \n<<,  \"managedFields\"\t: {value}>>\n ")));
    check_cut(&object(&format!(r#"{rest}<<,"m\u0061nagedFields":{value}>>"#)));
    check_cut(&object(&format!(r#"{rest}<<,"\u006danagedField\u0073":[]>>"#)));
}

#[test]
fn members_of_the_same_name_elsewhere_stay() {
    let text = r#"{"apiVersion":"v1","kind":"A","managedFields":[1],"metadata":{"name":"n","uid":"u","resourceVersion":"7",
        "annotations":{"managedFields":"kept","q":"\"managedFields\":[]"}<<,"managedFields":[{"fieldsV1":{"managedFields":{}}}]>>},
        "spec":{"metadata":{"managedFields":[2],"resourceVersion":"7"}}}"#;
    check_cut(text);
}

#[test]
fn text_beyond_ascii_survives_the_cut() {
    check_cut(
        r#"{"apiVersion":"v1","kind":"A","metadata":{"annotations":{"ä":"日本 \ud83d\ude00 😀"},<<"managedFields":[{"manager":"ü"}],>>"name":"n","uid":"u","resourceVersion":"7"},"z":"é"}"#,
    );
}

#[test]
fn items_of_a_list_get_their_kind_inserted() {
    let kind = Kind::new("apps/v1", "Deployment");
    let check = |text: &str, expected: &str| {
        let object = Object::decode_as(&kind, text.as_bytes(), &mut Interner::default()).unwrap();
        assert_eq!(**object.json(), *expected);
        assert_eq!(object.kind, kind);
        assert_status_is_found(&object);
        assert_content_hash_skips_the_version(&object);
    };
    let metadata = r#""metadata":{"name":"n","uid":"u","resourceVersion":"7"},"status":{"n":7}"#;
    let whole = format!(r#"{{"apiVersion":"apps/v1","kind":"Deployment",{metadata}}}"#);
    check(&format!("{{{metadata}}}"), &whole);
    check(&whole, &whole);
    check(&format!(r#"{{"kind":"Deployment",{metadata}}}"#), &whole);
    check(&format!(" {{ {metadata}}}\n"), &format!(r#"{{"apiVersion":"apps/v1","kind":"Deployment", {metadata}}}"#));
    let managed = r#"{"metadata":{"managedFields":[],"name":"n","uid":"u","resourceVersion":"7"},"status":{"n":7}}"#;
    check(managed, &whole);
}

#[test]
fn an_item_of_another_kind_is_refused() {
    let text = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"n","uid":"u","resourceVersion":"7"}}"#;
    let error = Object::decode_as(&Kind::new("v1", "Node"), text.as_bytes(), &mut Interner::default()).unwrap_err();
    assert_eq!(error.to_string(), r#"cannot decode Pod n: kind is "Pod", expected "Node""#);
}

#[test]
fn errors_name_the_object_and_the_field() {
    let pod = |metadata: &str| error(&format!(r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{{metadata}}}}}"#));
    assert_eq!(pod(r#""uid":"u","resourceVersion":"1""#), "cannot decode Pod: metadata.name is missing");
    assert_eq!(
        pod(r#""name":"a","namespace":"b","resourceVersion":"1""#),
        "cannot decode Pod b/a: metadata.uid is missing"
    );
    assert_eq!(pod(r#""name":"a","uid":"u""#), "cannot decode Pod a: metadata.resourceVersion is missing");
    for version in ["1a", "+1", "-1", "", "0x1", "99999999999999999999"] {
        assert_eq!(
            pod(&format!(r#""name":"a","uid":"u","resourceVersion":"{version}""#)),
            format!("cannot decode Pod a: metadata.resourceVersion is {version:?}, not a decimal number")
        );
    }
    assert_eq!(
        pod(r#""name":"a","uid":"u","resourceVersion":7"#),
        "cannot decode Pod a: metadata.resourceVersion is not a string"
    );
    assert_eq!(pod(r#""name":"a","labels":{"x":1}"#), "cannot decode Pod a: metadata.labels is not a map of strings");
    assert_eq!(error(r#"{"metadata":{"name":"a"}}"#), "cannot decode an object a: apiVersion is missing");
    assert_eq!(error("[]").split(": ").next(), Some("cannot decode an object"));
    assert_eq!(error(r#"{"kind":"#), "cannot decode an object: its text is not valid JSON");
    assert_eq!(error(&format!("{POD} x")), "cannot decode an object: its text is not valid JSON");
    let error = Object::decode(b"{\"kind\":\"\xff\"}", &mut Interner::default()).unwrap_err();
    assert_eq!(error.to_string(), "cannot decode an object: its text is not UTF-8");
}

#[test]
fn damaged_text_never_makes_the_decoder_panic() {
    // Every prefix, and every byte replaced by each character that has a meaning in JSON.
    for end in 0..POD.len() {
        assert!(Object::decode(&POD.as_bytes()[..end], &mut Interner::default()).is_err(), "prefix of {end} bytes");
    }
    let mut interner = Interner::default();
    for at in 0..POD.len() {
        for byte in *b"\"\\{}[],:0 x\xff" {
            let mut text = POD.as_bytes().to_vec();
            text[at] = byte;
            if let Ok(object) = Object::decode(&text, &mut interner) {
                object.content_hash();
                serde_json::from_str::<serde_json::Value>(object.json()).unwrap();
            }
        }
    }
}

#[test]
fn a_list_of_an_objects_fields_is_not_an_object() {
    let metadata = r#"["a","ns","u","1",null,null,{},{},[],[]]"#;
    for text in [
        format!(r#"["v1","Pod",{metadata},null]"#),
        format!(r#"{{"apiVersion":"v1","kind":"Pod","metadata":{metadata}}}"#),
    ] {
        assert!(error(&text).starts_with("cannot decode "), "{}", error(&text));
    }
}

#[test]
fn the_content_hash_changes_with_everything_but_the_version() {
    let pod = Sample::pod("a", "b").version(9);
    assert_eq!(pod.build().content_hash(), Sample::pod("a", "b").version(12345).build().content_hash());
    assert_ne!(pod.build().content_hash(), Sample::pod("a", "b").version(9).label("x", "y").build().content_hash());
    assert_ne!(pod.build().content_hash(), Sample::pod("a", "b").uid("other").version(9).build().content_hash());
}

#[test]
fn equal_strings_of_different_objects_are_shared() {
    let mut interner = Interner::default();
    let mut build = |name: &str| {
        let text = Sample::pod("shop", name).label("app", "web").owner("77").text();
        Object::decode(text.as_bytes(), &mut interner).unwrap()
    };
    let (left, right) = (build("a"), build("b"));
    assert!(Arc::ptr_eq(&left.kind.kind, &right.kind.kind));
    assert!(Arc::ptr_eq(&left.name.namespace, &right.name.namespace));
    let [one, other] = [&left, &right].map(|pod| pod.labels.iter().next().unwrap());
    assert!(std::ptr::eq(one.0, other.0) && std::ptr::eq(one.1, other.1));
    let uid = |object: &Object| object.controller.as_ref().unwrap().uid.clone();
    assert!(Arc::ptr_eq(&uid(&left), &uid(&right)));
}

#[test]
fn unused_strings_are_dropped() {
    let mut interner = Interner::default();
    let kept = interner.intern("kept");
    for number in 0..100_000 {
        interner.intern(&format!("value-{number}"));
    }
    assert!(interner.strings.len() <= 4_096, "{} strings are held", interner.strings.len());
    assert!(Arc::ptr_eq(&kept, &interner.intern("kept")));
}
