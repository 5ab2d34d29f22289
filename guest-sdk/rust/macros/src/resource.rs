//! `#[derive(CustomResource)]`: from a spec to the type of its objects and the data of its CustomResourceDefinition.

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;
use syn::ext::IdentExt;
use syn::parse::ParseStream;
use syn::{Attribute, DeriveInput, Error, Expr, ExprLit, Lit, LitStr, Meta, Result, Type};

use crate::arguments::{annotation, flag, list, option, read, set, text, value};

const ARGUMENTS: [&str; 12] = [
    "group",
    "version",
    "kind",
    "status",
    "plural",
    "singular",
    "short_name",
    "category",
    "cluster",
    "scale",
    "column",
    "annotation",
];

/// The annotation that the API server requires of a CustomResourceDefinition of a group under `k8s.io` or
/// `kubernetes.io`: who approved the API, or "unapproved" with a reason.
const APPROVAL: &str = "api-approved.kubernetes.io";

#[derive(Default)]
struct Arguments {
    group: Option<LitStr>,
    version: Option<LitStr>,
    kind: Option<LitStr>,
    status: Option<Type>,
    plural: Option<LitStr>,
    singular: Option<LitStr>,
    short_names: Vec<LitStr>,
    categories: Vec<LitStr>,
    cluster: Option<bool>,
    scale: Option<TokenStream>,
    columns: Vec<TokenStream>,
    has_age: bool,
    annotations: Vec<(String, LitStr)>,
}

