//! The resource name of a kind where nobody has asked the API server for it.

/// The resource name of a kind, derived from its English plural. Right for every kind of Kubernetes itself and for the
/// CRDs that follow its convention; a CRD may call its plural anything, and then only discovery knows.
pub fn plural(kind: &str) -> String {
    let singular = kind.to_lowercase();
    match singular.as_str() {
        // These are the kinds of Kubernetes whose resource is not the plural of their name.
        "endpoints" => return singular,
        "podmetrics" => return "pods".to_owned(),
        "nodemetrics" => return "nodes".to_owned(),
        _ => {}
    }
    let vowel_before_y = ["ay", "ey", "oy", "uy"].iter().any(|end| singular.ends_with(end));
    if let Some(stem) = singular.strip_suffix('y').filter(|_| !vowel_before_y) {
        return format!("{stem}ies");
    }
    if ["s", "x", "z", "ch", "sh"].iter().any(|end| singular.ends_with(end)) {
        return format!("{singular}es");
    }
    format!("{singular}s")
}
