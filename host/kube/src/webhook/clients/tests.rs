//! Certificates in, whether their clients are verified out.

use mortise_core::certificates::Validity;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair};

use super::*;
use crate::webhook::authority::{Authority, params};

const YEAR_MS: u64 = 365 * 24 * 3_600 * 1_000;
const YEAR_2001: Validity = Validity { from_ms: 31 * YEAR_MS, until_ms: 32 * YEAR_MS };
const LONG: Validity = Validity { from_ms: 31 * YEAR_MS, until_ms: 130 * YEAR_MS };

fn issue(
    authority: &Authority,
    name: &str,
    usage: ExtendedKeyUsagePurpose,
    validity: Validity,
) -> CertificateDer<'static> {
    let issuer = Issuer::from_ca_cert_pem(&authority.certificate, KeyPair::from_pem(&authority.key).unwrap()).unwrap();
    let mut params: CertificateParams = params(vec!["kube-apiserver".to_owned()], validity).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.extended_key_usages = vec![usage];
    params.signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap().der().clone()
}

#[test]
fn a_client_is_verified_by_a_valid_client_certificate_of_the_authority_with_an_allowed_common_name() {
    let (authority, other) = (Authority::create(LONG).unwrap(), Authority::create(LONG).unwrap());
    let of_client = |authority, name| issue(authority, name, ExtendedKeyUsagePurpose::ClientAuth, LONG);
    let verifies = |names: &[&str], certificate: &CertificateDer<'_>| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let verifier = verifier(authority.certificate.as_bytes(), &names).unwrap();
        assert!(!verifier.client_auth_mandatory(), "the API server shows none where it wants a conversion");
        verifier.verify_client_cert(certificate, &[], UnixTime::now()).is_ok()
    };
    let good = of_client(&authority, "kube-apiserver");
    assert!(verifies(&[], &good) && verifies(&["a", "kube-apiserver"], &good));
    assert!(!verifies(&["front-proxy-client"], &good));
    // Its subject alternative name is an allowed one, which says nothing about who it is.
    assert!(!verifies(&["kube-apiserver"], &of_client(&authority, "kubelet")));
    assert!(!verifies(&[], &of_client(&other, "kube-apiserver")));
    assert!(!verifies(&[], &issue(&authority, "a", ExtendedKeyUsagePurpose::ServerAuth, LONG)));
    assert!(!verifies(&[], &issue(&authority, "a", ExtendedKeyUsagePurpose::ClientAuth, YEAR_2001)));
}

#[test]
fn a_text_with_several_authorities_trusts_each_and_one_without_any_is_refused() {
    let (first, second) = (Authority::create(LONG).unwrap(), Authority::create(LONG).unwrap());
    let both = verifier(format!("{}{}", first.certificate, second.certificate).as_bytes(), &[]).unwrap();
    for authority in [&first, &second] {
        let certificate = issue(authority, "a", ExtendedKeyUsagePurpose::ClientAuth, LONG);
        assert!(both.verify_client_cert(&certificate, &[], UnixTime::now()).is_ok());
    }
    for text in ["", "no PEM", first.key.as_str()] {
        let error = verifier(text.as_bytes(), &[]).unwrap_err().to_string();
        assert_eq!(error, "cannot read the authorities of clients: there is no certificate");
    }
}
