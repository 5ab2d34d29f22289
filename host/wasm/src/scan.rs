//! A cheap check of a component before any compiler sees it. Bytes go in; a [`Scan`] or a refusal comes out.
//!
//! It reads the binary once, front to back, and must stay linear in its size. A component that passes may still fail to
//! validate, compile or link.

mod flow;
mod functions;
mod signatures;
#[cfg(test)]
mod tests;

use mortise_core::component::check_head;
use mortise_core::digest::Digest;
use mortise_core::limits::{MAX_COMPONENT_BYTES, MAX_MEMORY_BYTES};
use mortise_core::refusal::Refusal;
use wasmparser::{Encoding, KnownCustom, Parser, Payload};

use self::functions::CostBudget;
use self::signatures::Signatures;
use crate::limiter::{MAX_TABLE_ELEMENTS, MAX_TABLES, MAX_TABLES_PER_MODULE};

/// Core modules and components inside a component, together. A Rust guest has 3 (itself and two shims), a Python guest
/// some 20 (its shared libraries); each costs an instantiation per call.
const MAX_NESTED: u32 = 100;
/// How deep components may nest. Toolchains' shims are one level deep, composed components two.
const MAX_DEPTH: usize = 5;
/// Size of a WebAssembly page.
const PAGE_BYTES: u64 = 64 << 10;

/// The interface that makes a component a plugin, without its version.
const RECONCILER: &str = "mortise:plugin/reconciler";
/// The version of the contract that this host implements, in any patch version.
const CONTRACT: &str = "0.2";
/// Interfaces that the host provides in any patch version of [`CONTRACT`].
const HOST_INTERFACES: [&str; 8] = [
    "mortise:host/objects",
    "mortise:host/http",
    "mortise:host/cluster",
    "mortise:host/clock",
    "mortise:host/schedule",
    "mortise:host/config",
    "mortise:host/log",
    "mortise:plugin/desired",
];
/// Optional interfaces of the contract that this host calls.
const OPTIONAL: [&str; 2] = ["mortise:plugin/admission", "mortise:plugin/conversion"];
/// WASI packages, version 0.2, that toolchains import. All are virtual, without files, sockets or real clocks.
const WASI_PACKAGES: [&str; 6] =
    ["wasi:cli/", "wasi:clocks/", "wasi:filesystem/", "wasi:io/", HASH_SEED, "wasi:sockets/"];
/// The one interface of its package that the host provides: what language runtimes seed their hash maps with.
const HASH_SEED: &str = "wasi:random/insecure-seed";

/// What the bytes of a component show without running it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scan {
    /// The sha256 of the bytes.
    pub digest: Digest,
    /// The name of the component, if its toolchain has written one.
    pub name: Option<String>,
    /// What built it: "Rust 1.95.0", "wit-component 0.247.0".
    pub producers: Vec<String>,
    /// Interfaces it imports: its capabilities.
    pub imports: Vec<String>,
    /// Interfaces it exports.
    pub exports: Vec<String>,
    /// The sizes of its parts.
    pub sizes: Sizes,
}

/// Sizes of a component.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sizes {
    /// All of it.
    pub component_bytes: u64,
    /// Function bodies.
    pub code_bytes: u64,
    /// Initial contents of its memories.
    pub data_bytes: u64,
    /// Names, debug information and other custom sections.
    pub custom_bytes: u64,
    /// Functions with a body.
    pub functions: u32,
    /// Core modules, shims included.
    pub modules: u32,
    /// Memory that its instances begin with.
    pub memory_bytes: u64,
}

/// Reads a component and refuses what the host would not run.
///
/// # Errors
/// A [`Refusal`] that names what the bytes are instead, or the bound or import that refuses them, and what to do.
pub fn prescan(bytes: &[u8]) -> Result<Scan, Refusal> {
    if bytes.len() > MAX_COMPONENT_BYTES {
        return Err(Refusal::of_bytes(
            "TooLarge",
            format!("the component has {} bytes; the host takes at most {MAX_COMPONENT_BYTES}", bytes.len()),
        ));
    }
    check_head(bytes)?;
    let mut walk = Walk::new(bytes);
    for payload in Parser::new(0).parse_all(bytes) {
        let payload = payload.map_err(|error| malformed(bytes, &error))?;
        walk.step(bytes, payload)?;
    }
    check_exports(&walk.scan.exports)?;
    Ok(walk.scan)
}

fn malformed(bytes: &[u8], error: &wasmparser::BinaryReaderError) -> Refusal {
    let at_end = error.offset() >= bytes.len() || error.message().starts_with("unexpected end");
    let cause = if at_end { "; the file seems to be cut short" } else { "" };
    Refusal::of_bytes(
        "Malformed",
        format!(
            "the component cannot be read at offset {:#x} of {:#x}: {}{cause}",
            error.offset(),
            bytes.len(),
            error.message()
        ),
    )
}

