//! What a story file has. Input: YAML. Output: a script. It must not know how it is played.

use serde::Deserialize;
use serde_json::Value;

use super::acts::Act;
use super::holds::Hold;

/// One story file.
///
/// ```
/// use mortise_stories::script::Script;
///
/// let script = Script::parse(
///     "
/// says: A set keeps its Pods.
/// steps:
///   - when: a set is created
///     acts:
///       - apply: {apiVersion: example.com/v1, kind: Set, metadata: {name: web}, spec: {replicas: 3}}
///     holds:
///       - count: {times: 3, of: {apiVersion: v1, kind: Pod, status: {phase: Running}}}
///       - requests: 5
/// ",
/// );
/// assert_eq!(script.map(|script| script.steps.len()), Ok(1));
/// ```
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// What it shows, for readers.
    pub says: String,
    /// The plugin's configuration.
    #[serde(default)]
    pub config: Value,
    /// How many nodes the cluster has.
    #[serde(default = "one")]
    pub nodes: u32,
    /// Which controllers run beside the host: `*`, a name, or `-` and a name, as kube-controller-manager's flag.
    #[serde(default = "all")]
    pub controllers: Vec<String>,
    /// Objects that are there before the first step, applied in this order.
    #[serde(default)]
    pub given: Vec<Value>,
    /// Other controllers.
    #[serde(default)]
    pub others: Vec<Other>,
    /// The steps.
    pub steps: Vec<Step>,
}

/// Another controller: what it does to each object that is like `on`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Other {
    /// A partial object with its apiVersion and kind.
    pub on: Value,
    /// A merge patch; its `status` is that of the status subresource.
    pub patch: Value,
}

/// One step: acts of others, and what must hold when the cluster is idle again.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// What the acts are together, for readers and messages.
    pub when: String,
    /// In this order, one after another.
    #[serde(default)]
    pub acts: Vec<Act>,
    /// In any order.
    #[serde(default)]
    pub holds: Vec<Hold>,
}

fn one() -> u32 {
    1
}

fn all() -> Vec<String> {
    vec!["*".to_owned()]
}

impl Script {
    /// Reads a story file.
    ///
    /// # Errors
    /// What is wrong, with line and column.
    pub fn parse(text: &str) -> Result<Self, String> {
        serde_saphyr::from_str(text).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_in_a_file_is_reported_with_its_line() {
        let error = Script::parse("says: x\nsteps:\n  - when: y\n    act: []\n").unwrap_err();
        assert!(error.contains("act") && error.contains('4'), "{error}");
    }
}
