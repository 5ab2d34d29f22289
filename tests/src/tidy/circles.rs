//! The modules of one crate and what they import of each other: no module may import, by whatever detour, what imports it.
//! Sources come in as text, the circles come out as sentences; where the files lie is the caller's business.
//!
//! A file is a module, and its inline modules belong to it. An edge leads to the file that defines an item, through every
//! `pub use`, so a `mod` line and a module that re-exports its children make none. Neither does a child with an `impl` block of
//! its parent's type: one type's methods may lie in several files below its own. Calls of methods show no path and are not seen.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Attribute, File, Ident, Item, UseTree};

/// A module's names from the crate's root on, which has none: `["store", "table"]`.
type Path = Vec<String>;

/// `pub use` of a `pub use`: more than this is a loop of them, which rustc refuses.
const MAX_DEPTH: usize = 16;

/// What a path names.
enum Target {
    Module(Path),
    /// An item, by its module and its name there.
    Item(Path, String),
}

#[derive(Default)]
struct Module {
    /// The file that it is in, by the path of that file's own module.
    file: Path,
    items: BTreeSet<String>,
    /// The types that it has methods of.
    extends: BTreeSet<String>,
    /// The names that `use` brings into scope, with what they are there; two under one name are for two targets.
    imports: Vec<(String, Path)>,
    /// The modules and enums whose items `use` brings into scope.
    globs: Vec<Path>,
    /// Every path in the code.
    paths: BTreeSet<Path>,
}

/// The modules of a crate without its tests.
pub struct Crate {
    modules: BTreeMap<Path, Module>,
}

/// Between two files: what the one imports of the other.
type Edges = BTreeMap<Path, BTreeMap<Path, BTreeSet<String>>>;

/// The module that a file is, by its place under `src`; None for tests.
pub fn module_of(file: &std::path::Path) -> Option<Path> {
    let mut path: Path = file.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if path.last().is_some_and(|last| matches!(last.as_str(), "lib" | "main" | "mod")) {
        path.pop();
    }
    (!path.iter().any(|part| part == "tests")).then_some(path)
}

impl Crate {
    /// Reads a crate's files, each with the module that it is.
    pub fn read<'a>(files: impl IntoIterator<Item = (Path, &'a str)>) -> Result<Self, syn::Error> {
        let mut parsed = Vec::new();
        for (path, text) in files {
            parsed.push((path, syn::parse_file(text)?));
        }
        let test_files: BTreeSet<Path> = parsed.iter().flat_map(|(path, file)| test_modules(path, file)).collect();
        let mut modules = BTreeMap::new();
        for (path, file) in parsed {
            if !test_files.iter().any(|test| path.starts_with(test)) {
                read_module(&path, &path, file.items, &mut modules);
            }
        }
        Ok(Self { modules })
    }

    /// The circles among files, and those among folders: the modules below the root, each with all that is below it.
    /// Each circle is one text, with the imports that make it.
    pub fn circles(&self) -> Vec<String> {
        let files = self.edges();
        let mut circles = among(&files);
        let mut folders = Edges::new();
        for (from, to, items) in
            files.iter().flat_map(|(from, all)| all.iter().map(move |(to, items)| (from, to, items)))
        {
            let folder = |path: &Path| path.iter().take(1).cloned().collect::<Path>();
            if folder(from) != folder(to) {
                folders.entry(folder(from)).or_default().entry(folder(to)).or_default().extend(items.iter().cloned());
            }
        }
        circles.extend(among(&folders).into_iter().filter(|circle| !circles.contains(circle)).collect::<Vec<_>>());
        circles
    }

    fn edges(&self) -> Edges {
        let mut edges = Edges::new();
        for (name, module) in &self.modules {
            for path in module.paths.iter().chain(module.imports.iter().map(|(_, path)| path)) {
                if let Some(Target::Item(found, item)) = self.resolve(name, path, 0)
                    && !(name.starts_with(&found) && module.extends.contains(&item))
                {
                    self.add(&mut edges, module, &found, item);
                }
            }
            for glob in &module.globs {
                if let Some(Target::Module(found) | Target::Item(found, _)) = self.resolve(name, glob, 0) {
                    self.add(&mut edges, module, &found, "*".to_owned());
                }
            }
        }
        edges
    }

    fn add(&self, edges: &mut Edges, from: &Module, to: &Path, item: String) {
        let to = self.modules.get(to).map_or(to, |module| &module.file);
        if from.file != *to {
            edges.entry(from.file.clone()).or_default().entry(to.clone()).or_default().insert(item);
        }
    }

    /// What a path names that is written in a module; None when it is of another crate.
    fn resolve(&self, from: &Path, path: &[String], depth: usize) -> Option<Target> {
        let (first, mut rest) = path.split_first()?;
        let mut at = match first.as_str() {
            "crate" => Target::Module(Path::new()),
            "self" => Target::Module(from.clone()),
            "super" => Target::Module(parent(from)?),
            name => self.named(from, name, depth)?,
        };
        while let (Target::Module(module), Some((next, after))) = (&at, rest.split_first()) {
            rest = after;
            at = match next.as_str() {
                "super" => Target::Module(parent(module)?),
                // What a macro has written cannot be seen here; it is that module's all the same.
                next => {
                    self.named(module, next, depth).unwrap_or_else(|| Target::Item(module.clone(), next.to_owned()))
                }
            };
        }
        Some(at)
    }

    /// What a name means within a module.
    fn named(&self, within: &Path, name: &str, depth: usize) -> Option<Target> {
        let module = self.modules.get(within).filter(|_| depth < MAX_DEPTH)?;
        let child: Path = within.iter().cloned().chain([name.to_owned()]).collect();
        if self.modules.contains_key(&child) {
            return Some(Target::Module(child));
        }
        if module.items.contains(name) {
            return Some(Target::Item(within.clone(), name.to_owned()));
        }
        let mut imports = module.imports.iter().filter(|(known, _)| known == name);
        if let Some(found) = imports.find_map(|(_, import)| self.resolve(within, import, depth + 1)) {
            return Some(found);
        }
        module.globs.iter().find_map(|glob| match self.resolve(within, glob, depth + 1)? {
            Target::Module(found) if found != *within => self.named(&found, name, depth + 1),
            _ => None,
        })
    }
}

