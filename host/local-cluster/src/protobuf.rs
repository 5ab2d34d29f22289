//! Bodies in Kubernetes' protobuf, which kubectl and client-go send for built-in kinds. Input: a request. Output: the same with
//! its body in JSON. It must not know what is asked.
//!
//! The file of messages has one for each Go struct: its name, and lines with a field's number, its name in JSON and its type.
//! A type is a letter, after `*` for a pointer, `+` for a list, `%` for a map and `!` for a field that JSON has also when it is
//! empty; a field without a name in JSON has its fields in its parent.

use std::collections::HashMap;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::halt::{Halt, Status};
use crate::request::Request;
use crate::resource::group_version;
use crate::time;

const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";
/// What a body begins with.
const MAGIC: &[u8] = b"k8s\0";
/// How deep messages may lie in each other; the deepest of Kubernetes' own have a dozen levels.
const MAX_DEPTH: usize = 32;

static PACKED: &[u8] = include_bytes!("../data/protobuf.zst");

/// One field of a message.
struct Field {
    name: &'static str,
    pointer: bool,
    list: bool,
    map: bool,
    keep: bool,
    /// A letter, and of messages (`m`) the name after it.
    kind: &'static str,
}

type Fields = HashMap<u64, Field>;

fn messages() -> &'static HashMap<&'static str, Fields> {
    static MESSAGES: LazyLock<HashMap<&str, Fields>> = LazyLock::new(|| {
        let bytes = zstd::decode_all(PACKED).expect("the file was packed by this project's generator");
        let text: &'static str = String::from_utf8(bytes).expect("the file is text").leak();
        let mut messages: HashMap<&str, Fields> = HashMap::new();
        let mut current = "";
        for line in text.lines() {
            match line.strip_prefix(' ') {
                None => current = line,
                Some(line) => drop(field(line).map(|(number, field)| {
                    messages.entry(current).or_default().insert(number, field);
                })),
            }
        }
        messages
    });
    &MESSAGES
}

fn field(line: &'static str) -> Option<(u64, Field)> {
    let mut words = line.split(' ');
    let (number, name, kind) = (words.next()?.parse().ok()?, words.next()?, words.next()?);
    let bare = kind.trim_start_matches(['*', '+', '%', '!']);
    let has = |mark| kind[..kind.len() - bare.len()].contains(mark);
    let name = if name == "-" { "" } else { name };
    let field = Field { name, pointer: has('*'), list: has('+'), map: has('%'), keep: has('!'), kind: bare };
    Some((number, field))
}

/// The request with a body in JSON; none if its body is none in protobuf.
pub(crate) fn as_json(request: &Request) -> Result<Option<Request>, Halt> {
    let media_type = request.header("content-type").unwrap_or_default().split(';').next().unwrap_or_default().trim();
    if media_type != MEDIA_TYPE || request.body.is_empty() {
        return Ok(None);
    }
    let object = decode(&request.body).ok_or_else(|| {
        Status::bad_request(
            "the object provided is unrecognized (must be of a built-in kind): it cannot be decoded from protobuf",
        )
    })?;
    let mut request = Request { body: object.to_string().into_bytes(), ..request.clone() };
    for (_, value) in request.headers.iter_mut().filter(|(name, _)| name == "content-type") {
        "application/json".clone_into(value);
    }
    Ok(Some(request))
}

/// An object with its kind: `runtime.Unknown` with the object in it.
fn decode(bytes: &[u8]) -> Option<Value> {
    let unknown = read(bytes.strip_prefix(MAGIC)?)?;
    let part = |number| unknown.iter().find(|(known, _)| *known == number).and_then(|(_, wire)| wire.bytes());
    let of_type = read(part(1)?)?;
    let name = |number| {
        let found = of_type.iter().find(|(known, _)| *known == number);
        found.and_then(|(_, wire)| std::str::from_utf8(wire.bytes()?).ok())
    };
    let (api_version, kind) = (name(1)?, name(2)?);
    let (group, version) = group_version(api_version);
    // Packages have the first part of the group's name.
    let package = if group.is_empty() { "core" } else { group.split('.').next().unwrap_or(group) };
    // Options have the version of the resource that they are for.
    let message = [format!("{package}/{version}.{kind}"), format!("meta/v1.{kind}")];
    let fields = message.iter().find_map(|name| messages().get(name.as_str()))?;
    let mut object = Map::new();
    object.insert("apiVersion".to_owned(), api_version.into());
    object.insert("kind".to_owned(), kind.into());
    decode_into(&mut object, fields, part(2).unwrap_or_default(), 0)?;
    Some(Value::Object(object))
}

