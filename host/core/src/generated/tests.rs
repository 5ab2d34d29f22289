//! Bodies, live objects and a source that counts go in; what is sent, recorded and hidden comes out.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::*;
use crate::allocations::counted;
use crate::certificates::{BACKDATED_MS, Validity};
use crate::object::tests::decode;

const NOW_MS: u64 = 1_700_000_000_000;
const DAY_SECONDS: u32 = 24 * 3_600;
const LIFETIME_MS: u64 = 3 * DAY_SECONDS as u64 * 1_000;
const BODY: &str =
    r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a","annotations":{}},"data":{"user":"YQ=="}}"#;

/// Bytes 0, 1, 2, … and numbered certificates.
#[derive(Default)]
pub(crate) struct Counting {
    next: u8,
    pairs: u32,
}

impl RandomSource for Counting {
    type Error = ();

    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), ()> {
        for byte in buffer {
            *byte = self.next;
            self.next = self.next.wrapping_add(1);
        }
        Ok(())
    }

    fn pair(&mut self, names: &[Arc<str>], validity: Validity) -> Result<Pair, ()> {
        self.pairs += 1;
        let pem =
            |what: &str| format!("-----BEGIN CERTIFICATE-----\n{what} {}\n-----END CERTIFICATE-----\n", self.pairs);
        Ok(Pair {
            certificate: pem(&format!("{} until {}", names.join(","), validity.until_ms)),
            key: format!("key {}", self.pairs),
            authority: pem("authority"),
        })
    }
}

fn wanted(key: &str, recipe: Recipe, rotation: &str) -> Wanted {
    Wanted { key: key.into(), recipe, rotation: rotation.into() }
}

fn password(rotation: &str) -> Wanted {
    wanted("password", Recipe::Alphanumeric(8), rotation)
}

fn certificate(name: &str, rotation: &str) -> Wanted {
    wanted(PRIVATE_KEY, Recipe::Tls { names: vec![name.into()], lifetime_seconds: 3 * DAY_SECONDS }, rotation)
}

fn completed(live: Option<&Value>, wanted: &[Wanted], now_unix_ms: u64, source: &mut Counting) -> Value {
    let draws = Draws { wanted: wanted.into(), now_unix_ms };
    serde_json::from_str(&completed_body(BODY, live, &draws, source)).unwrap()
}

/// The body of a write with its values.
pub fn completed_body(body: &str, live: Option<&Value>, draws: &Draws, source: &mut Counting) -> String {
    let text = live.map(Value::to_string);
    let live = text.as_ref().map(|text| Secret::read(text).unwrap());
    complete(body, live.as_ref(), draws, source).unwrap()
}

fn record_of(object: &Value) -> Record {
    Secret::read(&object.to_string()).unwrap().record().unwrap()
}

fn text(object: &Value, key: &str) -> String {
    String::from_utf8(STANDARD.decode(object["data"][key].as_str().unwrap()).unwrap()).unwrap()
}

#[test]
fn a_password_has_letters_and_digits_each_as_often_as_another() {
    let mut source = Counting::default();
    let long = wanted("password", Recipe::Alphanumeric(1_024), "");
    let object = completed(None, &[long], NOW_MS, &mut source);
    let password = text(&object, "password");
    assert_eq!(password.len(), 1_024);
    let mut counts = std::collections::BTreeMap::<char, usize>::new();
    password.chars().for_each(|letter| *counts.entry(letter).or_default() += 1);
    assert!(counts.keys().all(char::is_ascii_alphanumeric) && counts.len() == 62, "{counts:?}");
    // 1,024 letters of 62 that come round: some 16.5 of each.
    assert!(counts.values().all(|count| (16..=20).contains(count)), "{counts:?}");
}

