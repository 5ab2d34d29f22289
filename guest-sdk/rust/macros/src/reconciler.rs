//! `#[reconciler]`: from a function and what it may see to the static `PLUGIN` and, on wasm32, a component's exports.

use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::parse::{ParseStream, Parser};
use syn::{Error, FnArg, ItemFn, LitStr, Result, ReturnType, Token, Type};

use crate::arguments::{bounded, list, read, refuse_not_yet, set, text, value};
use crate::kind::KindName;

const ARGUMENTS: [&str; 7] = ["owns", "reads", "concurrency", "limits", "kind", "name", "version"];
const UPDATES: [(&str, &str); 2] = [("apply", "Apply"), ("recreate", "Recreate")];

/// What the manifest has a place for and the host of this version refuses: told here, so that no component is built only
/// to be refused.
const ARGUMENTS_NOT_YET: [(&str, &str); 5] = [
    ("writes", "write to objects that are no children; own the kind with owns(...), or leave the object to its owner"),
    ("labels", "select objects by labels; return Ok(Outcome::new()) for those that are none of yours"),
    ("annotation", "select objects by annotations; return Ok(Outcome::new()) for those that are none of yours"),
    ("finalize", "run finalizers; let children be collected through their owner reference, which the host sets"),
    ("admission", "serve admission; put rules into the schema and tell the rest in a condition"),
];
const UPDATES_NOT_YET: [(&str, &str); 2] = [
    ("rollingRecreate", "recreate children a few at a time; take \"recreate\", and want fewer changes per outcome"),
    ("onDelete", "leave changed children until somebody deletes them; take \"recreate\" or \"apply\""),
];

/// The most calls of one controller at once, memory of one call and deadline of one call that the host grants.
const MAX_CONCURRENCY: u32 = 256;
const MAX_MEMORY_BYTES: u64 = 256 << 20;
const MAX_DEADLINE_MS: u64 = 10_000;

/// What the attribute says, as expressions.
#[derive(Default)]
struct Arguments {
    owns: Vec<TokenStream>,
    reads: Vec<KindName>,
    concurrency: Option<u32>,
    memory_bytes: Option<u64>,
    deadline_ms: Option<u64>,
    kind: Option<KindName>,
    name: Option<LitStr>,
    version: Option<LitStr>,
}

