//! `#[controller]` and `#[reconciler]`: a function and its arguments go in; a controller, as a constant of a type with
//! the function's name, comes out, and for `#[reconciler]` also the plugin.

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;
use syn::ext::IdentExt as _;
use syn::parse::{Parse as _, ParseStream, Parser};
use syn::{Error, FnArg, ItemFn, LitStr, Path, Result, ReturnType, Token, Type};

use crate::admission::Admission;
use crate::arguments::{annotation, bounded, flag, list, option, read, set, text, texts, value, variant};
use crate::conversion::Versions;
use crate::kind::KindName;
use crate::plugin::{self, PluginArguments};

/// Arguments of a controller.
const ARGUMENTS: [&str; 11] = [
    "owns",
    "reads",
    "writes",
    "http",
    "finalize",
    "labels",
    "annotation",
    "admission",
    "conversion",
    "concurrency",
    "kind",
];
/// The names in the attribute and the variants of `mortise_sdk::Update`.
const UPDATES: [(&str, &str); 4] =
    [("apply", "Apply"), ("recreate", "Recreate"), (ROLLING, "RollingRecreate"), ("on_delete", "OnDelete")];
const ROLLING: &str = "rolling_recreate";
/// Namespaces of one declaration, as the host has it.
const MAX_NAMESPACES: usize = 16;
/// The names in the attribute and the variants of `mortise_sdk::Replace`.
const REPLACEMENTS: [(&str, &str); 2] = [("at-once", "AtOnce"), ("when-gone", "WhenGone")];
/// Children may be in any namespace.
const ANY: &str = "any";
/// The names in the attribute and the variants of `mortise_sdk::Verb`.
const VERBS: [(&str, &str); 4] = [("apply", "Apply"), ("patch", "Patch"), ("delete", "Delete"), ("evict", "Evict")];

/// How to write the arguments that newcomers write as `owns = "v1/Pod"`.
const LISTS: [(&str, &str); 4] = [
    ("owns", "owns(\"v1/Pod\")"),
    ("reads", "reads(\"v1/Node\")"),
    ("writes", "writes(\"apps/v1/Deployment\", \"patch\")"),
    ("http", "http(\"https://api.example.com\", \"GET\")"),
];

/// The names in the attribute and the variants of `mortise_sdk::Method`.
const METHODS: [(&str, &str); 6] =
    [("GET", "Get"), ("HEAD", "Head"), ("POST", "Post"), ("PUT", "Put"), ("PATCH", "Patch"), ("DELETE", "Delete")];

/// The host's bound of concurrent calls of one controller.
const MAX_CONCURRENCY: u32 = 256;
/// No object has more children.
const MAX_UNAVAILABLE: u32 = 5_000;

/// The arguments of a controller, as expressions.
#[derive(Default)]
struct Arguments {
    owns: Vec<TokenStream>,
    reads: Vec<TokenStream>,
    writes: Vec<TokenStream>,
    http: Vec<TokenStream>,
    finalize: Option<bool>,
    labels: Option<LitStr>,
    annotations: Vec<TokenStream>,
    admission: Option<Admission>,
    conversion: Option<Versions>,
    concurrency: Option<u32>,
    kind: Option<KindName>,
}

/// `#[controller]`.
pub(crate) fn expand_controller(arguments: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let mut of_controller = Arguments::default();
    let read_all = |input: ParseStream<'_>| read(input, &ARGUMENTS, |name, input| of_controller.argument(name, input));
    read_all.parse2(arguments)?;
    of_controller.into_controller(&parse_function(item)?)
}

