//! Who asks, and what he may do. Input: credentials and attributes. Output: a user, or a refusal. It must not know what
//! requests do.

use jiff::Timestamp;
use serde_json::Value;

use crate::Cluster;
use crate::halt::{Halt, Status};
use crate::request::{Credentials, Request, User};
use crate::rest::{Attributes, Context};

pub(crate) fn authenticate(cluster: &Cluster, request: &Request, _now: Timestamp) -> Result<User, Halt> {
    match &request.credentials {
        Credentials::User(user) => Ok(user.clone()),
        Credentials::None => Ok(User { name: "system:anonymous".to_owned(), ..User::default() }),
        Credentials::Token(token) => {
            let known = cluster.options.tokens.iter().find(|(known, _)| known == token);
            known.map(|(_, user)| user.clone()).ok_or_else(|| Status::unauthorized().into())
        }
    }
}

pub(crate) fn authorize_path(_cluster: &Cluster, _user: &User, _request: &Request) -> Result<(), Halt> {
    Ok(())
}

pub(crate) fn authorize(_cluster: &Cluster, _context: &Context<'_>, _attributes: &Attributes) -> Result<(), Halt> {
    Ok(())
}

/// The roles that an API server starts with.
pub(crate) fn bootstrap() -> Vec<Value> {
    Vec::new()
}
