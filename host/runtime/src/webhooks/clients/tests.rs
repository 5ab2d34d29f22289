//! Files in a folder of the test; what they do is seen by certificates.

use mortise_kube::webhook::authority::Authority;
use rustls::pki_types::UnixTime;
use rustls::server::danger::ClientCertVerifier as _;

use super::*;
use crate::testing::{client_certificate, validity};

#[tokio::test]
async fn the_authorities_of_a_changed_file_count_and_those_of_a_broken_one_do_not() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.crt");
    let config = WebhookClients { authorities: file.clone(), names: Vec::new() };
    for text in [None, Some(""), Some("-----BEGIN CERTIFICATE-----\nAA\n-----END CERTIFICATE-----\n")] {
        if let Some(text) = text {
            std::fs::write(&file, text).unwrap();
        }
        let error = format!("{:#}", Clients::read(config.clone()).unwrap_err());
        assert!(error.contains("ca.crt, which --webhook-client-ca names"), "{error}");
    }
    let (first, second) = (Authority::create(validity()).unwrap(), Authority::create(validity()).unwrap());
    std::fs::write(&file, &first.certificate).unwrap();
    let mut clients = Clients::read(config).unwrap();
    let shown = clients.verifier();
    let verifies = |authority: &Authority| {
        let (certificate, _) = client_certificate(authority, "kube-apiserver");
        shown.verify_client_cert(&certificate, &[], UnixTime::now()).is_ok()
    };
    assert_eq!((verifies(&first), verifies(&second)), (true, false));
    std::fs::write(&file, &second.certificate).unwrap();
    clients.read_again().await;
    assert_eq!((verifies(&first), verifies(&second)), (false, true));
    for broken in [Some("no certificate"), None] {
        match broken {
            Some(text) => std::fs::write(&file, text).unwrap(),
            None => std::fs::remove_file(&file).unwrap(),
        }
        clients.read_again().await;
        assert_eq!((verifies(&first), verifies(&second)), (false, true), "{broken:?}");
    }
}
