//! The text of an object that is made member by member, without a tree of it.

/// The text of an object that is written member by member.
#[derive(Debug, Default)]
pub(crate) struct ObjectText(String);

impl ObjectText {
    pub fn push(&mut self, name: &str, value: &str) {
        self.0.push(if self.0.is_empty() { '{' } else { ',' });
        self.0.push_str(&serde_json::to_string(name).expect("a text is JSON"));
        self.0.push(':');
        self.0.push_str(value);
    }

    /// None without members.
    pub fn finish(mut self) -> Option<String> {
        (!self.0.is_empty()).then(|| {
            self.0.push('}');
            self.0
        })
    }
}
