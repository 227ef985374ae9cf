//! The engine's parts use one another one way.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Each part, as `lock/tenure`, with those that it uses.
type Uses = BTreeMap<String, BTreeSet<String>>;

fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("the sources are there") {
        let path = entry.expect("the folder can be read").path();
        if path.is_dir() && !path.ends_with("tests") && !path.ends_with("hub") {
            sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

/// What a `use` of a part names: the way to a module in the engine.
fn used(line: &str, part: &str) -> Option<String> {
    let path = line.trim_start().trim_start_matches("pub(super) ");
    let path = path.strip_prefix("use ")?;
    let is_folder = !part.contains('/') && ["lock", "quorum", "servers"].contains(&part);
    let room = part.split_once('/').map(|(room, _)| room);
    let (room, rest) = match path.strip_prefix("crate::engine::") {
        Some(rest) => (None, rest),
        None => match path.strip_prefix("super::") {
            Some(rest) => (room, rest),
            None if is_folder => (Some(part), path),
            None => return None,
        },
    };
    let name: String = rest
        .chars()
        .take_while(|c| c.is_ascii_lowercase() || *c == '_')
        .collect();
    Some(room.map_or(name.clone(), |room| format!("{room}/{name}")))
}

fn uses() -> Uses {
    let engine = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/engine");
    let mut paths = Vec::new();
    sources(&engine, &mut paths);
    let part = |path: &PathBuf| {
        let path = path.strip_prefix(&engine).ok()?.with_extension("");
        let part = path.to_str()?.replace('\\', "/");
        let part = part.strip_suffix("/mod").unwrap_or(&part);
        (part != "mod" && part != "tests").then(|| part.to_owned())
    };
    let parts: BTreeSet<_> = paths.iter().filter_map(part).collect();
    let mut uses = Uses::new();
    for path in &paths {
        let Some(part) = part(path) else { continue };
        let text = std::fs::read_to_string(path).expect("a source can be read");
        let own = text
            .split("#[cfg(test)]\nmod tests")
            .next()
            .unwrap_or_default();
        let named = own.lines().filter_map(|line| used(line, &part));
        let named = named.filter(|name| parts.contains(name) && *name != part);
        uses.insert(part.clone(), named.collect());
    }
    uses
}

/// A way from a part back to itself.
fn circle(uses: &Uses) -> Option<&String> {
    let reaches_itself = |part: &String| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![part]);
        while let Some(other) = next.pop() {
            for used in &uses[other] {
                if used == part {
                    return true;
                }
                if seen.insert(used) {
                    next.push(used);
                }
            }
        }
        false
    };
    uses.keys().find(|part| reaches_itself(part))
}

/// Catches two parts that use each other, at once or by a detour.
#[test]
fn no_part_uses_one_that_uses_it() {
    let mut uses = uses();
    assert!(uses["lock/tenure"].contains("attempt") && uses["lock"].contains("lock/contenders"));
    assert!(uses["servers"].contains("servers/server") && uses["attempt"].contains("servers"));
    assert_eq!(circle(&uses), None);
    // The control: this one would be found.
    let servers = uses.get_mut("servers/outbox").expect("it is a part");
    servers.insert("attempt".to_owned());
    assert!(circle(&uses).is_some());
}
