//! The contract as wit-bindgen writes it down in Rust. Generated once, here, so that no plugin needs wit files or
//! wit-bindgen. Nothing outside this crate's own modules should name these types: they change with the contract.
//!
//! On targets other than wasm32 the imports are stubs that panic; `view.rs` never calls them there.
#![allow(missing_docs, unsafe_code, unused_qualifications, clippy::all, reason = "generated code")]

wit_bindgen::generate!({
    world: "plugin",
    path: "../../wit",
    generate_all,
    generate_unused_types: true,
    pub_export_macro: true,
    export_macro_name: "export_component",
    default_bindings_module: "mortise_sdk::__private::bindings",
});
