//! The members of an object's JSON that the host reads, borrowed from the text. All but [`OwnFields`] live only while a
//! text is decoded.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::interner::Interner;
use super::labels;
use crate::heap::HeapBytes;
use crate::well_known::{
    CHILD_KEY_ANNOTATION, DESIRED_ANNOTATION, GENERATED_ANNOTATION, MANAGER_PREFIX, OWNER_ANNOTATION,
};

/// One of mortise's own managedFields entries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnFields {
    /// "mortise/podset".
    pub manager: Box<str>,
    /// True for server-side apply, false for Update.
    pub applied: bool,
    /// "status", or empty for the object itself.
    pub subresource: Box<str>,
    /// The fieldsV1 JSON text.
    pub fields: Box<str>,
}

impl HeapBytes for OwnFields {
    fn heap_bytes(&self) -> usize {
        self.manager.heap_bytes() + self.subresource.heap_bytes() + self.fields.heap_bytes()
    }
}

#[derive(Deserialize)]
pub(super) struct Header<'a> {
    #[serde(borrow, rename = "apiVersion")]
    pub(super) api_version: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) kind: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "object")]
    pub(super) metadata: Metadata<'a>,
    #[serde(borrow)]
    pub(super) status: Option<&'a RawValue>,
}

impl<'a> Header<'a> {
    pub(super) fn read(text: &'a str) -> Result<Self, serde_json::Error> {
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let header = object(&mut deserializer)?;
        deserializer.end()?;
        Ok(header)
    }
}

/// A struct of a JSON object. By itself serde takes a list of its fields too, from which nothing can be cut.
fn object<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    struct Reader<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for Reader<T> {
        type Value = T;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }
        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
            T::deserialize(MapAccessDeserializer::new(map))
        }
    }
    deserializer.deserialize_map(Reader(PhantomData))
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
pub(super) struct Metadata<'a> {
    #[serde(borrow)]
    pub(super) name: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) namespace: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) uid: Option<Text<'a>>,
    /// Borrowed, because its position in the text is needed; digits have no escapes.
    pub(super) resource_version: Option<&'a str>,
    pub(super) generation: Option<i64>,
    #[serde(borrow)]
    pub(super) creation_timestamp: Option<Text<'a>>,
    pub(super) deletion_timestamp: Option<IgnoredAny>,
    #[serde(borrow, default)]
    pub(super) labels: Labels<'a>,
    #[serde(borrow, default)]
    pub(super) annotations: Annotations<'a>,
    #[serde(borrow, default, rename = "ownerReferences")]
    pub(super) owners: ControllerReference<'a>,
    #[serde(borrow)]
    pub(super) managed_fields: Option<&'a RawValue>,
}

/// A string that is borrowed when it has no escapes; a plain `Option<Cow>` would always be copied.
#[derive(Deserialize)]
pub(crate) struct Text<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

#[derive(Default)]
pub(super) struct Labels<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl Labels<'_> {
    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(other, _)| other == key).map(|(_, value)| &**value)
    }

    pub(super) fn kept(&self, interner: &mut Interner) -> labels::Labels {
        if self.0.len() > labels::MAX_SHARED {
            return labels::Labels::of_text(self.0.iter().map(|(key, value)| (&**key, &**value)));
        }
        let interned = self.0.iter().map(|(key, value)| (interner.intern(key), interner.intern(value)));
        Vec::from_iter(interned).into()
    }
}

#[derive(Default)]
pub(super) struct Annotations<'a> {
    pub(super) child_key: Option<Cow<'a, str>>,
    pub(super) desired: Option<Cow<'a, str>>,
    pub(super) owner: Option<Cow<'a, str>>,
    /// It has the record of generated values.
    pub(super) is_generated: bool,
}

