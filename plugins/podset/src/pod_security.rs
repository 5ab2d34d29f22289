//! What an administrator asks of Pods, in the plugin's configuration. The Pod that a set wants comes in; why it is refused
//! comes out. It must not know sets.

use mortise_pod_security::{Level, Pod, Standard, Version, details};
use mortise_sdk::prelude::*;

/// What every Pod runs as that names no ServiceAccount.
const DEFAULT: &str = "default";

/// The plugin's configuration, `config.yaml` of its ConfigMap or `config` of its Plugin. Empty, it asks for nothing.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Config {
    /// The level of the Pod Security Standards that a Pod has to meet.
    #[serde(default)]
    pod_security: Option<Level>,
    /// The ServiceAccounts that a Pod may name besides `default`. With a level and without this, no other.
    #[serde(default)]
    service_accounts: Option<Vec<String>>,
}

impl Config {
    /// Why a Pod is refused; None when it is not.
    pub(crate) fn refusal(&self, pod: &Json) -> Result<Option<String>, Failure> {
        if self.pod_security.is_none() && self.service_accounts.is_none() {
            return Ok(None);
        }
        let pod = pod.value()?;
        let (metadata, spec) = (&pod["metadata"], &pod["spec"]);
        Ok(self.of_service_account(spec).or_else(|| self.of_standard(Pod { metadata, spec })))
    }

    fn of_service_account(&self, spec: &Value) -> Option<String> {
        let named = self.service_accounts.iter().flatten().map(String::as_str);
        let allowed: Vec<&str> = [DEFAULT].into_iter().chain(named).collect();
        let is_allowed = |name: &str| name.is_empty() || allowed.contains(&name);
        // The API server reads the second, which is deprecated, where the first is absent.
        let mut fields = ["serviceAccountName", "serviceAccount"].into_iter();
        let field = fields.find(|field| !spec[*field].is_null() && !spec[*field].as_str().is_some_and(is_allowed))?;
        let (name, known) = (&spec[field], allowed.join(", "));
        Some(format!("spec.template.spec.{field}: {name} is not a ServiceAccount that a PodSet may name: {known}"))
    }

    fn of_standard(&self, pod: Pod<'_>) -> Option<String> {
        let standard = Standard { level: self.pod_security?, version: Version::LATEST };
        let found = standard.violations(pod);
        let what = details(&found);
        (!found.is_empty()).then(|| format!("spec.template violates PodSecurity \"{standard}\": {what}"))
    }
}
