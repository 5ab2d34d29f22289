//! What /metrics tells: how many requests there were and how many watches are open, under kube-apiserver's names. Input:
//! subjects and codes. Output: text in Prometheus' format. It must not know the cluster.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use mortise_local_cluster::Subject;

/// Series of each metric. Names come from clients; those beyond this are not counted, and no cluster has so many kinds.
const MAX_SERIES: usize = 10_000;

/// The counters.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    requests: Mutex<BTreeMap<String, u64>>,
    watches: Mutex<BTreeMap<String, u64>>,
}

/// An open watch; it is counted until this is dropped.
#[derive(Debug)]
pub(crate) struct OpenWatch {
    metrics: Arc<Metrics>,
    labels: String,
}

impl Metrics {
    /// Counts an answered request.
    pub(crate) fn count(&self, subject: &Subject, code: u16, dry_run: bool) {
        let dry_run = if dry_run { "All" } else { "" };
        let labels = format!("code=\"{code}\",{},dry_run=\"{dry_run}\"", labels(subject));
        add(&self.requests, labels);
    }

    /// Counts an open watch.
    pub(crate) fn open(self: &Arc<Self>, subject: &Subject) -> OpenWatch {
        let labels = labels(subject);
        add(&self.watches, labels.clone());
        OpenWatch { metrics: Arc::clone(self), labels }
    }

    /// All of them as text.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for (name, kind, help, counts) in [
            ("apiserver_longrunning_requests", "gauge", "Open watches.", &self.watches),
            ("apiserver_request_total", "counter", "Requests that were answered.", &self.requests),
        ] {
            let _ = writeln!(text, "# HELP {name} [STABLE] {help}\n# TYPE {name} {kind}");
            for (labels, count) in counts.lock().unwrap_or_else(PoisonError::into_inner).iter() {
                let _ = writeln!(text, "{name}{{{labels}}} {count}");
            }
        }
        text
    }
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        let mut watches = self.metrics.watches.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = watches.get_mut(&self.labels) {
            *count = count.saturating_sub(1);
        }
    }
}

fn add(counts: &Mutex<BTreeMap<String, u64>>, labels: String) {
    let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
    if counts.len() < MAX_SERIES || counts.contains_key(&labels) {
        *counts.entry(labels).or_default() += 1;
    }
}

fn labels(subject: &Subject) -> String {
    let scope = match subject {
        Subject { name, .. } if !name.is_empty() => "resource",
        Subject { verb: "create", .. } => "resource",
        Subject { namespace, .. } if !namespace.is_empty() => "namespace",
        Subject { resource, .. } if !resource.is_empty() => "cluster",
        _ => "",
    };
    let verb = match subject.verb {
        "create" => "POST".to_owned(),
        "update" => "PUT".to_owned(),
        verb => verb.to_uppercase(),
    };
    let mut text = "component=\"apiserver\"".to_owned();
    for (name, value) in [
        ("group", subject.group.as_str()),
        ("resource", &subject.resource),
        ("scope", scope),
        ("subresource", &subject.subresource),
        ("verb", &verb),
        ("version", &subject.version),
    ] {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let _ = write!(text, ",{name}=\"{value}\"");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_watches_are_counted_until_they_end() {
        let metrics = Arc::new(Metrics::default());
        let (resource, namespace) = ("secrets".to_owned(), "a".to_owned());
        let subject = Subject { verb: "watch", resource, namespace, version: "v1".to_owned(), ..Subject::default() };
        let line = "apiserver_longrunning_requests{component=\"apiserver\",group=\"\",resource=\"secrets\",scope=\"namespace\",\
                    subresource=\"\",verb=\"WATCH\",version=\"v1\"}";
        let open = metrics.open(&subject);
        assert!(metrics.text().contains(&format!("{line} 1\n")), "{}", metrics.text());
        drop(open);
        assert!(metrics.text().contains(&format!("{line} 0\n")), "{}", metrics.text());
    }
}
