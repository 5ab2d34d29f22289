//! Conversion in native tests.

use serde::Serialize;
use serde_json::Value;

use super::cluster::{Cluster, tree};

impl Cluster {
    /// Converts an object to another version of its kind ("example.com/v1"), as the API server has it done.
    ///
    /// # Errors
    /// The plugin's reason why it cannot be converted.
    pub fn convert<T: Serialize>(&self, object: &T, to_api_version: &str) -> Result<Value, String> {
        let converted = self.plugin.convert(&tree(object).to_string(), to_api_version)?;
        Ok(serde_json::from_str(&converted).expect("an object that was read and written is JSON"))
    }
}
