//! Where reads go: to the host on wasm32, to an in-memory cluster in native tests. The two have the same
//! questions, so nothing above this file knows which one it talks to.

use crate::error::ReadError;
use crate::object::ObjectKey;
use crate::query::Query;

#[cfg(target_arch = "wasm32")]
pub(crate) use host::{View, emit};
#[cfg(not(target_arch = "wasm32"))]
pub(crate) use native::{View, emit};

/// The questions of one call. Answers about the cluster are JSON text.
pub(crate) trait Questions {
    fn get(&self, key: &ObjectKey) -> Result<Option<String>, ReadError>;
    fn owned(&self, api_version: &str, kind: &str, fields: &[&str]) -> Result<String, ReadError>;
    fn list<T>(&self, query: &Query<T>) -> Result<String, ReadError>;
    fn keys<T>(&self, query: &Query<T>) -> Result<Vec<ObjectKey>, ReadError>;
    fn now_unix_ms(&self) -> u64;
    fn next_tick(&self, expression: &str, zone: &str, after_unix_ms: u64) -> Result<Option<u64>, String>;
    /// The newest tick and how many there are.
    fn latest_tick(&self, expression: &str, zone: &str, after: u64, until: u64) -> Result<Option<(u64, u64)>, String>;
    fn config(&self) -> String;
}

#[cfg(target_arch = "wasm32")]
mod host {
    use super::{ObjectKey, Query, Questions, ReadError};
    use crate::bindings::mortise::host::{clock, cluster, config, log, objects, schedule};
    use crate::log::Level;

    /// The snapshot that the host handed over for this call.
    pub(crate) struct View(cluster::Snapshot);

    impl View {
        pub(crate) fn new(snapshot: cluster::Snapshot) -> Self {
            Self(snapshot)
        }
    }

    impl Questions for View {
        fn get(&self, key: &ObjectKey) -> Result<Option<String>, ReadError> {
            Ok(self.0.get(&key.clone().into())?)
        }

        fn owned(&self, api_version: &str, kind: &str, fields: &[&str]) -> Result<String, ReadError> {
            let fields: Vec<String> = fields.iter().map(|field| (*field).to_owned()).collect();
            Ok(self.0.owned(api_version, kind, &fields)?)
        }

        fn list<T>(&self, query: &Query<T>) -> Result<String, ReadError> {
            Ok(self.0.list(&contract_query(query))?)
        }

        fn keys<T>(&self, query: &Query<T>) -> Result<Vec<ObjectKey>, ReadError> {
            let keys: Vec<objects::ObjectKey> = self.0.keys(&contract_query(query))?;
            Ok(keys.into_iter().map(ObjectKey::from).collect())
        }

        fn now_unix_ms(&self) -> u64 {
            clock::now()
        }

        fn next_tick(&self, expression: &str, zone: &str, after_unix_ms: u64) -> Result<Option<u64>, String> {
            schedule::next(expression, zone, after_unix_ms)
        }

        fn latest_tick(
            &self,
            expression: &str,
            zone: &str,
            after: u64,
            until: u64,
        ) -> Result<Option<(u64, u64)>, String> {
            schedule::latest(expression, zone, after, until)
        }

        fn config(&self) -> String {
            config::get()
        }
    }

    fn contract_query<T>(query: &Query<T>) -> cluster::Query {
        cluster::Query {
            api_version: query.api_version.clone(),
            kind: query.kind.clone(),
            namespace: query.namespace.clone(),
            selector: query.selector.clone(),
            fields: query.fields.clone(),
            limit: query.limit,
        }
    }

    pub(crate) fn emit(level: Level, message: &str, fields: &[(String, String)]) {
        let level = match level {
            Level::Trace => log::Level::Trace,
            Level::Debug => log::Level::Debug,
            Level::Info => log::Level::Info,
            Level::Warn => log::Level::Warn,
            Level::Error => log::Level::Error,
        };
        log::emit(level, message, fields);
    }
}

#[cfg(not(target_arch = "wasm32"))]
mod native {
    use crate::log::Level;

    pub(crate) use crate::testing::View;

    /// Tests show what a plugin logs the way they show everything that is printed.
    pub(crate) fn emit(level: Level, message: &str, fields: &[(String, String)]) {
        let fields: String = fields.iter().map(|(name, value)| format!(" {name}={value}")).collect();
        eprintln!("{}: {message}{fields}", level.as_str());
    }
}
