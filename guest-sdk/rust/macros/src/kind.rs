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
        if !is_kind || !is_version(version) || api_version.matches('/').count() > 1 || api_version.starts_with('/') {
            return Err(wrong());
        }
        Ok(Self::Text { api_version: api_version.to_owned(), kind: kind.to_owned() })
    }

    /// A kind, or a pattern of kinds: "apps/v1/*".
    pub(crate) fn parse_read(input: ParseStream<'_>) -> Result<Self> {
        if input.fork().parse::<LitStr>().is_ok_and(|text| text.value().contains('*')) {
            return Self::from_pattern(&input.parse()?);
        }
        input.parse()
    }

    /// As in the manifest: an apiVersion, which may be a pattern, with the kind `*`.
    fn from_pattern(text: &LitStr) -> Result<Self> {
        let value = text.value();
        let wrong = || {
            let message = format!(
                "{value:?} is no pattern; write \"apps/v1/*\" (\"v1/*\" of the core group), \"apps/*\" for every version of \
                 a group, or \"*.example.com/*\" for every group below a domain of at least two names"
            );
            Error::new(text.span(), message)
        };
        let rest = value.strip_suffix("/*").ok_or_else(wrong)?;
        let api_version = if is_version(rest) || rest.contains('/') { rest.to_owned() } else { format!("{rest}/*") };
        if let Some((group, version)) = api_version.split_once('/') {
            let below = group.strip_prefix("*.");
            let is_group = !below.unwrap_or(group).contains('*') && !group.is_empty();
            if !is_group || below.is_some_and(|below| !below.contains('.')) || (version != "*" && !is_version(version))
            {
                return Err(wrong());
            }
        }
        Ok(Self::Text { api_version, kind: "*".to_owned() })
    }

    /// Whether it is a pattern of kinds.
    pub(crate) fn is_pattern(&self) -> bool {
        matches!(self, Self::Text { kind, .. } if kind == "*")
    }

    /// Whether it may be this kind; a type's kind is not known before it is compiled.
    pub(crate) fn may_be(&self, wanted_version: &str, wanted_kind: &str) -> bool {
        match self {
            Self::Text { api_version, kind } => api_version == wanted_version && kind == wanted_kind,
            Self::Type(_) => true,
        }
    }
}

/// "v1", "v1beta1".
fn is_version(text: &str) -> bool {
    text.strip_prefix('v').is_some_and(|rest| rest.starts_with(|digit: char| digit.is_ascii_digit()))
        && !text.contains('/')
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
