//! Limits on the size and the structure of the production code, without tests, comments and blank lines. Reads only sources.
//! `cargo test -p e2e --test structure -- --nocapture` prints the figures, and fails if a limit is exceeded.

#![expect(clippy::unwrap_used, reason = "helpers of a test")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use syn::UseTree;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

const PRODUCT: [&str; 6] = [
    "placement",
    "controller",
    "admission",
    "runtime",
    "tekton",
    "pod-affinity",
];
const TOOLS: [&str; 4] = ["cli", "ship", "bench", "testbed"];
const LONGEST_FUNCTION: usize = 50;
const LONGEST_FILE: usize = 400;

/// A path as a list of names.
type Names = Vec<String>;

/// The figures of a file.
#[derive(Default)]
struct Module {
    text: String,
    children: Names,
    tests: BTreeSet<usize>,
    functions: Vec<(String, usize)>,
    /// The paths that `use` items bring into scope, by their names.
    named: BTreeMap<String, Names>,
    paths: Vec<Names>,
}

impl Module {
    fn read(file: &Path) -> Self {
        let text = fs::read_to_string(file).unwrap();
        let parsed = syn::parse_file(&text).unwrap();
        let mut module = Self {
            text,
            ..Self::default()
        };
        module.visit_file(&parsed);
        module
    }

    fn code_lines(&self, from: usize, to: usize) -> usize {
        let lines = self.text.lines().map(str::trim);
        let lines = (1..).zip(lines).take(to).skip(from - 1);
        let code = lines
            .filter(|(at, line)| !self.tests.contains(at) && !line.is_empty() && !line.starts_with("//"));
        code.count()
    }

    /// Whether the item is part of a test, whose lines are not counted.
    fn leaves_out(&mut self, node: &impl Spanned) -> bool {
        let (from, to) = (node.span().start().line, node.span().end().line);
        let mut lines = self.text.lines().skip(from - 1).map(str::trim);
        let is_test = lines.find(|line| !line.starts_with("///")) == Some("#[cfg(test)]");
        if is_test {
            self.tests.extend(from..=to);
        }
        is_test
    }

    fn function(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let lines = self.code_lines(signature.span().start().line, block.span().end().line);
        self.functions.push((signature.ident.to_string(), lines));
    }

    fn uses(&mut self, tree: &UseTree, before: &[String]) {
        let (name, path) = match tree {
            UseTree::Path(path) => return self.uses(&path.tree, &child(before, &path.ident)),
            UseTree::Group(group) => return group.items.iter().for_each(|tree| self.uses(tree, before)),
            UseTree::Glob(_) => return self.paths.push(before.to_vec()),
            UseTree::Name(name) if name.ident == "self" => (before.last().unwrap().clone(), before.to_vec()),
            UseTree::Name(name) => (name.ident.to_string(), child(before, &name.ident)),
            UseTree::Rename(name) => (name.rename.to_string(), child(before, &name.ident)),
        };
        self.named.insert(name, path);
    }
}