/// The state of one walk over a binary. Nested modules and components are inline, and end with `End`.
struct Walk {
    scan: Scan,
    /// The open modules and components, outermost first.
    open: Vec<Encoding>,
    nested: u32,
    /// Tables of all modules together.
    tables: u64,
    /// Of the current module.
    signatures: Signatures,
    costs: CostBudget,
}

impl Walk {
    fn new(bytes: &[u8]) -> Self {
        let sizes = Sizes { component_bytes: bytes.len() as u64, ..Sizes::default() };
        Self {
            scan: Scan {
                digest: mortise_core::digest::of(bytes),
                name: None,
                producers: Vec::new(),
                imports: Vec::new(),
                exports: Vec::new(),
                sizes,
            },
            open: Vec::new(),
            nested: 0,
            tables: 0,
            signatures: Signatures::default(),
            costs: CostBudget::for_size(bytes.len()),
        }
    }

    fn step(&mut self, bytes: &[u8], payload: Payload<'_>) -> Result<(), Refusal> {
        let unreadable = |error: wasmparser::BinaryReaderError| malformed(bytes, &error);
        match payload {
            Payload::Version { encoding, .. } => self.enter(encoding)?,
            Payload::End(_) => {
                self.open.pop();
            }
            Payload::ComponentImportSection(section) if self.open.len() == 1 => {
                for import in section {
                    let name = import.map_err(unreadable)?.name.name;
                    check_import(name)?;
                    self.scan.imports.push(name.to_owned());
                }
            }
            Payload::ComponentExportSection(section) if self.open.len() == 1 => {
                for export in section {
                    self.scan.exports.push(export.map_err(unreadable)?.name.name.to_owned());
                }
            }
            Payload::TypeSection(section) => self.signatures.add_types(section).map_err(unreadable)?,
            Payload::ImportSection(section) => self.signatures.add_imports(section).map_err(unreadable)?,
            Payload::FunctionSection(section) => self.signatures.add_functions(section).map_err(unreadable)?,
            Payload::MemorySection(section) => {
                for memory in section {
                    self.add_memory(&memory.map_err(unreadable)?)?;
                }
            }
            Payload::TableSection(section) => {
                self.add_tables(section.count())?;
                for table in section {
                    check_table(&table.map_err(unreadable)?.ty)?;
                }
            }
            Payload::DataSection(section) => self.scan.sizes.data_bytes += section.range().len() as u64,
            Payload::CodeSectionEntry(body) => {
                self.scan.sizes.code_bytes += body.range().len() as u64;
                let number = self.scan.sizes.functions;
                self.costs.add(number, &body, &mut self.signatures).map_err(|refusal| match refusal {
                    functions::Problem::Unreadable(error) => malformed(bytes, &error),
                    functions::Problem::TooCostly(message) => Refusal::new("TooCostlyToCompile", message),
                })?;
                self.scan.sizes.functions += 1;
            }
            Payload::CustomSection(section) => {
                self.scan.sizes.custom_bytes += section.data().len() as u64;
                self.note_custom(&section.as_known());
            }
            _ => {}
        }
        Ok(())
    }

    fn enter(&mut self, encoding: Encoding) -> Result<(), Refusal> {
        if !self.open.is_empty() {
            self.nested += 1;
        }
        if encoding == Encoding::Module {
            self.scan.sizes.modules += 1;
            self.signatures = Signatures::default();
        }
        self.open.push(encoding);
        let (reason, message) = if self.nested > MAX_NESTED {
            ("TooManyModules", format!("more than {MAX_NESTED} modules and components are inside the component"))
        } else if self.open.len() > MAX_DEPTH {
            ("NestedTooDeep", format!("components nest more than {MAX_DEPTH} deep; toolchains need 2"))
        } else {
            return Ok(());
        };
        Err(Refusal::of_bytes(reason, message))
    }

    fn add_memory(&mut self, memory: &wasmparser::MemoryType) -> Result<(), Refusal> {
        let bytes = memory.initial.saturating_mul(PAGE_BYTES);
        self.scan.sizes.memory_bytes = self.scan.sizes.memory_bytes.saturating_add(bytes);
        if memory.memory64 || memory.shared {
            return Err(Refusal::of_bytes(
                "UnsupportedFeature",
                "the component uses a 64-bit or shared memory; the host runs 32-bit memories without threads",
            ));
        }
        if self.scan.sizes.memory_bytes > MAX_MEMORY_BYTES {
            return Err(Refusal::of_bytes(
                "MemoryTooLarge",
                format!(
                    "the component begins with {} bytes of memory; a plugin may have at most {MAX_MEMORY_BYTES}",
                    self.scan.sizes.memory_bytes
                ),
            ));
        }
        Ok(())
    }

