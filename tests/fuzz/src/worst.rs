//! Texts with the content that costs most: maps of empty keys, a long key above a long list, many labels, deep nests, texts of
//! escapes alone. An input of a few bytes says which, and how much of each. It must not know who reads them.

use std::fmt::Write as _;

use arbitrary::Unstructured;

/// The first byte of an input that says what to make. No JSON begins with it.
const MARK: u8 = 1;
/// Bytes of all texts of one input: enough that what is not linear shows, and few enough for a hundred inputs a second.
const MOST_BYTES: usize = 96 << 10;
/// Levels of a nest. Those of the review around it are a few, and a parser reads 128.
const MOST_LEVELS: usize = 100;
/// Values within values that are made.
const MOST_DEPTH: usize = 3;

/// Makes texts of an input.
pub(crate) struct Maker<'a> {
    bytes: Unstructured<'a>,
    left: usize,
}

impl<'a> Maker<'a> {
    /// None: the input is a text itself.
    pub(crate) fn of(input: &'a [u8]) -> Option<Self> {
        let (first, rest) = input.split_first()?;
        (*first == MARK).then(|| Self { bytes: Unstructured::new(rest), left: MOST_BYTES })
    }

    /// A number up to this one. Zero when the input has ended.
    pub(crate) fn up_to(&mut self, most: usize) -> usize {
        self.bytes.int_in_range(0..=most).unwrap_or_default()
    }

    /// One of these.
    pub(crate) fn one<'b>(&mut self, of: &[&'b str]) -> &'b str {
        of[self.up_to(of.len() - 1)]
    }

    /// How often something of so many bytes is repeated: each power of two as often as another.
    pub(crate) fn count(&mut self, bytes: usize) -> usize {
        let (power, more) = (self.up_to(16), self.up_to(255));
        let count = ((1 << power) + (more << power) / 256).min(self.left / bytes);
        self.left -= count * bytes;
        count
    }

    /// The rest of the input as text.
    pub(crate) fn text(&mut self) -> String {
        let length = self.up_to(64);
        String::from_utf8_lossy(self.bytes.bytes(length.min(self.bytes.len())).unwrap_or_default()).into_owned()
    }

    /// A value as JSON.
    pub(crate) fn value(&mut self) -> String {
        self.value_at(0)
    }

    fn value_at(&mut self, depth: usize) -> String {
        match self.up_to(10) {
            0 => self.nest(r#"{"":"#, "}"),
            1 => self.nest("[", "]"),
            2 => list(r#"{"":0}"#, self.count(7)),
            3 => list("0", self.count(2)),
            4 => list("{}", self.count(3)),
            5 => self.members(|number| format!(r#""{number:x}":0"#)),
            6 => self.members(|_| r#""":0"#.to_owned()),
            7 => format!("\"{}\"", r"\u0000".repeat(self.count(6))),
            8 => format!(r#"{{"{}":{}}}"#, "k".repeat(self.count(1)), list("0", self.count(2))),
            9 if depth < MOST_DEPTH => {
                let count = self.up_to(3);
                let values: Vec<String> = (0..=count).map(|_| self.value_at(depth + 1)).collect();
                let members = values.iter().enumerate().map(|(number, value)| format!(r#""f{number}":{value}"#));
                format!("{{{}}}", members.collect::<Vec<_>>().join(","))
            }
            _ => serde_json::Value::from(self.text()).to_string(),
        }
    }

    fn nest(&mut self, begin: &str, end: &str) -> String {
        let levels = self.count(begin.len() + end.len()).min(MOST_LEVELS);
        format!("{}0{}", begin.repeat(levels), end.repeat(levels))
    }

    /// An object with many members.
    pub(crate) fn members(&mut self, member: impl Fn(usize) -> String) -> String {
        let count = self.count(member(0xfff).len() + 1);
        let mut text = "{".to_owned();
        for number in 0..count {
            _ = write!(text, "{}{}", if number == 0 { "" } else { "," }, member(number));
        }
        text + "}"
    }

    /// An object of Kubernetes: its metadata may have many labels, long ones, annotations and managedFields.
    pub(crate) fn object(&mut self, api_version: &str, kind: &str) -> String {
        let mut metadata = format!(
            r#""name":"{}","namespace":"default","uid":"3b1e2c44","resourceVersion":"{}","generation":1"#,
            self.one(&["web", "a", "b"]),
            1 + self.up_to(9)
        );
        if self.up_to(1) == 1 {
            let labels = self.members(|number| format!(r#""l{number:x}":"""#));
            _ = write!(metadata, r#","labels":{labels}"#);
        }
        match self.up_to(3) {
            0 => {}
            1 => {
                let value = serde_json::Value::from(self.value());
                _ = write!(metadata, r#","annotations":{{"mortise.dev/generated":{value}}}"#);
            }
            _ => {
                let annotations = self.members(|number| format!(r#""{number:x}":"""#));
                _ = write!(metadata, r#","annotations":{annotations}"#);
            }
        }
        if self.up_to(3) == 1 {
            let fields = self.value();
            let entry = format!(r#"{{"manager":"mortise/podset","operation":"Apply","fieldsV1":{fields}}}"#);
            let entries = list(&entry, self.count(entry.len() + 1).min(64));
            _ = write!(metadata, r#","managedFields":{entries}"#);
        }
        let (spec, status) = (self.value(), if self.up_to(1) == 1 { self.value() } else { "{}".to_owned() });
        format!(
            r#"{{"apiVersion":"{api_version}","kind":"{kind}","metadata":{{{metadata}}},"spec":{spec},"status":{status}}}"#
        )
    }
}

/// A list of so many of one value.
pub(crate) fn list(value: &str, count: usize) -> String {
    format!("[{}]", vec![value; count].join(","))
}
