//! The ServiceAccount as which the host sends what a plugin does. It must not know requests: the client impersonates it.

use std::fmt;
use std::sync::Arc;

/// A ServiceAccount. Its display is "mortise-system/podset".
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ServiceAccount {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
}

impl ServiceAccount {
    /// The user that it is for the API server.
    ///
    /// ```
    /// use mortise_core::service_account::ServiceAccount;
    ///
    /// let account = ServiceAccount { namespace: "mortise-system".into(), name: "podset".into() };
    /// assert_eq!(account.user(), "system:serviceaccount:mortise-system:podset");
    /// ```
    pub fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }

    /// The groups in which the API server has it.
    pub fn groups(&self) -> [String; 3] {
        let of_namespace = format!("system:serviceaccounts:{}", self.namespace);
        ["system:serviceaccounts".to_owned(), of_namespace, "system:authenticated".to_owned()]
    }
}

impl fmt::Display for ServiceAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
