//! Completes the body of a write with its generated values. The body, the live object and a source of randomness come in,
//! the text to send comes out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::record::Record;
use super::secret::Secret;
use super::wanted::{AUTHORITY, CERTIFICATE, Draws, Recipe, Wanted};
use crate::certificates::Validity;
use crate::well_known::GENERATED_ANNOTATION;

/// The letters and digits of a password.
const ALPHABET: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
/// Four times the alphabet's length: a random byte below it is each letter equally often. One of 32 bytes is not below it.
const ACCEPTED_BYTES: u8 = 248;
/// The end of a certificate in PEM.
const END_OF_CERTIFICATE: &str = "-----END CERTIFICATE-----";

/// A certificate, its key and its authority, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Pair {
    /// The certificate.
    pub certificate: String,
    /// Its private key.
    pub key: String,
    /// The authority that issued it.
    pub authority: String,
}

/// What makes values.
pub trait RandomSource {
    /// Why it cannot.
    type Error;
    /// Fills a buffer with random bytes.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), Self::Error>;
    /// Makes an authority, and a certificate of it for these names.
    fn pair(&mut self, names: &[Arc<str>], validity: Validity) -> Result<Pair, Self::Error>;
}

/// The body with its values and the record of them. A value of the live object stays as long as the record says that it
/// was made as wanted, so a write that is repeated or late replaces none.
///
/// # Errors
/// That of the source.
pub fn complete<S: RandomSource>(
    body: &str,
    live: Option<&Secret<'_>>,
    draws: &Draws,
    source: &mut S,
) -> Result<String, S::Error> {
    let mut object: Value = serde_json::from_str(body).expect("prepare has parsed this text");
    let before = live.and_then(Secret::record).unwrap_or_default();
    let keys: BTreeSet<&str> = draws.wanted.iter().flat_map(Wanted::keys).chain([AUTHORITY]).collect();
    let values = live.map(|live| live.values(|key| keys.contains(key)));
    let (mut data, mut record) = (Map::new(), Record::default());
    for wanted in draws.wanted.iter() {
        match values.as_ref().filter(|_| before.has(wanted, draws.now_unix_ms)) {
            Some(values) => {
                data.extend(wanted.keys().map(|key| (key.to_owned(), json!(values.get(key)))));
                record.keep(wanted, &before);
            }
            None => {
                let previous = values.as_ref().filter(|_| before.has_rotation(wanted)).and_then(authority_of);
                data.extend(made(wanted, previous, draws.now_unix_ms, source)?);
                record.add(wanted, draws.now_unix_ms);
            }
        }
    }
    let own = object["data"].as_object().cloned().unwrap_or_default();
    object["data"] = own.into_iter().chain(data).collect::<Map<_, _>>().into();
    object["metadata"]["annotations"][GENERATED_ANNOTATION] = json!(record.text());
    Ok(object.to_string())
}

/// Makes a value anew: its keys with their base64.
fn made<S: RandomSource>(
    wanted: &Wanted,
    previous: Option<String>,
    now_unix_ms: u64,
    source: &mut S,
) -> Result<Vec<(String, Value)>, S::Error> {
    let member = |key: &str, bytes: &[u8]| (key.to_owned(), json!(STANDARD.encode(bytes)));
    Ok(match &wanted.recipe {
        Recipe::Alphanumeric(length) => vec![member(&wanted.key, &letters(*length as usize, source)?)],
        Recipe::Bytes(length) => {
            let mut bytes = vec![0; *length as usize];
            source.fill(&mut bytes)?;
            vec![member(&wanted.key, &bytes)]
        }
        Recipe::Tls { names, lifetime_seconds } => {
            let validity = Validity::beginning(now_unix_ms, u64::from(*lifetime_seconds) * 1_000);
            let Pair { certificate, key, authority } = source.pair(names, validity)?;
            // A server that has not read its new certificate yet still has one of the previous authority.
            let authorities = authority + &previous.unwrap_or_default();
            [(CERTIFICATE, certificate), (&*wanted.key, key), (AUTHORITY, authorities)]
                .map(|(key, pem)| member(key, pem.as_bytes()))
                .into()
        }
    })
}

fn letters<S: RandomSource>(length: usize, source: &mut S) -> Result<Vec<u8>, S::Error> {
    let mut letters = Vec::with_capacity(length);
    while letters.len() < length {
        let mut bytes = vec![0; length - letters.len()];
        source.fill(&mut bytes)?;
        let accepted = bytes.into_iter().filter(|byte| *byte < ACCEPTED_BYTES);
        letters.extend(accepted.map(|byte| ALPHABET[usize::from(byte) % ALPHABET.len()]));
    }
    Ok(letters)
}

/// The newest authority of a live object.
fn authority_of(values: &BTreeMap<String, String>) -> Option<String> {
    let pem = String::from_utf8(STANDARD.decode(values.get(AUTHORITY)?).ok()?).ok()?;
    let end = pem.find(END_OF_CERTIFICATE)? + END_OF_CERTIFICATE.len();
    Some(format!("{}\n", &pem[..end]))
}
