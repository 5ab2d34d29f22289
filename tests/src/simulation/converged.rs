//! The end of every run: no more faults, all rights are restored, and the cluster has to converge to its objects' specs
//! and become quiet.

use std::collections::BTreeSet;

use mortise_core::object::ObjectRef;
use serde_json::{Value, json};

use super::cluster::{config_map, is_deleting, pod};
use super::environment::{STRANGER, named};
use super::guests::{
    Guest, PAGE, PROGRAMS, TOKEN, census_kind, copy_name, has_token, lookup_kind, podset_kind, site_kind, spread_kind,
    tenant_kind, tenant_label,
};
use super::oracle::Violation;
use super::world::{Upcoming, World};

/// Steps within which a cluster has to become quiet.
const MAX_STEPS: u64 = 60_000;
/// Simulated time for that: longer than the longest backoff plus an open breaker.
const REST_MS: u64 = 2 * 3_600 * 1_000;
/// Simulated time without calls and writes after that.
const QUIET_MS: u64 = 3_600 * 1_000;

fn violated<T>(rule: &'static str, message: String) -> Result<T, Violation> {
    Err(Violation { rule, message })
}

impl World {
    /// Ends the faults and restores rights and plugins. What has the names of copies is removed.
    pub fn calm(&mut self) {
        self.note(|| "CALM".to_owned());
        self.faults.on = false;
        self.cluster.unreadable.clear();
        self.cluster.unwritable.clear();
        let is_strange = |found: &&Value| found["metadata"]["labels"][STRANGER] == "yes";
        let strangers: Vec<ObjectRef> =
            self.cluster.list(&config_map()).filter(is_strange).map(super::cluster::reference).collect();
        strangers.iter().for_each(|stranger| self.cluster.remove(stranger));
        for program in PROGRAMS {
            let guest = Guest::new(program, 1);
            if !self.offers.contains_key(guest.name()) {
                self.offer(guest, "{}");
            }
        }
    }

    pub fn rest(&mut self, for_ms: u64) -> Result<(), Violation> {
        let (until_ms, steps) = (self.now_ms + for_ms, self.steps);
        while self.step(until_ms)? {
            if self.steps - steps > MAX_STEPS {
                return violated("becomes quiet", format!("not within {MAX_STEPS} steps"));
            }
        }
        self.advance(until_ms);
        Ok(())
    }

    /// Converges, and stays converged without writes, also over a restart of the host.
    pub fn converge(&mut self) -> Result<(), Violation> {
        self.rest(REST_MS)?;
        self.check_converged()?;
        self.check_quiet()?;
        self.check_restart()
    }

    /// No write and no call while nothing changes.
    pub fn check_quiet(&mut self) -> Result<(), Violation> {
        let (requests, calls) = (self.requests.len(), self.calls);
        self.rest(QUIET_MS)?;
        if self.requests.len() > requests || self.calls > calls {
            let sent = &self.requests[requests..];
            return violated("X5 quiet when converged", format!("{} calls, {sent:?}", self.calls - calls));
        }
        Ok(())
    }

    /// A host that starts on a converged cluster calls the guest once per object, but for waits, and writes nothing.
    fn check_restart(&mut self) -> Result<(), Violation> {
        let (requests, calls, waits) = (self.requests.len(), self.calls, self.waits);
        self.crash()?;
        self.rest(REST_MS)?;
        let primaries = PROGRAMS.map(|program| Guest::new(program, 1).primary());
        // The replies of HTTP requests do not outlive the host: a Lookup is called without one first.
        let objects: usize = primaries.iter().chain([&lookup_kind()]).map(|kind| self.cluster.list(kind).count()).sum();
        // A Census may be called once more for each of its two dynamic kinds.
        let waited = self.waits - waits;
        let most = 2 * self.cluster.list(&census_kind()).count();
        let called = self.calls - calls - waited;
        if self.requests.len() > requests || called != objects as u64 || waited > most as u64 {
            let sent = &self.requests[requests..];
            let message = format!("{called} calls and {waited} waits for {objects} objects, {sent:?}");
            return violated("X5 a restart writes nothing", message);
        }
        self.check_converged()
    }

    fn check_converged(&self) -> Result<(), Violation> {
        self.check_state().or_else(|message| violated("converges", message))
    }

