//! What makes the API server call this host: `webhook/authority.rs` makes certificates, `webhook/secret.rs` stores their
//! authority in the cluster, `webhook/configurations.rs` writes the objects that name the host, `webhook/clients.rs` knows
//! the API server by its certificate. The server is the runtime's.

pub mod authority;
pub mod clients;
pub mod configurations;
pub mod secret;