#[test]
fn x8_a_value_is_made_once_and_made_again_when_it_is_removed_or_its_recipe_or_rotation_changes() {
    let mut source = Counting::default();
    let key = wanted("key", Recipe::Bytes(16), "");
    let first = completed(None, &[password(""), key.clone()], NOW_MS, &mut source);
    assert_eq!((text(&first, "password").as_str(), &first["data"]["user"]), ("ABCDEFGH", &json!("YQ==")));
    assert_eq!(STANDARD.decode(first["data"]["key"].as_str().unwrap()).unwrap().len(), 16);
    let record = r#"{"key":{"recipe":"bytes-16","drawnAt":"2023-11-14T22:13:20Z"},"password":{"recipe":"alphanumeric-8","drawnAt":"2023-11-14T22:13:20Z"}}"#;
    assert_eq!(first["metadata"]["annotations"][GENERATED], record);

    let again = completed(Some(&first), &[password(""), key.clone()], NOW_MS + 1_000, &mut source);
    assert_eq!(again, first, "a repeated write");
    let mut by_hand = first.clone();
    by_hand["data"]["password"] = json!("bWluZQ==");
    assert_eq!(completed(Some(&by_hand), &[password("")], NOW_MS, &mut source)["data"]["password"], "bWluZQ==");

    let rotated = completed(Some(&first), &[password("2"), key.clone()], NOW_MS, &mut source);
    assert_ne!(rotated["data"]["password"], first["data"]["password"]);
    assert_eq!(rotated["data"]["key"], first["data"]["key"], "the other value stays");
    let longer = completed(Some(&first), &[wanted("password", Recipe::Alphanumeric(9), "")], NOW_MS, &mut source);
    assert_eq!(text(&longer, "password").len(), 9);
    assert_eq!(longer["data"].as_object().unwrap().len(), 2, "what is not wanted any more is left out: {longer}");
    for (pointer, value) in [("/data/password", json!(null)), ("/data/password", json!("")), (ANNOTATION, json!("?"))] {
        let mut changed = first.clone();
        *changed.pointer_mut(pointer).unwrap() = value;
        let anew = completed(Some(&changed), &[password("")], NOW_MS, &mut source);
        assert_ne!(anew["data"]["password"], first["data"]["password"], "{pointer}");
    }
}

const GENERATED: &str = crate::well_known::GENERATED_ANNOTATION;
const ANNOTATION: &str = "/metadata/annotations/mortise.dev~1generated";

#[test]
fn a_certificate_of_a_clock_that_was_ahead_is_kept_while_it_is_valid_and_made_again_when_it_is_not_yet() {
    let mut source = Counting::default();
    let mut at = |live: Option<&Value>, now_ms| completed(live, &[certificate("a", "")], now_ms, &mut source);
    let ahead = at(None, NOW_MS + BACKDATED_MS);
    assert_eq!(at(Some(&ahead), NOW_MS), ahead);
    let further = at(None, NOW_MS + BACKDATED_MS + 1_000);
    assert_ne!(at(Some(&further), NOW_MS)["data"], further["data"]);
}

#[test]
fn a_certificate_is_renewed_when_it_is_due_and_the_previous_authority_stays_unless_it_is_rotated() {
    let mut source = Counting::default();
    let first = completed(None, &[certificate("a", "")], NOW_MS, &mut source);
    assert!(
        text(&first, CERTIFICATE).contains(&format!("a until {} 1", NOW_MS + LIFETIME_MS))
            && text(&first, PRIVATE_KEY) == "key 1"
    );
    let due_ms = NOW_MS + 2 * u64::from(DAY_SECONDS) * 1_000;
    assert_eq!(record_of(&first).renew_at_ms(), Some(due_ms), "two thirds of three days");
    assert_eq!(completed(Some(&first), &[certificate("a", "")], due_ms - 1, &mut source), first);

    let authorities = |object: &Value| {
        let pem = text(object, AUTHORITY);
        pem.lines().filter(|line| line.starts_with("authority")).map(str::to_owned).collect::<Vec<_>>()
    };
    let second = completed(Some(&first), &[certificate("a", "")], due_ms, &mut source);
    assert!(text(&second, CERTIFICATE).contains(&format!("a until {} 2", due_ms + LIFETIME_MS)));
    assert_eq!(authorities(&second), ["authority 2", "authority 1"]);
    let named = completed(Some(&second), &[certificate("b", "")], NOW_MS, &mut Counting { pairs: 2, next: 0 });
    assert_eq!(authorities(&named), ["authority 3", "authority 2"], "another name is another certificate");
    let rotated = completed(Some(&named), &[certificate("b", "2")], NOW_MS, &mut Counting { pairs: 3, next: 0 });
    assert_eq!(authorities(&rotated), ["authority 4"], "the old key may be known to somebody");
    for key in [CERTIFICATE, PRIVATE_KEY, AUTHORITY] {
        let mut removed = first.clone();
        removed["data"].as_object_mut().unwrap().remove(key);
        let anew = completed(Some(&removed), &[certificate("a", "")], NOW_MS, &mut Counting { pairs: 8, next: 0 });
        assert_eq!(text(&anew, PRIVATE_KEY), "key 9", "without {key}");
    }
    let mut unreadable = first.clone();
    let record = unreadable.pointer(ANNOTATION).unwrap().as_str().unwrap().replace("2023-11-16T", "soon");
    unreadable["metadata"]["annotations"][GENERATED] = json!(record);
    assert_eq!(record_of(&unreadable).renew_at_ms(), Some(0), "a time that cannot be read has come");
}