impl<'a> Visit<'a> for Module {
    fn visit_item(&mut self, item: &'a syn::Item) {
        if !self.leaves_out(item) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item(&mut self, item: &'a syn::ImplItem) {
        if !self.leaves_out(item) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, module: &'a syn::ItemMod) {
        if module.content.is_none() {
            self.children.push(module.ident.to_string());
        }
        visit::visit_item_mod(self, module);
    }

    fn visit_item_fn(&mut self, function: &'a syn::ItemFn) {
        self.function(&function.sig, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'a syn::ImplItemFn) {
        self.function(&function.sig, &function.block);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        self.uses(&item.tree, &[]);
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        let names = path.segments.iter().map(|segment| segment.ident.to_string());
        self.paths.push(names.collect());
        visit::visit_path(self, path);
    }
}

fn child(of: &[String], name: &impl ToString) -> Names {
    [of, &[name.to_string()]].concat()
}

/// The modules of a crate, by their paths.
#[derive(Default)]
struct Crate(BTreeMap<Names, (PathBuf, Module)>);

impl Crate {
    fn read(name: &str) -> Self {
        let source = Path::new(env!("CARGO_MANIFEST_DIR"))
            .with_file_name(name)
            .join("src");
        let roots = ["lib.rs", "main.rs"].map(|root| source.join(root));
        let mut all = Self::default();
        all.add(&[], roots.into_iter().find(|root| root.exists()).unwrap());
        all
    }

    /// Adds a module and the modules below it in its folder. A file in another folder belongs to the module of that folder.
    fn add(&mut self, path: &[String], file: PathBuf) {
        let module = Module::read(&file);
        let folder = match file.file_stem().and_then(|stem| stem.to_str()).unwrap() {
            "lib" | "main" | "mod" => file.with_file_name(""),
            stem => file.with_file_name(stem),
        };
        for name in &module.children {
            let mut files = [format!("{name}.rs"), format!("{name}/mod.rs")].into_iter();
            if let Some(file) = files.find_map(|file| Some(folder.join(file)).filter(|file| file.exists())) {
                self.add(&child(path, name), file);
            }
        }
        self.0.insert(path.to_vec(), (file, module));
    }

    /// The module in which a path that is written in module `at` ends, with re-exports resolved.
    fn target(&self, at: &[String], path: &[String]) -> Option<Names> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => self.find(rest),
            "self" => self.find(&[at, rest].concat()),
            "super" if rest.first().is_some_and(|next| next == "super") => {
                self.target(&at[..at.len() - 1], rest)
            }
            "super" => self.find(&[&at[..at.len() - 1], rest].concat()),
            _ if self.0.contains_key(&child(at, first)) => self.find(&[at, path].concat()),
            _ => None,
        }
    }

    fn find(&self, path: &[String]) -> Option<Names> {
        let mut splits = (0..=path.len()).rev().map(|length| path.split_at(length));
        let (module, rest) = splits.find(|(module, _)| self.0.contains_key(*module))?;
        match rest.first().and_then(|name| self.0[module].1.named.get(name)) {
            Some(named) => self.target(module, &[named, &rest[1..]].concat()),
            None => Some(module.to_vec()),
        }
    }

    /// The modules that a module imports, except its parents and children, which form one unit with it.
    fn imports(&self, at: &Names) -> BTreeSet<Names> {
        let (_, module) = &self.0[at];
        let targets = module.named.values().chain(&module.paths);
        let targets = targets.filter_map(|path| self.target(at, path));
        targets
            .filter(|to| !to.starts_with(at) && !at.starts_with(to))
            .collect()
    }

    /// Imports that are part of a cycle.
    fn circles(&self) -> Vec<String> {
        let imports: BTreeMap<_, _> = self.0.keys().map(|at| (at, self.imports(at))).collect();
        let leads = |from: &Names, to: &Names| {
            let (mut seen, mut next) = (BTreeSet::from([from]), vec![from]);
            while let Some(at) = next.pop() {
                next.extend(imports[at].iter().filter(|to| seen.insert(*to)));
            }
            seen.contains(to)
        };
        let all = imports.iter();
        let all = all.flat_map(|(at, targets)| targets.iter().map(move |to| (*at, to)));
        let circles = all.filter(|(at, to)| leads(to, at));
        circles
            .map(|(at, to)| format!("{} imports {}", at.join("::"), to.join("::")))
            .collect()
    }
}

