//! `cargo xtask book`: builds the book, and checks the links of every Markdown file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use anyhow::{Result, ensure};

use crate::markdown::Page;
use crate::run::{Cmd, root};
use crate::setup::Need;

/// The pages of the book, seen from the root of the repository.
const PAGES: &str = "docs/book/src";

/// Builds the book in `target/book`, unless told otherwise, and fails on a link to nothing.
pub(crate) fn main(links_only: bool) -> Result<()> {
    if !links_only {
        build()?;
    }
    let files = Cmd::line("git ls-files --cached --others --exclude-standard *.md").read()?;
    let files = files.lines().filter(|file| root().join(file).exists());
    let read = |file: &str| {
        Ok((
            PathBuf::from(file),
            Page::new(&std::fs::read_to_string(root().join(file))?),
        ))
    };
    let pages = files.map(read).collect::<Result<BTreeMap<_, _>>>()?;
    let broken = broken(&pages, |path| root().join(path).exists());
    ensure!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
    let links: usize = pages.values().map(|page| page.links.len()).sum();
    println!("== book: {links} links in {} files", pages.len());
    Ok(())
}

fn build() -> Result<()> {
    Need::MdBook.ensure()?;
    let out = root().join("target/book");
    let program = root().join(crate::setup::MDBOOK);
    let (out, program) = (out.to_string_lossy(), program.to_string_lossy());
    let build = Cmd::new(&program).args(["build", "docs/book", "--dest-dir", &out]);
    build.run()?;
    println!("== book: {out}/index.html");
    Ok(())
}

/// Returns what is wrong with each link that leads nowhere, and with each page that the summary lacks.
fn broken(pages: &BTreeMap<PathBuf, Page>, exists: impl Fn(&Path) -> bool) -> Vec<String> {
    let mut broken = Vec::new();
    let mut listed = BTreeSet::new();
    let summary = Path::new(PAGES).join("SUMMARY.md");
    for (file, page) in pages {
        for link in &page.links {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() {
                file.clone()
            } else {
                resolved(file, path)
            };
            let fault = if link.contains(':') {
                (!is_address(link)).then_some("is no https address")
            } else if !exists(&target) {
                Some("leads to no file")
            } else if file.starts_with(PAGES) && !target.starts_with(PAGES) {
                Some("leaves the book: write the file's path as code")
            } else if !anchor.is_empty()
                && pages
                    .get(&target)
                    .is_some_and(|page| !page.anchors.contains(anchor))
            {
                Some("leads to no heading")
            } else {
                None
            };
            broken.extend(fault.map(|fault| format!("{}: {link:?} {fault}", file.display())));
            if *file == summary {
                listed.insert(target);
            }
        }
    }
    let is_missing =
        |page: &&PathBuf| page.starts_with(PAGES) && **page != summary && !listed.contains(*page);
    let missing = pages.keys().filter(is_missing);
    broken.extend(missing.map(|page| format!("{}: SUMMARY.md does not list it", page.display())));
    broken
}

/// Returns the path, from the root, of what a file links to.
fn resolved(file: &Path, link: &str) -> PathBuf {
    let mut path = PathBuf::new();
    for part in file.with_file_name(link).components() {
        match part {
            Component::ParentDir if path.pop() => {}
            part => path.push(part),
        }
    }
    path
}

/// Returns true if this can be the address of another site; it is not fetched.
fn is_address(link: &str) -> bool {
    let rest = link
        .strip_prefix("https://")
        .or_else(|| link.strip_prefix("http://127.0.0.1"));
    rest.is_some_and(|rest| !rest.starts_with('/') && !rest.contains(char::is_whitespace))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::{Path, PathBuf};

    use super::broken;
    use crate::markdown::Page;

    const SUMMARY: &str = "- [A](a.md)\n- [B](b/b.md)";

    /// Returns what is broken in a book of three pages, one of which has this text.
    fn faults(text: &str) -> Vec<String> {
        let files = [
            (
                "README.md",
                "[A](docs/book/src/a.md#two-words), [code](xtask/Cargo.toml#L3)",
            ),
            ("docs/book/src/SUMMARY.md", SUMMARY),
            (
                "docs/book/src/a.md",
                "# Two `words`!\n## Again\n## Again\n[up](#again-1)",
            ),
            ("docs/book/src/b/b.md", text),
        ];
        let pages: BTreeMap<_, _> = files
            .map(|(file, text)| (PathBuf::from(file), Page::new(text)))
            .into();
        let other = Path::new("xtask/Cargo.toml");
        broken(&pages, |path| path == other || pages.contains_key(path))
    }

    #[test]
    fn good_links_pass() {
        let text = "[a](../a.md) [a](../a.md#two-words) [x](https://example.com/x#y) `[no](link)`";
        assert_eq!(faults(text), [""; 0]);
    }

    #[test]
    fn each_fault_is_found() {
        for (text, fault) in [
            ("[x](c.md)", "no file"),
            ("[x](a.md)", "no file"),
            ("![x](figure.svg)", "no file"),
            ("[x][there]\n\n[there]: c.md", "no file"),
            ("| a |\n|---|\n| [x](c.md) |", "no file"),
            ("[x](../a.md#again-2)", "no heading"),
            ("[x](#again)", "no heading"),
            ("[x](../../../../README.md)", "leaves the book"),
            ("[x](http:/example.com)", "no https address"),
            ("[x](https:///x)", "no https address"),
        ] {
            let found = faults(text);
            assert!(
                found.len() == 1 && found[0].contains(fault),
                "{text}: {found:?}"
            );
        }
    }

    #[test]
    fn a_page_that_is_not_listed_is_found() {
        let pages = [("docs/book/src/SUMMARY.md", ""), ("docs/book/src/a.md", "")];
        let pages = pages.map(|(file, text)| (PathBuf::from(file), Page::new(text)));
        assert_eq!(broken(&pages.into(), |_| true).len(), 1);
    }
}
