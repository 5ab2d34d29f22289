//! Sets of fields, as `fieldsV1` writes them: a tree of steps such as `f:spec`, `k:{"name":"a"}`, `v:"x"` and `i:0`. Input:
//! paths and `fieldsV1` documents. Output: unions and differences of sets, and the documents. It must not know objects and
//! schemas.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// A node of the tree. A node that is no member has members below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fields {
    /// Whether this place itself is in the set; the root never is.
    pub(crate) member: bool,
    below: BTreeMap<Box<str>, Fields>,
}

static NONE: Fields = Fields { member: false, below: BTreeMap::new() };

/// The step to a field.
pub(crate) fn field_step(name: &str) -> Box<str> {
    ["f:", name].concat().into()
}

impl Fields {
    pub(crate) fn is_empty(&self) -> bool {
        !self.member && self.below.is_empty()
    }

    /// Puts what is in the set at a step and below it; a step without members is none.
    pub(crate) fn put(&mut self, step: impl FnOnce() -> Box<str>, below: Self) {
        if !below.is_empty() {
            let node = self.below.entry(step()).or_default();
            if node.is_empty() { *node = below } else { node.add(&below) }
        }
    }

    /// A set of fields by their names.
    pub(crate) fn of(paths: &[&[&str]]) -> Self {
        let mut fields = Self::default();
        for path in paths {
            let node = path.iter().fold(&mut fields, |node, name| node.below.entry(field_step(name)).or_default());
            node.member = true;
        }
        fields
    }

    pub(crate) fn below(&self, step: &str) -> Option<&Self> {
        self.below.get(step)
    }

    /// The same set with other nodes in place of these; nodes that become empty go.
    pub(crate) fn map(&self, mut change: impl FnMut(&str, &Self) -> Self) -> Self {
        let below = self.below.iter().map(|(step, below)| (step.clone(), change(step, below)));
        Self { member: self.member, below: below.filter(|(_, below)| !below.is_empty()).collect() }
    }

    fn combine(&self, other: &Self, keep: fn(bool, bool) -> bool) -> Self {
        let mut all = Self { member: keep(self.member, other.member), below: BTreeMap::new() };
        for (step, mine) in &self.below {
            let both = mine.combine(other.below.get(step).unwrap_or(&NONE), keep);
            if !both.is_empty() {
                all.below.insert(step.clone(), both);
            }
        }
        for (step, theirs) in other.below.iter().filter(|(step, _)| !self.below.contains_key(*step)) {
            let both = NONE.combine(theirs, keep);
            if !both.is_empty() {
                all.below.insert(step.clone(), both);
            }
        }
        all
    }

    pub(crate) fn union(&self, other: &Self) -> Self {
        let mut all = self.clone();
        all.add(other);
        all
    }

    /// Adds the members of another set.
    pub(crate) fn add(&mut self, other: &Self) {
        self.member |= other.member;
        for (step, theirs) in &other.below {
            match self.below.get_mut(step) {
                Some(mine) => mine.add(theirs),
                None => drop(self.below.insert(step.clone(), theirs.clone())),
            }
        }
    }

    /// Takes the other set's members away; what is below them stays.
    pub(crate) fn subtract(&mut self, other: &Self) {
        self.member &= !other.member;
        let (few, many) = (other.below.len(), self.below.len());
        if few == 0 || many == 0 {
            return;
        }
        self.below.retain(|step, mine| {
            if let Some(theirs) = other.below.get(step) {
                mine.subtract(theirs);
            }
            !mine.is_empty()
        });
    }

    pub(crate) fn intersection(&self, other: &Self) -> Self {
        self.combine(other, |mine, theirs| mine && theirs)
    }

    /// What is in this set alone; what is below the other's members stays.
    pub(crate) fn difference(&self, other: &Self) -> Self {
        let mut rest = self.clone();
        rest.subtract(other);
        rest
    }

    /// What is neither in the other set nor below one of its members.
    pub(crate) fn outside(&self, other: &Self) -> Self {
        self.map(|step, below| match other.below.get(step) {
            Some(theirs) if theirs.member => Self::default(),
            Some(theirs) => below.outside(theirs),
            None => below.clone(),
        })
    }