/// The number of lines of a crate, and of each of its functions; adds exceeded limits to `broken`.
fn measure(name: &str, broken: &mut Vec<String>) -> (usize, Vec<usize>) {
    let source = Crate::read(name);
    let (mut all, mut functions) = (0, Vec::new());
    for (file, module) in source.0.values() {
        let (file, length) = (file.display(), module.text.lines().count());
        let long = module
            .functions
            .iter()
            .filter(|(_, lines)| *lines > LONGEST_FUNCTION);
        broken.extend(long.map(|(function, lines)| format!("{file}: {function} has {lines} lines")));
        broken.extend((length > LONGEST_FILE).then(|| format!("{file} has {length} lines")));
        broken.extend((!module.text.starts_with("//!")).then(|| format!("{file} has no module comment")));
        all += module.code_lines(1, length);
        functions.extend(module.functions.iter().map(|(_, lines)| *lines));
    }
    let circles = source.circles();
    broken.extend(
        circles
            .iter()
            .map(|import| format!("{name}: {import} in a circle")),
    );
    (all, functions)
}

fn print(name: &str, (lines, mut functions): (usize, Vec<usize>)) {
    functions.sort_unstable();
    let [median, most, longest] =
        [50, 90, 100].map(|percent| functions[(functions.len() - 1) * percent / 100]);
    let count = functions.len();
    println!("{name:<12} {lines:>6} {count:>9} {median:>6} {most:>6} {longest:>7}");
}

#[test]
fn production_code_keeps_its_limits_and_has_no_import_cycle() {
    let (mut broken, mut all) = (Vec::new(), (0, Vec::new()));
    println!("crate         lines functions median   90 % longest");
    for name in PRODUCT {
        let (lines, functions) = measure(name, &mut broken);
        all = (all.0 + lines, [all.1, functions.clone()].concat());
        print(name, (lines, functions));
    }
    print("all of them", all);
    for name in TOOLS {
        print(name, measure(name, &mut broken));
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// The Rust files of a folder and of its subfolders.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let files = entries.flat_map(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files_below(&path)
        } else {
            vec![path]
        }
    });
    files
        .filter(|file| file.extension().is_some_and(|ending| ending == "rs"))
        .collect()
}

/// Whether cargo compiles the file as a target, or a file nearby names it in a `mod` or `#[path]` line.
fn is_compiled(file: &Path) -> bool {
    let (folder, name) = (
        file.parent().unwrap(),
        file.file_name().unwrap().to_str().unwrap(),
    );
    let module = match name {
        "main.rs" | "lib.rs" => return true,
        "mod.rs" => folder.file_name().unwrap().to_str().unwrap(),
        name => name.trim_end_matches(".rs"),
    };
    let is_program = ["tests", "benches", "bin"]
        .iter()
        .any(|roots| folder.ends_with(roots));
    let names = |line: &str| {
        let item = line
            .trim()
            .trim_start_matches("pub(crate) ")
            .trim_start_matches("pub(super) ")
            .trim_start_matches("pub ");
        item == format!("mod {module};") || item.starts_with("#[path") && item.contains(&format!("{name}\""))
    };
    let near = fs::read_dir(folder)
        .unwrap()
        .chain(fs::read_dir(folder.parent().unwrap()).unwrap());
    let near = near.map(|entry| entry.unwrap().path());
    let texts = near
        .filter(|path| path.is_file())
        .map(|path| fs::read(path).unwrap());
    let mut texts = texts.map(|text| String::from_utf8_lossy(&text).into_owned());
    (is_program && !folder.join(module).is_dir()) || texts.any(|text| text.lines().any(names))
}

#[test]
fn every_rust_file_is_part_of_a_crate() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("");
    let mut files = Vec::new();
    for package in fs::read_dir(crates).unwrap() {
        let package = package.unwrap().path();
        files.extend(
            ["src", "tests", "benches"]
                .iter()
                .flat_map(|folder| files_below(&package.join(folder))),
        );
    }
    let (compiled, left_out): (Vec<_>, Vec<_>) = files.into_iter().partition(|file| is_compiled(file));
    assert!(compiled.len() > 300, "{compiled:?}");
    assert!(left_out.is_empty(), "no `mod` line names {left_out:?}");
}
