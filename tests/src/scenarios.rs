//! Scenarios: short tests of the engine, written as data. `tests/data/scenarios/NAME.yaml` has the objects and the
//! steps, `NAME.txt` what the host did. Every scenario ends in a fixed point: no more calls or writes, also after a
//! restart.
//!
//! `UPDATE_EXPECT=1 cargo test -p mortise-tests scenarios` updates the texts; read the difference before committing.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use mortise_core::object::{Kind, Name, ObjectRef};
use mortise_core::write::{WriteError, WriteErrorClass};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::simulation::cluster::{Cluster, Life, config_map, pod};
use crate::simulation::guests::{
    Guest, Program, census_kind, crd_name, keeper_kind, podset_kind, site_kind, spread_kind, widget_kind,
};
use crate::simulation::shell::Response;
use crate::simulation::world::{Mutant, World};

/// Simulated time of each step, after which the host has to be quiet.
const STEP_MS: u64 = 120_000;
/// How long a lost watch has no connection.
const WATCH_AWAY_MS: u64 = 10_000;
/// Trace of a scenario that does not end in a fixed point.
const TRACE_LINES: usize = 100;
/// Similar lines in a row that are not summarised.
const ALIKE_LINES: usize = 6;
/// Longest block of lines whose repetitions are summarised.
const MAX_BLOCK: usize = 6;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Scenario {
    /// What it shows, for readers.
    says: String,
    #[serde(default = "scripted")]
    plugin: String,
    #[serde(default)]
    config: Value,
    #[serde(default)]
    given: Vec<Value>,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    when: String,
    acts: Vec<Act>,
}

/// An action of others. Objects are written as "Pod default/web-0", their UIDs as "uid of Pod default/web-0".
#[derive(Clone, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Act {
    Create(Value),
    Edit {
        object: String,
        patch: Value,
    },
    PatchStatus {
        object: String,
        status: Value,
    },
    /// A delete, with a grace period for Pods.
    Delete(String),
    Vanish(String),
    /// A PodDisruptionBudget: evictions have to leave this many Pods with this value of the label `app`.
    Budget {
        app: String,
        least: usize,
    },
    Config(Value),
    Version(u32),
    /// A second plugin with this name and the same program.
    Rival(String),
    Withdraw(String),
    /// The response to the next write whose line has this prefix.
    Answer {
        to: String,
        class: String,
        #[serde(default)]
        lands: bool,
    },
    DenyRead(String),
    DenyWrite(String),
    Allow,
    /// The watch of a kind fails; it is listed again later.
    LoseWatch(String),
    DeleteCrd(String),
    Restart,
    /// Milliseconds.
    Wait(u64),
    /// Deletes the children of this key, ten times a second.
    Fight {
        kind: String,
        key: String,
        times: u32,
    },
    /// Edits an object by these patches in turn, ten times a second.
    Flip {
        object: String,
        patches: Vec<Value>,
        times: usize,
    },
}

fn scripted() -> String {
    "scripted".to_owned()
}

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data/scenarios")
}

fn kind(name: &str) -> Kind {
    let all =
        [pod(), config_map(), podset_kind(), site_kind(), census_kind(), spread_kind(), widget_kind(), keeper_kind()];
    all.into_iter()
        .find(|kind| &*kind.kind == name)
        .unwrap_or_else(|| panic!("{name:?} is not a kind of the scenarios"))
}

/// "Pod default/a" is that Pod; "Pod default/web#0" is the child "0" of the object named web.
fn object(cluster: &Cluster, text: &str) -> ObjectRef {
    let parts = text.split_once(' ').and_then(|(kind, name)| Some((kind, name.split_once('/')?)));
    let (kind_name, (namespace, name)) = parts.expect("an object is written as \"Pod default/a\"");
    let kind = kind(kind_name);
    let Some((owner, key)) = name.split_once('#') else {
        return ObjectRef { kind, name: Name::new(namespace, name) };
    };
    let is_it = |life: &&Life| {
        let of_owner = life.owner.as_ref().is_some_and(|of| *of.target.name.name == *owner);
        life.deleted_at.is_none() && life.target.kind == kind && of_owner && life.child_key.as_deref() == Some(key)
    };
    cluster.lives.values().find(is_it).unwrap_or_else(|| panic!("there is no {text}")).target.clone()
}

