//! Lists the pages, so that none can be forgotten.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let book = env::current_dir()?;
    let root = book.ancestors().nth(2).unwrap_or(&book);
    let mut pages = vec![root.join("README.md")];
    find(&book.join("src"), &mut pages)?;
    pages.sort();
    let mut code = String::new();
    for page in pages {
        let path = page.display().to_string();
        println!("cargo:rerun-if-changed={path}");
        // A module of its own, because doctests are named by their item.
        let name = page.strip_prefix(&book).unwrap_or(&page).with_extension("");
        let name = name
            .to_string_lossy()
            .replace(|c: char| !c.is_alphanumeric(), "_");
        let _ = writeln!(code, "#[doc = include_str!({path:?})]\nmod {name} {{}}");
    }
    println!("cargo:rerun-if-changed=src");
    fs::write(
        Path::new(&env::var("OUT_DIR").map_err(io::Error::other)?).join("pages.rs"),
        code,
    )
}

fn find(folder: &Path, pages: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in folder.read_dir()? {
        let path = entry?.path();
        if path.is_dir() {
            println!("cargo:rerun-if-changed={}", path.display());
            find(&path, pages)?;
        } else if path.extension().is_some_and(|end| end == "md") {
            pages.push(path);
        }
    }
    Ok(())
}
