//! Writes JSON text piece by piece. The manifest and its schemas are written this way and not as trees: building trees is
//! most of what a small component would consist of.

use serde::Serialize;

/// JSON text in the making. Commas come by themselves; whoever opens closes.
#[derive(Default)]
pub struct Text(Vec<u8>);

impl Text {
    /// Begins an object or array as the next member or element.
    pub(crate) fn open(&mut self, bracket: u8) -> &mut Self {
        self.comma();
        self.0.push(bracket);
        self
    }

    /// Ends what was begun.
    pub(crate) fn close(&mut self, bracket: u8) -> &mut Self {
        self.0.push(bracket);
        self
    }

    /// The name of the next member.
    pub(crate) fn name(&mut self, name: &str) -> &mut Self {
        self.value(name);
        self.0.push(b':');
        self
    }

    /// An element, or what belongs to the last name.
    pub(crate) fn value<T: Serialize + ?Sized>(&mut self, value: &T) -> &mut Self {
        self.comma();
        // Writing into memory cannot fail, and what is written here has no map with other keys than text.
        let _ = serde_json::to_writer(&mut self.0, value);
        self
    }

    /// A member with a text.
    #[inline(never)]
    pub(crate) fn text(&mut self, name: &str, value: &str) -> &mut Self {
        self.name(name).value(value)
    }

    /// A member that is true.
    #[inline(never)]
    pub(crate) fn flag(&mut self, name: &str) -> &mut Self {
        self.name(name).value(&true)
    }

    /// A member that lists texts, when there are any.
    #[inline(never)]
    pub(crate) fn texts(&mut self, name: &str, values: &[&str]) -> &mut Self {
        if values.is_empty() { self } else { self.name(name).value(values) }
    }

    /// A part that is JSON already.
    #[inline(never)]
    pub(crate) fn raw(&mut self, json: &str) -> &mut Self {
        self.comma();
        self.0.extend_from_slice(json.as_bytes());
        self
    }

    #[inline(never)]
    fn comma(&mut self) {
        if !matches!(self.0.last(), None | Some(b'{' | b'[' | b':')) {
            self.0.push(b',');
        }
    }

    /// The text.
    pub(crate) fn finish(self) -> String {
        String::from_utf8(self.0).expect("JSON that was written from text is text")
    }
}