/// The same with the UIDs of objects where they are written as "uid of Spread default/s".
fn with_uids(cluster: &Cluster, value: &Value) -> Value {
    let named = |text: &str| {
        let target = object(cluster, text.strip_prefix("uid of ")?);
        Some(cluster.get(&target).unwrap_or_else(|| panic!("there is no {target}"))["metadata"]["uid"].clone())
    };
    match value {
        Value::String(text) => named(text).unwrap_or_else(|| value.clone()),
        Value::Array(values) => values.iter().map(|value| with_uids(cluster, value)).collect(),
        Value::Object(members) => {
            Value::Object(members.iter().map(|(name, value)| (name.clone(), with_uids(cluster, value))).collect())
        }
        _ => value.clone(),
    }
}

fn budget_kind() -> Kind {
    Kind::new("policy/v1", "PodDisruptionBudget")
}

fn budget(app: &str, least: usize) -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": app, "namespace": "default"},
        "spec": {"minAvailable": least, "selector": {"matchLabels": {"app": app}}},
    })
}

fn class(name: &str) -> WriteErrorClass {
    match name {
        "Unknown" => WriteErrorClass::Unknown,
        "Unavailable" => WriteErrorClass::Unavailable,
        "Conflict" => WriteErrorClass::Conflict,
        "FieldConflict" => WriteErrorClass::FieldConflict,
        "Invalid" => WriteErrorClass::Invalid,
        "Denied" => WriteErrorClass::Denied,
        "TooManyRequests" => WriteErrorClass::TooManyRequests { retry_after_ms: 3_000 },
        other => panic!("{other:?} is not a class of write errors"),
    }
}

struct Run {
    world: World,
    guest: Guest,
    config: String,
}

impl Run {
    fn begin(scenario: &Scenario) -> Self {
        let programs =
            [Program::PodSet, Program::Site, Program::Census, Program::Spread, Program::Scripted, Program::Keeper];
        let program = programs.into_iter().find(|program| Guest::new(*program, 1).name() == scenario.plugin);
        let guest = Guest::new(program.expect("the plugin is one of the simulation's"), 1);
        let mut world = World::new(1, Mutant::None).traced(TRACE_LINES);
        world.log = Some(Vec::new());
        let config = if scenario.config.is_null() { json!({}) } else { scenario.config.clone() };
        let config = config.to_string();
        world.offer(guest, &config);
        let defined = world.cluster.define(guest.name(), &crd_name(&guest.primary()), &guest.definition());
        defined.expect("the kind can be defined");
        for object in &scenario.given {
            let object = with_uids(&world.cluster, object);
            world.cluster.put(object).expect("given objects can be created");
        }
        world.start().expect("a start violates no rule");
        Self { world, guest, config }
    }

    fn offer(&mut self) {
        self.world.offer(self.guest, &self.config);
    }

    fn act(&mut self, act: Act) {
        let cluster = &mut self.world.cluster;
        match act {
            Act::Create(object) => {
                drop(cluster.put(with_uids(cluster, &object)).expect("the object can be created"));
            }
            Act::Edit { object: target, patch } => {
                let target = object(cluster, &target);
                assert!(cluster.edit(&target, &patch), "{target} does not exist, or is unchanged");
            }
            Act::PatchStatus { object: target, status } => {
                drop(cluster.patch_status(&object(cluster, &target), &status).expect("the object exists"));
            }
            Act::Delete(target) => drop(cluster.delete(&object(cluster, &target)).expect("the object exists")),
            Act::Vanish(target) => {
                let target = object(cluster, &target);
                assert!(cluster.get(&target).is_some(), "{target} does not exist");
                cluster.remove(&target);
            }
            Act::Budget { app, least } => {
                cluster.remove(&ObjectRef { kind: budget_kind(), name: Name::new("default", &app) });
                drop(cluster.put(budget(&app, least)).expect("a budget can be created"));
            }
            Act::Config(config) => {
                self.config = config.to_string();
                self.offer();
            }
            Act::Version(version) => {
                self.guest.version = version;
                self.offer();
            }
            Act::Rival(name) => self.world.offer_as(&name, Guest::new(self.guest.program, 7), "{}"),
            Act::Withdraw(name) => self.world.withdraw(&name),
            Act::Answer { to, class: name, lands } => {
                let error = WriteError { class: class(&name), message: format!("{name}, says the scenario") };
                self.world.responses.push_back(Response { to, error, lands });
            }
            other => self.act_on_host(other),
        }
    }

