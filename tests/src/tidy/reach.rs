//! The table "Who can reach what" of docs/promises.md has a row for every rule of the RBAC in deploy/, and none for another. Each
//! row says of every kind of attacker what keeps the right from him, and names a test of it or a file of deploy/.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use super::promises::{Row, placed, rows};
use super::{expect_none, root};

/// The kinds of attackers of SECURITY.md, as the table names them.
const ATTACKERS: [&str; 8] = ["Plugins", "ConfigMaps", "folder", "labels", "tenants", "authors", "users", "network"];

/// Fewer words say no more than whom they are about.
const FEW_WORDS: usize = 5;

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).expect("deploy/ has this file")
}

fn words(list: &Value) -> String {
    let words: Vec<&str> = list.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    words.join(", ")
}

/// "mortise in mortise-system: get, update of secrets named mortise-webhook-ca".
fn shown(role: &str, rule: &Value) -> String {
    let (verbs, urls, group) = (words(&rule["verbs"]), words(&rule["nonResourceURLs"]), words(&rule["apiGroups"]));
    let mut text = format!("{role}: {verbs} of {}{urls}", words(&rule["resources"]));
    if !group.is_empty() {
        text += &format!(" ({group})");
    }
    match words(&rule["resourceNames"]) {
        names if names.is_empty() => text,
        names => format!("{text} named {names}"),
    }
}

/// The rules of deploy/base, and what deploy/tenants adds to them.
fn rules() -> Vec<String> {
    let objects: Vec<Value> = serde_saphyr::from_multiple(&read("deploy/base/rbac.yaml")).expect("it is YAML");
    let mut rules = Vec::new();
    for object in &objects {
        let name = object["metadata"]["name"].as_str().expect("it has a name");
        let role = object["metadata"]["namespace"].as_str().map_or(name.to_owned(), |at| format!("{name} in {at}"));
        rules.extend(object["rules"].as_array().into_iter().flatten().map(|rule| shown(&role, rule)));
    }
    let overlay: Value = serde_saphyr::from_str(&read("deploy/tenants/kustomization.yaml")).expect("it is YAML");
    let patches = overlay["patches"].as_array().expect("it patches the base").iter();
    for patch in patches.filter(|patch| patch["target"]["kind"] == "ClusterRole") {
        let role = format!("{} of deploy/tenants", patch["target"]["name"].as_str().expect("it patches one"));
        let operations = patch["patch"].as_str().expect("it is text");
        let operations: Vec<Value> = serde_saphyr::from_str(operations).expect("it is YAML");
        rules.extend(operations.iter().map(|operation| shown(&role, &operation["value"])));
    }
    rules
}

#[test]
fn every_right_of_deploy_has_a_row_that_says_what_keeps_it_from_each_kind_of_attacker() {
    let text = read("docs/promises.md");
    let rules: BTreeSet<String> = rules().into_iter().collect();
    assert!(rules.len() > 10, "{rules:?}");
    let (mut wrong, mut shown) = (Vec::new(), BTreeSet::new());
    for Row { number, promise, held_by } in rows(&text).filter(|row| row.number.starts_with('W')) {
        wrong.extend((!rules.contains(promise)).then(|| format!("{number}: deploy/ has no such rule: {promise}")));
        wrong.extend(unkept(held_by).into_iter().map(|what| format!("{number}: {what}")));
        shown.insert(promise.to_owned());
    }
    wrong.extend(rules.difference(&shown).map(|rule| format!("no row: {rule}")));
    expect_none("rights of deploy/ in docs/promises.md", wrong);
}

/// Attackers, and what a row says of them: "**users** and **network** ...".
fn said(held_by: &str) -> Vec<(Vec<&str>, &str)> {
    let mut groups: Vec<(Vec<&str>, &str)> = Vec::new();
    let mut parts = held_by.split("**").skip(1);
    while let (Some(attacker), Some(text)) = (parts.next(), parts.next()) {
        match groups.last_mut() {
            Some((attackers, before)) if matches!(before.trim(), "," | "and") => {
                attackers.push(attacker);
                *before = text;
            }
            _ => groups.push((vec![attacker], text)),
        }
    }
    groups
}

/// Whether a text says in a few words what keeps a right from somebody, and names what shows it.
fn has_mechanism(text: &str) -> bool {
    let words = text.split('`').step_by(2).flat_map(str::split_whitespace).filter(|word| !word.ends_with(':')).count();
    let is_file = |name: &str| name.starts_with("deploy/") && root().join(name).is_file();
    words >= FEW_WORDS
        && (placed(text).iter().any(|(place, _)| !place.is_empty()) || text.split('`').skip(1).step_by(2).any(is_file))
}

/// The attackers of whom a row says nothing, or not what keeps the right from them.
fn unkept(held_by: &str) -> Vec<String> {
    let groups = said(held_by);
    let of = |attacker: &str| groups.iter().filter(|(attackers, _)| attackers.contains(&attacker)).collect::<Vec<_>>();
    let unkept = |attacker: &&str| match &of(attacker)[..] {
        [(_, text)] if has_mechanism(text) => None,
        [(_, text)] => Some(format!("{attacker}: neither a test nor a file of deploy/, or no words: {text}")),
        all => Some(format!("{attacker}: the row says something of it {} times", all.len())),
    };
    ATTACKERS.iter().filter_map(unkept).collect()
}

#[test]
fn a_row_without_a_mechanism_for_one_kind_of_attacker_is_found() {
    let row = |of_users: &str, of_network: &str| {
        let others = "**Plugins**, **ConfigMaps**, **folder**, **labels**, **tenants** and **authors**";
        let deploy = "may do it by a role of their own: `deploy/base/rbac.yaml`.";
        unkept(&format!("It is bound. {others} {deploy} **users** {of_users} **network**: {of_network}")).join("; ")
    };
    let test = "has no way to it by TLS: kube: `a_b_c_d`.";
    assert_eq!(row(test, test), "");
    assert_eq!(row("and", test), "", "they are said together");
    let nothing = "neither a test nor a file of deploy/, or no words";
    assert_eq!(row("name nothing of it.", test), format!("users: {nothing}:  name nothing of it. "));
    assert_eq!(
        row(test, "see `deploy/base/no-such-file.yaml`, where it is."),
        format!("network: {nothing}: : see `deploy/base/no-such-file.yaml`, where it is.")
    );
    assert_eq!(row("kube: `a_b_c_d`.", test), format!("users: {nothing}:  kube: `a_b_c_d`. "));
    assert_eq!(row("so. **users**", test), "users: the row says something of it 2 times");
}