pub(crate) fn expand(arguments: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let Arguments { owns, reads, concurrency, memory_bytes, deadline_ms, kind, name, version } =
        (|input: ParseStream<'_>| Arguments::read(input)).parse2(arguments)?;
    let function: ItemFn = syn::parse2(item).map_err(|error| {
        Error::new(error.span(), "#[reconciler] goes on a function: fn reconcile(object: &PodSet, cx: &Context)")
    })?;
    let primary = primary(&function)?;
    let (kind, custom_resource) = match kind {
        Some(kind) => (kind, quote!(::core::option::Option::None)),
        None => (KindName::Type(Box::new(primary.clone())), quote!(<#primary as ::mortise_sdk::Resource>::DEFINITION)),
    };
    let call = &function.sig.ident;
    let visibility = &function.vis;
    let concurrency = option(concurrency);
    let (memory_bytes, deadline_ms) = (option(memory_bytes), option(deadline_ms));
    let name = name.map_or_else(|| quote!(::core::env!("CARGO_PKG_NAME")), |name| quote!(#name));
    let version = version.map_or_else(|| quote!(::core::env!("CARGO_PKG_VERSION")), |version| quote!(#version));
    let exports = exports();
    Ok(quote! {
        #function

        /// What this plugin is. Tests hand it to `mortise_sdk::testing::Cluster::of`.
        #[allow(dead_code, reason = "only a component and tests have a use for it, a native build has none")]
        #visibility static PLUGIN: ::mortise_sdk::Plugin = ::mortise_sdk::Plugin {
            name: #name,
            version: #version,
            controllers: &[::mortise_sdk::Controller {
                primary: #kind,
                definition: #custom_resource,
                owns: &[#(#owns),*],
                reads: &[#(#reads),*],
                concurrency: #concurrency,
                reconcile: |object, cx| ::mortise_sdk::__private::run(object, cx, #call),
            }],
            limits: ::mortise_sdk::Limits { memory_bytes: #memory_bytes, deadline_ms: #deadline_ms },
        };

        #exports
    })
}

fn exports() -> TokenStream {
    quote! {
        #[cfg(target_arch = "wasm32")]
        #[allow(unsafe_code, reason = "exported functions are called by the host")]
        const _: () = {
            use ::mortise_sdk::__private::bindings;
            use bindings::exports::mortise::plugin::reconciler;

            struct Component;

            impl reconciler::Guest for Component {
                fn manifest() -> ::std::string::String {
                    ::mortise_sdk::__private::manifest(&PLUGIN)
                }

                fn reconcile(
                    object: ::std::string::String,
                    view: reconciler::Snapshot,
                ) -> ::core::result::Result<reconciler::Outcome, reconciler::Failure> {
                    ::mortise_sdk::__private::reconcile(&PLUGIN, &object, view)
                }
            }

            bindings::export_component!(Component);
        };
    }
}

/// The type of the reconciled object, from a signature that is as it should be.
fn primary(function: &ItemFn) -> Result<Type> {
    let signature = &function.sig;
    let wrong = |why: &str| {
        let wanted = "fn reconcile(object: &PodSet, cx: &Context) -> Result<Outcome, Failure>";
        Error::new_spanned(signature, format!("a reconciler is `{wanted}`; {why}"))
    };
    if signature.asyncness.is_some() {
        return Err(wrong("this one is async, but a plugin never waits: it says what it wants and is called again"));
    }
    if matches!(signature.output, ReturnType::Default) {
        return Err(wrong("this one returns nothing"));
    }
    let parameters: Vec<&FnArg> = signature.inputs.iter().collect();
    let [FnArg::Typed(object), FnArg::Typed(cx)] = parameters.as_slice() else {
        return Err(wrong(&format!("this one takes {} parameters", parameters.len())));
    };
    let (Type::Reference(object), Type::Reference(cx)) = (&*object.ty, &*cx.ty) else {
        return Err(wrong("both parameters are references"));
    };
    if object.mutability.is_some() || cx.mutability.is_some() {
        return Err(wrong("nothing it is given can be changed; what should change is part of the outcome"));
    }
    Ok((*object.elem).clone())
}

fn option<T: quote::ToTokens>(value: Option<T>) -> TokenStream {
    match value {
        Some(value) => quote!(::core::option::Option::Some(#value)),
        None => quote!(::core::option::Option::None),
    }
}

impl Arguments {
    fn read(input: ParseStream<'_>) -> Result<Self> {
        let mut this = Self::default();
        read(input, &ARGUMENTS, &ARGUMENTS_NOT_YET, |name, input| this.argument(name, input))?;
        Ok(this)
    }

    fn argument(&mut self, name: &Ident, input: ParseStream<'_>) -> Result<()> {
        match name.to_string().as_str() {
            "owns" => self.owns.push(list(name, input, owned)?),
            "reads" => {
                let kinds = list(name, input, |input| {
                    input.parse_terminated(<KindName as syn::parse::Parse>::parse, Token![,])
                })?;
                self.reads.extend(kinds);
            }
            "concurrency" => set(&mut self.concurrency, name, bounded(name, input, MAX_CONCURRENCY)?)?,
            "limits" => list(name, input, |input| {
                read(input, &["memory_bytes", "deadline_ms"], &[], |name, input| match name.to_string().as_str() {
                    "memory_bytes" => set(&mut self.memory_bytes, name, bounded(name, input, MAX_MEMORY_BYTES)?),
                    _ => set(&mut self.deadline_ms, name, bounded(name, input, MAX_DEADLINE_MS)?),
                })
            })?,
            "kind" => set(&mut self.kind, name, primary_kind(&value(name, input, "\"example.com/v1/Site\"")?)?)?,
            "name" => set(&mut self.name, name, text(name, input)?)?,
            _ => set(&mut self.version, name, text(name, input)?)?,
        }
        Ok(())
    }
}

fn owned(input: ParseStream<'_>) -> Result<TokenStream> {
    let kind: KindName = input.parse()?;
    let mut update = None;
    if !input.is_empty() {
        input.parse::<Token![,]>()?;
        read(input, &["update"], &[], |name, input| {
            let wanted = text(name, input)?;
            refuse_not_yet(&wanted.value(), wanted.span(), &UPDATES_NOT_YET)?;
            let Some((_, variant)) = UPDATES.iter().find(|(text, _)| wanted.value() == *text) else {
                let all: Vec<&str> = UPDATES.iter().map(|(text, _)| *text).collect();
                return Err(Error::new(wanted.span(), format!("an update is one of: {}", all.join(", "))));
            };
            let variant = Ident::new(variant, wanted.span());
            set(&mut update, name, quote!(::mortise_sdk::Update::#variant))
        })?;
    }
    let update = option(update);
    Ok(quote!(::mortise_sdk::Owned { kind: #kind, update: #update }))
}

/// A kind that is reconciled without bringing its CustomResourceDefinition.
fn primary_kind(text: &LitStr) -> Result<KindName> {
    let kind = KindName::from_text(text)?;
    if let KindName::Text { api_version, .. } = &kind
        && !api_version.split_once('/').is_some_and(|(group, _)| group.contains('.'))
    {
        let message = format!(
            "{:?} is a kind of Kubernetes itself and its status belongs to Kubernetes; a plugin reconciles kinds of custom \
             resources and may own or read this one",
            text.value()
        );
        return Err(Error::new(text.span(), message));
    }
    Ok(kind)
}
