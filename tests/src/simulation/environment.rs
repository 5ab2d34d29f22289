//! Changes by users, other programs and accidents while a host runs: they create, change and delete objects, Pods die,
//! plugins are replaced, rights are revoked and restored, and the host dies.

use mortise_core::object::{Kind, Name, ObjectRef};
use serde_json::{Value, json};

use super::cluster::{config_map, pod};
use super::faults::Fault;
use super::guests::{
    Guest, PAGE, PROGRAMS, Program, census_kind, copy_name, lookup_kind, podset_kind, site_kind, spread_kind,
    tenant_kind,
};
use super::oracle::Violation;
use super::world::{Upcoming, World};

const NAMESPACE: &str = "default";
/// Few names of PodSets, so that some are created again soon after they were deleted.
const NAMES: [&str; 3] = ["a", "b", "c"];
/// Namespaces that have no owners.
const ELSEWHERE: [&str; 3] = ["north", "south", "west"];
/// The label of objects that no plugin may touch.
pub const STRANGER: &str = "stranger";
const IMAGES: [&str; 3] = ["busybox:1", "busybox:2", "busybox:3"];

/// Kinds whose rights are revoked at times.
fn contested() -> [Kind; 4] {
    [pod(), config_map(), podset_kind(), site_kind()]
}

pub fn named(kind: &Kind, name: &str) -> ObjectRef {
    ObjectRef { kind: kind.clone(), name: Name::new(NAMESPACE, name) }
}

pub fn object(kind: &Kind, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": &*kind.api_version, "kind": &*kind.kind,
        "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec,
    })
}

impl World {
    pub fn install(&mut self) {
        PROGRAMS.into_iter().for_each(|program| self.offer(Guest::new(program, 1), "{}"));
    }

    /// Makes one change, and schedules the next.
    pub fn environment(&mut self) -> Result<(), Violation> {
        if !self.faults.on {
            return Ok(());
        }
        let delay = if self.random.chance(150) { self.random.between(500, 8_000) } else { self.random.between(1, 150) };
        self.schedule(delay, Upcoming::Environment);
        match self.random.below(100) {
            0..25 => self.touch_podset(),
            25..37 => self.kill_pod(),
            37..47 => self.fail_pod(),
            47..55 => self.touch_site(),
            55..59 => self.touch_lookup(),
            59..66 => self.touch_census(),
            66..72 => self.touch_plugin(),
            72..78 => self.touch_rights()?,
            78..83 => self.crash()?,
            83..86 => self.touch_crd()?,
            86..91 => self.touch_metadata(),
            91..94 => self.touch_tenant(),
            94..97 => self.touch_spread(),
            97 => self.touch_copies(),
            _ => self.touch_child(),
        }
        Ok(())
    }

    fn podset_spec(&mut self) -> Value {
        let image = self.random.pick(&IMAGES).unwrap_or_default();
        let replicas = self.random.below(5);
        if self.random.chance(500) {
            json!({"replicas": replicas, "image": image})
        } else {
            json!({"replicas": replicas})
        }
    }

    fn touch_podset(&mut self) {
        if !self.cluster.serves(&podset_kind()) {
            return;
        }
        let name = self.random.pick(&NAMES).unwrap_or_default();
        let target = named(&podset_kind(), name);
        let spec = self.podset_spec();
        if self.cluster.get(&target).is_none() {
            let _ = self.cluster.put(object(&podset_kind(), name, &spec));
            return;
        }
        match self.random.below(10) {
            0..6 => {
                self.cluster.edit(&target, &json!({"spec": spec}));
            }
            6 => self.cluster.remove(&target),
            7 => {
                // Deleted and created again before the host sees it.
                self.cluster.remove(&target);
                let _ = self.cluster.put(object(&podset_kind(), name, &spec));
            }
            _ => {
                let replicas = self.random.below(5);
                self.cluster.edit(&target, &json!({"spec": {"replicas": replicas}}));
            }
        }
    }

