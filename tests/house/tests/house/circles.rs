//! Circles of files: modules that import each other in a loop. A reader of one must read them all.

use crate::rules::assert_no_breach;
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use usher_house::{source_files, workspace_crates};

/// The longest circle that a crate may have.
const MAX_FILES: usize = 3;

/// The path of a module within its crate; empty for the crate's root.
type ModulePath = Vec<String>;

/// The names of a module.
#[derive(Debug, Default)]
struct ModuleNames {
    definitions: BTreeSet<String>,
    /// The paths of re-exported names.
    exports: BTreeMap<String, Vec<String>>,
    /// The imported paths, and those in its code from `crate` or `super` on.
    uses: BTreeSet<Vec<String>>,
}

impl ModuleNames {
    fn read_items(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut i = 0;
        while let Some(token) = tokens.get(i) {
            i += 1;
            let TokenTree::Ident(word) = token else { continue };
            match (word.to_string().as_str(), tokens.get(i), tokens.get(i + 1)) {
                ("use", ..) => {
                    let length = tokens[i..].iter().position(|t| t.to_string() == ";").unwrap_or(0);
                    let mut paths = Vec::new();
                    flatten_use_tree(&tokens[i..i + length], &[], &mut paths);
                    match is_public(&tokens[..i - 1]) {
                        true => self
                            .exports
                            .extend(paths.into_iter().filter_map(|p| Some((p.last()?.clone(), p)))),
                        false => self.uses.extend(paths),
                    }
                    i += length;
                }
                (
                    "struct" | "enum" | "trait" | "fn" | "type" | "const" | "static" | "union",
                    Some(TokenTree::Ident(name)),
                    _,
                ) => {
                    self.definitions.insert(name.to_string());
                }
                // A macro's items are those of the module.
                (_, Some(bang), Some(TokenTree::Group(group))) if bang.to_string() == "!" => {
                    self.read_items(group.stream());
                }
                _ => {}
            }
        }
    }

    fn read_paths(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        for (i, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Group(group) => self.read_paths(group.stream()),
                TokenTree::Ident(word) if word == "crate" || word == "super" => {
                    let mut path = vec![word.to_string()];
                    let mut rest = &tokens[i + 1..];
                    while let [TokenTree::Punct(a), TokenTree::Punct(b), TokenTree::Ident(next), more @ ..] =
                        rest
                        && (a.as_char(), b.as_char()) == (':', ':')
                    {
                        path.push(next.to_string());
                        rest = more;
                    }
                    let is_in_use = tokens[..i].last().is_some_and(|t| t.to_string() == "use");
                    if path.len() > 1 && !is_in_use {
                        self.uses.insert(path);
                    }
                }
                _ => {}
            }
        }
    }
}

/// True if an item after these tokens is public, to its crate at least.
fn is_public(before: &[TokenTree]) -> bool {
    match before {
        [.., TokenTree::Ident(word), TokenTree::Group(group)] => {
            word == "pub" && group.delimiter() == Delimiter::Parenthesis
        }
        [.., TokenTree::Ident(word)] => word == "pub",
        _ => false,
    }
}

/// Adds the paths of a use tree. A renamed item has its own name; a glob is left out.
fn flatten_use_tree(tree: &[TokenTree], before: &[String], paths: &mut Vec<Vec<String>>) {
    let mut path = before.to_vec();
    for (i, token) in tree.iter().enumerate() {
        match token {
            TokenTree::Group(group) => {
                let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                for branch in inner.split(|t| t.to_string() == ",") {
                    flatten_use_tree(branch, &path, paths);
                }
                return;
            }
            TokenTree::Ident(word) if word == "as" => break,
            TokenTree::Ident(word) => path.push(word.to_string()),
            TokenTree::Punct(punct) if punct.as_char() == '*' => return,
            _ if i == tree.len() => break,
            _ => {}
        }
    }
    if path.len() > before.len() {
        paths.push(path);
    }
}

/// The modules of a crate.
struct CrateModules(BTreeMap<ModulePath, ModuleNames>);

