//! What a user wants to do, as authorizers see it, and the words of its refusal. It must not know roles.

use crate::halt::Status;
use crate::path::Address;

/// An action on a resource or on a path. What does not apply is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Action<'a> {
    pub(crate) verb: &'a str,
    pub(crate) group: &'a str,
    pub(crate) resource: &'a str,
    pub(crate) subresource: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    /// A path that is no resource; then of the others only the verb counts.
    pub(crate) path: Option<&'a str>,
}

impl<'a> Action<'a> {
    /// The action of a verb on what is at an address.
    pub(crate) fn at(verb: &'a str, address: &Address<'a>) -> Self {
        Self {
            verb,
            group: address.group,
            resource: address.plural,
            subresource: address.subresource.unwrap_or_default(),
            namespace: address.namespace.unwrap_or_default(),
            name: address.name.unwrap_or_default(),
            path: None,
        }
    }

    /// The refusal. The reason is what an authorizer has to say besides, often nothing.
    pub(crate) fn forbidden(&self, user: &str, reason: &str) -> Status {
        // Messages must not look like HTML.
        let words = self.words(user).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let why = if reason.is_empty() { words } else { format!("{words}: {reason}") };
        Status::forbidden(self.group, self.resource, self.name, &why)
    }

    fn words(&self, user: &str) -> String {
        let (verb, group) = (self.verb, self.group);
        if let Some(path) = self.path {
            return format!("User {user:?} cannot {verb} path {path:?}");
        }
        let resource = self.combined();
        let place = match self.namespace {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace {namespace:?}"),
        };
        format!("User {user:?} cannot {verb} resource {resource:?} in API group {group:?} {place}")
    }

    /// `pods/log`, or `pods`.
    pub(crate) fn combined(&self) -> String {
        if self.subresource.is_empty() {
            self.resource.to_owned()
        } else {
            format!("{}/{}", self.resource, self.subresource)
        }
    }
}