    fn check_state(&self) -> Result<(), String> {
        if let Some(error) = self.engine.health().plugins.iter().find(|plugin| !plugin.ready || plugin.loading) {
            return Err(format!("the plugin {error:?} is not ready"));
        }
        for (name, offer) in &self.offers {
            let live = self.cluster.get(&plugin_object(name));
            let digest = live.map_or(Value::Null, |live| live["status"]["digest"].clone());
            if digest != *offer.digest.0 {
                return Err(format!("the Plugin object {name} has the digest {digest}, not {}", offer.digest));
            }
        }
        self.cluster.list(&podset_kind()).try_for_each(|set| self.check_podset(set))?;
        self.cluster.list(&site_kind()).try_for_each(|site| self.check_site(site))?;
        self.cluster.list(&census_kind()).try_for_each(|census| self.check_census(census))?;
        self.cluster.list(&tenant_kind()).try_for_each(|tenant| self.check_tenant(tenant))?;
        self.cluster.list(&spread_kind()).try_for_each(|spread| self.check_spread(spread))?;
        self.cluster.list(&lookup_kind()).try_for_each(|lookup| self.check_lookup(lookup))?;
        if !self.faults.silent {
            // A finalizer's cleanup sees the view once: what it missed by a lost event, no later audit repairs.
            self.check_marks()?;
        }
        self.check_orphans()
    }

    fn check_podset(&self, set: &Value) -> Result<(), String> {
        let name = &set["metadata"]["name"];
        let mine: Vec<&Value> =
            self.cluster.list(&pod()).filter(|pod| owner_uid(pod) == &set["metadata"]["uid"]).collect();
        let running = mine.iter().all(|pod| pod["status"]["phase"] == "Running");
        let replicas = set["spec"]["replicas"].as_u64().unwrap_or(1);
        if mine.len() as u64 != replicas || !running {
            return Err(format!("PodSet {name} wants {replicas} Pods and has {mine:?}"));
        }
        let offer = &self.offers["podset"];
        let config: Value = serde_json::from_str(&offer.config).unwrap_or_default();
        let image = set["spec"]["image"].as_str().or(config["image"].as_str()).unwrap_or("busybox");
        let version = Guest::of(&offer.digest).map_or(0, |guest| guest.version).to_string();
        for pod in &mine {
            let found = &pod["spec"]["containers"][0]["image"];
            if found != image || pod["metadata"]["labels"]["version"] != version {
                return Err(format!("PodSet {name} wants image {image} and version {version}, found {pod}"));
            }
        }
        let names: BTreeSet<&str> = mine.iter().filter_map(|pod| pod["metadata"]["name"].as_str()).collect();
        check_status(set, &json!({"replicas": names.len(), "podNames": names}))
    }

    fn check_site(&self, site: &Value) -> Result<(), String> {
        let version = Guest::of(&self.offers["site"].digest).map_or(0, |guest| guest.version);
        let uid = &site["metadata"]["uid"];
        let of_site = |found: &&Value| owner_uid(found) == uid;
        let key = |found: &&Value| found["metadata"]["annotations"]["mortise.dev/child"].clone();
        let (others, mine): (Vec<&Value>, Vec<&Value>) =
            self.cluster.list(&config_map()).filter(of_site).partition(|found| key(found) != "content");
        let text = site["spec"]["text"].as_str().unwrap_or_default();
        let mut data = json!({"index.html": text});
        if site["spec"]["extra"].is_string() {
            data["extra"] = site["spec"]["extra"].clone();
        }
        let [only] = mine.as_slice() else { return Err(format!("Site home has the ConfigMaps {mine:?}")) };
        let mut found = only["data"].clone();
        if version < 2 {
            // It does not own the map.
            found.as_object_mut().map(|members| members.remove("theirs"));
        }
        if found != data {
            return Err(format!("Site home wants {data}, found {only}"));
        }
        let ready = site["status"]["conditions"].as_array().and_then(|all| all.iter().find(|c| c["type"] == "Ready"));
        if ready.is_none_or(|ready| ready["status"] != "True" || ready["lastTransitionTime"].is_null()) {
            return Err(format!("Site home is not Ready: {}", site["status"]));
        }
        let keys: Vec<Value> = others.iter().map(key).collect();
        let page = self.cluster.get(&named(&config_map(), PAGE));
        let has_page = page.is_some_and(|page| owner_uid(page) == uid);
        // A token that is kept may be there or not, and another's page stays.
        let is_complete = (!has_token(text) || keys.contains(&json!(TOKEN))) && page.is_some();
        if (version < 2 && !keys.is_empty()) || (version >= 2 && !is_complete) {
            return Err(format!("Site home of version {version} has {keys:?}, and the page is its own: {has_page}"));
        }
        check_status(site, &json!({"bytes": text.len()}))
    }

    fn check_census(&self, census: &Value) -> Result<(), String> {
        let is_counted = |pod: &&Value| pod["metadata"]["labels"]["app"] == "podset";
        let pods = self.cluster.list(&pod()).filter(is_counted).count();
        let settings = self.cluster.get(&named(&config_map(), "settings"));
        let text = settings.map_or(Value::Null, |settings| settings["data"]["text"].clone());
        let mut wanted = json!({"pods": pods});
        if !text.is_null() {
            wanted["settings"] = text;
        }
        check_status(census, &wanted)
    }