impl CrateModules {
    /// Returns the absolute path of a path in a module; `None` for names of other crates.
    fn absolute_path(&self, module: &ModulePath, path: &[String]) -> Option<Vec<String>> {
        let ascents = path.iter().take_while(|word| *word == "super").count();
        match path.first()?.as_str() {
            "crate" => Some(path[1..].to_vec()),
            "self" => Some([module, &path[1..]].concat()),
            "super" => Some([&module[..module.len().saturating_sub(ascents)], &path[ascents..]].concat()),
            first => {
                let child = [&module[..], &[first.to_owned()]].concat();
                self.0.contains_key(&child).then(|| [module, path].concat())
            }
        }
    }
    /// Returns the module that defines what a path names; `None` for modules and names of other crates.
    fn defining_module(&self, module: &ModulePath, path: &[String], depth: usize) -> Option<ModulePath> {
        let path = self.absolute_path(module, path)?;
        let length = (0..=path.len()).rev().find(|length| self.0.contains_key(&path[..*length]))?;
        let (owner, name) = (path[..length].to_vec(), path.get(length)?);
        let names = &self.0[&owner];
        if !names.definitions.contains(name)
            && depth < 8
            && let Some(export) = names.exports.get(name)
            && let Some(found) = self.defining_module(&owner, export, depth + 1)
        {
            return Some(found);
        }
        Some(owner)
    }
    fn imports(&self) -> BTreeMap<&ModulePath, BTreeSet<ModulePath>> {
        let of = |(module, names): (_, &ModuleNames)| {
            let uses = names.uses.iter().filter_map(|path| self.defining_module(module, path, 0));
            (module, uses.filter(|used| used != module).collect())
        };
        self.0.iter().map(of).collect()
    }
    /// Returns the modules that import each other, directly or not.
    fn circles(&self) -> Vec<BTreeSet<&ModulePath>> {
        let imports = self.imports();
        let reached = |from: &ModulePath| {
            let (mut found, mut next) = (BTreeSet::new(), vec![from.clone()]);
            while let Some(module) = next.pop() {
                for used in imports.get(&module).into_iter().flatten() {
                    if found.insert(used.clone()) {
                        next.push(used.clone());
                    }
                }
            }
            found
        };
        let all: BTreeMap<&ModulePath, BTreeSet<ModulePath>> =
            self.0.keys().map(|module| (module, reached(module))).collect();
        let mut circles: Vec<BTreeSet<&ModulePath>> = Vec::new();
        for (module, reaches) in &all {
            if reaches.contains(*module) && circles.iter().all(|circle| !circle.contains(*module)) {
                let back = |other: &&ModulePath| reaches.contains(*other) && all[*other].contains(*module);
                circles.push(all.keys().copied().filter(back).collect());
            }
        }
        circles
    }
}

/// Reads the modules of a crate, without those for tests and fuzzers.
fn read_modules(sources: &[usher_house::SourceFile], folder: &str) -> CrateModules {
    let root = format!("{folder}/src/");
    let mut modules = CrateModules(BTreeMap::new());
    for source in sources.iter().filter(|s| s.extension() == "rs" && !s.test) {
        let Some(path) = source.path.strip_prefix(&root).filter(|p| !p.starts_with("bin/")) else { continue };
        let mut module: ModulePath = path.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
        if module.last().is_some_and(|last| ["lib", "main", "mod"].contains(&last.as_str())) {
            module.pop();
        }
        if module.last().is_some_and(|last| last == "fuzz") {
            continue;
        }
        let code: Vec<&str> = source.product_lines().map(|(_, line)| line).collect();
        let tokens = source.text.parse::<TokenStream>();
        let tokens = code.join("\n").parse::<TokenStream>().or(tokens);
        let tokens = tokens.unwrap_or_else(|error| panic!("{}: {error}", source.path));
        let mut names = ModuleNames::default();
        names.read_items(tokens.clone());
        names.read_paths(tokens);
        modules.0.insert(module, names);
    }
    modules
}

#[test]
fn no_long_circle_of_files() {
    let sources = source_files();
    let mut breaches = Vec::new();
    for member in workspace_crates() {
        let modules = read_modules(&sources, &member.path);
        for circle in modules.circles().into_iter().filter(|circle| circle.len() > MAX_FILES) {
            let files: Vec<String> = circle.into_iter().map(|module| module.join("/")).collect();
            breaches.push(format!(
                "{}: {} files import each other: {}; move what ties them into a file below",
                member.path,
                files.len(),
                files.join(", ")
            ));
        }
    }
    assert_no_breach(breaches);
}

#[test]
fn a_circle_is_found_through_re_exports_and_paths() {
    let file = |path: &str, text: &str| usher_house::SourceFile {
        path: format!("x/src/{path}"),
        text: text.into(),
        test: false,
    };
    let sources = [
        file("lib.rs", "mod a; mod b; mod c; pub use a::Top;"),
        file("a.rs", "use crate::b::{Left, inner::Deep as D}; pub struct Top;"),
        file("b.rs", "pub mod inner; pub struct Left(crate::c::Right);"),
        file("b/inner.rs", "pub struct Deep;"),
        file("c.rs", "pub struct Right; fn top() -> crate::Top { super::Top }"),
    ];
    let modules = read_modules(&sources, "x");
    let circles = modules.circles();
    let names: Vec<String> = circles[0].iter().map(|module| module.join("/")).collect();
    assert_eq!((circles.len(), names.join(" ").as_str()), (1, "a b c"));
}
