//! `#[controller]` and `#[reconciler]`: from a function and what it may see to a controller, under the function's own name
//! among the types, and for `#[reconciler]` to the plugin that is made of it alone.

use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::parse::{ParseStream, Parser};
use syn::{Error, FnArg, ItemFn, Path, Result, ReturnType, Token, Type};

use crate::arguments::{bounded, list, option, read, refuse_not_yet, set, text, value};
use crate::kind::KindName;
use crate::plugin::{self, PluginArguments};

/// What is said of a controller.
const ARGUMENTS: [&str; 4] = ["owns", "reads", "concurrency", "kind"];
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

/// The most calls of one controller at once that the host grants.
const MAX_CONCURRENCY: u32 = 256;

/// What the attribute says, as expressions.
#[derive(Default)]
struct Arguments {
    owns: Vec<TokenStream>,
    reads: Vec<KindName>,
    concurrency: Option<u32>,
    kind: Option<KindName>,
}

/// A function that is a controller among others, which `plugin!` names.
pub(crate) fn expand_controller(arguments: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let mut of_controller = Arguments::default();
    let read_all = |input: ParseStream<'_>| {
        read(input, &ARGUMENTS, &ARGUMENTS_NOT_YET, |name, input| of_controller.argument(name, input))
    };
    read_all.parse2(arguments)?;
    of_controller.into_controller(&parse_function(item)?)
}

/// A function that is a plugin by itself.
pub(crate) fn expand(arguments: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let (mut of_controller, mut of_plugin) = (Arguments::default(), PluginArguments::default());
    let known = [&ARGUMENTS[..], &plugin::ARGUMENTS].concat();
    let read_all = |input: ParseStream<'_>| {
        read(input, &known, &ARGUMENTS_NOT_YET, |name, input| {
            if plugin::ARGUMENTS.iter().any(|known| name == known) {
                of_plugin.argument(name, input)
            } else {
                of_controller.argument(name, input)
            }
        })
    };
    read_all.parse2(arguments)?;
    let function = parse_function(item)?;
    let controller = of_controller.into_controller(&function)?;
    let plugin = of_plugin.into_plugin(&function.vis, &[Path::from(function.sig.ident.clone())]);
    Ok(quote!(#controller #plugin))
}

fn parse_function(item: TokenStream) -> Result<ItemFn> {
    syn::parse2(item).map_err(|error| {
        let message = "this attribute goes on a function: fn reconcile(object: &PodSet, cx: &Context)";
        Error::new(error.span(), message)
    })
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

impl Arguments {
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
            _ => {
                let kind = value(name, input, "\"example.com/v1/Site\"")?;
                set(&mut self.kind, name, KindName::from_text(&kind)?)?;
            }
        }
        Ok(())
    }

    /// The function and, beside it, a type of its name that bears the controller.
    fn into_controller(self, function: &ItemFn) -> Result<TokenStream> {
        let Self { owns, reads, concurrency, kind } = self;
        let primary = primary(function)?;
        let (kind, custom_resource) = match kind {
            Some(kind) => (kind, quote!(::core::option::Option::None)),
            None => {
                (KindName::Type(Box::new(primary.clone())), quote!(<#primary as ::mortise_sdk::Resource>::DEFINITION))
            }
        };
        let (visibility, call) = (&function.vis, &function.sig.ident);
        let concurrency = option(concurrency);
        Ok(quote! {
            #function

            // Types and functions have names of their own, so this one says which function it belongs to.
            #[doc(hidden)]
            #[allow(non_camel_case_types, reason = "it bears the name of the function")]
            #visibility enum #call {}

            impl #call {
                #[doc(hidden)]
                pub const CONTROLLER: ::mortise_sdk::Controller = ::mortise_sdk::Controller {
                    primary: #kind,
                    definition: #custom_resource,
                    owns: &[#(#owns),*],
                    reads: &[#(#reads),*],
                    concurrency: #concurrency,
                    reconcile: |object, cx| ::mortise_sdk::__private::run(object, cx, #call),
                };
            }
        })
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