    fn check_tenant(&self, tenant: &Value) -> Result<(), String> {
        let name = tenant["metadata"]["name"].as_str().unwrap_or_default();
        if is_deleting(tenant) || tenant["metadata"]["finalizers"] != json!(["mortise.dev/tenant"]) {
            return Err(format!("Tenant {name} is being deleted, or has no finalizer: {tenant}"));
        }
        let settings = self.cluster.get(&named(&config_map(), "settings"));
        if settings.is_some_and(|settings| settings["metadata"]["labels"][tenant_label(name)] != "on") {
            return Err(format!("Tenant {name} has not marked {settings:?}"));
        }
        check_status(tenant, &json!({"marks": settings.is_some()}))
    }

    fn check_spread(&self, spread: &Value) -> Result<(), String> {
        let (name, uid) = (spread["metadata"]["name"].as_str().unwrap_or_default(), &spread["metadata"]["uid"]);
        let label = |found: &Value| found["metadata"]["labels"]["mortise.dev/owner-uid"].clone();
        let mine: Vec<&Value> = self.cluster.list(&config_map()).filter(|found| label(found) == *uid).collect();
        let is_copy =
            |copy: &&Value| copy["metadata"]["name"] == copy_name(name) && copy["data"] == spread["spec"]["data"];
        let found: Vec<&Value> =
            mine.iter().filter(|copy| is_copy(copy)).map(|copy| &copy["metadata"]["namespace"]).collect();
        let wanted: Vec<&Value> = spread["spec"]["namespaces"].as_array().into_iter().flatten().collect();
        if found != wanted || mine.len() != wanted.len() {
            return Err(format!("Spread {name} wants copies in {wanted:?}, found {mine:?}"));
        }
        check_status(spread, &json!({"copies": wanted.len()}))
    }

    /// No mark of a deleted Tenant is left.
    fn check_marks(&self) -> Result<(), String> {
        let Some(settings) = self.cluster.get(&named(&config_map(), "settings")) else { return Ok(()) };
        let marks = settings["metadata"]["labels"].as_object().into_iter().flat_map(|labels| labels.keys());
        let mut tenants = marks.filter_map(|label| label.strip_prefix("tenant-"));
        match tenants.find(|tenant| self.cluster.get(&named(&tenant_kind(), tenant)).is_none()) {
            Some(gone) => Err(format!("the mark of Tenant {gone} has outlived it: {settings}")),
            None => Ok(()),
        }
    }

    /// No child outlives its owner.
    fn check_orphans(&self) -> Result<(), String> {
        let mut lives = self.cluster.lives.iter().filter(|(_, life)| life.deleted_at.is_none());
        let orphan = lives.find(|(_, life)| {
            let owner = life.owner.as_ref().and_then(|owner| self.cluster.lives.get(&owner.uid));
            owner.is_some_and(|owner| owner.deleted_at.is_some())
        });
        orphan.map_or(Ok(()), |(uid, life)| Err(format!("{} ({uid}) has outlived its owner", life.target)))
    }

    pub fn run(&mut self, chaos_ms: u64) -> Result<(), Violation> {
        self.begin()?;
        self.run_until(chaos_ms)?;
        self.calm();
        self.converge()
    }

    pub fn begin(&mut self) -> Result<(), Violation> {
        self.faults.on = true;
        self.install();
        self.start()?;
        self.schedule(200, Upcoming::Environment);
        Ok(())
    }

    pub fn run_until(&mut self, until_ms: u64) -> Result<(), Violation> {
        while self.step(until_ms)? {}
        self.advance(until_ms);
        Ok(())
    }
}

fn plugin_object(name: &str) -> ObjectRef {
    ObjectRef { kind: mortise_core::plugin_object::kind(), name: mortise_core::object::Name::new("", name) }
}

fn owner_uid(object: &Value) -> &Value {
    &object["metadata"]["ownerReferences"][0]["uid"]
}

/// The status is the wanted one, of this generation, and not Stalled.
pub fn check_status(object: &Value, wanted: &Value) -> Result<(), String> {
    let mut status = object["status"].clone();
    let observed = status["observedGeneration"].take();
    let conditions = status["conditions"].take();
    let stalled = conditions.as_array().into_iter().flatten().any(|condition| condition["type"] == "Stalled");
    if let Value::Object(fields) = &mut status {
        fields.remove("observedGeneration");
        fields.remove("conditions");
    }
    if status != *wanted || observed != object["metadata"]["generation"] || stalled {
        return Err(format!("expected the status {wanted}, found {object}"));
    }
    Ok(())
}
