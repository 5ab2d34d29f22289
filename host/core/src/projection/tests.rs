//! What a projection keeps, and the position of errors in paths.

use super::*;
use crate::object::tests::{Sample, decode};

fn parse(fields: &[&str]) -> Projection {
    let fields: Vec<String> = fields.iter().map(|&field| field.to_owned()).collect();
    Projection::parse(&fields).unwrap()
}

const POD: &str = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web-0","namespace":"shop","uid":"u","resourceVersion":"7",
  "annotations":{"mortise.dev/child":"0","quo\"te":"q","other":"x"},"labels":{"app":"web"}},
  "spec":{"nodeName":"n1","replicas":3,"containers":[{"name":"a","image":"i","ports":[{"port":1},{"port":2}]},{"name":"b"}],"mixed":[1,{"x":2},null,[{"x":3}]]},
  "status":{"phase":"Running","empty":null,"conditions":[{"type":"Ready","status":"True"}]}}"#;

fn check(fields: &[&str], expected: &str) {
    let text = parse(fields).project(&decode(POD));
    assert_eq!(&*text, expected);
    serde_json::from_str::<serde_json::Value>(&text).unwrap();
}

#[test]
fn paths_keep_members() {
    check(&["status.phase"], r#"{"status":{"phase":"Running"}}"#);
    check(&["spec.replicas", "spec.nodeName"], r#"{"spec":{"nodeName":"n1","replicas":3}}"#);
    check(&["status.empty"], r#"{"status":{"empty":null}}"#);
    check(&["metadata.name", "kind"], r#"{"kind":"Pod","metadata":{"name":"web-0"}}"#);
}

#[test]
fn a_path_and_a_longer_one_keep_what_the_shorter_one_keeps() {
    let conditions = r#"{"status":{"conditions":[{"type":"Ready","status":"True"}]}}"#;
    check(&["status.conditions", "status.conditions.type"], conditions);
    check(&["status.conditions.type", "status.conditions"], conditions);
}

#[test]
fn a_path_continues_in_each_element_of_an_array() {
    check(&["spec.containers.name"], r#"{"spec":{"containers":[{"name":"a"},{"name":"b"}]}}"#);
    check(&["spec.containers.ports.port"], r#"{"spec":{"containers":[{"ports":[{"port":1},{"port":2}]},{}]}}"#);
    check(&["spec.mixed.x"], r#"{"spec":{"mixed":[{"x":2},[{"x":3}]]}}"#);
}

#[test]
fn members_that_are_missing_are_left_out() {
    check(&["spec.none"], r#"{"spec":{}}"#);
    check(&["none.at.all"], "{}");
    check(&["spec.replicas.deeper"], r#"{"spec":{}}"#);
    check(&["status.empty.deeper"], r#"{"status":{}}"#);
}

#[test]
fn names_with_dots_are_written_in_brackets() {
    let text = parse(&[r#"metadata.annotations["mortise.dev/child"]"#, r#"metadata["annotations"]["quo\"te"]"#])
        .project(&decode(POD));
    assert!(text.contains(r#""annotations":{"mortise.dev/child":"0","quo\"te":"q"}"#), "{text}");
    assert_eq!(parse(&[r#"["spec"].nodeName"#]), parse(&["spec.nodeName"]));
}

#[test]
fn names_versions_and_uids_are_kept_only_when_a_path_names_them() {
    let node = Sample::new("Node", "", "n1").uid("u").build();
    assert_eq!(&*parse(&["spec.x"]).project(&node), "{}");
    assert_eq!(&*parse(&["metadata.uid"]).project(&node), r#"{"metadata":{"uid":"u"}}"#);
    let version = parse(&["metadata.resourceVersion"]).project(&decode(POD));
    assert_eq!(&*version, r#"{"metadata":{"resourceVersion":"7"}}"#);
}

#[test]
fn no_fields_keep_the_whole_object() {
    let pod = decode(POD);
    let whole = parse(&[]);
    assert!(whole.is_whole());
    assert!(Arc::ptr_eq(&whole.project(&pod), pod.json()));
    assert_eq!(whole.projected_hash(&pod), pod.content_hash());
}

#[test]
fn a_second_projection_of_an_unchanged_object_is_the_same_pointer() {
    let pod = decode(POD);
    let projection = parse(&["status.phase", "spec.nodeName"]);
    let first = projection.project(&pod);
    let second = parse(&["spec.nodeName", "status.phase", "status.phase"]).project(&pod);
    assert!(Arc::ptr_eq(&first, &second));
}

#[test]
fn an_object_remembers_a_bounded_number_of_projections() {
    let pod = decode(POD);
    let before = pod.bytes();
    let projections: Vec<_> = (0..100).map(|number| parse(&[&format!("spec.field{number}")])).collect();
    for projection in &projections {
        projection.project(&pod);
    }
    assert!(pod.bytes() < before + 1_000, "{} bytes were {before}", pod.bytes());
}

#[test]
fn p18_projections_of_an_object_have_no_more_text_than_the_object() {
    let members: Vec<String> = (0..100).map(|member| format!(r#""m{member}":"{}""#, "v".repeat(1_000))).collect();
    let pod = Sample::pod("a", "x").body(&format!(r#""spec":{{{}}}"#, members.join(","))).build();
    let before = pod.bytes();
    let projections: Vec<_> = (0..4).map(|number| parse(&["spec", &format!("status.f{number}")])).collect();
    let texts: Vec<_> = projections.iter().map(|projection| projection.project(&pod)).collect();
    assert!(pod.bytes() - before < pod.json().len() * 5 / 4 + 2_048, "{} bytes were {before}", pod.bytes());
    // The last one is remembered, and of the others the hashes.
    assert!(Arc::ptr_eq(&projections[3].project(&pod), &texts[3]));
    for (projection, text) in projections.iter().zip(&texts) {
        assert_eq!(
            (projection.projected_hash(&pod), projection.project(&pod)),
            (projections[0].projected_hash(&pod), Arc::clone(text))
        );
    }
    let budget = crate::budget::Budget::new(0);
    let hashes = projections.iter().map(|projection| projection.projected_hash_within(&pod, &budget));
    assert!(hashes.into_iter().all(|hash| hash.is_some()), "a remembered hash costs nothing");
}

#[test]
fn the_projected_hash_changes_only_with_the_kept_fields() {
    let phase = parse(&["status.phase"]);
    let pod = |version, phase: &str, ip: &str| {
        Sample::pod("a", "b").version(version).body(&format!(r#""status":{{"phase":"{phase}","ip":"{ip}"}}"#)).build()
    };
    let hash = phase.projected_hash(&pod(1, "Running", "1"));
    assert_eq!(phase.projected_hash(&pod(2, "Running", "2")), hash);
    assert_ne!(phase.projected_hash(&pod(1, "Failed", "1")), hash);
}

#[test]
fn an_object_that_a_strict_parser_refuses_is_returned_whole() {
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    for value in [deep.as_str(), r#"{"\ud800":1}"#, "1e999"] {
        let object = Sample::pod("a", "b").body(&format!(r#""spec":{value}"#)).build();
        assert!(Arc::ptr_eq(&parse(&["spec.x"]).project(&object), object.json()), "{value}");
        assert!(!Arc::ptr_eq(&parse(&["status.x"]).project(&object), object.json()), "{value}");
    }
}

#[test]
fn errors_name_the_path_and_the_position() {
    let check = |path: &str, at: usize, problem: &str| {
        let error = Projection::parse(&[path.to_owned()]).unwrap_err();
        assert_eq!(error.to_string(), format!("the field path {path:?} is invalid at byte {at}: {problem}"));
    };
    check("", 0, "a member name is missing");
    check("spec.", 5, "a member name is missing");
    check(".spec", 0, "a member name is missing");
    check("spec..x", 5, "a member name is missing");
    check("spec.a b", 6, "put a member with this character into [\"...\"]");
    check("spec[0]", 5, "brackets hold [\"name\"] only; a path visits all elements of an array without an index");
    check("spec[\"a", 7, "the closing quote is missing");
    check("spec[\"a\"", 8, "a closing bracket is expected");
    check("spec[\"a\"]x", 9, "a dot, a bracket or the end is expected");
    check("spec[\"\\n\"]", 6, "a backslash escapes only \" and \\");
    let long = "x".repeat(2_000);
    assert!(Projection::parse(&[long]).unwrap_err().to_string().ends_with("it is longer than 1024 bytes"));
    let many: Vec<_> = (0..300).map(|number| format!("f{number}")).collect();
    assert!(Projection::parse(&many).unwrap_err().to_string().contains("more than 256 paths"));
    let large: Vec<_> = (0..17).map(|number| format!("{number:01000}")).collect();
    let error = Projection::parse(&large).unwrap_err();
    assert!(error.to_string().contains("more than 16384 bytes together") && error.path.len() < 1_100, "{error}");
}

#[test]
fn g2_the_costliest_projection_takes_some_megabytes_and_says_so() {
    // The longest paths of one-letter members, without a common prefix.
    let path = |number: u8| format!("{}{}", char::from(b'a' + number), ".x".repeat(511));
    let costly = Projection::parse(&(0..16).map(path).collect::<Vec<_>>()).unwrap();
    let members = 16 * 512;
    assert!(costly.bytes() > members * 2 * size_of::<String>(), "{}", costly.bytes());
    assert!(costly.bytes() < 4 << 20, "{}", costly.bytes());
    assert!(parse(&["status.phase"]).bytes() < 1_000);
}

#[test]
fn g2_an_object_keeps_no_projection_alive() {
    let object = decode(POD);
    let phase = parse(&["status.phase"]);
    let text = phase.project(&object);
    assert!(Arc::ptr_eq(&text, &parse(&["status.phase"]).project(&object)), "an equal one has the same result");
    let paths = Arc::downgrade(&phase.0);
    drop(phase);
    assert_eq!(paths.strong_count(), 0);
    let again = parse(&["status.phase"]).project(&object);
    assert_eq!(text, again);
}
