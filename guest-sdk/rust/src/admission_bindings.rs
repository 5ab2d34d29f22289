//! The optional export `admission` as wit-bindgen writes it down in Rust: a world of its own, so that a plugin without it
//! exports nothing of it. As with [`crate::bindings`], nothing outside this crate's own modules should name these types.
#![allow(missing_docs, unsafe_code, unused_qualifications, clippy::all, reason = "generated code")]

wit_bindgen::generate!({
    world: "admission-alone",
    path: "../../wit",
    generate_all,
    pub_export_macro: true,
    export_macro_name: "export_admission",
    default_bindings_module: "mortise_sdk::__private::admission_bindings",
});
