//! What a request is about, as authorizers, admission and the verbs see it. It must not know who asks.

use std::sync::Arc;

use crate::halt::Status;
use crate::resource::Resource;

/// What a request is about, as authorizers and admission see it.
#[derive(Clone, Debug)]
pub(crate) struct Attributes {
    pub(crate) verb: &'static str,
    pub(crate) resource: Arc<Resource>,
    pub(crate) namespace: String,
    /// Empty for lists, and for a create that leaves the name to the server.
    pub(crate) name: String,
    /// Empty for the object itself.
    pub(crate) subresource: String,
}

impl Attributes {
    /// Those of a part of the cluster that acts by itself on an object.
    pub(crate) fn of(verb: &'static str, resource: &Arc<Resource>, namespace: &str, name: &str) -> Self {
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        Self { verb, resource: resource.clone(), namespace, name, subresource: String::new() }
    }

    /// That the object is not there.
    pub(crate) fn not_found(&self) -> Status {
        Status::not_found(&self.resource.group, &self.resource.plural, &self.name)
    }
}
