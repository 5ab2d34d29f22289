//! Inputs of native tests: what a test wrote down, read under the host's rules (declared kinds only, projected fields,
//! label and field selectors, the same order); in a story, the engine's own view.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use self::scope::Scope;
use self::tree::{identity, is_controlled_by, key_of, text};
use crate::error::ReadError;
use crate::http::{Request, RequestFailure, Response};
use crate::object::ObjectKey;
use crate::query::Query;
use crate::rejection::Rejection;

#[cfg(feature = "stories")]
pub(crate) mod engine;
pub(crate) mod fields;
mod patterns;
pub(crate) mod scope;
pub(crate) mod selector;
pub(crate) mod tree;

/// Namespaces of one query, as the host has it.
const MAX_NAMESPACES: usize = 100;
/// Requirements of one field selector, as the host has it.
const MAX_REQUIREMENTS: usize = 8;

/// The cluster of one call. Reads return JSON text.
pub(crate) enum View {
    /// What a test wrote down.
    Given(Given),
    /// What the engine shows, in a story.
    #[cfg(feature = "stories")]
    Engine(engine::EngineView),
}

impl View {
    pub(crate) fn get(&self, key: &ObjectKey, fields: &[&str]) -> Result<Option<String>, ReadError> {
        match self {
            Self::Given(given) => given.get(key, fields),
            #[cfg(feature = "stories")]
            Self::Engine(view) => view.get(key, fields),
        }
    }

    pub(crate) fn owned(&self, api_version: &str, kind: &str, fields: &[&str]) -> Result<String, ReadError> {
        match self {
            Self::Given(given) => given.owned(api_version, kind, fields),
            #[cfg(feature = "stories")]
            Self::Engine(view) => view.owned(api_version, kind, fields),
        }
    }

    pub(crate) fn list<T>(&self, query: &Query<T>) -> Result<String, ReadError> {
        match self {
            Self::Given(given) => given.list(query),
            #[cfg(feature = "stories")]
            Self::Engine(view) => view.list(query),
        }
    }

    pub(crate) fn keys<T>(&self, query: &Query<T>) -> Result<Vec<ObjectKey>, ReadError> {
        match self {
            Self::Given(given) => given.keys(query),
            #[cfg(feature = "stories")]
            Self::Engine(view) => view.keys(query),
        }
    }

    pub(crate) fn count<T>(&self, query: &Query<T>, limit: Option<u32>) -> Result<usize, ReadError> {
        match self {
            Self::Given(given) => given.count(query, limit),
            #[cfg(feature = "stories")]
            Self::Engine(view) => view.count(query, limit),
        }
    }

    pub(crate) fn rejected(&self) -> Vec<Rejection> {
        match self {
            Self::Given(given) => given.rejected.clone(),
            #[cfg(feature = "stories")]
            Self::Engine(view) => view.rejected(),
        }
    }

    /// A test knows its requests by their keys.
    pub(crate) fn response(&self, request: &Request) -> Option<Result<Response, RequestFailure>> {
        match self {
            Self::Given(given) => given.replies.get(request.key()).cloned(),
            #[cfg(feature = "stories")]
            Self::Engine(view) => view.response(request),
        }
    }
}

/// A cluster that a test wrote down.
pub(crate) struct Given {
    /// What is declared; patterns have the kind `*`.
    pub(crate) scopes: Vec<Scope>,
    /// apiVersion and kind of those that patterns have and the API server does not serve.
    pub(crate) not_served: Vec<(String, String)>,
    pub(crate) objects: Vec<Value>,
    pub(crate) owner_uid: String,
    pub(crate) rejected: Vec<Rejection>,
    pub(crate) replies: BTreeMap<String, Result<Response, RequestFailure>>,
}

impl Given {
    fn of_kind(&self, api_version: &str, kind: &str) -> Result<Vec<&Value>, ReadError> {
        let scope = self.scope(api_version, kind)?;
        let mut found = Vec::new();
        for object in self.objects.iter().filter(|object| object["apiVersion"] == api_version && object["kind"] == kind)
        {
            if scope.map_or(Ok(true), |scope| scope.contains(object)).map_err(ReadError::Invalid)? {
                found.push(object);
            }
        }
        found.sort_by_key(|object| identity(object));
        Ok(found)
    }

    /// What is declared of a kind; None for one that a pattern has.
    fn scope(&self, api_version: &str, kind: &str) -> Result<Option<&Scope>, ReadError> {
        let declared = self.scopes.iter().find(|scope| scope.is_of(api_version, kind));
        if declared.is_none() {
            self.check_dynamic(api_version, kind)?;
        }
        Ok(declared)
    }

    /// A kind that is not declared by name.
    fn check_dynamic(&self, api_version: &str, kind: &str) -> Result<(), ReadError> {
        if !self.scopes.iter().any(|known| patterns::has(&known.kind, api_version, kind)) {
            let why = format!(
                "{api_version}/{kind} is not declared, and no pattern has it: add it to owns(...) or reads(...) of \
                 #[reconciler]"
            );
            return Err(ReadError::Undeclared(why));
        }
        if self.not_served.iter().any(|(version, name)| version == api_version && name == kind) {
            let why = format!("the API server does not serve {api_version}/{kind}; is its CRD installed?");
            return Err(ReadError::NotServed(why));
        }
        Ok(())
    }

