//! The questions of one call, the same on wasm32 and in native tests.

use crate::error::ReadError;
use crate::object::ObjectKey;
use crate::query::Query;

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
