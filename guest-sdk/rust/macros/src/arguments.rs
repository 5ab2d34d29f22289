//! Arguments of attributes: `name = value`, `name(...)` and `flag`, separated by commas. This file must not know
//! attributes: each caller passes the names that it takes.

use proc_macro2::Ident;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::{Error, LitBool, LitInt, LitStr, Result, Token, bracketed, parenthesized};

/// Parses all arguments. `each` gets a known name and parses what follows it.
pub(crate) fn read(
    input: ParseStream<'_>,
    known: &[&str],
    mut each: impl FnMut(&Ident, ParseStream<'_>) -> Result<()>,
) -> Result<()> {
    while !input.is_empty() {
        let one_of = || format!("it is one of: {}", known.join(", "));
        let name = Ident::parse_any(input)
            .map_err(|error| Error::new(error.span(), format!("expected the name of an argument; {}", one_of())))?;
        if !known.iter().any(|known| name == known) {
            return Err(Error::new(name.span(), format!("unknown argument `{name}`; {}", one_of())));
        }
        each(&name, input)?;
        if !input.is_empty() {
            input.parse::<Token![,]>()?;
        }
    }
    Ok(())
}

/// What follows `name =`.
pub(crate) fn value<T: Parse>(name: &Ident, input: ParseStream<'_>, example: &str) -> Result<T> {
    let wanted = || Error::new(name.span(), format!("write it as `{name} = {example}`"));
    input.parse::<Token![=]>().map_err(|_| wanted())?;
    input.parse().map_err(|_| wanted())
}

/// A flag: `finalize`, or `finalize = true`.
pub(crate) fn flag(name: &Ident, input: ParseStream<'_>) -> Result<bool> {
    if input.peek(Token![=]) { value::<LitBool>(name, input, "true").map(|flag| flag.value) } else { Ok(true) }
}

/// The string that follows `name =`.
pub(crate) fn text(name: &Ident, input: ParseStream<'_>) -> Result<LitStr> {
    value(name, input, "\"...\"")
}

/// The strings in brackets that follow `name =`.
pub(crate) fn texts(name: &Ident, input: ParseStream<'_>, example: &str) -> Result<Vec<LitStr>> {
    let wanted = || Error::new(name.span(), format!("write it as `{name} = {example}`"));
    input.parse::<Token![=]>().map_err(|_| wanted())?;
    if !input.peek(syn::token::Bracket) {
        return Err(wanted());
    }
    let content;
    bracketed!(content in input);
    let texts = content.parse_terminated(<LitStr as Parse>::parse, Token![,]).map_err(|_| wanted())?;
    if texts.is_empty() { Err(wanted()) } else { Ok(texts.into_iter().collect()) }
}

/// The number that follows `name =`, from 1 to `most`, which is the host's bound.
pub(crate) fn bounded<N>(name: &Ident, input: ParseStream<'_>, most: N) -> Result<N>
where
    N: std::str::FromStr + PartialOrd + From<u8> + std::fmt::Display,
    N::Err: std::fmt::Display,
{
    let literal: LitInt = value(name, input, &most.to_string())?;
    let number: N = literal.base10_parse()?;
    if number < N::from(1) || number > most {
        return Err(Error::new(literal.span(), format!("`{name}` is a number from 1 to {most}")));
    }
    Ok(number)
}

/// The contents of the parentheses that follow `name`.
pub(crate) fn list<T>(
    name: &Ident,
    input: ParseStream<'_>,
    read: impl FnOnce(ParseStream<'_>) -> Result<T>,
) -> Result<T> {
    if !input.peek(syn::token::Paren) {
        return Err(Error::new(name.span(), format!("write it as `{name}(...)`")));
    }
    let content;
    parenthesized!(content in input);
    read(&content)
}

/// `"key", "value"`: the contents of `annotation(...)`.
pub(crate) fn annotation(input: ParseStream<'_>) -> Result<(LitStr, LitStr)> {
    let wrong = |error: Error| Error::new(error.span(), "write it as `annotation(\"example.com/on\", \"true\")`");
    let key = input.parse().map_err(wrong)?;
    input.parse::<Token![,]>().map_err(wrong)?;
    let value = input.parse().map_err(wrong)?;
    input.parse::<Option<Token![,]>>()?;
    Ok((key, value))
}

/// The variant of an enum of the SDK that `text` names; `known` has each name with its variant.
pub(crate) fn variant(text: &LitStr, what: &str, known: &[(&str, &str)]) -> Result<Ident> {
    let found = known.iter().find(|(name, _)| text.value() == *name);
    found.map(|(_, variant)| Ident::new(variant, text.span())).ok_or_else(|| {
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        Error::new(text.span(), format!("{what} is one of: {}", names.join(", ")))
    })
}

/// An optional value as an expression.
pub(crate) fn option<T: quote::ToTokens>(value: Option<T>) -> proc_macro2::TokenStream {
    match value {
        Some(value) => quote::quote!(::core::option::Option::Some(#value)),
        None => quote::quote!(::core::option::Option::None),
    }
}

/// Sets an argument that may be given once.
pub(crate) fn set<T>(place: &mut Option<T>, name: &Ident, value: T) -> Result<()> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(Error::new(name.span(), format!("`{name}` is given twice"))),
    }
}
