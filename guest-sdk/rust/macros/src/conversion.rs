//! `conversion(...)` of `#[reconciler]`: the other versions of the reconciled kind.

use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::{ToTokens as _, quote};
use syn::parse::{Parse as _, ParseStream};
use syn::spanned::Spanned as _;
use syn::{Error, Result, Token, Type};

/// One type for each version.
pub(crate) struct Versions {
    at: Ident,
    types: Vec<Type>,
}

impl Versions {
    pub(crate) fn read(at: &Ident, input: ParseStream<'_>) -> Result<Self> {
        let types: Vec<Type> = input.parse_terminated(Type::parse, Token![,])?.into_iter().collect();
        let text = |named: &Type| named.to_token_stream().to_string();
        if let Some(twice) =
            types.iter().enumerate().find(|(n, named)| types[..*n].iter().any(|it| text(it) == text(named)))
        {
            return Err(Error::new_spanned(twice.1, "this version is given twice"));
        }
        if types.is_empty() {
            let message = "name the types of the other versions: conversion(v1alpha1::Gauge)";
            return Err(Error::new(at.span(), message));
        }
        Ok(Self { at: at.clone(), types })
    }

    /// The error for a kind that the plugin does not define.
    pub(crate) fn not_own(&self) -> Error {
        let message = "`conversion` is for a kind that the plugin defines, and with `kind = ...` it does not define it";
        Error::new(self.at.span(), message)
    }

    /// One expression for each version. The compiler reports a missing conversion at the version's name.
    pub(crate) fn of(&self, primary: &Type) -> Vec<TokenStream> {
        let of = |version: &Type| {
            let here = |mut token: TokenTree| {
                token.set_span(version.span());
                token
            };
            let primary: TokenStream = primary.to_token_stream().into_iter().map(here).collect();
            quote!(::mortise_sdk::__private::version::<#primary, #version>())
        };
        self.types.iter().map(of).collect()
    }
}

/// The function of the optional export.
pub(crate) fn exports() -> TokenStream {
    quote! {
        use ::mortise_sdk::__private::conversion_bindings;
        use conversion_bindings::exports::mortise::plugin::conversion;

        impl conversion::Guest for Component {
            fn convert(
                object: ::std::string::String,
                to_api_version: ::std::string::String,
            ) -> ::core::result::Result<::std::string::String, ::std::string::String> {
                PLUGIN.convert(&object, &to_api_version)
            }
        }

        conversion_bindings::export_conversion!(Component);
    }
}