fn decode_into(object: &mut Map<String, Value>, fields: &Fields, bytes: &[u8], depth: usize) -> Option<()> {
    if depth > MAX_DEPTH {
        return None;
    }
    for (number, wire) in read(bytes)? {
        // What a newer client knows besides is left out.
        let Some(field) = fields.get(&number) else { continue };
        if field.name.is_empty() {
            decode_into(object, messages().get(field.kind.get(1..)?)?, wire.bytes()?, depth + 1)?;
        } else if field.map {
            let entry = read(wire.bytes()?)?;
            let part =
                |number| entry.iter().rfind(|(known, _)| *known == number).map_or(Wire::Bytes(&[]), |(_, wire)| *wire);
            let key = std::str::from_utf8(part(1).bytes()?).ok()?.to_owned();
            let value = value(field.kind, part(2), depth)?;
            let map = object.entry(field.name).or_insert_with(|| Value::Object(Map::new()));
            map.as_object_mut()?.insert(key, value);
        } else if field.list {
            let value = value(field.kind, wire, depth)?;
            let list = object.entry(field.name).or_insert_with(|| Value::Array(Vec::new()));
            list.as_array_mut()?.push(value);
        } else {
            let value = value(field.kind, wire, depth)?;
            // Go writes a field that is no pointer also when it is empty.
            if field.pointer || field.keep && !value.is_null() || !is_empty(&value) {
                object.insert(field.name.to_owned(), value);
            }
        }
    }
    Some(())
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::Object(fields) => fields.is_empty(),
        Value::Array(_) | Value::Bool(true) => false,
    }
}

fn value(kind: &str, wire: Wire<'_>, depth: usize) -> Option<Value> {
    let parts = || read(wire.bytes()?);
    let part = |parts: &[(u64, Wire<'_>)], number| {
        parts.iter().rfind(|(known, _)| *known == number).and_then(|(_, wire)| wire.number()).unwrap_or(0)
    };
    let text = |bytes| std::str::from_utf8(bytes).ok().map(Value::from);
    Some(match kind {
        "s" => text(wire.bytes()?)?,
        "i" => wire.number()?.into(),
        "b" => (wire.number()? != 0).into(),
        "d" => f64::from_bits(wire.number()?.cast_unsigned()).into(),
        "y" => BASE64_STANDARD.encode(wire.bytes()?).into(),
        "D" => format!("{}ns", part(&parts()?, 1)).into(),
        "T" | "U" => {
            let parts = parts()?;
            match (part(&parts, 1), i32::try_from(part(&parts, 2)).ok()?) {
                (0, 0) => Value::Null,
                (seconds, nanos) => {
                    let moment = Timestamp::new(seconds, nanos).ok()?;
                    if kind == "T" { time::seconds(moment).into() } else { time::micro(moment).into() }
                }
            }
        }
        "I" => {
            let parts = parts()?;
            let string = parts.iter().rfind(|(number, _)| *number == 3).and_then(|(_, wire)| wire.bytes());
            if part(&parts, 1) == 0 { part(&parts, 2).into() } else { text(string.unwrap_or_default())? }
        }
        "Q" => {
            text(parts()?.iter().find(|(number, _)| *number == 1).and_then(|(_, wire)| wire.bytes()).unwrap_or(b"0"))?
        }
        "R" => match parts()?.iter().find(|(number, _)| *number == 1).and_then(|(_, wire)| wire.bytes()) {
            None | Some([]) => Value::Null,
            Some(raw) => serde_json::from_slice(raw).ok()?,
        },
        "X" => parts()?.iter().map(|(_, wire)| text(wire.bytes()?)).collect::<Option<Value>>()?,
        message => {
            let mut object = Map::new();
            let fields = messages().get(message.strip_prefix('m')?)?;
            decode_into(&mut object, fields, wire.bytes()?, depth + 1)?;
            Value::Object(object)
        }
    })
}

/// What a field has on the wire.
#[derive(Clone, Copy)]
enum Wire<'a> {
    Number(i64),
    Bytes(&'a [u8]),
}

impl<'a> Wire<'a> {
    fn bytes(self) -> Option<&'a [u8]> {
        if let Self::Bytes(bytes) = self { Some(bytes) } else { None }
    }

    /// A number; in a map's entry an absent one is zero.
    fn number(self) -> Option<i64> {
        match self {
            Self::Number(number) => Some(number),
            Self::Bytes([]) => Some(0),
            Self::Bytes(_) => None,
        }
    }
}

