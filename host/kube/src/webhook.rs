//! What the API server has to know so that it asks this host: `webhook/authority.rs` makes certificates, `webhook/secret.rs`
//! keeps their authority in the cluster, and `webhook/configurations.rs` writes the objects that name the host. The server that
//! answers is the runtime's.

pub mod authority;
pub mod configurations;
pub mod secret;