fn parent(module: &Path) -> Option<Path> {
    module.split_last().map(|(_, parent)| parent.to_vec())
}

/// The strongly connected components of more than one module.
fn among(edges: &Edges) -> Vec<String> {
    let reached: BTreeMap<&Path, BTreeSet<&Path>> = edges.keys().map(|from| (from, reached(edges, from))).collect();
    let leads = |from: &Path, to: &Path| reached.get(from).is_some_and(|reached| reached.contains(to));
    let in_circles = edges.keys().filter(|from| leads(from, from));
    let members = |from: &Path| edges.keys().filter(|to| leads(from, to) && leads(to, from)).collect::<Vec<_>>();
    in_circles.map(members).collect::<BTreeSet<_>>().iter().map(|members| described_circle(members, edges)).collect()
}

fn reached<'a>(edges: &'a Edges, from: &Path) -> BTreeSet<&'a Path> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&Path> = edges.get(from).into_iter().flat_map(BTreeMap::keys).collect();
    while let Some(next) = open.pop() {
        if reached.insert(next) {
            open.extend(edges.get(next).into_iter().flat_map(BTreeMap::keys));
        }
    }
    reached
}

fn described_circle(members: &[&Path], edges: &Edges) -> String {
    let name = |path: &Path| if path.is_empty() { "the root".to_owned() } else { path.join("::") };
    let inner = members.iter().flat_map(|from| {
        let to = edges.get(*from).into_iter().flatten().filter(|(to, _)| members.contains(to));
        to.map(move |(to, items)| {
            let items = items.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            format!("{} imports {items} of {}", name(from), name(to))
        })
    });
    inner.collect::<Vec<_>>().join("\n    ")
}

/// Whether an attribute leaves an item out of what is shipped: `#[cfg(test)]`, alone or under `all`.
fn is_for_tests(attribute: &Attribute) -> bool {
    if !attribute.path().is_ident("cfg") {
        return false;
    }
    let condition = attribute.meta.to_token_stream().to_string().replace(' ', "");
    condition == "cfg(test)" || condition.starts_with("cfg(all(test,")
}

fn test_modules(path: &Path, file: &File) -> Vec<Path> {
    let tests = file.items.iter().filter_map(|item| match item {
        Item::Mod(module) if module.attrs.iter().any(is_for_tests) => Some(module.ident.to_string()),
        _ => None,
    });
    tests.map(|name| path.iter().cloned().chain([name]).collect()).collect()
}

