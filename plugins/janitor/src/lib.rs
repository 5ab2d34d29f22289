//! Janitor deletes what is labelled with a time to live. A Pod, Job or Namespace is the input; its delete, or the time of
//! the next call, comes out. The host has the clock.

use mortise_sdk::GoDuration;
use mortise_sdk::prelude::*;

#[cfg(test)]
mod tests;

plugin!(pods, jobs, namespaces);

/// The label with the time to live: "24h", "90m". A label, because a predicate can select by its existence.
const TTL: &str = "janitor.example.com/ttl";

/// An object of any of the three kinds.
#[derive(Deserialize)]
struct Labelled {
    metadata: ObjectMeta,
}

#[controller(kind = "v1/Pod", labels = "janitor.example.com/ttl", writes("v1/Pod", "delete"))]
fn pods(pod: &Labelled, cx: &Context) -> Result<Outcome, Failure> {
    Ok(clean("v1", "Pod", &pod.metadata, cx.now_unix_ms()))
}

#[controller(kind = "batch/v1/Job", labels = "janitor.example.com/ttl", writes("batch/v1/Job", "delete"))]
fn jobs(job: &Labelled, cx: &Context) -> Result<Outcome, Failure> {
    Ok(clean("batch/v1", "Job", &job.metadata, cx.now_unix_ms()))
}

#[controller(kind = "v1/Namespace", labels = "janitor.example.com/ttl", writes("v1/Namespace", "delete"))]
fn namespaces(namespace: &Labelled, cx: &Context) -> Result<Outcome, Failure> {
    Ok(clean("v1", "Namespace", &namespace.metadata, cx.now_unix_ms()))
}

/// Deletes an object whose time is over; otherwise comes back when it is.
fn clean(api_version: &str, kind: &str, metadata: &ObjectMeta, now_unix_ms: u64) -> Outcome {
    let ttl = metadata.labels.get(TTL).map(String::as_str).unwrap_or_default();
    let ttl = match ttl.parse::<GoDuration>() {
        Ok(ttl) => Duration::from(ttl),
        // Kubernetes writes the status of these kinds, so an Event says what is wrong.
        Err(error) => return Outcome::new().event(Event::warning("InvalidTtl", error.message())),
    };
    let created = metadata.creation_timestamp.as_deref().and_then(Timestamp::parse).map_or(0, Timestamp::unix_ms);
    let end = created.saturating_add(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
    if now_unix_ms < end {
        return Outcome::new().requeue_after(Duration::from_millis(end - now_unix_ms));
    }
    let object = ObjectKey::new(api_version, kind, metadata.namespace.as_deref(), &metadata.name);
    let event = Event::normal("Expired", format!("{kind} {} is deleted after its time to live", metadata.name));
    Outcome::new().action(Delete::new(object)).event(event)
}