/// The owner reference with `controller: true`; the API server admits only one.
#[derive(Default)]
pub(super) struct ControllerReference<'a>(pub(super) Option<Owner<'a>>);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Owner<'a> {
    #[serde(borrow)]
    pub(super) api_version: Text<'a>,
    #[serde(borrow)]
    pub(super) kind: Text<'a>,
    #[serde(borrow)]
    pub(super) name: Text<'a>,
    #[serde(borrow)]
    pub(super) uid: Text<'a>,
    pub(super) controller: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ManagedFields<'a> {
    #[serde(borrow)]
    manager: Option<Text<'a>>,
    #[serde(borrow)]
    operation: Option<Text<'a>>,
    #[serde(borrow)]
    subresource: Option<Text<'a>>,
    #[serde(borrow, rename = "fieldsV1")]
    fields: Option<&'a RawValue>,
}

impl ManagedFields<'_> {
    fn is_own(&self) -> bool {
        self.manager.as_ref().is_some_and(|manager| manager.0.starts_with(MANAGER_PREFIX))
    }

    fn kept(&self) -> Option<OwnFields> {
        let text = |field: &Option<Text<'_>>| -> Box<str> { field.as_ref().map_or("", |text| &text.0).into() };
        let applied = self.operation.as_ref().is_some_and(|operation| operation.0 == "Apply");
        let status = self.subresource.as_ref().is_some_and(|subresource| subresource.0 == "status");
        (self.is_own() && (applied || status)).then(|| OwnFields {
            manager: text(&self.manager),
            applied,
            subresource: text(&self.subresource),
            fields: self.fields.map_or("{}", RawValue::get).into(),
        })
    }
}

/// Implements Deserialize by a visitor that also accepts null, which Go writes for an absent map or list.
macro_rules! deserialize_with {
    ($type:ident, $expecting:literal, |$access:ident: $trait:ident| $method:ident $body:block) => {
        impl<'de: 'a, 'a> Deserialize<'de> for $type<'a> {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Reader;
                impl<'de> Visitor<'de> for Reader {
                    type Value = $type<'de>;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expecting)
                    }
                    fn visit_unit<E>(self) -> Result<Self::Value, E> {
                        Ok($type::default())
                    }
                    fn $method<A: $trait<'de>>(self, mut $access: A) -> Result<Self::Value, A::Error> $body
                }
                deserializer.deserialize_any(Reader)
            }
        }
    };
}

deserialize_with!(Labels, "a map of strings", |map: MapAccess| visit_map {
    let mut labels = Vec::new();
    while let Some((Text(key), Text(value))) = map.next_entry()? {
        labels.push((key, value));
    }
    Ok(Labels(labels))
});

deserialize_with!(Annotations, "a map of strings", |map: MapAccess| visit_map {
    let mut annotations = Annotations::default();
    while let Some(Text(key)) = map.next_key()? {
        match &*key {
            CHILD_KEY_ANNOTATION => annotations.child_key = Some(map.next_value::<Text<'de>>()?.0),
            DESIRED_ANNOTATION => annotations.desired = Some(map.next_value::<Text<'de>>()?.0),
            OWNER_ANNOTATION => annotations.owner = Some(map.next_value::<Text<'de>>()?.0),
            key => {
                annotations.is_generated |= key == GENERATED_ANNOTATION;
                map.next_value::<IgnoredAny>()?;
            }
        }
    }
    Ok(annotations)
});

deserialize_with!(ControllerReference, "a list of owner references", |owners: SeqAccess| visit_seq {
    let mut controller = None;
    while let Some(owner) = owners.next_element::<Owner<'de>>()? {
        if owner.controller == Some(true) {
            controller = Some(owner);
        }
    }
    Ok(ControllerReference(controller))
});

/// The entries of plugins that are kept, and whether there is any of a plugin.
pub(super) fn own_fields(raw: &RawValue) -> Result<(Box<[OwnFields]>, bool), serde_json::Error> {
    let entries: Vec<ManagedFields<'_>> = serde_json::from_str(raw.get())?;
    let kept = entries.iter().filter_map(ManagedFields::kept).collect();
    Ok((kept, entries.iter().any(ManagedFields::is_own)))
}