    /// A module has one section of tables at most: the compiler refuses a second one.
    fn add_tables(&mut self, of_module: u32) -> Result<(), Refusal> {
        self.tables += u64::from(of_module);
        let (count, of, most) = if of_module > MAX_TABLES_PER_MODULE {
            (u64::from(of_module), "a module with", u64::from(MAX_TABLES_PER_MODULE))
        } else if self.tables > MAX_TABLES as u64 {
            (self.tables, "together", MAX_TABLES as u64)
        } else {
            return Ok(());
        };
        Err(Refusal::of_bytes(
            "TooManyTables",
            format!("the component has {of} {count} tables; a plugin may have at most {most}, and toolchains make one"),
        ))
    }

    /// Custom sections are only informative, so an unreadable one is skipped.
    fn note_custom(&mut self, custom: &KnownCustom<'_>) {
        match custom {
            KnownCustom::ComponentName(names) if self.open.len() == 1 => {
                for name in names.clone().flatten() {
                    if let wasmparser::ComponentName::Component { name, .. } = name {
                        self.scan.name = Some(name.to_owned());
                    }
                }
            }
            KnownCustom::Producers(fields) => {
                for value in fields.clone().into_iter().flatten().flat_map(|field| field.values).flatten() {
                    let producer = format!("{} {}", value.name, value.version).trim_end().to_owned();
                    if !self.scan.producers.contains(&producer) {
                        self.scan.producers.push(producer);
                    }
                }
            }
            _ => {}
        }
    }
}

fn check_table(table: &wasmparser::TableType) -> Result<(), Refusal> {
    if table.initial > MAX_TABLE_ELEMENTS as u64 {
        return Err(Refusal::of_bytes(
            "TableTooLarge",
            format!(
                "the component begins with a table of {} elements; a plugin may have at most {MAX_TABLE_ELEMENTS}",
                table.initial
            ),
        ));
    }
    Ok(())
}

/// Splits "ns:pkg/interface@1.2.3" at its version.
fn split_version(name: &str) -> (&str, &str) {
    name.split_once('@').unwrap_or((name, ""))
}

/// True for any patch of a minor version: "0.2.3" of "0.2".
fn is_patch_of(version: &str, minor: &str) -> bool {
    version.strip_prefix(minor).and_then(|rest| rest.strip_prefix('.')).is_some()
}

fn check_import(name: &str) -> Result<(), Refusal> {
    let (interface, version) = split_version(name);
    let wasi = WASI_PACKAGES.iter().any(|package| interface.starts_with(package));
    let of_host = HOST_INTERFACES.contains(&interface);
    if (wasi && is_patch_of(version, "0.2")) || (of_host && is_patch_of(version, CONTRACT)) {
        return Ok(());
    }
    let message = if of_host {
        other_version("imports", name)
    } else if interface.starts_with("wasi:random/") {
        format!(
            "the component imports {name}, random numbers, which the host does not provide: the same inputs have to \
             give the same outcome. Derive names and choices from the object, such as its UID; a runtime's hash maps \
             may be seeded by {HASH_SEED}, which is fixed"
        )
    } else {
        format!(
            "the component imports {name}, which the host does not provide; a plugin may import \
             mortise:host@{CONTRACT} and the wasi: interfaces of version 0.2 that toolchains add"
        )
    };
    Err(Refusal::of_bytes("UnknownImport", message))
}

fn other_version(verb: &str, name: &str) -> String {
    format!("the component {verb} {name}; this mortise speaks version {CONTRACT} of the contract")
}

fn check_exports(exports: &[String]) -> Result<(), Refusal> {
    let mut reconciler = None;
    for export in exports {
        let (interface, version) = split_version(export);
        if interface == RECONCILER && (reconciler.is_none() || is_patch_of(version, CONTRACT)) {
            reconciler = Some(version);
        }
        if OPTIONAL.contains(&interface) && !is_patch_of(version, CONTRACT) {
            return Err(Refusal::of_bytes("WrongWorld", other_version("exports", export)));
        }
    }
    let message = match reconciler {
        Some(version) if is_patch_of(version, CONTRACT) => return Ok(()),
        Some(version) => other_version("exports", &format!("{RECONCILER}@{version}")),
        None => {
            let list = if exports.is_empty() { "nothing".to_owned() } else { exports.join(", ") };
            format!(
                "the component does not export {RECONCILER}@{CONTRACT}.0, so it is no plugin; it exports {list}. Build \
                 it for the world `mortise:plugin/plugin`: in Rust, put `#[reconciler]` on a function of a cdylib"
            )
        }
    };
    Err(Refusal::of_bytes("WrongWorld", message))
}
