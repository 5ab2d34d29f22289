//! `plugin!`, and what it shares with `#[reconciler]`: the static `PLUGIN` of some controllers and, on wasm32, a
//! component's exports. This file must not know the parts of a controller.

use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::{Error, LitStr, Path, Result, Token, Visibility};

use crate::arguments::{bounded, list, option, read, set, text};

/// The host's bounds of one call.
const MAX_MEMORY_BYTES: u64 = 256 << 20;
const MAX_DEADLINE_MS: u64 = 10_000;

/// Arguments of a plugin as a whole.
pub(crate) const ARGUMENTS: [&str; 3] = ["limits", "name", "version"];

/// Say that one of the controllers has admission, or conversion.
const ADMISSION: &str = "admission";
const CONVERSION: &str = "conversion";
const EXPORTS: [&str; 2] = [ADMISSION, CONVERSION];

/// The arguments of a plugin as a whole.
#[derive(Default)]
pub(crate) struct PluginArguments {
    admission: Option<bool>,
    conversion: Option<bool>,
    memory_bytes: Option<u64>,
    deadline_ms: Option<u64>,
    name: Option<LitStr>,
    version: Option<LitStr>,
}

impl PluginArguments {
    /// Parses one of [`ARGUMENTS`].
    pub(crate) fn argument(&mut self, name: &Ident, input: ParseStream<'_>) -> Result<()> {
        match name.to_string().as_str() {
            "limits" => list(name, input, |input| {
                read(input, &["memory_bytes", "deadline_ms"], |name, input| match name.to_string().as_str() {
                    "memory_bytes" => set(&mut self.memory_bytes, name, bounded(name, input, MAX_MEMORY_BYTES)?),
                    _ => set(&mut self.deadline_ms, name, bounded(name, input, MAX_DEADLINE_MS)?),
                })
            }),
            "name" => set(&mut self.name, name, text(name, input)?),
            _ => set(&mut self.version, name, text(name, input)?),
        }
    }

    /// Sets the optional exports that a plugin's only controller needs.
    pub(crate) fn exports(&mut self, admission: bool, conversion: bool) {
        self.admission = admission.then_some(true);
        self.conversion = conversion.then_some(true);
    }

    /// The static and the exports of a plugin of these controllers, each named by its function.
    pub(crate) fn into_plugin(self, visibility: &Visibility, controllers: &[Path]) -> TokenStream {
        let Self { admission, conversion, memory_bytes, deadline_ms, name, version } = self;
        let (has_admission, has_conversion) = (admission.is_some(), conversion.is_some());
        let (memory_bytes, deadline_ms) = (option(memory_bytes), option(deadline_ms));
        let name = name.map_or_else(|| quote!(::core::env!("CARGO_PKG_NAME")), |name| quote!(#name));
        let version = version.map_or_else(|| quote!(::core::env!("CARGO_PKG_VERSION")), |version| quote!(#version));
        let exports = exports(has_admission, has_conversion);
        quote! {
            // Two plugins in a module are an error that shows this name.
            #[doc(hidden)]
            #[allow(dead_code, non_camel_case_types, reason = "it is a message")]
            enum use_controller_and_plugin_for_several_functions {}

            /// This plugin, for `mortise_sdk::testing::Cluster::of`.
            #[allow(dead_code, reason = "a native build without tests does not use it")]
            #visibility static PLUGIN: ::mortise_sdk::Plugin = ::mortise_sdk::Plugin {
                name: #name,
                version: #version,
                controllers: &[#(<#controllers>::CONTROLLER),*],
                limits: ::mortise_sdk::Limits { memory_bytes: #memory_bytes, deadline_ms: #deadline_ms },
            };

            // A macro cannot read the arguments of another, so `plugin!` repeats what decides on exports.
            const _: () = ::core::assert!(
                #has_admission == (false #(|| <#controllers>::CONTROLLER.admission.is_some())*),
                "plugin!(..., admission) and #[controller(admission(...))] need each other: one of the two is missing",
            );
            const _: () = ::core::assert!(
                #has_conversion == (false #(|| !<#controllers>::CONTROLLER.conversion.is_empty())*),
                "plugin!(..., conversion) and #[controller(conversion(...))] need each other: one of the two is missing",
            );

            #exports
        }
    }
}

/// `plugin!(adopt, restart, limits(...))`.
pub(crate) fn expand(input: TokenStream) -> Result<TokenStream> {
    (|input: ParseStream<'_>| {
        let span = input.span();
        let mut controllers: Vec<Path> = Vec::new();
        while !input.is_empty() && !is_argument(input) {
            controllers.push(input.parse()?);
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        if controllers.is_empty() {
            let message = "name the functions with #[controller]: plugin!(adopt, restart)";
            return Err(Error::new(span, message));
        }
        let mut arguments = PluginArguments::default();
        let known = [&EXPORTS[..], &ARGUMENTS[..]].concat();
        read(input, &known, |name, input| match name.to_string().as_str() {
            ADMISSION => set(&mut arguments.admission, name, true),
            CONVERSION => set(&mut arguments.conversion, name, true),
            _ => arguments.argument(name, input),
        })?;
        Ok(arguments.into_plugin(&syn::parse_quote!(pub), &controllers))
    })
    .parse2(input)
}

/// Whether an argument is next, and not a controller.
fn is_argument(input: ParseStream<'_>) -> bool {
    let ahead = input.fork();
    let Ok(name) = ahead.call(Ident::parse_any) else { return false };
    ahead.peek(Token![=]) || ahead.peek(syn::token::Paren) || EXPORTS.iter().any(|export| name == export)
}

fn exports(has_admission: bool, has_conversion: bool) -> TokenStream {
    let admission = has_admission.then(crate::admission::exports);
    let conversion = has_conversion.then(crate::conversion::exports);
    quote! {
        #[cfg(target_arch = "wasm32")]
        #[allow(unsafe_code, reason = "exported functions are called by the host")]
        const _: () = {
            use ::mortise_sdk::__private::bindings;
            use bindings::exports::mortise::plugin::reconciler;

            struct Component;

            impl reconciler::Guest for Component {
                fn manifest() -> ::std::string::String {
                    PLUGIN.manifest()
                }

                fn reconcile(
                    object: ::std::string::String,
                    view: reconciler::Snapshot,
                ) -> ::core::result::Result<reconciler::Outcome, reconciler::Failure> {
                    ::mortise_sdk::__private::reconcile(&PLUGIN, &object, view)
                }
            }

            bindings::export_component!(Component);

            #admission
            #conversion
        };
    }
}