    fn act_on_host(&mut self, act: Act) {
        let holds = match act {
            Act::DenyRead(name) => {
                self.world.cluster.unreadable.insert(kind(&name));
                self.world.end_watches()
            }
            Act::DenyWrite(name) => {
                self.world.cluster.unwritable.insert(kind(&name));
                Ok(())
            }
            Act::Allow => {
                self.world.cluster.unreadable.clear();
                self.world.cluster.unwritable.clear();
                Ok(())
            }
            Act::LoseWatch(name) => self.world.lose_watch(&kind(&name).into(), WATCH_AWAY_MS),
            Act::DeleteCrd(name) => {
                assert!(self.world.cluster.undefine(&kind(&name)), "{name} is not defined");
                self.world.end_watches()
            }
            Act::Restart => self.world.crash(),
            Act::Wait(ms) => self.world.run_until(self.world.now_ms + ms),
            Act::Fight { kind: name, key, times } => (0..times).try_for_each(|_| {
                let is_it = |life: &&Life| {
                    life.deleted_at.is_none()
                        && life.target.kind == kind(&name)
                        && life.child_key.as_ref() == Some(&key)
                };
                let found = self.world.cluster.lives.values().find(is_it).map(|life| life.target.clone());
                found.iter().for_each(|target| self.world.cluster.remove(target));
                self.world.run_until(self.world.now_ms + 100)
            }),
            Act::Flip { object: target, patches, times } => {
                let target = object(&self.world.cluster, &target);
                patches.iter().cycle().take(times).try_for_each(|patch| {
                    assert!(self.world.cluster.edit(&target, patch), "{target} does not exist, or is unchanged");
                    self.world.run_until(self.world.now_ms + 100)
                })
            }
            _ => unreachable!("the other acts are about objects"),
        };
        holds.unwrap_or_else(|violation| panic!("{violation}"));
    }

    /// Runs until the host is quiet, and returns the log.
    fn rest(&mut self) -> Vec<String> {
        self.world.rest(STEP_MS).unwrap_or_else(|violation| panic!("{violation}"));
        std::mem::take(self.world.log.as_mut().expect("scenarios keep a log"))
    }
}

fn shortened(lines: &[String]) -> String {
    let (mut text, mut at) = (String::new(), 0);
    while at < lines.len() {
        let rest = &lines[at..];
        let repeats =
            |block: usize| rest.chunks(block).take_while(|chunk| *chunk == &rest[..block.min(rest.len())]).count();
        let repeated = (1..=MAX_BLOCK).map(|block| (block, repeats(block))).find(|(_, repeats)| *repeats > 3);
        let alike = rest.iter().take_while(|line| head(line) == head(&rest[0])).count();
        if let Some((block, repeats)) = repeated {
            rest[..block].iter().for_each(|line| push(&mut text, line));
            push(&mut text, &format!("(and so {} more times)", repeats - 1));
            at += block * repeats;
        } else if alike > ALIKE_LINES {
            push(&mut text, &format!("{} ({alike} in a row)", head(&rest[0])));
            at += alike;
        } else {
            push(&mut text, &rest[0]);
            at += 1;
        }
    }
    text
}

fn head(line: &str) -> &str {
    let end = line.match_indices(' ').nth(1).map_or(line.len(), |(at, _)| at);
    &line[..end]
}

fn push(text: &mut String, line: &str) {
    let _ = writeln!(text, "  {}", line.trim_end().replace('\n', "\n    "));
}

