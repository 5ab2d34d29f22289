//! `#[derive(Projection)]`: from a flat struct with field paths to the reads that fill it. The paths form a tree; every
//! inner node becomes a private struct that serde reads, and the flat struct is put together from their leaves.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote};
use syn::parse::ParseStream;
use syn::{Data, DeriveInput, Error, Field, Fields, GenericParam, LitStr, Result, Type};

use crate::kind::KindName;

const CHILD_KEY: &str = "metadata.annotations[\"mortise.dev/child\"]";

/// A field of the struct and where it is read from.
struct Read {
    field: Ident,
    target: Type,
    optional: bool,
    path: String,
    span: Span,
}

/// The paths as a tree. A leaf is the position of its read.
enum Node {
    Inner(Vec<(String, Node)>),
    Leaf(usize),
}

pub(crate) fn expand(input: TokenStream) -> Result<TokenStream> {
    let input: DeriveInput = syn::parse2(input)?;
    let kind = kind(&input)?;
    let KindName::Text { api_version, kind } = kind else {
        return Err(Error::new_spanned(&input.ident, "write the kind as text: #[projection(\"v1/Pod\")]"));
    };
    let reads = reads(&input)?;
    let mut tree = Node::Inner(Vec::new());
    for (position, read) in reads.iter().enumerate() {
        tree.insert(&segments(read)?, position, &reads)?;
    }
    let lifetimes = lifetimes(&input)?;
    let mut structs = Vec::new();
    let mut steps = Vec::new();
    let root = structs_of(&tree, &reads, &lifetimes, &mut structs, &mut steps, &quote!(root));
    let fields = reads.iter().map(|read| &read.field);
    let values = reads.iter().enumerate().map(|(position, read)| {
        let (leaf, path) = (leaf(position), &read.path);
        if read.optional {
            quote!(#leaf)
        } else {
            quote!(match #leaf {
                ::core::option::Option::Some(value) => value,
                ::core::option::Option::None => {
                    return ::core::result::Result::Err(serde::de::Error::missing_field(#path));
                }
            })
        }
    });
    let paths = reads.iter().map(|read| &read.path);
    let name = &input.ident;
    Ok(quote! {
        const _: () = {
            use ::mortise_sdk::__private::{record, serde};

            #(#structs)*

            impl<'de, #(#lifetimes),*> serde::Deserialize<'de> for #name<#(#lifetimes),*>
            where
                #('de: #lifetimes,)*
            {
                fn deserialize<D: serde::Deserializer<'de>>(
                    deserializer: D,
                ) -> ::core::result::Result<Self, D::Error> {
                    let root = <#root as serde::Deserialize>::deserialize(deserializer)?;
                    #(#steps)*
                    ::core::result::Result::Ok(Self { #(#fields: #values),* })
                }
            }

            impl<#(#lifetimes),*> ::mortise_sdk::Resource for #name<#(#lifetimes),*> {
                const API_VERSION: &'static str = #api_version;
                const KIND: &'static str = #kind;
                const FIELDS: &'static [&'static str] = &[#(#paths),*];
            }
        };
    })
}

fn kind(input: &DeriveInput) -> Result<KindName> {
    let attribute = input.attrs.iter().find(|attribute| attribute.path().is_ident("projection"));
    let missing = || Error::new_spanned(&input.ident, "say which kind is read: #[projection(\"v1/Pod\")]");
    KindName::from_text(&attribute.ok_or_else(missing)?.parse_args().map_err(|_| missing())?)
}

fn reads(input: &DeriveInput) -> Result<Vec<Read>> {
    match &input.data {
        Data::Struct(data) => match &data.fields {
            Fields::Named(fields) if !fields.named.is_empty() => fields.named.iter().map(read).collect(),
            _ => Err(Error::new_spanned(&input.ident, "a projection is a struct with named fields")),
        },
        _ => Err(Error::new_spanned(&input.ident, "a projection is a struct with named fields")),
    }
}

fn read(field: &Field) -> Result<Read> {
    let name = field.ident.clone().ok_or_else(|| Error::new_spanned(field, "a projection has named fields"))?;
    let attribute = field.attrs.iter().find(|attribute| attribute.path().is_ident("field")).ok_or_else(|| {
        Error::new(name.span(), format!("say where `{name}` is read from: #[field(\"status.phase\")]"))
    })?;
    let (path, span) = attribute.parse_args_with(|input: ParseStream<'_>| {
        if input.peek(LitStr) {
            let path: LitStr = input.parse()?;
            return Ok((path.value(), path.span()));
        }
        let word: Ident = input.parse()?;
        if word == "child_key" {
            return Ok((CHILD_KEY.to_owned(), word.span()));
        }
        Err(Error::new(word.span(), "a field is read from a path in quotes, or from child_key"))
    })?;
    let optional = match &field.ty {
        Type::Path(named) => named.path.segments.last().is_some_and(|last| last.ident == "Option"),
        _ => false,
    };
    Ok(Read { field: name, target: field.ty.clone(), optional, path, span })
}

/// "metadata.annotations[\"a.b/c\"]" as its names.
fn segments(read: &Read) -> Result<Vec<String>> {
    let malformed = || {
        let message = format!("{:?} is no field path; write \"status.phase\" or \"metadata.labels[\\\"a.b/c\\\"]\"", read.path);
        Error::new(read.span, message)
    };
    let mut names = Vec::new();
    let mut rest = read.path.as_str();
    loop {
        if let Some(quoted) = rest.strip_prefix("[\"") {
            let (name, after) = quoted.split_once("\"]").ok_or_else(malformed)?;
            names.push(name.to_owned());
            rest = after;
        } else {
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            let (name, after) = rest.split_at(end);
            if name.is_empty() || name.contains(['"', ']', ' ']) {
                return Err(malformed());
            }
            names.push(name.to_owned());
            rest = after;
        }
        if rest.is_empty() {
            return Ok(names);
        }
        match rest.strip_prefix('.') {
            Some(after) => rest = after,
            None if rest.starts_with("[\"") => {}
            None => return Err(malformed()),
        }
    }
}

impl Node {
    fn insert(&mut self, path: &[String], position: usize, reads: &[Read]) -> Result<()> {
        let clash = |other: usize| {
            let message = format!("{:?} and {:?} overlap; read one of them", reads[other].path, reads[position].path);
            Err(Error::new(reads[position].span, message))
        };
        let (Self::Inner(nodes), [name, rest @ ..]) = (self, path) else { return Ok(()) };
        match nodes.iter_mut().find(|(existing, _)| existing == name) {
            None if rest.is_empty() => nodes.push((name.clone(), Self::Leaf(position))),
            None => {
                let mut inner = Self::Inner(Vec::new());
                inner.insert(rest, position, reads)?;
                nodes.push((name.clone(), inner));
            }
            Some((_, Self::Leaf(other))) => return clash(*other),
            Some((_, inner)) if rest.is_empty() => return clash(inner.first_leaf()),
            Some((_, inner)) => inner.insert(rest, position, reads)?,
        }
        Ok(())
    }

    fn mentions(&self, lifetime: &syn::Lifetime, reads: &[Read]) -> bool {
        match self {
            Self::Leaf(position) => mentions(&reads[*position].target, lifetime),
            Self::Inner(nodes) => nodes.iter().any(|(_, node)| node.mentions(lifetime, reads)),
        }
    }

    fn first_leaf(&self) -> usize {
        match self {
            Self::Leaf(position) => *position,
            Self::Inner(nodes) => nodes.first().map_or(0, |(_, node)| node.first_leaf()),
        }
    }
}

fn lifetimes(input: &DeriveInput) -> Result<Vec<syn::Lifetime>> {
    let lifetime = |parameter: &GenericParam| match parameter {
        GenericParam::Lifetime(parameter) => Ok(parameter.lifetime.clone()),
        other => Err(Error::new_spanned(other, "a projection has lifetimes, but no other generic parameters")),
    };
    input.generics.params.iter().map(lifetime).collect()
}

fn leaf(position: usize) -> Ident {
    format_ident!("leaf{position}")
}

/// Writes the struct of an inner node and of all below it, and the steps that take their leaves out. Gives the
/// struct's type.
fn structs_of(
    node: &Node,
    reads: &[Read],
    lifetimes: &[syn::Lifetime],
    structs: &mut Vec<TokenStream>,
    steps: &mut Vec<TokenStream>,
    value: &TokenStream,
) -> TokenStream {
    let Node::Inner(nodes) = node else { return TokenStream::new() };
    // Reserved before the children write theirs, so that every struct has its own number.
    let name = format_ident!("Node{}", structs.len());
    structs.push(TokenStream::new());
    let place = structs.len() - 1;
    let mut fields = Vec::new();
    for (index, (key, child)) in nodes.iter().enumerate() {
        let field = format_ident!("f{index}");
        match child {
            Node::Leaf(position) => {
                let (leaf, read) = (leaf(*position), &reads[*position]);
                let target = &read.target;
                let target = if read.optional { quote!(#target) } else { quote!(::core::option::Option<#target>) };
                fields.push(quote!(#field: #target = #key));
                steps.push(quote!(let #leaf = #value.#field;));
            }
            Node::Inner(_) => {
                let inner_value = format_ident!("inner{}", structs.len());
                steps.push(quote!(let #inner_value = #value.#field;));
                let inner = structs_of(child, reads, lifetimes, structs, steps, &quote!(#inner_value));
                fields.push(quote!(#field: #inner = #key));
            }
        }
    }
    // A struct has to use its lifetimes, so each gets those that its own leaves mention.
    let used: Vec<&syn::Lifetime> = lifetimes.iter().filter(|lifetime| node.mentions(lifetime, reads)).collect();
    let generics = (!used.is_empty()).then(|| quote!(<#(#used),*>));
    structs[place] = quote!(record! { struct #name #generics { #(#fields,)* } });
    quote!(#name #generics)
}

/// Whether a type mentions a lifetime.
fn mentions(target: &Type, lifetime: &syn::Lifetime) -> bool {
    let text = quote!(#target).to_string();
    let wanted = lifetime.to_string();
    let is_end = |rest: &str| !rest.starts_with(|letter: char| letter.is_alphanumeric() || letter == '_');
    text.match_indices(&wanted).any(|(at, _)| is_end(&text[at + wanted.len()..]))
}
