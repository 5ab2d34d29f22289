//! Writes JSON text piece by piece. The manifest and its schemas are written this way and not as trees: building trees
//! is most of what a small component would consist of.

use serde::Serialize;

/// JSON text under construction. It adds the commas; the caller closes every bracket that it opens.
#[derive(Default)]
pub struct Text(Vec<u8>);

impl Text {
    /// Opens an object or array as the next member or element.
    pub(crate) fn open(&mut self, bracket: u8) -> &mut Self {
        self.comma();
        self.0.push(bracket);
        self
    }

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

    /// An element, or the value of the member that was named last.
    pub(crate) fn value<T: Serialize + ?Sized>(&mut self, value: &T) -> &mut Self {
        self.comma();
        // Writing into memory cannot fail, and no map that is written here has other keys than strings.
        let _ = serde_json::to_writer(&mut self.0, value);
        self
    }

    /// A member with a string.
    #[inline(never)]
    pub(crate) fn text(&mut self, name: &str, value: &str) -> &mut Self {
        self.name(name).value(value)
    }

    /// A member that is true.
    #[inline(never)]
    pub(crate) fn flag(&mut self, name: &str) -> &mut Self {
        self.name(name).value(&true)
    }

    /// A member with a list of strings, unless the list is empty.
    #[inline(never)]
    pub(crate) fn texts(&mut self, name: &str, values: &[&str]) -> &mut Self {
        if values.is_empty() { self } else { self.name(name).value(values) }
    }

    /// A member with an object of strings, unless the object is empty.
    #[inline(never)]
    pub(crate) fn pairs(&mut self, name: &str, pairs: &[(&str, &str)]) -> &mut Self {
        if pairs.is_empty() {
            return self;
        }
        self.name(name).open(b'{');
        for (name, value) in pairs {
            self.text(name, value);
        }
        self.close(b'}')
    }

    /// A member with a list, unless the list is empty. `write` writes one element.
    pub(crate) fn list<T>(&mut self, name: &str, items: impl IntoIterator<Item = T>, write: impl Fn(T, &mut Self)) {
        let mut items = items.into_iter().peekable();
        if items.peek().is_none() {
            return;
        }
        self.name(name).open(b'[');
        items.for_each(|item| write(item, self));
        self.close(b']');
    }

    /// An element or a value that is JSON text already.
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

    pub(crate) fn finish(self) -> String {
        String::from_utf8(self.0).expect("JSON that was written from UTF-8 is UTF-8")
    }
}
