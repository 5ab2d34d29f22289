//! Objects in other versions, as the API server has them converted before anybody sees them.

use serde::Serialize;
use serde_json::Value;

use super::cluster::{Cluster, tree};

impl Cluster {
    /// Somebody asks for an object in another version of its kind: "example.com/v1".
    ///
    /// # Errors
    /// Why that cannot be, in the plugin's words.
    pub fn convert<T: Serialize>(&self, object: &T, to_api_version: &str) -> Result<Value, String> {
        let converted = self.plugin.convert(&tree(object).to_string(), to_api_version)?;
        Ok(serde_json::from_str(&converted).expect("an object that was read and written is JSON"))
    }
}
