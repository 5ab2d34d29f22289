//! The optional export `conversion` as wit-bindgen writes it down in Rust: a world of its own, as in
//! [`crate::admission_bindings`]. Nothing outside this crate's own modules should name these types.
#![allow(missing_docs, unsafe_code, unused_qualifications, clippy::all, reason = "generated code")]

wit_bindgen::generate!({
    world: "conversion-alone",
    path: "../../wit",
    generate_all,
    pub_export_macro: true,
    export_macro_name: "export_conversion",
    default_bindings_module: "mortise_sdk::__private::conversion_bindings",
});