pub(crate) fn expand(input: TokenStream) -> Result<TokenStream> {
    let input: DeriveInput = syn::parse2(input)?;
    if !input.generics.params.is_empty() {
        return Err(Error::new_spanned(&input.generics, "a spec has no generic parameters: a kind is one type"));
    }
    let arguments = Arguments::of(&input)?;
    if [&arguments.group, &arguments.version, &arguments.kind].iter().all(|argument| argument.is_none()) {
        let message = "a custom resource needs its group, version and kind: \
                       #[resource(group = \"example.com\", version = \"v1\", kind = \"PodSet\")]";
        return Err(Error::new_spanned(&input.ident, message));
    }
    let kind_text = required(arguments.kind.as_ref(), "kind", "PodSet", &input)?;
    let kind = kind_text.parse_with(Ident::parse_any).ok();
    let kind = kind
        .filter(|kind| kind.to_string().starts_with(|letter: char| letter.is_ascii_uppercase()))
        .ok_or_else(|| Error::new(kind_text.span(), "a kind is one CamelCase word, such as \"PodSet\""))?;
    let object = object(&input, &kind, &arguments);
    let deserialize = deserialize(&input.ident, &kind, arguments.status.as_ref());
    let serialize = serialize(&kind, arguments.status.is_some());
    let resource = resource(&input, &kind, &arguments)?;
    Ok(quote!(#object #deserialize #serialize #resource))
}

/// The type of the kind's objects.
fn object(input: &DeriveInput, kind: &Ident, arguments: &Arguments) -> TokenStream {
    let (visibility, spec) = (&input.vis, &input.ident);
    let about = format!("An object of the kind {kind}, whose spec is [`{spec}`].");
    let metadata = if arguments.cluster == Some(true) {
        quote!(::mortise_sdk::ObjectMeta::named(name))
    } else {
        quote!(::mortise_sdk::ObjectMeta::named(name).in_namespace("default"))
    };
    let (status, no_status) = match &arguments.status {
        Some(status) => (
            quote! {
                /// The last observed state.
                pub status: ::mortise_sdk::Status<#status>,
            },
            quote!(status: ::mortise_sdk::Status::none(),),
        ),
        None => (quote!(), quote!()),
    };
    quote! {
        #[doc = #about]
        #[derive(Clone, Debug)]
        #visibility struct #kind {
            /// Name, namespace, labels and so on.
            pub metadata: ::mortise_sdk::ObjectMeta,
            /// The desired state.
            pub spec: #spec,
            #status
        }

        impl #kind {
            /// A new object, in the namespace "default" unless the kind is cluster-scoped. For tests.
            #[allow(dead_code, reason = "for tests")]
            pub fn new(name: impl ::core::convert::Into<::std::string::String>, spec: #spec) -> Self {
                Self { metadata: #metadata, spec, #no_status }
            }

            /// An object as a child in an outcome. Its owner's namespace applies; the host derives a name if this one
            /// is empty.
            #[allow(dead_code, reason = "not every kind is a child of another")]
            pub fn wanted(name: impl ::core::convert::Into<::std::string::String>, spec: #spec) -> Self {
                Self { metadata: ::mortise_sdk::ObjectMeta::named(name), spec, #no_status }
            }
        }
    }
}

/// Reads objects without their apiVersion and kind, which the type has as constants.
fn deserialize(spec: &Ident, kind: &Ident, status: Option<&Type>) -> TokenStream {
    let (text, status) = match status {
        Some(_) => (quote!(status), Some(quote!(status: ::mortise_sdk::__private::status(status),))),
        None => (quote!(_), None),
    };
    quote! {
        impl<'de> ::mortise_sdk::FromJson<'de> for #kind {
            fn from_json(
                input: &mut ::mortise_sdk::Scanner<'de>,
            ) -> ::core::result::Result<Self, ::std::string::String> {
                let (metadata, spec, #text) = ::mortise_sdk::__private::parts::<#spec>(input)?;
                ::core::result::Result::Ok(Self { metadata, spec, #status })
            }
        }
    }
}

/// Writes objects with their apiVersion and kind.
fn serialize(kind: &Ident, has_status: bool) -> TokenStream {
    let name = kind.to_string();
    let status = has_status.then(|| {
        quote! {
            if let ::core::option::Option::Some(status) = self.status.get() {
                object.serialize_field("status", status)?;
            }
        }
    });
    quote! {
        impl ::mortise_sdk::__private::serde::Serialize for #kind {
            fn serialize<S: ::mortise_sdk::__private::serde::Serializer>(
                &self,
                serializer: S,
            ) -> ::core::result::Result<S::Ok, S::Error> {
                use ::mortise_sdk::__private::serde::ser::SerializeStruct;
                let mut object = serializer.serialize_struct(#name, 5)?;
                object.serialize_field("apiVersion", <Self as ::mortise_sdk::Resource>::API_VERSION)?;
                object.serialize_field("kind", <Self as ::mortise_sdk::Resource>::KIND)?;
                object.serialize_field("metadata", &self.metadata)?;
                object.serialize_field("spec", &self.spec)?;
                #status
                object.end()
            }
        }
    }
}

fn resource(input: &DeriveInput, kind: &Ident, arguments: &Arguments) -> Result<TokenStream> {
    let spec = &input.ident;
    let group = required(arguments.group.as_ref(), "group", "example.com", input)?;
    let version = required(arguments.version.as_ref(), "version", "v1", input)?;
    let api_version = format!("{}/{}", group.value(), version.value());
    let name = kind.to_string();
    let singular = arguments.singular.as_ref().map_or_else(|| name.to_lowercase(), LitStr::value);
    let plural = arguments.plural.as_ref().map_or_else(|| plural_of(&singular), LitStr::value);
    let status_type = match &arguments.status {
        Some(status) => quote!(#status),
        None => quote!(::mortise_sdk::NoStatus),
    };
    let (short_names, categories) = (&arguments.short_names, &arguments.categories);
    let namespaced = arguments.cluster != Some(true);
    let description = doc_text(&input.attrs);
    let scale = option(arguments.scale.as_ref());
    let age = column_tokens("Age", "date", ".metadata.creationTimestamp", 0, "");
    let age = (!arguments.columns.is_empty() && !arguments.has_age).then_some(age);
    let columns = arguments.columns.iter().chain(&age);
    let annotations = arguments.annotations.iter().map(|(key, value)| quote!((#key, #value)));
    let status = option(arguments.status.as_ref().map(|status| quote!(schema_of::<#status>())));
    Ok(quote! {
        impl ::mortise_sdk::Resource for #kind {
            const API_VERSION: &'static str = #api_version;
            const KIND: &'static str = #name;

            const DEFINITION: ::core::option::Option<&'static ::mortise_sdk::__private::Definition> = {
                #[allow(unused_imports, reason = "not every kind has columns and a scale")]
                use ::mortise_sdk::__private::{Column, Definition, Scale, schema_of};
                const DEFINITION: Definition = Definition {
                    group: #group,
                    version: #version,
                    kind: #name,
                    plural: #plural,
                    singular: #singular,
                    short_names: &[#(#short_names),*],
                    categories: &[#(#categories),*],
                    namespaced: #namespaced,
                    description: #description,
                    scale: #scale,
                    columns: &[#(#columns),*],
                    annotations: &[#(#annotations),*],
                    spec: schema_of::<#spec>(),
                    status: #status,
                };
                ::core::option::Option::Some(&DEFINITION)
            };
        }

        impl ::mortise_sdk::HasStatus<#status_type> for #kind {}

        impl ::mortise_sdk::Versioned for #kind {
            type Spec = #spec;
            type Status = #status_type;
        }
    })
}

fn required<'a>(value: Option<&'a LitStr>, name: &str, example: &str, input: &DeriveInput) -> Result<&'a LitStr> {
    value.filter(|text| !text.value().is_empty()).ok_or_else(|| {
        let message = format!("a custom resource needs its {name}: #[resource({name} = \"{example}\", ...)]");
        Error::new_spanned(&input.ident, message)
    })
}

/// Regular English plurals; `plural = "..."` is for the others.
fn plural_of(singular: &str) -> String {
    let ends_like = |ends: &[&str]| ends.iter().any(|end| singular.ends_with(end));
    match singular.strip_suffix('y') {
        Some(stem) if !ends_like(&["ay", "ey", "oy", "uy"]) => format!("{stem}ies"),
        _ if ends_like(&["s", "x", "z", "ch", "sh"]) => format!("{singular}es"),
        _ => format!("{singular}s"),
    }
}

/// Whether a group belongs to Kubernetes: the host refuses definitions in groups of built-in kinds, and the API server
/// requires an approval in the others.
fn is_of_kubernetes(group: &str) -> bool {
    !group.contains('.') || group.ends_with(".k8s.io") || group.ends_with(".kubernetes.io")
}

/// Whether a version is one of Kubernetes: "v1", "v1alpha1", "v2beta3".
fn is_version(text: &str) -> bool {
    let is_number = |text: &str| !text.starts_with('0') && text.parse::<u32>().is_ok();
    let Some(rest) = text.strip_prefix('v') else { return false };
    let parts = rest.split_once("alpha").or_else(|| rest.split_once("beta"));
    parts.map_or_else(|| is_number(rest), |(major, minor)| is_number(major) && is_number(minor))
}

/// The doc comment as one text, paragraphs kept.
fn doc_text(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter(|attribute| attribute.path().is_ident("doc")).filter_map(|attribute| {
        let Meta::NameValue(meta) = &attribute.meta else { return None };
        let Expr::Lit(ExprLit { lit: Lit::Str(line), .. }) = &meta.value else { return None };
        Some(line.value().trim().to_owned())
    });
    let text = lines.collect::<Vec<_>>().join("\n");
    text.split("\n\n").map(|paragraph| paragraph.replace('\n', " ")).collect::<Vec<_>>().join("\n\n")
}

impl Arguments {
    fn of(input: &DeriveInput) -> Result<Self> {
        let mut this = Self::default();
        for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("resource")) {
            attribute.parse_args_with(|input: ParseStream<'_>| {
                read(input, &ARGUMENTS, |name, input| this.argument(name, input))
            })?;
        }
        this.check_group()?;
        this.check_version()?;
        Ok(this)
    }

    fn check_group(&self) -> Result<()> {
        let Some(group) = self.group.as_ref() else { return Ok(()) };
        let text = group.value();
        let is_label = |label: &str| {
            !label.is_empty()
                && label.bytes().all(|byte| b"-".contains(&byte) || byte.is_ascii_lowercase() || byte.is_ascii_digit())
        };
        if !text.split('.').all(is_label) {
            return Err(Error::new(group.span(), "a group is a domain in lower case, such as \"example.com\""));
        }
        let is_approved = text.contains('.') && self.annotations.iter().any(|(key, _)| key == APPROVAL);
        if !is_of_kubernetes(&text) || is_approved {
            return Ok(());
        }
        let message = format!(
            "the group {text:?} belongs to Kubernetes; use a group in a domain of your own, or, below k8s.io and \
             kubernetes.io, say who approved the API: annotation(\"{APPROVAL}\", \"unapproved, ...\")"
        );
        Err(Error::new(group.span(), message))
    }

    fn check_version(&self) -> Result<()> {
        let Some(version) = self.version.as_ref() else { return Ok(()) };
        if is_version(&version.value()) {
            return Ok(());
        }
        Err(Error::new(version.span(), "a version is v and a number, such as \"v1\", \"v1alpha1\" or \"v2beta3\""))
    }

    fn argument(&mut self, name: &Ident, input: ParseStream<'_>) -> Result<()> {
        match name.to_string().as_str() {
            "group" => set(&mut self.group, name, text(name, input)?)?,
            "version" => set(&mut self.version, name, text(name, input)?)?,
            "kind" => set(&mut self.kind, name, text(name, input)?)?,
            "status" => set(&mut self.status, name, value(name, input, "PodSetStatus")?)?,
            "plural" => set(&mut self.plural, name, text(name, input)?)?,
            "singular" => set(&mut self.singular, name, text(name, input)?)?,
            "short_name" => self.short_names.push(text(name, input)?),
            "category" => self.categories.push(text(name, input)?),
            "cluster" => set(&mut self.cluster, name, flag(name, input)?)?,
            "annotation" => {
                let (key, value) = list(name, input, annotation)?;
                let key = key.value();
                if self.annotations.iter().any(|(other, _)| *other == key) {
                    return Err(Error::new(name.span(), format!("the annotation {key:?} is given twice")));
                }
                self.annotations.push((key, value));
            }
            "scale" => set(&mut self.scale, name, list(name, input, |input| scale(name.span(), input))?)?,
            _ => {
                let (title, column) = list(name, input, |input| column(name.span(), input))?;
                self.has_age |= title == "Age";
                self.columns.push(column);
            }
        }
        Ok(())
    }
}

fn scale(span: Span, input: ParseStream<'_>) -> Result<TokenStream> {
    let (mut spec, mut status, mut selector) = (None, None, None);
    read(input, &["spec", "status", "selector"], |name, input| {
        let place = match name.to_string().as_str() {
            "spec" => &mut spec,
            "status" => &mut status,
            _ => &mut selector,
        };
        set(place, name, path(name, input)?)
    })?;
    let (Some(spec), Some(status)) = (spec, status) else {
        let example = "scale(spec = \".spec.replicas\", status = \".status.replicas\")";
        return Err(Error::new(span, format!("a scale subresource needs two paths: {example}")));
    };
    let selector = option(selector);
    Ok(quote!(Scale { spec: #spec, status: #status, selector: #selector }))
}

fn column(span: Span, input: ParseStream<'_>) -> Result<(String, TokenStream)> {
    let (mut title, mut kind, mut at, mut description, mut wide) = (None, None, None, None, None);
    read(input, &["name", "type", "path", "description", "wide"], |name, input| match name.to_string().as_str() {
        "name" => set(&mut title, name, text(name, input)?),
        "type" => set(&mut kind, name, column_type(name, input)?),
        "path" => set(&mut at, name, path(name, input)?),
        "description" => set(&mut description, name, text(name, input)?),
        _ => set(&mut wide, name, flag(name, input)?),
    })?;
    let (Some(title), Some(at)) = (title, at) else {
        let example = "column(name = \"Desired\", path = \".spec.replicas\", type = \"integer\")";
        return Err(Error::new(span, format!("a column needs a name and a path: {example}")));
    };
    let kind = kind.map_or_else(|| "string".to_owned(), |kind| kind.value());
    let description = description.map_or_else(String::new, |text| text.value());
    let title = title.value();
    let tokens = column_tokens(&title, &kind, &at.value(), i32::from(wide == Some(true)), &description);
    Ok((title, tokens))
}

fn column_tokens(name: &str, kind: &str, path: &str, priority: i32, description: &str) -> TokenStream {
    quote!(Column { name: #name, kind: #kind, path: #path, priority: #priority, description: #description })
}

fn column_type(name: &Ident, input: ParseStream<'_>) -> Result<LitStr> {
    const TYPES: [&str; 5] = ["string", "integer", "number", "boolean", "date"];
    let kind = text(name, input)?;
    if TYPES.contains(&kind.value().as_str()) {
        return Ok(kind);
    }
    Err(Error::new(kind.span(), format!("the type of a column is one of: {}", TYPES.join(", "))))
}

fn path(name: &Ident, input: ParseStream<'_>) -> Result<LitStr> {
    let path = text(name, input)?;
    if path.value().starts_with('.') {
        return Ok(path);
    }
    Err(Error::new(path.span(), "a path begins with a dot, such as \".spec.replicas\""))
}
