//! A kind in an attribute: by text ("v1/Pod", "apps/v1/Deployment") or by a type that implements `Resource`.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::parse::{Parse, ParseStream};
use syn::{Error, LitStr, Result, Type};

/// A kind in an attribute.
#[derive(Clone)]
pub(crate) enum KindName {
    /// Valid text.
    Text { api_version: String, kind: String },
    /// A type that implements `Resource`.
    Type(Box<Type>),
}

impl KindName {
    /// Parses "apps/v1/Deployment".
    pub(crate) fn from_text(text: &LitStr) -> Result<Self> {
        let value = text.value();
        let wrong = || {
            let message = format!(
                "{value:?} names no kind; write \"v1/Pod\" or \"apps/v1/Deployment\": version (with its group) and kind"
            );
            Error::new(text.span(), message)
        };
        let (api_version, kind) = value.rsplit_once('/').ok_or_else(wrong)?;
        let is_kind = kind.starts_with(|letter: char| letter.is_ascii_uppercase());
        let version = api_version.rsplit('/').next().unwrap_or_default();
        let is_version =
            version.strip_prefix('v').is_some_and(|rest| rest.starts_with(|digit: char| digit.is_ascii_digit()));
        if !is_kind || !is_version || api_version.matches('/').count() > 1 || api_version.starts_with('/') {
            return Err(wrong());
        }
        Ok(Self::Text { api_version: api_version.to_owned(), kind: kind.to_owned() })
    }

    /// Whether it may be this kind; a type's kind is not known before it is compiled.
    pub(crate) fn may_be(&self, wanted_version: &str, wanted_kind: &str) -> bool {
        match self {
            Self::Text { api_version, kind } => api_version == wanted_version && kind == wanted_kind,
            Self::Type(_) => true,
        }
    }
}

impl Parse for KindName {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        if input.peek(LitStr) {
            return Self::from_text(&input.parse()?);
        }
        match input.parse() {
            Ok(named) => Ok(Self::Type(Box::new(named))),
            Err(_) => Err(input.error("expected a kind: \"v1/Pod\", or a type that implements Resource")),
        }
    }
}

impl ToTokens for KindName {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        tokens.extend(match self {
            Self::Text { api_version, kind } => {
                quote!(::mortise_sdk::Kind { api_version: #api_version, kind: #kind })
            }
            Self::Type(named) => quote!(::mortise_sdk::Kind {
                api_version: <#named as ::mortise_sdk::Resource>::API_VERSION,
                kind: <#named as ::mortise_sdk::Resource>::KIND,
            }),
        });
    }
}
