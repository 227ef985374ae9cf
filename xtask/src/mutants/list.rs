//! The mutants of `tests/mutants`.

use std::fs;

use anyhow::{Context, Result, bail, ensure};

use crate::run::root;

const FOLDER: &str = "tests/mutants";

/// A small change that breaks a promise.
#[derive(Debug)]
pub(super) struct Mutant {
    /// The name of its file, without the extension.
    pub(super) area: String,
    pub(super) name: String,
    /// The promise, and how it is broken.
    pub(super) breaks: String,
    /// The command of the fastest suite that notices, as one types it in the root.
    pub(super) suite: String,
    /// Why no test can notice, or why it need not.
    pub(super) survives: Option<String>,
    pub(super) file: String,
    /// The lines that are replaced, and the new ones.
    old: Vec<String>,
    new: Vec<String>,
}

impl Mutant {
    /// Returns the text of the file with the change. Spaces around lines do not matter.
    pub(super) fn apply(&self, text: &str) -> Result<String> {
        let lines: Vec<_> = text.lines().collect();
        let is_old = |window: &[&str]| {
            let mut pairs = window.iter().zip(&self.old);
            pairs.all(|(line, old)| line.trim() == old.trim())
        };
        let windows = lines.windows(self.old.len()).enumerate();
        let found: Vec<_> = windows.filter(|(_, window)| is_old(window)).collect();
        let &[(at, _)] = &found[..] else {
            bail!(
                "mutant `{}`: its lines are {} times in {}",
                self.name,
                found.len(),
                self.file
            );
        };
        let after = &lines[at + self.old.len()..];
        let new = self.new.iter().map(String::as_str);
        let mutated: Vec<_> = lines[..at]
            .iter()
            .copied()
            .chain(new)
            .chain(after.iter().copied())
            .collect();
        Ok(mutated.join("\n") + "\n")
    }

    /// Returns a mutant that changes nothing.
    #[cfg(test)]
    pub(super) fn example(area: &str, name: &str, suite: &str) -> Self {
        let block = format!("{name}\nbreaks: I1: much\nsuite: {suite}\nfile: x\n-b\n+b\n");
        parse(area, &block).expect("it is valid")
    }
}

/// Reads all mutants, in the order of their files' names.
pub(super) fn all() -> Result<Vec<Mutant>> {
    let entries = fs::read_dir(root().join(FOLDER))?;
    let mut paths = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    paths.sort();
    let mut mutants = Vec::new();
    for path in paths {
        let area = path.file_stem().context("it has a name")?.to_string_lossy();
        for block in fs::read_to_string(&path)?.split("\n## ").skip(1) {
            mutants
                .push(parse(&area, block).with_context(|| format!("{}: {block}", path.display()))?);
        }
    }
    Ok(mutants)
}

fn parse(area: &str, block: &str) -> Result<Mutant> {
    let (name, rest) = block.split_once('\n').context("a mutant has lines")?;
    let value = |key: &str| {
        let mut lines = rest.lines();
        lines
            .find_map(|line| line.strip_prefix(key))
            .map(|value| value.trim().to_owned())
    };
    let marked = |mark: char| {
        let lines = rest.lines().filter_map(|line| line.strip_prefix(mark));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let mutant = Mutant {
        area: area.to_owned(),
        name: name.trim().to_owned(),
        breaks: value("breaks:").context("`breaks:` is missing")?,
        suite: value("suite:").context("`suite:` is missing")?,
        survives: value("survives:"),
        file: value("file:").context("`file:` is missing")?,
        old: marked('-'),
        new: marked('+'),
    };
    ensure!(!mutant.old.is_empty(), "no line is replaced");
    Ok(mutant)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches a mutant whose lines have changed, and that therefore tries nothing.
    #[test]
    fn each_mutant_applies_to_the_code_of_today() {
        let mutants = all().expect("they can be read");
        let mut faults = Vec::new();
        for mutant in &mutants {
            let text = fs::read_to_string(root().join(&mutant.file));
            let applied = text
                .map_err(Into::into)
                .and_then(|text| mutant.apply(&text));
            faults.extend(applied.err().map(|error| error.to_string()));
        }
        assert!(faults.is_empty(), "{}", faults.join("\n"));
        let mut names: Vec<_> = mutants.iter().map(|mutant| &mutant.name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), mutants.len(), "two have the same name");
    }

    /// Catches a reason for code that has changed since.
    #[test]
    fn each_survivor_is_in_the_code_of_today() {
        let list = root().join(FOLDER).join("survivors.md");
        let list = fs::read_to_string(list).expect("it can be read");
        let (mut source, mut faults) = (String::new(), Vec::new());
        for line in list.lines() {
            if let Some(path) = line.strip_prefix("## ") {
                source = fs::read_to_string(root().join(path)).expect(path);
            }
            let Some(entry) = line.strip_prefix("- ") else {
                continue;
            };
            // The reason is another sentence.
            let (changes, _) = entry.split_once(". ").expect("an entry has a reason");
            let mut quoted = changes.split('`').skip(1).step_by(2);
            let function = format!("fn {}", quoted.next().expect("a function is named"));
            let code = quoted.filter(|code| code.contains(char::is_alphabetic));
            let missing = code.filter(|code| !source.contains(code));
            faults.extend(missing.map(|code| format!("{code}: {entry}")));
            if !source.contains(&function) {
                faults.push(format!("{function}: {entry}"));
            }
        }
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }

    #[test]
    fn a_mutant_replaces_its_lines_once() {
        let block = "name\nbreaks: I1: much\nsuite: true\nfile: x\n-b\n-  c\n+d\n";
        let mutant = parse("area", block).expect("it is valid");
        assert_eq!(mutant.apply("a\n  b\nc\nb\n").expect("once"), "a\nd\nb\n");
        for text in ["a\nb\n", "b\nc\nb\nc\n"] {
            let error = mutant.apply(text).expect_err("not once");
            assert!(error.to_string().contains("name"), "{error}");
        }
    }
}
