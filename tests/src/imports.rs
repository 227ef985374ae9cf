//! Checks that the modules of a crate do not import one another in cycles.
//!
//! Every path that begins with `crate::`, `super::` or a submodule counts, in a `use` or elsewhere. Items
//! that an ancestor defines do not count, since a module belongs to its ancestors. Items that an ancestor
//! re-exports from a submodule count as the submodule's. Tests do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The checked parts: the sources of a crate, and the module whose submodules are checked; empty for all
/// modules.
const ROOMS: [(&str, &str); 5] = [
    ("bindings/cli/src", ""),
    ("bindings/serve/src", ""),
    ("core/src", "adapter"),
    ("core/src", "driver"),
    ("core/engine/src", "engine"),
];

/// The modules of a crate, such as `lock/tenure`, each with the modules that it imports from.
type Imports = BTreeMap<String, BTreeSet<String>>;
/// The paths in a module: for each the module that it leads to, and the name of the item there.
type Paths = BTreeSet<(String, String)>;

fn read(folder: &Path, module: &str, into: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).expect("the sources are there") {
        let path = entry.expect("the folder can be read").path();
        let name = path.file_stem().and_then(|name| name.to_str());
        let submodule = match name.expect("a name") {
            "tests" => continue,
            "lib" | "main" | "mod" => module.to_owned(),
            name => join(module, name),
        };
        if path.is_dir() {
            read(&path, &submodule, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(path).expect("a source can be read");
            let code = text.split("#[cfg(test)]\nmod tests").next();
            let code = code.unwrap_or_default().lines();
            let code = code.filter(|line| !line.trim_start().starts_with("//"));
            into.insert(submodule, code.collect::<Vec<_>>().join("\n"));
        }
    }
}

fn join(module: &str, name: &str) -> String {
    format!("{module}/{name}").trim_matches('/').to_owned()
}

fn parent(module: &str) -> &str {
    module.rsplit_once('/').map_or("", |(parent, _)| parent)
}

fn is_ancestor(module: &str, of: &str) -> bool {
    module.is_empty() || of == module || of.starts_with(&format!("{module}/"))
}

fn paths(module: &str, sources: &BTreeMap<String, String>) -> Paths {
    let submodules = sources.keys().filter(|other| !other.is_empty());
    let submodules = submodules.filter(|other| parent(other) == module);
    let mut bases: Vec<_> = submodules.map(|other| (&**other, other.as_str())).collect();
    bases.extend([("crate", ""), ("super", parent(module))]);
    let (code, mut paths) = (&sources[module], Paths::new());
    for (word, base) in bases {
        let word = format!("{}::", word.rsplit('/').next().unwrap_or_default());
        for (at, _) in code.match_indices(&word) {
            let is_inside = |c: char| c.is_alphanumeric() || "_:.".contains(c);
            if !code[..at].ends_with(is_inside) {
                resolve(base, &code[at + word.len()..], sources, &mut paths);
            }
        }
    }
    paths
}

/// Follows the rest of a path from a module, also into braces. Returns the text after the path.
fn resolve<'a>(
    base: &str,
    rest: &'a str,
    sources: &BTreeMap<String, String>,
    into: &mut Paths,
) -> &'a str {
    let mut rest = rest.trim_start();
    if let Some(list) = rest.strip_prefix('{') {
        rest = list.trim_start();
        while !rest.is_empty() && !rest.starts_with('}') {
            rest = resolve(base, rest, sources, into);
            rest = rest.trim_start_matches([',', ' ', '\n']);
        }
        return rest.strip_prefix('}').unwrap_or_default();
    }
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
    let (name, behind) = rest.split_at(end.unwrap_or(rest.len()));
    let inner = match name {
        "super" => parent(base).to_owned(),
        name => join(base, name),
    };
    let is_module = name == "super" || sources.contains_key(&inner);
    match behind.strip_prefix("::") {
        Some(behind) if is_module => return resolve(&inner, behind, sources, into),
        None if is_module => into.insert((inner, String::new())),
        _ => into.insert((base.to_owned(), name.to_owned())),
    };
    behind.trim_start_matches(|c: char| !",}".contains(c))
}

