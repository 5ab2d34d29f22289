//! A packed component: its name, compression, digest and configuration. Packed bytes come in; the digest comes out when
//! the component is offered, and the component itself when it is compiled.

use std::io::Read;
use std::sync::Arc;

use mortise_core::digest::Digest;
use mortise_core::refusal::Refusal;

use crate::fingerprint::Fingerprint;
use crate::{MAX_DNS_LABEL_BYTES, is_dns_label};

/// Largest configuration, as YAML and as JSON: every call gets it.
pub(crate) const MAX_CONFIG_BYTES: usize = 256 << 10;
/// Largest window of a zstd frame: 64 MiB, the first power of two above the largest component. It bounds the memory of
/// decompression.
const ZSTD_WINDOW_LOG: u32 = 26;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Component {
    pub digest: Digest,
    /// A JSON object.
    pub config: Arc<str>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    Wasm,
    Gzip,
    Zstd,
}

impl Form {
    pub(crate) const ALL: [Self; 3] = [Self::Wasm, Self::Gzip, Self::Zstd];

    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Wasm => "plugin.wasm",
            Self::Gzip => "plugin.wasm.gz",
            Self::Zstd => "plugin.wasm.zst",
        }
    }

    /// The digest of the component. Reads a stream that ends at the limit, since a small input may claim any size.
    pub(crate) fn digest(self, packed: &[u8]) -> Result<Digest, Refusal> {
        let seen = self.reader(packed).and_then(Fingerprint::of);
        seen.map_err(|error| self.broken(&error))?.digest
    }

    /// Unpacks a component; None when its digest is another.
    pub(crate) fn unpack(self, packed: &[u8], digest: &Digest) -> Option<Vec<u8>> {
        let seen = self.reader(packed).and_then(Fingerprint::of).ok()?;
        if seen.digest.ok().as_ref() != Some(digest) {
            return None;
        }
        // The exact capacity: a growing buffer would be half as large again.
        let mut bytes = Vec::with_capacity(seen.bytes);
        self.reader(packed).and_then(|mut reader| reader.read_to_end(&mut bytes)).ok()?;
        Some(bytes)
    }

    fn reader(self, packed: &[u8]) -> std::io::Result<Box<dyn Read + '_>> {
        Ok(match self {
            Self::Wasm => Box::new(packed),
            Self::Gzip => Box::new(flate2::read::MultiGzDecoder::new(packed)),
            Self::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::new(packed)?;
                decoder.window_log_max(ZSTD_WINDOW_LOG)?;
                Box::new(decoder)
            }
        })
    }

    fn broken(self, error: &std::io::Error) -> Refusal {
        Refusal::new("BrokenCompression", format!("{} cannot be decompressed: {error}; pack it again", self.key()))
    }
}

/// A plugin's name becomes a field manager, a label value and part of metrics, so it has to be a DNS-1123 label.
pub(crate) fn check_name(name: &str) -> Result<(), Refusal> {
    if is_dns_label(name) {
        return Ok(());
    }
    Err(Refusal::new(
        "InvalidName",
        format!(
            "{name:?} cannot be a plugin's name: it must have at most {MAX_DNS_LABEL_BYTES} of the characters a-z, 0-9 and \
             '-', and begin and end with a letter or digit; rename it"
        ),
    ))
}

/// Parses the YAML of the configuration at a place, such as "key config.yaml", into a JSON object. Empty text is an empty object.
pub(crate) fn config(yaml: &str, place: &str) -> Result<Arc<str>, Refusal> {
    if yaml.len() > MAX_CONFIG_BYTES {
        return Err(config_too_large(place));
    }
    // The parser bounds aliases and depth.
    let value: serde_json::Value =
        serde_saphyr::from_str(yaml).map_err(|error| invalid_config(place, &in_a_line(&error)))?;
    match value {
        serde_json::Value::Null => Ok("{}".into()),
        serde_json::Value::Object(_) => {
            let text = value.to_string();
            if text.len() > MAX_CONFIG_BYTES { Err(config_too_large(place)) } else { Ok(text.into()) }
        }
        other => Err(invalid_config(place, &format!("must be a mapping of keys to values, not {other}"))),
    }
}

