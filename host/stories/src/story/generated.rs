//! Generated values of a story: drawn from a number instead of the system's randomness, so that a story is repeated exactly.
//! Certificates are stand-ins, which no verifier accepts.

use std::convert::Infallible;
use std::sync::Arc;

use mortise_core::certificates::Validity;
use mortise_core::generated::{Draws, Pair, RandomSource, Secret, complete};
use serde_json::Value;

pub(super) struct Drawn(u64);

impl Drawn {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The body with its values, and with the version of the live object as a precondition.
    pub(super) fn complete(&mut self, body: &str, live: Option<&Value>, draws: &Draws) -> String {
        let live_text = live.map(Value::to_string);
        let secret = live_text.as_ref().map(|text| Secret::read(text).expect("a value is JSON"));
        let Ok(mut text) = complete(body, secret.as_ref(), draws, self);
        if let Some(live) = live {
            let mut object: Value = serde_json::from_str(&text).expect("it was just written");
            object["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"].clone();
            text = object.to_string();
        }
        text
    }
}

impl RandomSource for Drawn {
    type Error = Infallible;

    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), Infallible> {
        for byte in buffer {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = self.0.to_be_bytes()[0];
        }
        Ok(())
    }

    fn pair(&mut self, names: &[Arc<str>], validity: Validity) -> Result<Pair, Infallible> {
        let pem = |kind: &str, text: String| format!("-----BEGIN {kind}-----\n{text}\n-----END {kind}-----\n");
        let names = names.iter().map(|name| &**name).collect::<Vec<_>>().join(",");
        Ok(Pair {
            certificate: pem("CERTIFICATE", format!("{names} from {}", validity.from_ms)),
            key: pem("PRIVATE KEY", format!("of {names}")),
            authority: pem("CERTIFICATE", format!("authority from {}", validity.from_ms)),
        })
    }
}