    /// The paths of all members as messages name them, such as `.spec.containers[name="a"].image`.
    pub(crate) fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.collect("", &mut paths);
        paths
    }

    fn collect(&self, prefix: &str, paths: &mut Vec<String>) {
        let members = self.below.iter().filter(|(_, below)| below.member);
        paths.extend(members.map(|(step, _)| format!("{prefix}{}", shown(step))));
        for (step, below) in self.below.iter().filter(|(_, below)| !below.below.is_empty()) {
            below.collect(&format!("{prefix}{}", shown(step)), paths);
        }
    }

    /// The `fieldsV1` document.
    pub(crate) fn to_json(&self) -> Value {
        let mut document = Map::new();
        if self.member && !self.below.is_empty() {
            document.insert(".".to_owned(), Value::Object(Map::new()));
        }
        document.extend(self.below.iter().map(|(step, below)| (step.to_string(), below.to_json())));
        Value::Object(document)
    }

    /// Reads a `fieldsV1` document; none if it is malformed.
    pub(crate) fn from_json(document: &Value) -> Option<Self> {
        let mut fields = Self::default();
        for (step, below) in document.as_object()? {
            if step == "." {
                fields.member = true;
                continue;
            }
            let mut node = Self::from_json(below)?;
            node.member |= node.below.is_empty();
            fields.below.insert(canonical(step)?, node);
        }
        Some(fields)
    }
}

/// A step as this cluster writes it: clients may order and space keys in other ways.
fn canonical(step: &str) -> Option<Box<str>> {
    let (kind, rest) = step.split_once(':')?;
    match kind {
        "f" => Some(step.into()),
        "k" | "v" => {
            let value: Value = serde_json::from_str(rest).ok()?;
            let Value::Object(keys) = &value else { return (kind == "v").then(|| format!("v:{value}").into()) };
            let keys: BTreeMap<&String, &Value> = keys.iter().collect();
            Some(format!("k:{}", serde_json::to_string(&keys).ok()?).into()).filter(|_| kind == "k")
        }
        "i" => rest.parse::<i64>().ok().map(|_| step.into()),
        _ => None,
    }
}

/// A step as paths in messages show it.
pub(crate) fn shown(step: &str) -> String {
    match step.split_once(':') {
        Some(("f", name)) => format!(".{name}"),
        Some(("v", value)) => format!("[={value}]"),
        Some(("k", keys)) => {
            let keys: BTreeMap<String, Value> = serde_json::from_str(keys).unwrap_or_default();
            let keys: Vec<String> = keys.iter().map(|(name, value)| format!("{name}={value}")).collect();
            format!("[{}]", keys.join(","))
        }
        Some((_, index)) => format!("[{index}]"),
        None => step.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(document: Value) -> Fields {
        Fields::from_json(&document).unwrap()
    }

    #[test]
    fn a_document_is_read_and_written_as_it_was() {
        let document = json!({"f:metadata": {"f:labels": {".": {}, "f:a": {}}}, "f:spec": {
            "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:name": {}}},
            "f:finalizers": {"v:\"x\"": {}}, "f:list": {"i:0": {}}}});
        assert_eq!(read(document.clone()).to_json(), document);
        let spaced = read(json!({"f:ports": {"k:{\"protocol\": \"TCP\", \"containerPort\": 80}": {}}}));
        assert_eq!(spaced.paths(), [".ports[containerPort=80,protocol=\"TCP\"]"]);
        for malformed in [json!([]), json!({"spec": {}}), json!({"k:x": {}}), json!({"f:a": 1}), json!({"z:a": {}})] {
            assert_eq!(Fields::from_json(&malformed), None, "{malformed}");
        }
    }

    #[test]
    fn sets_combine_member_by_member() {
        let a = read(json!({"f:a": {".": {}, "f:b": {}}, "f:c": {}}));
        let b = read(json!({"f:a": {}, "f:d": {}}));
        assert_eq!(a.union(&b).paths(), [".a", ".c", ".d", ".a.b"]);
        assert_eq!(a.intersection(&b).paths(), [".a"]);
        assert_eq!(a.difference(&b).paths(), [".c", ".a.b"]);
        assert_eq!(a.outside(&b).paths(), [".c"]);
        assert!(a.difference(&a).is_empty());
    }
}