#[track_caller]
fn check(name: &str) {
    let path = data().join(format!("{name}.yaml"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let scenario: Scenario = serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{name}.yaml: {error}"));
    let mut run = Run::begin(&scenario);
    let mut found = format!("{}\n\nthe host starts\n{}", scenario.says.trim(), shortened(&run.rest()));
    for step in scenario.steps {
        step.acts.into_iter().for_each(|act| run.act(act));
        let _ = write!(found, "\n{}\n{}", step.when, shortened(&run.rest()));
    }
    if let Err(violation) = run.world.check_quiet() {
        let trace: Vec<String> = run.world.trace.into_iter().flatten().collect();
        panic!("{name}: {violation}\n{}", trace.join("\n"));
    }
    let before = run.world.requests.len();
    run.world.crash().unwrap_or_else(|violation| panic!("{name}: {violation}"));
    run.rest();
    assert_eq!(run.world.requests[before..], Vec::<String>::new()[..], "{name}: a restart writes");
    expect_test::expect_file![data().join(format!("{name}.txt"))].assert_eq(&found);
}

macro_rules! scenarios {
    ($($name:ident: $file:literal,)*) => {
        $(#[test] fn $name() { check($file) })*

        #[test]
        fn every_scenario_file_is_used_by_a_test() {
            let used = [$($file),*];
            for file in std::fs::read_dir(data()).unwrap() {
                let path = file.unwrap().path();
                let name = path.file_stem().unwrap().to_string_lossy().into_owned();
                assert!(used.contains(&name.as_str()), "{} is used by no test", path.display());
            }
        }
    };
}

scenarios! {
    x1_children_come_before_deletes_and_deletes_before_the_status: "x1-order",
    x1_actions_come_after_children_and_before_the_status: "x1-actions",
    x1_the_finalizer_comes_before_the_first_write_and_stays_until_the_cleanup_is_done: "x1-finalizer",
    x1_tracked_children_come_after_their_owners_finalizer_and_are_deleted_before_it_is_removed: "x1-tracked",
    x2_children_are_created_by_post_or_by_apply_as_the_manifest_says: "x2-create-or-apply",
    x3_names_follow_from_owner_and_key_so_that_a_repeated_create_meets_its_first_try: "x3-names",
    x3_an_object_of_another_owner_is_a_condition_and_never_adopted: "x3-taken",
    x3_an_object_that_nothing_controls_is_adopted_if_the_child_says_so: "x3-adopt",
    x3_an_apply_never_merges_into_an_object_that_is_not_ours: "x3-unseen",
    x4_a_child_that_is_gone_already_is_deleted_once_and_then_awaited: "x4-uid",
    x5_a_converged_object_is_not_written: "x5-no-op",
    x6_an_outcome_that_breaks_a_rule_is_refused_and_nothing_of_it_is_written: "x6-refusals",
    x8_every_write_is_safe_to_repeat: "x8-repeat",
    x9_a_fight_opens_the_breaker_and_is_reported: "x9-breaker",
    x9_an_eviction_that_a_budget_forbids_waits_and_holds_up_nothing: "x9-evictions",
    x9_changes_of_a_kind_that_is_only_read_open_no_breaker: "x9-following",
    x10_children_and_deletes_are_capped: "x10-caps",
    x11_a_status_waits_for_the_children_that_it_counts: "x11-status",
    r5_a_kind_that_may_not_be_read_blocks_its_plugin_and_is_never_an_empty_list: "r5-denied",
    r5_nothing_is_written_for_an_object_while_its_watch_is_lost: "r5-lost",
    r6_a_child_that_vanished_while_a_watch_was_lost_wakes_its_owner: "r6-relist",
    w1_only_what_a_call_has_read_wakes_its_key: "w1-reads",
    w2_w3_a_call_with_unchanged_inputs_is_not_repeated: "w2-unchanged",
    q3_a_requeue_is_honoured: "q3-requeue",
    l1_a_bad_version_leaves_the_old_one_serving: "l1-reload",
    l2_a_kind_has_one_plugin: "l2-owned-kinds",
    l3_a_plugin_that_is_removed_takes_nothing_with_it: "l3-removed",
    l3_finalizers_of_a_removed_plugin_are_reported_and_a_version_without_finalizer_removes_them: "l3-finalizers",
    l4_a_crd_that_is_deleted_is_created_again: "l4-crd",
    l5_a_trap_is_reported_once_and_cleared_when_it_is_over: "l5-trap",
    l5_a_forbidden_write_is_a_condition_until_it_is_allowed: "l5-forbidden",
}