fn imports(src: &Path, room: &str) -> Imports {
    let mut sources = BTreeMap::new();
    read(src, "", &mut sources);
    let all = sources
        .keys()
        .map(|module| (module.as_str(), paths(module, &sources)));
    let all: BTreeMap<_, _> = all.collect();
    let target = |(base, name): &(String, String)| {
        let is_item = !["", "self"].contains(&name.as_str());
        let mut own = all[base.as_str()].iter();
        let exported = own.find(|(other, item)| is_item && item == name && parent(other) == base);
        exported.map_or(base, |(submodule, _)| submodule).clone()
    };
    let mut imports = Imports::new();
    for (module, paths) in &all {
        let used = paths.iter().map(target);
        let used = used.filter(|used| is_ancestor(room, used) && !is_ancestor(used, module));
        if is_ancestor(room, module) {
            imports.insert((*module).to_owned(), used.collect());
        }
    }
    imports
}

/// Returns a path of imports from a module back to itself.
fn cycle(imports: &Imports) -> Option<Vec<&String>> {
    imports.keys().find_map(|start| {
        let (mut seen, mut ways) = (BTreeSet::new(), vec![vec![start]]);
        while let Some(way) = ways.pop() {
            for used in &imports[way[way.len() - 1]] {
                if used == start {
                    return Some(way);
                }
                if seen.insert(used) {
                    ways.push([&way[..], &[used]].concat());
                }
            }
        }
        None
    })
}

#[test]
fn modules_do_not_import_one_another_in_cycles() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for (src, room) in ROOMS {
        let mut imports = imports(&root.join(src), room);
        assert!(imports.len() > 1, "{src} {room}");
        assert_eq!(cycle(&imports), None, "{src} {room}");
        // Negative control: an added import in the other direction is found.
        let import = imports
            .iter()
            .find_map(|(module, used)| Some((module, used.first()?)));
        let (module, used) = import
            .map(|(module, used)| (module.clone(), used.clone()))
            .expect("an import");
        imports.get_mut(&used).expect("a module").insert(module);
        assert!(cycle(&imports).is_some(), "{src} {room}");
    }
}

/// Catches an import that the reader of sources misses.
#[test]
fn imports_of_every_form_are_found() {
    let sources = [
        ("", "mod a;"),
        (
            "a",
            "mod b;\npub use b::{B, deep::Deep};\nmod d;\nfn f() { d::run(); }",
        ),
        (
            "a/b",
            "use super::{c, d::{self, D}};\nuse std::mem;\nuse super::super::e::E as F;",
        ),
        ("a/b/deep", ""),
        (
            "a/c",
            "use super::B;\nfn f(x: super::Own) { crate::e::f(x); other::crate_::x() }",
        ),
        ("a/d", ""),
        ("e", "use crate::{\n    a::{c::C, Own},\n    f,\n};"),
    ];
    let folder = tempfile::tempdir().expect("a folder");
    for (module, text) in sources {
        let path = folder.path().join(module).join("mod.rs");
        fs::create_dir_all(path.parent().expect("a folder")).expect("it can be made");
        fs::write(path, text).expect("it can be written");
    }
    let imports = imports(folder.path(), "");
    let of = |module: &str| {
        imports[module]
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>()
    };
    assert_eq!(of(""), Vec::<&str>::new());
    assert_eq!(of("a"), ["a/b", "a/b/deep", "a/d"]);
    assert_eq!(of("a/b"), ["a/c", "a/d", "e"]);
    assert_eq!(of("a/c"), ["a/b", "e"]);
    assert_eq!(of("e"), ["a", "a/c"]);
    assert!(cycle(&imports).is_some());
}
