//! The table "Who can reach what" of docs/promises.md has a row for every rule of the RBAC in deploy/, and none for another. Each
//! row says something of every kind of attacker.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use super::promises::{Row, rows};
use super::{expect_none, root};

/// The kinds of attackers of SECURITY.md, as the table names them.
const ATTACKERS: [&str; 8] = ["Plugins", "ConfigMaps", "folder", "labels", "tenants", "authors", "users", "network"];

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
        let says_nothing = |attacker: &&str| !held_by.contains(&format!("**{attacker}**"));
        wrong.extend(ATTACKERS.iter().filter(|it| says_nothing(it)).map(|it| format!("{number}: nothing of {it}")));
        shown.insert(promise.to_owned());
    }
    wrong.extend(rules.difference(&shown).map(|rule| format!("no row: {rule}")));
    expect_none("rights of deploy/ in docs/promises.md", wrong);
}