/// What is wrong and where, without the excerpt, which would be in Events and the status.
fn in_a_line(error: &serde_saphyr::Error) -> String {
    let text = error.without_snippet().to_string();
    format!("is not valid YAML: {}", text.lines().next().unwrap_or_default())
}

pub(crate) fn config_too_large(place: &str) -> Refusal {
    invalid_config(place, &format!("is larger than {} KiB", MAX_CONFIG_BYTES >> 10))
}

fn invalid_config(place: &str, why: &str) -> Refusal {
    Refusal::new("InvalidConfig", format!("the configuration ({place}) {why}"))
}

#[cfg(test)]
mod tests {
    use mortise_core::limits::MAX_COMPONENT_BYTES;

    use super::*;

    fn config(yaml: &str) -> Result<Arc<str>, Refusal> {
        super::config(yaml, "key config.yaml")
    }

    #[test]
    fn names_are_dns_labels() {
        for good in ["podset", "a", "0-a", &"x".repeat(63)] {
            assert_eq!(check_name(good), Ok(()), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a.b", "a_b", "a/b", &"x".repeat(64)] {
            assert_eq!(check_name(bad).unwrap_err().reason, "InvalidName", "{bad}");
        }
    }

    #[test]
    fn yaml_becomes_a_json_object() {
        let table = [("a: 1\nb: [x, true]\n", r#"{"a":1,"b":["x",true]}"#), ("", "{}"), ("# nothing\n", "{}")];
        for (yaml, json) in table {
            assert_eq!(&*config(yaml).unwrap(), json, "{yaml:?}");
        }
        for bad in ["- a\n", "just text\n", "a: [\n", "a: 1\na: 2\n"] {
            assert_eq!(config(bad).unwrap_err().reason, "InvalidConfig", "{bad:?}");
        }
    }

    #[test]
    fn a_refusal_of_yaml_is_a_line_that_says_where_and_repeats_nothing() {
        let message = config("token: hunter2\nlimit: [1, 2\nmore: x\n").unwrap_err().message;
        assert!(message.starts_with("the configuration (key config.yaml) is not valid YAML: "), "{message}");
        assert!(message.contains("line ") && !message.contains('\n') && !message.contains("hunter2"), "{message}");
    }

    #[test]
    fn aliases_do_not_multiply_a_configuration() {
        let mut bomb = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
        for level in 1..9 {
            let alias = vec![format!("*a{}", level - 1); 10].join(",");
            bomb.push_str(&format!("a{level}: &a{level} [{alias}]\n"));
        }
        assert_eq!(config(&bomb).unwrap_err().reason, "InvalidConfig");
    }

    /// Configurations of so many bytes whose parts are what a parser may look at again and again.
    fn shapes(bytes: usize) -> Vec<(&'static str, String)> {
        let filled = |part: &dyn Fn(usize) -> String| {
            let mut text = String::with_capacity(bytes);
            for number in 0.. {
                let next = part(number);
                if text.len() + next.len() > bytes {
                    break;
                }
                text.push_str(&next);
            }
            text
        };
        vec![
            ("keys", filled(&|number| format!("k{number}: v\n"))),
            ("one list", format!("a: [{}]", filled(&|_| "x,".to_owned()))),
            ("lists of a level", format!("a: [{}]", filled(&|_| "[],".to_owned()))),
            ("maps of a level", format!("a: [{}]", filled(&|_| "{},".to_owned()))),
            ("one word", format!("a: {}", filled(&|_| "x".to_owned()))),
            ("words of a line", format!("a: {}", filled(&|_| "x ".to_owned()))),
            ("lines of a word", format!("a: x{}", filled(&|_| "\n  x".to_owned()))),
            ("a folded text", format!("a: >{}", filled(&|_| "\n  x\n".to_owned()))),
            ("a literal text", format!("a: |{}", filled(&|_| "\n  x".to_owned()))),
            ("empty lines", format!("a: |\n  x{}", filled(&|_| "\n".to_owned()))),
            ("spaces", format!("a: x{}", filled(&|_| " ".to_owned()))),
            ("quotes", format!("a: \"{}\"", filled(&|_| "\\n".to_owned()))),
            ("lines in quotes", format!("a: \"{}\"", filled(&|_| "\n x".to_owned()))),
            ("comments", filled(&|_| "# x\n".to_owned())),
            ("numbers", format!("a: [{}]", filled(&|_| "1.5e3,".to_owned()))),
            ("blocks of lists", format!("a:\n{}", filled(&|_| "- - - x\n".to_owned()))),
            ("complex keys", filled(&|number| format!("? k{number}\n: v\n"))),
            ("anchors", format!("a: [{}]", filled(&|number| format!("&a{number} x,")))),
            ("letters of several bytes", format!("a: {}", filled(&|_| "ä".to_owned()))),
        ]
    }

    #[test]
    fn q4_a_configuration_of_twice_the_bytes_takes_twice_the_work() {
        let count =
            |yaml: &str| crate::allocations::counted(|| config(yaml).map(drop).map_err(|refusal| refusal.reason)).0;
        let sizes = [32 << 10, 64 << 10, 128 << 10];
        let [small, medium, large] = sizes.map(shapes);
        for (((name, small), (_, medium)), (_, large)) in small.iter().zip(&medium).zip(&large) {
            let counts = [small, medium, large].map(|text| count(text));
            for pair in counts.windows(2) {
                let few = 1_024;
                assert!(pair[1].allocations <= 5 * pair[0].allocations / 2 + few, "{name}: allocations");
                assert!(pair[1].allocated_bytes <= 5 * pair[0].allocated_bytes / 2 + (few << 10), "{name}: bytes");
            }
        }
    }

    #[test]
    fn h15_a_configuration_that_is_nested_without_end_is_refused() {
        let depth = MAX_CONFIG_BYTES / 4;
        let lists = format!("a: {}{}", "[".repeat(depth), "]".repeat(depth));
        let maps = format!("{}x{}", "{a: ".repeat(depth / 2), "}".repeat(depth / 2));
        let blocks = format!("{}x", "- ".repeat(depth));
        for nested in [lists, maps, blocks, "[".repeat(depth)] {
            let refusal = config(&nested).unwrap_err();
            assert_eq!(refusal.reason, "InvalidConfig", "{}", &nested[..20]);
            assert!(refusal.message.len() < 2_000, "the message repeats the text: {} bytes", refusal.message.len());
        }
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut gzip, bytes).unwrap();
        gzip.finish().unwrap()
    }

    fn zstd(bytes: &[u8]) -> Vec<u8> {
        zstd::bulk::compress(bytes, 3).unwrap()
    }

    #[test]
    fn decompression_stops_at_the_size_limit() {
        let mut large = b"\0asm\x0d\0\x01\0".to_vec();
        large.resize(MAX_COMPONENT_BYTES + 1, 0);
        for (form, packed) in [(Form::Zstd, zstd(&large)), (Form::Gzip, gzip(&large))] {
            assert!(packed.len() < 1 << 20, "the bomb fits into a ConfigMap");
            assert_eq!(form.digest(&packed).unwrap_err().reason, "ComponentTooLarge");
        }
    }

    #[test]
    fn only_a_component_with_the_offered_digest_is_unpacked() {
        let component = b"\0asm\x0d\0\x01\0 and more".repeat(9);
        for (form, packed) in
            [(Form::Wasm, component.clone()), (Form::Gzip, gzip(&component)), (Form::Zstd, zstd(&component))]
        {
            let digest = form.digest(&packed).unwrap();
            assert_eq!(form.unpack(&packed, &digest).unwrap(), component);
            assert_eq!(form.unpack(&packed, &Digest("sha256:another".into())), None);
            assert_eq!(form.unpack(&packed[..packed.len() / 2], &digest), None);
        }
    }

    #[test]
    fn a_refusal_of_broken_compression_names_the_key() {
        for form in [Form::Gzip, Form::Zstd] {
            let refusal = form.digest(b"\0asm").unwrap_err();
            assert_eq!(refusal.reason, "BrokenCompression");
            assert!(refusal.message.contains(form.key()), "{}", refusal.message);
        }
    }
}