    fn some(&mut self, kind: &Kind) -> Option<ObjectRef> {
        let all: Vec<ObjectRef> = self.cluster.list(kind).map(super::cluster::reference).collect();
        self.random.pick(&all)
    }

    fn kill_pod(&mut self) {
        let Some(target) = self.some(&pod()) else { return };
        if self.random.chance(300) {
            // By force, without a grace period.
            self.cluster.remove(&target);
        } else {
            let _ = self.cluster.delete(&target);
        }
    }

    fn fail_pod(&mut self) {
        let Some(target) = self.some(&pod()) else { return };
        let phase = if self.random.chance(700) { "Failed" } else { "Succeeded" };
        let _ = self.cluster.patch_status(&target, &json!({"phase": phase}));
    }

    fn touch_site(&mut self) {
        if !self.cluster.serves(&site_kind()) {
            return;
        }
        let target = named(&site_kind(), "home");
        let text = format!("page {}", self.random.below(5));
        let extra = if self.random.chance(500) { json!("more") } else { Value::Null };
        if self.cluster.get(&target).is_none() {
            let _ = self.cluster.put(object(&site_kind(), "home", &json!({"text": text})));
        } else if self.random.chance(100) {
            self.cluster.remove(&target);
        } else {
            self.cluster.edit(&target, &json!({"spec": {"text": text, "extra": extra}}));
        }
    }

    fn touch_lookup(&mut self) {
        if !self.cluster.serves(&lookup_kind()) {
            return;
        }
        let name = self.random.pick(&NAMES).unwrap_or_default();
        let target = named(&lookup_kind(), name);
        let spec = json!({"word": format!("word-{}", self.random.below(4))});
        if self.cluster.get(&target).is_none() {
            let _ = self.cluster.put(object(&lookup_kind(), name, &spec));
        } else if self.random.chance(200) {
            self.cluster.remove(&target);
        } else {
            self.cluster.edit(&target, &json!({"spec": spec}));
        }
    }

    fn touch_census(&mut self) {
        let settings = named(&config_map(), "settings");
        if self.cluster.get(&settings).is_none() {
            let mut object = object(&config_map(), "settings", &Value::Null);
            object["data"] = json!({"text": "one"});
            let _ = self.cluster.put(object);
        } else if self.random.chance(200) {
            self.cluster.remove(&settings);
        } else {
            let text = format!("text {}", self.random.below(4));
            self.cluster.edit(&settings, &json!({"data": {"text": text}}));
        }
        if self.cluster.serves(&census_kind()) && self.cluster.get(&named(&census_kind(), "all")).is_none() {
            let _ = self.cluster.put(object(&census_kind(), "all", &json!({"configMap": "settings"})));
        }
    }

    /// Creates a Tenant, or deletes it: it is removed once the host has removed its finalizer.
    fn touch_tenant(&mut self) {
        if !self.cluster.serves(&tenant_kind()) {
            return;
        }
        let name = self.random.pick(&NAMES).unwrap_or_default();
        let target = named(&tenant_kind(), name);
        if self.cluster.get(&target).is_none() {
            let _ = self.cluster.put(object(&tenant_kind(), name, &json!({})));
        } else {
            let _ = self.cluster.delete(&target);
        }
    }

    /// Creates a Spread, changes where it has copies, or deletes it.
    fn touch_spread(&mut self) {
        if !self.cluster.serves(&spread_kind()) {
            return;
        }
        let name = self.random.pick(&NAMES).unwrap_or_default();
        let target = named(&spread_kind(), name);
        let namespaces: Vec<&str> = ELSEWHERE.into_iter().filter(|_| self.random.chance(600)).collect();
        let spec = json!({"namespaces": namespaces, "data": {"a": self.random.below(3).to_string()}});
        if self.cluster.get(&target).is_none() {
            let _ = self.cluster.put(object(&spread_kind(), name, &spec));
        } else if self.random.chance(300) {
            let _ = self.cluster.delete(&target);
        } else {
            self.cluster.edit(&target, &json!({"spec": spec}));
        }
    }