fn read_module(path: &Path, file: &Path, items: Vec<Item>, modules: &mut BTreeMap<Path, Module>) {
    let mut module = Module { file: file.clone(), ..Module::default() };
    for item in items {
        let (name, attributes) = described(&item);
        if attributes.iter().any(is_for_tests) {
            continue;
        }
        match item {
            Item::Use(item) => read_use(&item.tree, &mut Path::new(), &mut module),
            Item::Mod(inner) => {
                let inline: Path = path.iter().cloned().chain([inner.ident.to_string()]).collect();
                if let Some((_, items)) = inner.content {
                    read_module(&inline, file, items, modules);
                }
            }
            Item::Impl(mut block) => {
                if let (None, syn::Type::Path(of)) = (&block.trait_, &*block.self_ty) {
                    module.extends.extend(of.path.segments.last().map(|segment| segment.ident.to_string()));
                }
                block.items.retain(
                    |item| !matches!(item, syn::ImplItem::Fn(function) if function.attrs.iter().any(is_for_tests)),
                );
                read_paths(block.into_token_stream(), &mut module);
            }
            item => {
                module.items.extend(name);
                read_paths(item.into_token_stream(), &mut module);
            }
        }
    }
    modules.insert(path.clone(), module);
}

/// The name that an item defines, and its attributes.
fn described(item: &Item) -> (Option<String>, &[Attribute]) {
    let (name, attributes): (Option<&Ident>, &[Attribute]) = match item {
        Item::Const(item) => (Some(&item.ident), &item.attrs),
        Item::Enum(item) => (Some(&item.ident), &item.attrs),
        Item::Fn(item) => (Some(&item.sig.ident), &item.attrs),
        Item::Macro(item) => (item.ident.as_ref(), &item.attrs),
        Item::Static(item) => (Some(&item.ident), &item.attrs),
        Item::Struct(item) => (Some(&item.ident), &item.attrs),
        Item::Trait(item) => (Some(&item.ident), &item.attrs),
        Item::Type(item) => (Some(&item.ident), &item.attrs),
        Item::Union(item) => (Some(&item.ident), &item.attrs),
        Item::Impl(item) => (None, &item.attrs),
        Item::Mod(item) => (None, &item.attrs),
        Item::Use(item) => (None, &item.attrs),
        _ => (None, &[]),
    };
    (name.map(Ident::to_string), attributes)
}

fn read_use(tree: &UseTree, prefix: &mut Path, module: &mut Module) {
    let mut import = |name: &Ident, alias: &Ident| {
        let mut path = prefix.clone();
        if name != "self" {
            path.push(name.to_string());
        }
        let alias = if alias == "self" { path.last().cloned().unwrap_or_default() } else { alias.to_string() };
        // `as _` brings a trait into scope and no name.
        let alias = if alias == "_" { path.join("::") } else { alias };
        module.imports.push((alias, path));
    };
    match tree {
        UseTree::Name(leaf) => import(&leaf.ident, &leaf.ident),
        UseTree::Rename(leaf) => import(&leaf.ident, &leaf.rename),
        UseTree::Glob(_) => module.globs.push(prefix.clone()),
        UseTree::Path(inner) => {
            prefix.push(inner.ident.to_string());
            read_use(&inner.tree, prefix, module);
            prefix.pop();
        }
        UseTree::Group(group) => group.items.iter().for_each(|tree| read_use(tree, prefix, module)),
    }
}

/// Finds the paths in code, also within macros' arguments, where the syntax tree ends.
fn read_paths(tokens: TokenStream, module: &mut Module) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let is_colon = |at: usize| matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == ':');
    let is_joint = |at: usize| is_colon(at) && is_colon(at + 1);
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        at += 1;
        match token {
            TokenTree::Group(group) => read_paths(group.stream(), module),
            TokenTree::Ident(first) if first == "use" => at = read_inner_use(&tokens, at, module),
            // Behind `::` lies another crate, or what follows a type's own parameters.
            TokenTree::Ident(first) if at < 3 || !is_joint(at - 3) => {
                let mut path = vec![first.to_string()];
                while is_joint(at)
                    && let Some(TokenTree::Ident(next)) = tokens.get(at + 2)
                {
                    path.push(next.to_string());
                    at += 3;
                }
                if path.len() > 1 {
                    module.paths.insert(path);
                }
            }
            _ => {}
        }
    }
}