/// `#[reconciler]`.
pub(crate) fn expand(arguments: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let (mut of_controller, mut of_plugin) = (Arguments::default(), PluginArguments::default());
    let known = [&ARGUMENTS[..], &plugin::ARGUMENTS].concat();
    let read_all = |input: ParseStream<'_>| {
        read(input, &known, |name, input| {
            if plugin::ARGUMENTS.iter().any(|known| name == known) {
                of_plugin.argument(name, input)
            } else {
                of_controller.argument(name, input)
            }
        })
    };
    read_all.parse2(arguments)?;
    let function = parse_function(item)?;
    of_plugin.exports(of_controller.admission.is_some(), of_controller.conversion.is_some());
    let controller = of_controller.into_controller(&function)?;
    let plugin = of_plugin.into_plugin(&function.vis, &[Path::from(function.sig.ident.clone())]);
    Ok(quote!(#controller #plugin))
}

fn parse_function(item: TokenStream) -> Result<ItemFn> {
    syn::parse2(item).map_err(|error| {
        let message = "this attribute is for a function: fn reconcile(object: &PodSet, cx: &Context)";
        Error::new(error.span(), message)
    })
}

/// The type of the reconciled object; an error for a wrong signature.
fn primary(function: &ItemFn) -> Result<Type> {
    let signature = &function.sig;
    let wrong = |why: &str| {
        let wanted = "fn reconcile(object: &PodSet, cx: &Context) -> Result<Outcome<PodSetStatus>, Failure>";
        Error::new_spanned(signature, format!("a reconciler is `{wanted}`; {why}"))
    };
    if signature.receiver().is_some() {
        return Err(wrong("this one takes `self`; write a function outside of an impl"));
    }
    if signature.asyncness.is_some() {
        return Err(wrong("this one is async, but a plugin never waits: it returns an outcome and is called again"));
    }
    if matches!(signature.output, ReturnType::Default) {
        return Err(wrong("this one returns nothing"));
    }
    if matches!(&signature.output, ReturnType::Type(_, output) if is_named(output, "Outcome")) {
        return Err(wrong("this one returns an outcome alone; return `Ok(outcome)`"));
    }
    let parameters: Vec<&FnArg> = signature.inputs.iter().collect();
    let [FnArg::Typed(object), FnArg::Typed(cx)] = parameters.as_slice() else {
        return Err(wrong(&format!("this one takes {} parameters", parameters.len())));
    };
    let (Type::Reference(object), Type::Reference(cx)) = (&*object.ty, &*cx.ty) else {
        return Err(wrong("both parameters are references"));
    };
    if object.mutability.is_some() || cx.mutability.is_some() {
        return Err(wrong("neither parameter can be changed; changes are part of the outcome"));
    }
    if is_named(&object.elem, "Context") {
        return Err(wrong("the object is the first parameter and the Context the second"));
    }
    Ok((*object.elem).clone())
}

/// Whether a type has this name, with or without a path and arguments.
fn is_named(named: &Type, name: &str) -> bool {
    matches!(named, Type::Path(named) if named.path.segments.last().is_some_and(|last| last.ident == name))
}

impl Arguments {
    fn argument(&mut self, name: &Ident, input: ParseStream<'_>) -> Result<()> {
        if let Some((_, example)) = LISTS.iter().find(|(list, _)| name == list)
            && !input.peek(syn::token::Paren)
        {
            return Err(Error::new(name.span(), format!("write it as `{example}`")));
        }
        match name.to_string().as_str() {
            "owns" => self.owns.extend(list(name, input, owned)?),
            "reads" => self.reads.extend(list(name, input, declared)?),
            "writes" => self.writes.push(list(name, input, written)?),
            "http" => self.http.push(list(name, input, requested)?),
            "finalize" => set(&mut self.finalize, name, flag(name, input)?)?,
            "labels" => set(&mut self.labels, name, text(name, input)?)?,
            "annotation" => {
                let (key, value) = list(name, input, annotation)?;
                self.annotations.push(quote!((#key, #value)));
            }
            "admission" => set(&mut self.admission, name, list(name, input, |input| Admission::read(name, input))?)?,
            "conversion" => {
                set(&mut self.conversion, name, list(name, input, |input| Versions::read(name, input))?)?;
            }
            "concurrency" => set(&mut self.concurrency, name, bounded(name, input, MAX_CONCURRENCY)?)?,
            _ => {
                let kind = value(name, input, "\"example.com/v1/Site\"")?;
                set(&mut self.kind, name, KindName::from_text(&kind)?)?;
            }
        }
        Ok(())
    }

    /// The function and, beside it, a type of its name with the controller as a constant.
    fn into_controller(self, function: &ItemFn) -> Result<TokenStream> {
        let Self { owns, reads, writes, http, finalize, labels, .. } = self;
        let Self { annotations, admission, conversion, concurrency, kind, .. } = self;
        let admission = option(admission);
        let labels = labels.map(|labels| labels.value()).unwrap_or_default();
        let primary = primary(function)?;
        if let Some(versions) = conversion.as_ref().filter(|_| kind.is_some()) {
            return Err(versions.not_own());
        }
        let conversion = conversion.map(|versions| versions.of(&primary)).unwrap_or_default();
        let run = if kind.is_some() { quote!(run_any) } else { quote!(run) };
        let (kind, custom_resource) = match kind {
            Some(kind) => (kind, quote!(::core::option::Option::None)),
            None => {
                (KindName::Type(Box::new(primary.clone())), quote!(<#primary as ::mortise_sdk::Resource>::DEFINITION))
            }
        };
        let (visibility, call) = (&function.vis, &function.sig.ident);
        let finalize = finalize.unwrap_or_default();
        let concurrency = option(concurrency);
        Ok(quote! {
            #function

            // Types and functions have separate namespaces.
            #[doc(hidden)]
            #[allow(non_camel_case_types, reason = "it has the name of the function")]
            #visibility enum #call {}

            impl #call {
                #[doc(hidden)]
                pub const CONTROLLER: ::mortise_sdk::Controller = ::mortise_sdk::Controller {
                    primary: #kind,
                    definition: #custom_resource,
                    selection: ::mortise_sdk::Predicate { labels: #labels, annotations: &[#(#annotations),*] },
                    owns: &[#(#owns),*],
                    reads: &[#(#reads),*],
                    writes: &[#(#writes),*],
                    http: &[#(#http),*],
                    finalize: #finalize,
                    concurrency: #concurrency,
                    reconcile: |object, cx| ::mortise_sdk::__private::#run(object, cx, #call),
                    admission: #admission,
                    conversion: &[#(#conversion),*],
                };
            }
        })
    }
}

/// Kinds, and the arguments that follow the last of them and are about all of them.
fn kinds(
    input: ParseStream<'_>,
    kind: fn(ParseStream<'_>) -> Result<KindName>,
    known: &[&str],
    mut each: impl FnMut(&Ident, ParseStream<'_>) -> Result<()>,
) -> Result<Vec<KindName>> {
    let mut kinds: Vec<KindName> = vec![kind(input)?];
    while !input.is_empty() {
        input.parse::<Token![,]>()?;
        if input.peek(Ident::peek_any) && input.peek2(Token![=]) {
            read(input, known, &mut each)?;
        } else if !input.is_empty() {
            kinds.push(kind(input)?);
        }
    }
    Ok(kinds)
}

/// `"v1/Secret", ConfigMap, namespaces = ["shared"], labels = "app=web"`: kinds, and which of their objects.
fn declared(input: ParseStream<'_>) -> Result<Vec<TokenStream>> {
    let (mut namespaces, mut labels) = (None, None);
    let narrowing = ["namespaces", "labels"];
    let kinds = kinds(input, KindName::parse_read, &narrowing, |name, input| match name.to_string().as_str() {
        "namespaces" => set(&mut namespaces, name, named(name, input)?),
        _ => set(&mut labels, name, text(name, input)?),
    })?;
    if (namespaces.is_some() || labels.is_some())
        && let Some(pattern) = kinds.iter().find(|kind| kind.is_pattern())
    {
        let message = "a pattern of kinds is not narrowed; write it in a `reads(...)` of its own";
        return Err(Error::new_spanned(quote!(#pattern), message));
    }
    let (namespaces, labels) = (namespaces.unwrap_or_default(), labels.map(|text: LitStr| text.value()));
    let labels = labels.unwrap_or_default();
    let read = |kind| quote!(::mortise_sdk::Read { kind: #kind, namespaces: &[#(#namespaces),*], labels: #labels });
    Ok(kinds.iter().map(read).collect())
}

/// `namespaces = ["a", "b"]`.
fn named(name: &Ident, input: ParseStream<'_>) -> Result<Vec<LitStr>> {
    let namespaces = texts(name, input, "[\"shared\", \"infra\"]")?;
    if namespaces.len() > MAX_NAMESPACES {
        let count = namespaces.len();
        let message = format!("there are {count} namespaces, and {MAX_NAMESPACES} are the most; leave it out for all");
        return Err(Error::new(name.span(), message));
    }
    Ok(namespaces)
}

/// `"v1/Pod", ConfigMap, update = "recreate"`: kinds, how the host changes their children, and where these may be.
fn owned(input: ParseStream<'_>) -> Result<Vec<TokenStream>> {
    let (mut update, mut max_unavailable, mut replace, mut namespaces, mut adopt) = (None, None, None, None, None);
    let known = ["update", "max_unavailable", "replace", "namespaces", "adopt", "labels"];
    let kinds = kinds(input, KindName::parse, &known, |name, input| match name.to_string().as_str() {
        "update" => set(&mut update, name, value(name, input, "\"recreate\"")?),
        "replace" => set(&mut replace, name, value(name, input, "\"at-once\"")?),
        "namespaces" => set(&mut namespaces, name, elsewhere(name, input)?),
        "adopt" => set(&mut adopt, name, flag(name, input)?),
        "labels" => Err(Error::new(
            name.span(),
            "children cannot be narrowed by labels: one that loses them would seem deleted; only reads(...) takes `labels`",
        )),
        _ => set(&mut max_unavailable, name, (bounded(name, input, MAX_UNAVAILABLE)?, name.span())),
    })?;
    let update: Option<LitStr> = update;
    if let Some((_, span)) = max_unavailable
        && update.as_ref().is_none_or(|update| update.value() != ROLLING)
    {
        return Err(Error::new(span, format!("`max_unavailable` belongs to update = {ROLLING:?}")));
    }
    let update = option(update.map(|text| update_of(&text, max_unavailable)).transpose()?);
    let replace: Option<LitStr> = replace;
    let replace = replace.map(|text| variant(&text, "a replacement", &REPLACEMENTS)).transpose()?;
    let replace = option(replace.map(|variant| quote!(::mortise_sdk::Replace::#variant)));
    let (tracked, adopt) = (namespaces.is_some(), adopt.unwrap_or_default());
    let namespaces = namespaces.unwrap_or_default();
    let namespaces = quote!(&[#(#namespaces),*]);
    let fields = quote!(
        update: #update, replace: #replace, tracked: #tracked, namespaces: #namespaces, adopt: #adopt
    );
    let owned = |kind| quote!(::mortise_sdk::Owned { kind: #kind, #fields });
    Ok(kinds.iter().map(owned).collect())
}

/// `namespaces = "any"`, which is an empty list here, or `namespaces = ["a", "b"]`.
fn elsewhere(name: &Ident, input: ParseStream<'_>) -> Result<Vec<LitStr>> {
    if input.peek2(syn::token::Bracket) {
        return named(name, input);
    }
    let word: LitStr = value(name, input, "\"any\"")?;
    if word.value() == ANY {
        return Ok(Vec::new());
    }
    let message = format!(
        "write namespaces = {ANY:?} or namespaces = [\"shared\"], or leave it out for children in their owner's namespace"
    );
    Err(Error::new(word.span(), message))
}

fn update_of(text: &LitStr, max_unavailable: Option<(u32, Span)>) -> Result<TokenStream> {
    let variant = variant(text, "an update", &UPDATES)?;
    let most = max_unavailable.map_or(1, |(most, _)| most);
    let fields = (text.value() == ROLLING).then(|| quote!({ max_unavailable: #most }));
    Ok(quote!(::mortise_sdk::Update::#variant #fields))
}

/// `"apps/v1/Deployment", "patch", subresource = "scale"`: a kind, verbs, and subresources that may be patched.
fn written(input: ParseStream<'_>) -> Result<TokenStream> {
    let kind: KindName = input.parse()?;
    let (mut verbs, mut subresources) = (Vec::new(), Vec::<LitStr>::new());
    while !input.is_empty() {
        input.parse::<Token![,]>()?;
        if input.is_empty() {
            break;
        }
        if !input.peek(LitStr) {
            read(input, &["subresource"], |name, input| {
                subresources.push(text(name, input)?);
                Ok(())
            })?;
            break;
        }
        let verb: LitStr = input.parse()?;
        let variant = variant(&verb, "a verb", &VERBS)?;
        if variant == "Evict" && !kind.may_be("v1", "Pod") {
            return Err(Error::new(verb.span(), "only \"v1/Pod\" can be evicted"));
        }
        verbs.push(quote!(::mortise_sdk::Verb::#variant));
    }
    if verbs.is_empty() {
        let message = "name a verb: writes(\"apps/v1/Deployment\", \"patch\")";
        return Err(Error::new(input.span(), message));
    }
    Ok(quote!(::mortise_sdk::Write { kind: #kind, verbs: &[#(#verbs),*], subresources: &[#(#subresources),*] }))
}

/// `"https://api.example.com", "GET", secret = "token"`: an origin, methods, and Secrets that may be sent there.
fn requested(input: ParseStream<'_>) -> Result<TokenStream> {
    let origin: LitStr = input.parse()?;
    let value = origin.value();
    let authority = value.strip_prefix("https://").or_else(|| value.strip_prefix("http://"));
    if authority.is_none_or(|rest| rest.is_empty() || rest.contains(['/', '?', '#', '@', '*'])) {
        let message = "name a scheme and an exact host, and no path: http(\"https://api.example.com\", \"GET\")";
        return Err(Error::new(origin.span(), message));
    }
    let (mut methods, mut secrets) = (Vec::new(), Vec::<LitStr>::new());
    while !input.is_empty() {
        input.parse::<Token![,]>()?;
        if input.is_empty() {
            break;
        }
        if !input.peek(LitStr) {
            read(input, &["secret"], |name, input| {
                secrets.push(text(name, input)?);
                Ok(())
            })?;
            break;
        }
        let method = variant(&input.parse()?, "a method", &METHODS)?;
        methods.push(quote!(::mortise_sdk::Method::#method));
    }
    if methods.is_empty() {
        return Err(Error::new(origin.span(), "name a method: http(\"https://api.example.com\", \"GET\")"));
    }
    Ok(quote!(::mortise_sdk::Http { origin: #origin, methods: &[#(#methods),*], secrets: &[#(#secrets),*] }))
}