    /// A read that names a namespace which is not declared is an error.
    fn check_namespace(&self, api_version: &str, kind: &str, namespace: &str) -> Result<(), ReadError> {
        let Some(scope) = self.scope(api_version, kind)?.filter(|scope| !scope.has_namespace(namespace)) else {
            return Ok(());
        };
        let words = scope.words();
        let why = format!(
            "{api_version}/{kind} is declared {words}, and not in {namespace:?}: add it to the namespaces there"
        );
        Err(ReadError::Undeclared(why))
    }

    fn matching<T>(&self, query: &Query<T>) -> Result<Vec<&Value>, ReadError> {
        let mut found = self.of_kind(&query.api_version, &query.kind)?;
        if query.namespaces.len() > MAX_NAMESPACES {
            let count = query.namespaces.len();
            return Err(ReadError::Invalid(format!("the query names {count} namespaces, and 100 are the most")));
        }
        for namespace in &query.namespaces {
            self.check_namespace(&query.api_version, &query.kind, namespace)?;
        }
        if !query.namespaces.is_empty() {
            found.retain(|object| query.namespaces.iter().any(|each| text(object, "/metadata/namespace") == each));
        }
        if let Some(selector) = &query.selector {
            let requirements = selector::parse(selector).map_err(ReadError::Invalid)?;
            let none = Map::new();
            found.retain(|object| {
                let labels = object.pointer("/metadata/labels").and_then(Value::as_object).unwrap_or(&none);
                requirements.iter().all(|requirement| requirement.holds(labels))
            });
        }
        if query.field_selector.len() > MAX_REQUIREMENTS {
            let count = query.field_selector.len();
            return Err(ReadError::Invalid(format!("the field selector has {count} requirements, and 8 are the most")));
        }
        for (path, value) in &query.field_selector {
            let path = fields::parse(path).map_err(ReadError::Invalid)?;
            found.retain(|object| fields::has(object, &path, value));
        }
        found.truncate(query.limit.map_or(usize::MAX, |limit| limit as usize));
        Ok(found)
    }

    fn get(&self, key: &ObjectKey, fields: &[&str]) -> Result<Option<String>, ReadError> {
        let mut found = self.of_kind(&key.api_version, &key.kind)?;
        self.check_namespace(&key.api_version, &key.kind, key.namespace.as_deref().unwrap_or_default())?;
        found.retain(|object| key_of(object) == *key);
        let text = fields::project(&found, fields).map_err(ReadError::Invalid)?;
        Ok(text
            .strip_prefix('[')
            .and_then(|text| text.strip_suffix(']'))
            .filter(|text| !text.is_empty())
            .map(str::to_owned))
    }

    fn owned(&self, api_version: &str, kind: &str, fields: &[&str]) -> Result<String, ReadError> {
        let mut found = self.of_kind(api_version, kind)?;
        found.retain(|object| is_controlled_by(object, &self.owner_uid));
        found.sort_by_key(|object| text(object, "/metadata/name").to_owned());
        fields::project(&found, fields).map_err(ReadError::Invalid)
    }

    fn list<T>(&self, query: &Query<T>) -> Result<String, ReadError> {
        let fields: Vec<&str> = query.fields.iter().map(String::as_str).collect();
        fields::project(&self.matching(query)?, &fields).map_err(ReadError::Invalid)
    }

    fn keys<T>(&self, query: &Query<T>) -> Result<Vec<ObjectKey>, ReadError> {
        Ok(self.matching(query)?.into_iter().map(key_of).collect())
    }

    fn count<T>(&self, query: &Query<T>, limit: Option<u32>) -> Result<usize, ReadError> {
        let count = self.matching(query)?.len();
        Ok(limit.map_or(count, |limit| count.min(limit as usize)))
    }
}

/// What else a call can read: the time, schedules and the configuration.
#[derive(Clone, Debug)]
pub struct Inputs {
    now_unix_ms: u64,
    config: String,
    /// In a call of a story they are the view's, which records that they were read.
    #[cfg(feature = "stories")]
    view: Option<engine::EngineView>,
}

impl Inputs {
    pub(crate) fn given(now_unix_ms: u64, config: String) -> Self {
        Self {
            now_unix_ms,
            config,
            #[cfg(feature = "stories")]
            view: None,
        }
    }

    #[cfg(feature = "stories")]
    pub(crate) fn of_engine(view: engine::EngineView) -> Self {
        Self { view: Some(view), ..Self::given(0, String::new()) }
    }

    pub(crate) fn now_unix_ms(&self) -> u64 {
        #[cfg(feature = "stories")]
        if let Some(view) = &self.view {
            return view.now_unix_ms();
        }
        self.now_unix_ms
    }

    pub(crate) fn next_tick(&self, expression: &str, zone: &str, after: u64) -> Result<Option<u64>, String> {
        mortise_cron::next(expression, zone, after)
    }

    /// The newest tick, and how many ticks there are.
    pub(crate) fn latest_tick(
        &self,
        expression: &str,
        zone: &str,
        after: u64,
        until: u64,
    ) -> Result<Option<(u64, u64)>, String> {
        mortise_cron::latest(expression, zone, after, until)
    }

    pub(crate) fn config(&self) -> String {
        #[cfg(feature = "stories")]
        if let Some(view) = &self.view {
            return view.config();
        }
        self.config.clone()
    }
}
