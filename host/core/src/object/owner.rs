//! Whose child an object is. A tracked child has no owner reference, because its owner is in another namespace: a label
//! and an annotation mark it. This module writes and reads the marks.
//!
//! The annotation names the child itself, so that a copy of an object, which has its labels and annotations, is
//! nobody's child. The marks say nothing about who wrote them: a user who may write an object may give it away. Only objects
//! that a plugin's field manager has written are taken for children by their marks, which keeps out what was copied and not
//! what was forged with care; `left_out.rs` bounds that.

use std::fmt::Write as _;
use std::sync::Arc;

use super::{Kind, Name, Object, ObjectRef};

/// Between the owner and the child; neither kinds nor the names of children have spaces.
const OWNS: &str = " owns ";

/// An owner, and where its children may be.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Owner {
    /// Its metadata.uid.
    pub uid: Arc<str>,
    /// The only namespace of its children; None: they may be in any.
    pub namespace: Option<Arc<str>>,
}

impl Owner {
    /// An object as the owner of children of one kind, which are `tracked` or have owner references. Those of a
    /// namespaced owner are in its namespace; Kubernetes ignores owner references across namespaces, too.
    pub fn of(object: &Object, tracked: bool) -> Self {
        let namespace = &object.name.namespace;
        let is_anywhere = tracked || namespace.is_empty();
        Self { uid: Arc::clone(&object.uid), namespace: (!is_anywhere).then(|| Arc::clone(namespace)) }
    }

    /// Whether it is the owner of an object.
    pub fn owns(&self, object: &Object) -> bool {
        object.controller.as_ref().is_some_and(|controller| controller.uid == self.uid)
            && self.namespace.as_ref().is_none_or(|namespace| *namespace == object.name.namespace)
    }
}

/// The annotation of a tracked child.
pub fn mark(owner: &Object, child: &ObjectRef) -> String {
    format!("{} {}{OWNS}{}", owner.kind, owner.name, subject(&child.kind, &child.name.namespace, &child.name.name))
}

/// The owner in the annotation of an object: kind, namespace and name. None if the annotation is about another object.
pub(super) fn read_mark<'a>(mark: &'a str, kind: &Kind, name: &Name) -> Option<((&'a str, &'a str), &'a str, &'a str)> {
    let (owner, child) = mark.rsplit_once(OWNS)?;
    if child != subject(kind, &name.namespace, &name.name) {
        return None;
    }
    let (owner_kind, owner_name) = owner.split_once(' ')?;
    let (namespace, name) = owner_name.split_once('/').unwrap_or(("", owner_name));
    Some((owner_kind.rsplit_once('/')?, namespace, name))
}

/// "ConfigMap b/x", "Deployment.apps b/x". Without the version, which may change while the object stays.
fn subject(kind: &Kind, namespace: &str, name: &str) -> String {
    let mut text = kind.kind.to_string();
    if !kind.group().is_empty() {
        _ = write!(text, ".{}", kind.group());
    }
    text.push(' ');
    if !namespace.is_empty() {
        text.push_str(namespace);
        text.push('/');
    }
    text.push_str(name);
    text
}
