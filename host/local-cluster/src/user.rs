//! Who acts on the cluster: a name with its groups. It must not know how a user is recognized.

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
