//! The names of objects and kinds in story files. Text comes in with the kinds of a story; it must not know objects.

use mortise_core::object::{Kind, Name, ObjectRef};

/// "Pod default/a", "apps/v1/Deployment default/web", "Node node-0": a kind and, for "Pod default/web#0", the child "0" of an
/// object named web. The apiVersion is left out where `kinds` has one kind of that name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Named {
    pub(super) kind: Kind,
    pub(super) namespace: String,
    pub(super) name: String,
    /// The key of a child.
    pub(super) child: Option<String>,
}

impl Named {
    pub(super) fn parse(text: &str, kinds: &[Kind]) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no object: write \"Pod default/a\", or \"Pod default/web#0\" for a child");
        let (kind, name) = text.split_once(' ').ok_or_else(wrong)?;
        let kind = kind_of(kind, kinds)?;
        let (namespace, name) = name.split_once('/').unwrap_or(("", name));
        let (name, child) = name.split_once('#').map_or((name, None), |(name, child)| (name, Some(child.to_owned())));
        Ok(Self { kind, namespace: namespace.to_owned(), name: name.to_owned(), child })
    }

    pub(super) fn reference(&self) -> ObjectRef {
        ObjectRef { kind: self.kind.clone(), name: Name::new(&self.namespace, &self.name) }
    }
}

/// A kind by "apps/v1/Deployment", or by "Deployment" among known ones.
pub(super) fn kind_of(text: &str, kinds: &[Kind]) -> Result<Kind, String> {
    if let Some((api_version, kind)) = text.rsplit_once('/') {
        return Ok(Kind::new(api_version, kind));
    }
    let mut found = kinds.iter().filter(|known| *known.kind == *text);
    match (found.next(), found.next()) {
        (Some(kind), None) => Ok(kind.clone()),
        (None, _) => {
            Err(format!("no kind of this story is {text:?}: write it with its apiVersion, \"apps/v1/{text}\""))
        }
        (Some(one), Some(other)) => Err(format!("{text:?} is {one} or {other}: write it with its apiVersion")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_named_by_kind_and_name_or_by_its_key_as_a_child() {
        let kinds = [Kind::new("v1", "Pod"), Kind::new("v1", "Event"), Kind::new("events.k8s.io/v1", "Event")];
        let named = |text| Named::parse(text, &kinds).map(|named| (named.reference().to_string(), named.child));
        assert_eq!(named("Pod default/a"), Ok(("Pod default/a".to_owned(), None)));
        assert_eq!(named("Pod default/web#0"), Ok(("Pod default/web".to_owned(), Some("0".to_owned()))));
        assert_eq!(named("a.b/v1/C d"), Ok(("C d".to_owned(), None)));
        for (text, why) in [("Pod", "is no object"), ("Map a/b", "apps/v1/Map"), ("Event a/b", "or events.k8s.io")] {
            let error = named(text).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
