//! The schema of one kind, compiled from OpenAPI: what fields there are, how lists merge, what is allowed. Input: an OpenAPI
//! v3 schema, of a definition or published. Output: a graph of nodes that the modules below walk beside a value. It must
//! not know requests or the store.

pub(crate) mod cause;
mod compile;
mod default;
mod list_type;
mod metadata;
mod misfit;
mod node;
pub(crate) mod path;
mod prune;
mod rule;
mod rules;
mod validate;

pub(crate) use self::metadata::dns_1035_label;
pub(crate) use self::node::{ListType, Place, ScalePaths, Schema, Type};