#[test]
fn g8_no_value_is_in_a_decoded_secret_and_each_is_still_known_to_be_there() {
    let mut source = Counting::default();
    let mut object = completed(None, &[password(""), certificate("a", "")], NOW_MS, &mut source);
    object["metadata"]["uid"] = json!("u");
    object["metadata"]["resourceVersion"] = json!("7");
    object["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] = json!("password");
    let decoded = decode(&object.to_string());
    let shown: Value = serde_json::from_str(decoded.json()).unwrap();
    assert_eq!((&shown["data"]["password"], &shown["data"][PRIVATE_KEY]), (&json!(""), &json!("")));
    assert_eq!((&shown["data"]["user"], &shown["data"][CERTIFICATE]), (&json!("YQ=="), &object["data"][CERTIFICATE]));
    for secret in ["password", PRIVATE_KEY].map(|key| object["data"][key].as_str().unwrap()) {
        assert!(!format!("{}{decoded:?}", decoded.json()).contains(secret));
    }
    assert!(!decoded.json().contains("last-applied"), "{}", decoded.json());
    let record = decoded.generated.as_ref().unwrap();
    assert!(record.has(&password(""), NOW_MS) && record.has(&certificate("a", ""), NOW_MS));
    assert!(!record.has(&password("2"), NOW_MS) && !record.has(&wanted("other", Recipe::Bytes(8), ""), NOW_MS));

    object["metadata"]["annotations"][GENERATED] = json!("{");
    let decoded = decode(&object.to_string());
    assert!(!decoded.json().contains("YQ=="), "nobody knows which values are secret: {}", decoded.json());
    assert!(!decoded.generated.unwrap().has(&password(""), NOW_MS));
    object["kind"] = json!("ConfigMap");
    assert!(decode(&object.to_string()).json().contains("YQ=="), "the host makes values of Secrets alone");
}

#[test]
fn g8_a_value_is_hidden_wherever_a_member_of_its_key_is() {
    let record = json!({"password": {"recipe": "bytes-8", "drawnAt": "2026-01-01T00:00:00Z"}}).to_string();
    let metadata = format!(
        r#""metadata":{{"name":"a","uid":"u","resourceVersion":"1","annotations":{{"{GENERATED}":{}}}}}"#,
        json!(record)
    );
    for values in [
        r#""data":{"password":"aGlkZQ==","user":"YQ=="}"#,
        r#""stringData":{"password":"aGlkZQ==","user":"YQ=="},"data":[1]"#,
        r#""data":{"password":"aGlkZQ==","password":"aGlkZQ==","user":"YQ=="},"data":{"pass\u0077ord":"aGlkZQ=="}"#,
        r#""data":{"user":"YQ=="},"data":{"password":{"a":["aGlkZQ=="]}}"#,
    ] {
        let text = format!(r#"{{"apiVersion":"v1","kind":"Secret",{metadata},{values}}}"#);
        let (shown, _) = hide(&text).unwrap();
        assert!(!shown.contains("aGlkZQ==") && shown.contains(r#""user":"YQ==""#), "{shown}");
        serde_json::from_str::<Value>(&shown).unwrap();
    }
    for unreadable in [r#"{"data":{"password":"aGlkZQ==",}}"#, r#"{"data":{"\ud800":"","password":"aGlkZQ=="}}"#, "[]"]
    {
        assert!(hide(unreadable).is_err(), "{unreadable}");
    }
}

#[test]
fn p18_a_secret_of_the_worst_content_is_hidden_in_a_few_times_its_text() {
    let record = json!({"password": {"recipe": "bytes-8", "drawnAt": "2026-01-01T00:00:00Z"}}).to_string();
    let fields: String = (0..20_000).map(|number| format!(r#""f:{number:x}":{{"f:a":{{}}}},"#)).collect();
    let keys: String = (0..20_000).map(|number| format!(r#""{number:x}":"","#)).collect();
    let managed = format!(r#"[{{"manager":"a","operation":"Update","fieldsV1":{{{fields}"f:b":{{}}}}}}]"#);
    for (what, text) in [
        (
            "fields",
            format!(r#""managedFields":{managed},"annotations":{{"{GENERATED}":{}}}}},"data":{{}}"#, json!(record)),
        ),
        ("keys", format!(r#""annotations":{{"{GENERATED}":{}}}}},"data":{{{keys}"a":""}}"#, json!(record))),
        ("keys of an unreadable record", format!(r#""annotations":{{"{GENERATED}":"["}}}},"data":{{{keys}"a":""}}"#)),
    ] {
        let text = format!(
            r#"{{"apiVersion":"v1","kind":"Secret","metadata":{{"name":"a","uid":"u","resourceVersion":"1",{text}}}"#
        );
        let (count, hidden) = counted(|| hide(&text).unwrap());
        assert!(
            count.peak_bytes.unsigned_abs() < 2 * text.len(),
            "{what}: {} bytes at the peak for {}",
            count.peak_bytes,
            text.len()
        );
        assert!(hidden.0.len() <= text.len());
    }
}
