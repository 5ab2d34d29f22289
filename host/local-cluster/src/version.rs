//! One version of a definition, as its resource carries it. It must not know how it is read.

use std::sync::Arc;

use serde_json::Value;

use crate::schema::Schema;

/// One served version of a definition.
#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) name: Arc<str>,
    pub(crate) schema: Arc<Schema>,
    /// `additionalPrinterColumns`, as the definition has them.
    pub(crate) columns: Vec<Value>,
    /// `subresources.scale`, as the definition has it.
    pub(crate) scale: Option<Value>,
    /// `selectableFields`: the JSON paths without their leading dot.
    pub(crate) selectable: Vec<Arc<str>>,
    /// The warning of a deprecated version.
    pub(crate) deprecated: Option<String>,
    /// The whole definition, for what is asked rarely: conversion, the published schema.
    pub(crate) definition: Arc<Value>,
}