/// The fields of a message by number, in their order.
fn read(mut bytes: &[u8]) -> Option<Vec<(u64, Wire<'_>)>> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes)?;
        let wire = match tag & 7 {
            0 => Wire::Number(varint(&mut bytes)?.cast_signed()),
            1 => Wire::Number(i64::from_le_bytes(take(&mut bytes, 8)?.try_into().ok()?)),
            2 => {
                let length = usize::try_from(varint(&mut bytes)?).ok()?;
                Wire::Bytes(take(&mut bytes, length)?)
            }
            5 => Wire::Number(i32::from_le_bytes(take(&mut bytes, 4)?.try_into().ok()?).into()),
            _ => return None,
        };
        fields.push((tag >> 3, wire));
    }
    Some(fields)
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(taken)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = *take(bytes, 1)?.first()?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn message(number: u8, bytes: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, u8::try_from(bytes.len()).unwrap()], bytes].concat()
    }

    fn unknown(api_version: &[u8], kind: &[u8], raw: &[u8]) -> Vec<u8> {
        let of_type = [message(1, api_version), message(2, kind)].concat();
        [MAGIC.to_vec(), message(1, &of_type), message(2, raw)].concat()
    }

    #[test]
    fn an_object_is_decoded_as_json_has_it() {
        // Go writes empty names and times too; they are no fields.
        let metadata = [
            message(1, b"a"),
            message(2, b""),
            message(8, b""),
            message(11, &[message(1, b"k"), message(2, b"v")].concat()),
        ];
        let binary = message(3, &[message(1, b"bin"), message(2, &[0, 1])].concat());
        let raw = [message(1, &metadata.concat()), vec![4 << 3, 0], binary];
        let found = decode(&unknown(b"v1", b"ConfigMap", &raw.concat())).unwrap();
        let wanted = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": {"k": "v"}}, "immutable": false,
            "binaryData": {"bin": "AAE="},
        });
        assert_eq!(found, wanted);
    }

    #[test]
    fn fields_of_embedded_structs_and_special_types_have_their_form() {
        let secret = message(6, &message(1, b"s"));
        let volume = message(1, &[message(1, b"v"), message(2, &secret)].concat());
        let limits = message(1, &[message(1, b"cpu"), message(2, &message(1, b"100m"))].concat());
        let port = message(2, &message(2, &[1 << 3, 1, 3 << 3 | 2, 4, b'h', b't', b't', b'p']));
        let container = [message(1, b"c"), message(8, &limits), message(10, &message(1, &port))].concat();
        let found = decode(&unknown(b"v1", b"Pod", &message(2, &[volume, message(2, &container)].concat()))).unwrap();
        let wanted = json!({
            "volumes": [{"name": "v", "secret": {"secretName": "s"}}],
            "containers": [{
                "name": "c", "resources": {"limits": {"cpu": "100m"}}, "livenessProbe": {"httpGet": {"port": "http"}},
            }],
        });
        assert_eq!(found["spec"], wanted);
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for bytes in [
            &b"{}"[..],
            b"k8s\0",
            b"k8s\0\x0a\xff",
            &unknown(b"v1", b"Nothing", b""),
            &unknown(b"v1", b"Pod", b"\x0a\x7f"),
        ] {
            assert_eq!(decode(bytes), None);
        }
        let options = decode(&unknown(b"policy/v1", b"DeleteOptions", &[1 << 3, 0])).unwrap();
        assert_eq!(options, json!({"apiVersion": "policy/v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}));
    }
}