/// A `use` within a function, read as the module's: where it ends.
fn read_inner_use(tokens: &[TokenTree], from: usize, module: &mut Module) -> usize {
    let is_end = |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ';');
    let length = tokens[from..].iter().position(is_end).unwrap_or(0);
    let tree: TokenStream = tokens[from..from + length].iter().cloned().collect();
    if let Ok(tree) = syn::parse2::<UseTree>(tree) {
        read_use(&tree, &mut Path::new(), module);
    }
    from + length
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The circles of a crate of these files, each given as its place under `src` and its text.
    #[track_caller]
    fn circles(files: &[(&str, &str)]) -> Vec<String> {
        let files = files.iter().chain([&("lib.rs", "")]);
        let modules = files.filter_map(|(file, text)| Some((module_of(std::path::Path::new(file))?, *text)));
        Crate::read(modules).unwrap().circles()
    }

    const A: &str = "use crate::b::B; pub struct A; pub fn a() {}";

    #[test]
    fn two_files_that_import_each_other_are_a_circle_with_its_imports() {
        let expected = "a imports B of b\n    b imports A of a";
        assert_eq!(circles(&[("a.rs", A), ("b.rs", "use crate::a::A; pub struct B;")]), [expected]);
        let long = [("a.rs", A), ("b.rs", "pub struct B(super::c::C);"), ("c.rs", "pub struct C(crate::a::A);")];
        assert_eq!(circles(&long), ["a imports B of b\n    b imports C of c\n    c imports A of a"]);
        assert_eq!(circles(&[("a.rs", A), ("b.rs", "pub struct B;")]), [""; 0]);
    }

    #[test]
    fn a_path_is_seen_wherever_it_is() {
        for b in [
            "pub struct B; fn f() { crate::a::a() }",
            "pub struct B; fn f() { println!(\"{}\", super::a::a()) }",
            "pub struct B; fn f() { use super::a; a::a() }",
            "pub struct B; impl From<crate::a::A> for B {}",
            "use crate::{a as other}; pub struct B; fn f() { vec![Some(other::A)]; }",
            "use super::a::*; pub struct B;",
            "pub struct B; mod inline { use super::super::a; fn f() -> Vec<a::A> { todo() } }",
            "pub struct B; pub trait T { fn f(x: Vec<crate::a::A>); }",
        ] {
            assert_eq!(circles(&[("a.rs", A), ("b.rs", b)]).len(), 1, "{b}");
        }
    }

    #[test]
    fn a_mod_line_and_what_is_passed_on_are_no_edges() {
        // What `c` passes on is defined in `a`.
        let facade = [
            ("c.rs", "pub use crate::a::A; pub use crate::b::B;"),
            ("a.rs", "pub struct A;"),
            ("b.rs", "use crate::c::A; pub struct B;"),
        ];
        assert_eq!(circles(&facade), [""; 0]);
        let modules = [("a.rs", "use crate::b; pub struct A;"), ("b.rs", "use crate::a; pub struct B;")];
        assert_eq!(circles(&modules), [""; 0], "no item is imported");
        let other_crates =
            [("a.rs", "use b::B; use std::fmt; pub struct A;"), ("b.rs", "use crate::a::A; pub struct B;")];
        assert_eq!(circles(&other_crates), [""; 0]);
    }

    #[test]
    fn a_child_may_have_methods_of_its_parents_type_and_import_nothing_else_of_it() {
        let parent = "mod child; use self::child::Item; pub struct Parent; pub const MAX: u32 = 1;";
        let child = |import: &str| format!("use super::{import}; pub struct Item; impl Parent {{ fn f(&self) {{}} }}");
        assert_eq!(circles(&[("parent.rs", parent), ("parent/child.rs", &child("Parent"))]), [""; 0]);
        let found = circles(&[("parent.rs", parent), ("parent/child.rs", &child("{MAX, Parent}"))]);
        assert_eq!(found, ["parent imports Item of parent::child\n    parent::child imports MAX of parent"]);
    }

    #[test]
    fn folders_that_import_each_other_are_a_circle_though_no_two_files_do() {
        let files = [
            ("a/deep.rs", "pub struct Deep;"),
            ("a.rs", A),
            ("b.rs", "pub struct B;"),
            ("b/deep.rs", "use crate::a::deep::Deep;"),
        ];
        assert_eq!(circles(&files), ["a imports B of b\n    b imports Deep of a"]);
    }

    #[test]
    fn tests_are_left_out() {
        let b = "pub struct B; #[cfg(test)] mod tests { use crate::a::A; } #[cfg(test)] mod more;";
        let of_tests =
            [("a.rs", A), ("b.rs", b), ("b/tests.rs", "use crate::a::A;"), ("b/more.rs", "use crate::a::A;")];
        assert_eq!(circles(&of_tests), [""; 0]);
    }
}
