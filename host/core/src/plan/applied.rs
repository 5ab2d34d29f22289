//! Whether an apply would change nothing (X5): compares with the last apply and with the field set of our manager.

use std::collections::BTreeMap;

use super::parsing::Parsing;
use super::prepared::Body;
use crate::digest::fingerprint;
use crate::generated::Wanted;
use crate::object::{Object, ObjectRef, OwnFields, ResourceVersion, Verdict};
use crate::own_fields;

/// The fingerprint of the last apply of each object, and the version that it made. A value that the API server rewrites
/// (the quantity "0.5" becomes "500m") never equals the wanted one, but is applied as long as the object has this
/// version.
pub type Applied = BTreeMap<ObjectRef, (u128, ResourceVersion)>;

/// Whether an apply would change nothing: the object has the version that the same apply made, or the fields that are
/// recorded as ours have the wanted values.
pub(super) fn is_applied(
    live: &Object,
    body: &Body,
    generated: &[Wanted],
    manager: &str,
    applied: &mut Applied,
    parsing: &mut Parsing,
) -> bool {
    let target = live.reference();
    let this = (body.fingerprint, live.resource_version);
    if applied.get(&target) == Some(&this) {
        return true;
    }
    let is_applied = match (own(live, manager), live.verdict(fingerprint_of(body, manager))) {
        (None, _) => false,
        (Some(_), Some(verdict)) => verdict == Verdict::Same,
        (Some(own), None) => parsing.allows(size(live, own, body)) && compare(live, own, body, generated),
    };
    if is_applied {
        applied.insert(target, this);
    }
    is_applied
}

/// The bytes that [`is_applied`] would parse of an object of which nothing is remembered.
pub(super) fn bytes(live: &Object, body: &Body, manager: &str) -> usize {
    let unknown = own(live, manager).filter(|_| live.verdict(fingerprint_of(body, manager)).is_none());
    unknown.map_or(0, |own| size(live, own, body))
}

/// Compares, and lets the object remember the result.
pub(super) fn remember(live: &Object, body: &Body, generated: &[Wanted], manager: &str) {
    if let Some(own) = own(live, manager).filter(|_| live.verdict(fingerprint_of(body, manager)).is_none()) {
        let is_applied = compare(live, own, body, generated);
        live.remember_verdict(fingerprint_of(body, manager), if is_applied { Verdict::Same } else { Verdict::Differs });
    }
}

/// The fingerprint of an apply, of which the field set is another for each manager.
fn fingerprint_of(body: &Body, manager: &str) -> u128 {
    body.fingerprint ^ fingerprint(&[manager])
}

fn own<'a>(live: &'a Object, manager: &str) -> Option<&'a OwnFields> {
    live.own_fields.iter().find(|own| own.applied && own.subresource.is_empty() && &*own.manager == manager)
}

fn size(live: &Object, own: &OwnFields, body: &Body) -> usize {
    own.fields.len() + live.json().len() + body.text.len()
}

fn compare(live: &Object, own: &OwnFields, body: &Body, generated: &[Wanted]) -> bool {
    let generated = generated.iter().flat_map(Wanted::keys).collect();
    own_fields::is_applied(&body.text, live.json(), &own.fields, &generated)
}
