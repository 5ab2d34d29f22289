//! `#[derive(Projection)]`: from a flat struct with field paths to the code that fills it. The SDK's scanner finds
//! the paths, as a tree of names, in the text; each value is then parsed into its field.

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;
use syn::parse::ParseStream;
use syn::{
    Data, DataStruct, DeriveInput, Error, Field, Fields, GenericArgument, GenericParam, LitStr, PathArguments, Result,
    Type,
};

use crate::kind::KindName;

const CHILD_KEY: &str = "metadata.annotations[\"mortise.dev/child\"]";

/// A field of the struct and where it is read from.
struct Read {
    field: Ident,
    target: Type,
    /// The type inside an `Option`.
    optional: Option<Type>,
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
    let wanted = tree.tokens();
    let fields = reads.iter().map(|read| &read.field);
    let values = reads.iter().enumerate().map(|(position, read)| {
        let path = &read.path;
        let reader = match (&read.optional, is_borrowed_text(&read.target)) {
            (None, false) => quote!(required),
            (None, true) => quote!(required_text),
            (Some(inner), _) if is_borrowed_text(inner) => quote!(optional_text),
            (Some(_), _) => quote!(optional),
        };
        quote!(#reader(found[#position], #path)?)
    });
    let paths: Vec<&String> = reads.iter().map(|read| &read.path).collect();
    let count = reads.len();
    let name = &input.ident;
    Ok(quote! {
        const _: () = {
            use ::mortise_sdk::__private::{FromJson, Part, Reason, Scanner, Wanted};
            #[allow(unused_imports, reason = "not every projection has fields of every sort")]
            use ::mortise_sdk::__private::{optional, optional_text, required, required_text};

            const WANTED: &[Wanted] = #wanted;

            impl<'de, #(#lifetimes),*> FromJson<'de> for #name<#(#lifetimes),*>
            where
                #('de: #lifetimes,)*
            {
                fn from_json(input: &mut Scanner<'de>) -> ::core::result::Result<Self, Reason> {
                    let mut found = [::core::option::Option::None; #count];
                    input.fields(WANTED, &mut found)?;
                    ::core::result::Result::Ok(Self { #(#fields: #values),* })
                }
            }

            impl<#(#lifetimes,)* Status> ::mortise_sdk::HasStatus<Status> for #name<#(#lifetimes),*> {}

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
        Data::Struct(DataStruct { fields: Fields::Named(fields), .. }) if !fields.named.is_empty() => {
            fields.named.iter().map(read).collect()
        }
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
        match input.parse::<Ident>() {
            Ok(word) if word == "child_key" => Ok((CHILD_KEY.to_owned(), word.span())),
            _ => Err(Error::new(
                name.span(),
                "write a path in quotes, #[field(\"status.phase\")], or #[field(child_key)]",
            )),
        }
    })?;
    Ok(Read { field: name, optional: inside_option(&field.ty), target: field.ty.clone(), path, span })
}

/// The names of a path such as "metadata.annotations[\"a.b/c\"]".
fn segments(read: &Read) -> Result<Vec<String>> {
    let malformed = || {
        let message =
            format!("{:?} is no field path; write \"status.phase\" or \"metadata.labels[\\\"a.b/c\\\"]\"", read.path);
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

    fn tokens(&self) -> TokenStream {
        let Self::Inner(nodes) = self else { return TokenStream::new() };
        let nodes = nodes.iter().map(|(name, node)| match node {
            Self::Leaf(position) => quote!(Wanted { name: #name, part: Part::Whole(#position) }),
            Self::Inner(_) => {
                let inner = node.tokens();
                quote!(Wanted { name: #name, part: Part::Fields(#inner) })
            }
        });
        quote!(&[#(#nodes),*])
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

/// The type inside an `Option`.
fn inside_option(target: &Type) -> Option<Type> {
    let Type::Path(named) = target else { return None };
    let last = named.path.segments.last().filter(|last| last.ident == "Option")?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    match arguments.args.first() {
        Some(GenericArgument::Type(inner)) => Some(inner.clone()),
        _ => None,
    }
}

/// Whether a type is `&'a str`, which needs no parser.
fn is_borrowed_text(target: &Type) -> bool {
    let Type::Reference(reference) = target else { return false };
    matches!(&*reference.elem, Type::Path(named) if named.path.is_ident("str"))
}
