//! Reading JSON objects into structs whose members may all be missing. serde's own derive would do, but writes a good
//! deal of code for every struct that no JSON ever reaches (structs as sequences, fields by number); this is a third
//! of it, which is what keeps components small.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Visitor};

/// Defines a struct that is read from a JSON object: each field has the name it is read from behind it, an absent one
/// has its default, unknown ones are skipped. No part of the API.
#[doc(hidden)]
#[macro_export]
macro_rules! record {
    (
        $(#[$about:meta])*
        $visibility:vis struct $name:ident $(<$($life:lifetime),*>)? {
            $($(#[$field_about:meta])* $field_visibility:vis $field:ident : $target:ty = $key:literal,)*
        }
    ) => {
        $(#[$about])*
        #[derive(::core::default::Default)]
        $visibility struct $name $(<$($life),*>)? {
            $($(#[$field_about])* $field_visibility $field: $target,)*
        }

        const _: () = {
            use $crate::__private::serde::de;

            impl<'de, $($($life),*)?> de::Deserialize<'de> for $name $(<$($life),*>)?
            where
                $($('de: $life,)*)?
            {
                fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> ::core::result::Result<Self, D::Error> {
                    struct Reader<T>(T);

                    impl<'de, $($($life),*)?> de::Visitor<'de> for Reader<$name $(<$($life),*>)?>
                    where
                        $($('de: $life,)*)?
                    {
                        type Value = $name $(<$($life),*>)?;

                        fn expecting(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                            f.write_str("an object")
                        }

                        fn visit_map<A: de::MapAccess<'de>>(
                            mut self,
                            mut map: A,
                        ) -> ::core::result::Result<Self::Value, A::Error> {
                            const NAMES: &[&str] = &[$($key),*];
                            while let Some(found) = map.next_key_seed($crate::__private::Names(NAMES))? {
                                let mut index = 0_usize;
                                $(
                                    if found == Some(index) {
                                        self.0.$field = map.next_value()?;
                                        continue;
                                    }
                                    index += 1;
                                )*
                                let _ = index;
                                map.next_value::<de::IgnoredAny>()?;
                            }
                            Ok(self.0)
                        }
                    }

                    deserializer.deserialize_map(Reader(<Self as ::core::default::Default>::default()))
                }
            }
        };
    };
}

/// Reads a key and tells which of the names it is.
pub struct Names(pub &'static [&'static str]);

impl<'de> DeserializeSeed<'de> for Names {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl Visitor<'_> for Names {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        Ok(self.0.iter().position(|name| *name == key))
    }
}
