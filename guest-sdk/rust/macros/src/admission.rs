//! `admission(...)` of `#[reconciler]`: the functions that run before objects are stored, and the operations that they
//! review.

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, quote};
use syn::parse::ParseStream;
use syn::{Error, LitStr, Path, Result, Token};

use crate::arguments::{list, option, read, set, value, variant};

const ARGUMENTS: [&str; 3] = ["mutate", "validate", "operations"];
/// The names in the attribute and the variants of `mortise_sdk::Operation`.
const OPERATIONS: [(&str, &str); 3] = [("create", "Create"), ("update", "Update"), ("delete", "Delete")];

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
            let message = "name one of the functions: admission(mutate = complete, validate = check)";
            return Err(Error::new(at.span(), message));
        }
        let operations = operations.unwrap_or_else(|| {
            ["Create", "Update"].into_iter().map(|operation| Ident::new(operation, at.span())).collect()
        });
        let deleted = operations.iter().find(|operation| **operation == "Delete");
        if let Some(deleted) = deleted.filter(|_| validate.is_none() || operations.is_empty()) {
            return Err(Error::new(deleted.span(), "a \"delete\" is validated only: add `validate = ...`"));
        }
        if mutate.is_some() && deleted.is_some() && operations.len() == 1 {
            return Err(Error::new(at.span(), "a \"delete\" is validated only: remove `mutate = ...`"));
        }
        Ok(Self { mutate, validate, operations })
    }
}

fn operations(input: ParseStream<'_>) -> Result<Vec<Ident>> {
    let texts = input.parse_terminated(|input| input.parse::<LitStr>(), Token![,])?;
    if texts.is_empty() {
        return Err(input.error("there is no operation: leave operations(...) out for \"create\" and \"update\""));
    }
    texts.iter().map(|text| variant(text, "an operation", &OPERATIONS)).collect()
}

impl ToTokens for Admission {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        let function = |path: &Option<Path>, run: TokenStream| {
            option(path.as_ref().map(|path| quote!(|request| ::mortise_sdk::__private::#run(request, #path))))
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

/// The functions of the optional export.
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
