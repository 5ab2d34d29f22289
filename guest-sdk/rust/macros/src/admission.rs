//! `admission(...)` of `#[reconciler]`: which functions are asked before objects are stored, and about what.

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, quote};
use syn::parse::ParseStream;
use syn::{Error, LitStr, Path, Result, Token};

use crate::arguments::{list, read, set, value};

const ARGUMENTS: [&str; 3] = ["mutate", "validate", "operations"];
/// As the manifest writes them, and as the SDK names them.
const OPERATIONS: [(&str, &str); 3] = [("create", "Create"), ("update", "Update"), ("delete", "Delete")];

/// What the argument says.
pub(crate) struct Admission {
    mutate: Option<Path>,
    validate: Option<Path>,
    operations: Vec<Ident>,
}

impl Admission {
    pub(crate) fn read(at: &Ident, input: ParseStream<'_>) -> Result<Self> {
        let (mut mutate, mut validate, mut operations) = (None, None, None);
        read(input, &ARGUMENTS, |name, input| match name.to_string().as_str() {
            "mutate" => set(&mut mutate, name, value(name, input, "complete")?),
            "validate" => set(&mut validate, name, value(name, input, "check")?),
            _ => set(&mut operations, name, list(name, input, self::operations)?),
        })?;
        if mutate.is_none() && validate.is_none() {
            let message =
                "admission names the functions that are asked: admission(mutate = complete, validate = check)";
            return Err(Error::new(at.span(), message));
        }
        let operations = operations.unwrap_or_else(|| {
            ["Create", "Update"].into_iter().map(|operation| Ident::new(operation, at.span())).collect()
        });
        let deleted = operations.iter().find(|operation| **operation == "Delete");
        if let Some(deleted) = deleted.filter(|_| validate.is_none() || operations.is_empty()) {
            return Err(Error::new(deleted.span(), "what is deleted is checked: it needs `validate = ...`"));
        }
        if mutate.is_some() && deleted.is_some() && operations.len() == 1 {
            return Err(Error::new(at.span(), "what is deleted has no defaults to fill in"));
        }
        Ok(Self { mutate, validate, operations })
    }
}

fn operations(input: ParseStream<'_>) -> Result<Vec<Ident>> {
    let texts = input.parse_terminated(|input| input.parse::<LitStr>(), Token![,])?;
    let named = texts.iter().map(|text| {
        let found = OPERATIONS.iter().find(|(name, _)| text.value() == *name);
        let all = || OPERATIONS.map(|(name, _)| name).join(", ");
        let (_, variant) =
            found.ok_or_else(|| Error::new(text.span(), format!("an operation is one of: {}", all())))?;
        Ok(Ident::new(variant, text.span()))
    });
    let named: Vec<Ident> = named.collect::<Result<_>>()?;
    if named.is_empty() {
        return Err(input.error("there is no operation: leave operations(...) out for \"create\" and \"update\""));
    }
    Ok(named)
}

impl ToTokens for Admission {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        let function = |path: &Option<Path>, run: TokenStream| match path {
            Some(path) => {
                quote!(::core::option::Option::Some(|question| ::mortise_sdk::__private::#run(question, #path)))
            }
            None => quote!(::core::option::Option::None),
        };
        let mutate = function(&self.mutate, quote!(run_mutate));
        let validate = function(&self.validate, quote!(run_validate));
        let operations = &self.operations;
        tokens.extend(quote!(::mortise_sdk::Admission {
            operations: &[#(::mortise_sdk::Operation::#operations),*],
            mutate: #mutate,
            validate: #validate,
        }));
    }
}

/// The functions of the optional export, beside those that every component has.
pub(crate) fn exports() -> TokenStream {
    quote! {
        use ::mortise_sdk::__private::admission_bindings;
        use admission_bindings::exports::mortise::plugin::admission;

        impl admission::Guest for Component {
            fn mutate(
                operation: admission::Operation,
                object: ::std::string::String,
                old: ::core::option::Option<::std::string::String>,
            ) -> ::core::result::Result<::std::string::String, ::std::vec::Vec<admission::Violation>> {
                ::mortise_sdk::__private::mutate(&PLUGIN, operation, object, old)
            }

            fn validate(
                operation: admission::Operation,
                object: ::std::string::String,
                old: ::core::option::Option<::std::string::String>,
            ) -> admission::Verdict {
                ::mortise_sdk::__private::validate(&PLUGIN, operation, object, old)
            }
        }

        admission_bindings::export_admission!(Component);
    }
}
