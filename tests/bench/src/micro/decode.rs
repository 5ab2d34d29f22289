//! The cost of a watch event before the engine's step: from JSON to an indexed object, and from the same JSON to the
//! types that kube-rs keeps.

use anyhow::Result;
use k8s_openapi::api::core::v1 as k8s;
use kube::api::DynamicObject;
use mortise_core::object::{Interner, Object};
use mortise_core::store::Store;
use std::time::Duration;

use crate::measure::{Case, Stopwatch};
use crate::sample::Pod;

/// Cached objects, so that the indexes have a realistic depth.
const OBJECTS: usize = 10_000;
/// Events per round: a few milliseconds.
const EVENTS: usize = 2_000;
const TARGET: Duration = Duration::from_micros(3);

/// The JSON of events, without and with managedFields. Each is a newer version of another Pod.
pub(crate) struct Texts {
    plain: Vec<String>,
    managed: Vec<String>,
}

impl Texts {
    pub(crate) fn new() -> Self {
        let pod = |number: usize| {
            // Spread over the whole store.
            let which = number * 7_919 % OBJECTS;
            Pod::new(which / 10, which % 10)
        };
        Self {
            plain: (0..EVENTS).map(|number| pod(number).json()).collect(),
            managed: (0..EVENTS).map(|number| pod(number).json_with_managed_fields()).collect(),
        }
    }
}

pub(crate) fn cases<'a>(texts: &'a Texts, cases: &mut Vec<Case<'a>>) -> Result<()> {
    for (name, events, held) in [
        ("watch event, 2.3 KB Pod: decode and index", &texts.plain, false),
        ("watch event, with managedFields (3.7 KB): decode and index", &texts.managed, false),
        ("watch event, 2.3 KB Pod: decode and index, with a held snapshot", &texts.plain, true),
    ] {
        let mut cache = Cache::new()?;
        let case = Case::new(name, move |stopwatch| cache.apply(events, held, stopwatch));
        cases.push(if held { case } else { case.target(TARGET) });
    }
    cases.push(parse::<k8s::Pod>("the same 2.3 KB: decode to k8s-openapi's Pod, as kube-rs does", &texts.plain));
    cases.push(parse::<k8s::Pod>("the same 3.7 KB: decode to k8s-openapi's Pod, as kube-rs does", &texts.managed));
    cases.push(parse::<DynamicObject>("the same 2.3 KB: decode to kube's DynamicObject", &texts.plain));
    Ok(())
}

fn parse<'a, K: serde::de::DeserializeOwned>(name: &str, events: &'a [String]) -> Case<'a> {
    Case::new(name, move |stopwatch| {
        for event in events {
            drop(stopwatch.one(|| serde_json::from_str::<K>(event))?);
        }
        Ok(())
    })
}

/// A filled store, and the version of its last event.
struct Cache {
    store: Store,
    interner: Interner,
    version: u64,
    text: String,
}

impl Cache {
    fn new() -> Result<Self> {
        let (mut store, mut interner) = (Store::new(), Interner::default());
        for number in 0..OBJECTS {
            let pod = Pod::new(number / 10, number % 10);
            store.list_item(Object::decode(pod.json().as_bytes(), &mut interner)?);
        }
        Ok(Self { store, interner, version: 1_000_000, text: String::new() })
    }

    fn apply(&mut self, events: &[String], held: bool, stopwatch: &mut Stopwatch) -> Result<()> {
        for event in events {
            self.renew(event);
            // Held across the event, as by a running guest call; dropped outside the measurement.
            let snapshot = held.then(|| self.store.snapshot());
            let change = stopwatch.one(|| -> Result<_> {
                let object = Object::decode(self.text.as_bytes(), &mut self.interner)?;
                Ok(self.store.apply(object))
            })?;
            anyhow::ensure!(
                change.before.is_some() && change.after.is_some(),
                "the event changed nothing: {}",
                self.text
            );
            drop(snapshot);
        }
        Ok(())
    }

    /// Gives the event the next version, so that it is a change.
    fn renew(&mut self, event: &str) {
        const FIELD: &str = "\"resourceVersion\":\"";
        self.version += 1;
        let begin = event.find(FIELD).expect("sample Pods have a version") + FIELD.len();
        let end = begin + event[begin..].find('"').expect("the version is a string");
        self.text.clear();
        self.text.push_str(&event[..begin]);
        self.text.push_str(&self.version.to_string());
        self.text.push_str(&event[end..]);
    }
}
