//! Names of plugins and of namespaces: DNS-1123 labels.

/// Kubernetes' limit for a DNS-1123 label.
pub const MAX_DNS_LABEL_BYTES: usize = 63;

/// Whether a text is a DNS-1123 label: a-z, 0-9 and '-', beginning and ending with a letter or digit. Names of plugins
/// and of namespaces have to be.
pub fn is_dns_label(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_outer = |byte: Option<&u8>| byte.is_some_and(|byte| *byte != b'-');
    bytes.len() <= MAX_DNS_LABEL_BYTES
        && bytes.iter().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-')
        && is_outer(bytes.first())
        && is_outer(bytes.last())
}
