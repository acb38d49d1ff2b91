//! Which file uses which, from the paths in the code.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};
use syn::{Item, UseTree};

/// A path of modules, the name of the crate first.
type Module = Vec<String>;

/// Names in a module, and the path that each stands for.
#[derive(Default)]
struct Names {
    file: PathBuf,
    defined: BTreeSet<String>,
    imported: BTreeMap<String, Module>,
    /// Modules of which everything is imported.
    all_of: Vec<Module>,
}

/// The modules of several crates.
#[derive(Default)]
pub(crate) struct Sources {
    modules: BTreeMap<Module, Names>,
    /// Paths that each file names, from its own module.
    paths: Vec<(Module, Module)>,
}

impl Sources {
    /// Adds a crate of this name, with the folder of its `lib.rs` or `main.rs`.
    pub(crate) fn add(&mut self, name: &str, folder: &Path) {
        let root = ["lib.rs", "main.rs"].map(|file| folder.join(file)).into_iter().find(|file| file.exists());
        let root = root.unwrap_or_else(|| panic!("{} holds no crate", folder.display()));
        self.add_module(vec![name.to_owned()], &root, folder);
    }

    /// Adds the module in `file`, whose modules are in `folder`.
    fn add_module(&mut self, module: Module, file: &Path, folder: &Path) {
        let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let mut names = Names { file: file.to_owned(), ..Names::default() };
        for item in &parsed.items {
            if is_for_tests(item) {
                continue;
            }
            match item {
                Item::Mod(inner) if inner.content.is_none() => {
                    let name = inner.ident.to_string();
                    let file = [folder.join(format!("{name}.rs")), folder.join(&name).join("mod.rs")];
                    let file = file.iter().find(|file| file.exists()).unwrap_or_else(|| panic!("no file for {name}"));
                    let mut module = module.clone();
                    module.push(name.clone());
                    self.add_module(module, file, &folder.join(&name));
                    names.defined.insert(name);
                }
                Item::Use(used) => read_use(&used.tree, &mut Vec::new(), &mut names),
                _ => names.defined.extend(name_of(item)),
            }
        }
        let mut collector = Collector { paths: Vec::new() };
        collector.visit_file(&parsed);
        let (from, to) = (&module, collector.paths.into_iter());
        self.paths.extend(to.map(|path| (from.clone(), path)));
        self.modules.insert(module, names);
    }

    /// Pairs of files of which the first uses the second.
    pub(crate) fn arrows(&self) -> BTreeSet<(PathBuf, PathBuf)> {
        let mut arrows = BTreeSet::new();
        for (module, path) in &self.paths {
            let from = &self.modules[module].file;
            if let Some(target) = self.resolve(module, path, 0)
                && self.modules[&target].file != *from
            {
                arrows.insert((from.clone(), self.modules[&target].file.clone()));
            }
        }
        arrows
    }

    /// The module that defines what `path` names in `module`.
    fn resolve(&self, module: &Module, path: &[String], depth: usize) -> Option<Module> {
        // Imports of imports in a circle name nothing.
        if depth > 32 {
            return None;
        }
        let mut at: Module = match path.first()?.as_str() {
            "crate" => vec![module[0].clone()],
            "self" => module.clone(),
            "super" => module[..module.len() - 1].to_vec(),
            name if self.modules.contains_key(&vec![name.to_owned()]) => vec![name.to_owned()],
            _ => return self.step(module, path, depth),
        };
        let mut rest = &path[1..];
        while rest.first().is_some_and(|name| name == "super") {
            at.pop();
            rest = &rest[1..];
        }
        self.step(&at, rest, depth)
    }

    /// As [`Sources::resolve`], for a path that begins with a name of `module`.
    fn step(&self, module: &Module, path: &[String], depth: usize) -> Option<Module> {
        let names = self.modules.get(module)?;
        let Some(name) = path.first() else { return Some(module.clone()) };
        let mut inner = module.clone();
        inner.push(name.clone());
        if self.modules.contains_key(&inner) {
            return self.step(&inner, &path[1..], depth);
        }
        if names.defined.contains(name) {
            return Some(module.clone());
        }
        if let Some(target) = names.imported.get(name) {
            let target: Vec<String> = target.iter().chain(&path[1..]).cloned().collect();
            return self.resolve(module, &target, depth + 1);
        }
        names.all_of.iter().find_map(|all| {
            let target: Vec<String> = all.iter().chain(path).cloned().collect();
            self.resolve(module, &target, depth + 1)
        })
    }
}

/// Whether an item is compiled for tests only.
fn is_for_tests(item: &Item) -> bool {
    let attributes = match item {
        Item::Mod(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        _ => return false,
    };
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg") && attribute.parse_args::<syn::Ident>().is_ok_and(|name| name == "test")
    })
}

fn name_of(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Mod(item) => &item.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

fn read_use(tree: &UseTree, before: &mut Module, names: &mut Names) {
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            read_use(&path.tree, before, names);
            before.pop();
        }
        UseTree::Group(group) => group.items.iter().for_each(|tree| read_use(tree, before, names)),
        UseTree::Glob(_) => names.all_of.push(before.clone()),
        UseTree::Name(name) if name.ident == "self" => {
            let last = before.last().cloned().unwrap_or_default();
            names.imported.insert(last, before.clone());
        }
        UseTree::Name(name) => {
            let path = before.iter().cloned().chain([name.ident.to_string()]).collect();
            names.imported.insert(name.ident.to_string(), path);
        }
        UseTree::Rename(name) => {
            let path = before.iter().cloned().chain([name.ident.to_string()]).collect();
            names.imported.insert(name.rename.to_string(), path);
        }
    }
}

/// Collects paths that may lead to another file.
struct Collector {
    paths: Vec<Module>,
}

impl Collector {
    fn add_use(&mut self, tree: &UseTree, before: &mut Module) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.add_use(&path.tree, before);
                before.pop();
            }
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.add_use(tree, before)),
            UseTree::Glob(_) => self.paths.push(before.clone()),
            UseTree::Name(name) if name.ident == "self" => self.paths.push(before.clone()),
            UseTree::Name(syn::UseName { ident }) | UseTree::Rename(syn::UseRename { ident, .. }) => {
                self.paths.push(before.iter().cloned().chain([ident.to_string()]).collect());
            }
        }
    }
}

impl<'ast> Visit<'ast> for Collector {
    fn visit_item(&mut self, item: &'ast Item) {
        // What is only passed on to the outside is not used here.
        let is_passed_on = matches!(item, Item::Use(used) if !matches!(used.vis, syn::Visibility::Inherited));
        if !is_for_tests(item) && !is_passed_on {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, used: &'ast syn::ItemUse) {
        self.add_use(&used.tree, &mut Vec::new());
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.segments.len() > 1 {
            self.paths.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        visit::visit_path(self, path);
    }
}
