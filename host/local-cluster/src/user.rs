//! Who acts on the cluster: a name with its groups. It must not know how a user is recognized.

/// The group of all whose credentials are known.
pub(crate) const AUTHENTICATED: &str = "system:authenticated";
/// The group of those without credentials.
pub(crate) const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The user without credentials.
pub(crate) const ANONYMOUS: &str = "system:anonymous";

/// Who asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// The user's name, such as `system:serviceaccount:default:app`.
    pub name: String,
    /// The user's UID, where the authenticator knows one.
    pub uid: String,
    /// The groups, such as `system:masters`.
    pub groups: Vec<String>,
    /// What authenticators say besides, by key.
    pub extra: Vec<(String, Vec<String>)>,
}