    /// A copy vanishes with its namespace; somebody has its name, or makes a copy of it with its marks.
    fn touch_copies(&mut self) {
        let name = self.random.pick(&NAMES).unwrap_or_default();
        let namespace = self.random.pick(&ELSEWHERE).unwrap_or_default();
        let target = ObjectRef { kind: config_map(), name: Name::new(namespace, &copy_name(name)) };
        match self.cluster.get(&target).cloned() {
            None => {
                let mut stranger = object(&config_map(), &target.name.name, &Value::Null);
                stranger["metadata"]["namespace"] = json!(namespace);
                stranger["metadata"]["labels"] = json!({STRANGER: "yes"});
                let _ = self.cluster.put(stranger);
            }
            Some(_) if self.random.chance(500) => self.cluster.remove(&target),
            Some(mut copy) => {
                copy["metadata"]["name"] = json!("somebodys");
                copy["metadata"]["resourceVersion"].take();
                copy["metadata"]["labels"][STRANGER] = json!("yes");
                let _ = self.cluster.put(copy);
            }
        }
    }

    fn touch_plugin(&mut self) {
        let program = self.random.pick(&PROGRAMS).unwrap_or(Program::PodSet);
        let guest = Guest::new(program, u32::try_from(self.random.between(1, 3)).unwrap_or(1));
        if self.offers.contains_key(guest.name()) && self.random.chance(250) {
            self.withdraw(guest.name());
            return;
        }
        let config = if self.random.chance(400) { r#"{"image":"busybox:9"}"# } else { "{}" };
        self.offer(guest, config);
    }

    fn touch_rights(&mut self) -> Result<(), Violation> {
        let kind = self.random.pick(&contested()).expect("there are some");
        if !self.cluster.unreadable.is_empty() || !self.cluster.unwritable.is_empty() {
            self.cluster.unreadable.clear();
            self.cluster.unwritable.clear();
        } else if self.random.chance(500) {
            self.faults.count(Fault::ReadDenied);
            self.cluster.unreadable.insert(kind);
            self.end_watches()?;
        } else {
            self.faults.count(Fault::WriteDenied);
            self.cluster.unwritable.insert(kind);
        }
        Ok(())
    }

    fn touch_crd(&mut self) -> Result<(), Violation> {
        let kinds = [podset_kind(), site_kind(), census_kind(), mortise_core::plugin_object::kind()];
        let kind = self.random.pick(&kinds).expect("there are some");
        if !self.cluster.undefine(&kind) {
            return Ok(());
        }
        self.faults.count(Fault::CrdDeleted);
        self.end_watches()
    }

    /// Changes labels that mortise does not use.
    fn touch_metadata(&mut self) {
        let kind = self.random.pick(&[podset_kind(), site_kind(), pod(), config_map()]).expect("there are some");
        let Some(target) = self.some(&kind) else { return };
        let value = self.random.below(3).to_string();
        self.cluster.edit(&target, &json!({"metadata": {"labels": {"team": value}}}));
    }

    fn touch_child(&mut self) {
        let of_site =
            |life: &super::cluster::Life| life.deleted_at.is_none() && life.child_key.as_deref() == Some("content");
        let found = self.cluster.lives.values().find(|life| of_site(life)).map(|life| life.target.clone());
        let Some(target) = found else { return };
        match self.random.below(3) {
            0 => self.cluster.remove(&target),
            1 => {
                self.cluster.edit(&target, &json!({"data": {"theirs": "member"}}));
            }
            _ => self.touch_page(),
        }
    }

    /// Somebody creates an object with the name of a child, or deletes what has it.
    fn touch_page(&mut self) {
        let target = named(&config_map(), PAGE);
        if self.cluster.get(&target).is_some() {
            return self.cluster.remove(&target);
        }
        let _ = self.cluster.put(object(&config_map(), PAGE, &Value::Null));
    }
}
