//! `cargo xtask bench report`: Leasehold beside its peers. Makes their programs, plans what is measured, and
//! runs the program that measures (`tests/report`).

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::peers;
use crate::run::{Cmd, in_release, root, target};

/// Between these README has what `report` writes.
const BEGIN: &str = "<!-- bench report: begin -->";
const END: &str = "<!-- bench report: end -->";
/// Where README's plot is.
const DOCS: &str = "docs/bench";
const PLOT: &str = "pairs-64.svg";

#[derive(Clone, Copy)]
pub(crate) struct Options {
    /// Less of everything, in under ten minutes after the peers were made.
    pub(crate) quick: bool,
    /// Put the main table and its plot into README.
    pub(crate) readme: bool,
}

pub(crate) fn main(options: Options) -> Result<()> {
    let (sides, mut skipped) = peers::make_all();
    let mut plan = plan(options);
    plan["guards"] = if options.quick {
        skipped.push("guards, because of --quick: `cargo xtask bench guards`".to_owned());
        Value::Null
    } else {
        guards(&mut skipped).into()
    };
    plan["sizes"] = sizes(&mut skipped);
    plan["sides"] = sides.into();
    plan["skipped"] = skipped.into();
    let folder = target().join("bench");
    fs::create_dir_all(&folder)?;
    let file = folder.join("plan.json");
    fs::write(&file, serde_json::to_string_pretty(&plan)?)?;
    let (file, to) = (file.to_string_lossy(), folder.to_string_lossy());
    let run = in_release("run", "leasehold-report", &["--", &*file, &*to]);
    Cmd::cargo(&run).run()?;
    println!("== report: {to}: report.md, report.json, readme.md, *.svg");
    if options.readme {
        write_readme(&folder)?;
    }
    Ok(())
}

/// How much of each is measured.
fn plan(Options { quick, readme }: Options) -> Value {
    let pick = |quickly: u64, fully: u64| if quick { quickly } else { fully };
    let printed = |program: &str, arg: &str| {
        let printed = Cmd::new(program, &[arg]).probe().unwrap_or_default();
        printed.lines().next().unwrap_or_default().trim().to_owned()
    };
    let server = printed("redis-server", "--version");
    let server = server
        .split_whitespace()
        .find_map(|word| word.strip_prefix("v="));
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let mut command = "cargo xtask bench report".to_owned();
    command.push_str(if quick { " --quick" } else { "" });
    command.push_str(if readme { " --readme" } else { "" });
    json!({
        "command": command,
        "date": printed("date", "+%Y-%m-%d"),
        "versions": [
            format!("Redis {}", server.unwrap_or("of unknown version")),
            printed("rustc", "--version"),
            format!("Node {}", printed("node", "--version")),
            format!("{cores} cores"),
        ],
        "rounds": pick(3, 9),
        "warm_up_millis": pick(300, 1_000),
        "pairs_millis": pick(150, 300),
        "handoff_rounds": pick(1, 3),
        "handoff_millis": pick(300, 700),
        "leases": pick(2_000, 10_000),
        "held_seconds": 30,
    })
}

/// What the benchmark of guards prints; it is not among the sides, because peers have none.
fn guards(skipped: &mut Vec<String>) -> Option<String> {
    let printed = crate::bench::guards(&["--rounds", "5", "--millis", "300"]);
    printed
        .map_err(|error| skipped.push(format!("guards, because {error:#}")))
        .ok()
}

/// Of what the npm packages bring into a bundle.
fn sizes(skipped: &mut Vec<String>) -> Value {
    let printed = Cmd::new("node", &["bundles.mjs"]).at(peers::NODE).output();
    let sizes = printed.and_then(|text| Ok(serde_json::from_str(&text)?));
    sizes.unwrap_or_else(|error| {
        skipped.push(format!("sizes, because {error:#}"));
        json!([])
    })
}

fn write_readme(folder: &Path) -> Result<()> {
    let path = root().join("README.md");
    let section = fs::read_to_string(folder.join("readme.md"))?;
    let text = with_section(&fs::read_to_string(&path)?, &section)?;
    let docs = root().join(DOCS);
    fs::create_dir_all(&docs)?;
    fs::copy(folder.join(PLOT), docs.join(PLOT))?;
    fs::write(&path, text)?;
    println!("== report: written into README.md, with {DOCS}/{PLOT}");
    Ok(())
}

/// The text with another section between the marks.
fn with_section(text: &str, section: &str) -> Result<String> {
    let missing = || format!("README.md has no lines `{BEGIN}` and `{END}`");
    let (before, rest) = text.split_once(BEGIN).with_context(missing)?;
    let (_, after) = rest.split_once(END).with_context(missing)?;
    Ok(format!("{before}{BEGIN}\n{}\n{END}{after}", section.trim()))
}

#[cfg(test)]
mod tests {
    use super::{BEGIN, END, with_section};

    #[test]
    fn replaces_what_is_between_the_marks_and_nothing_else() {
        let readme = format!("one\n{BEGIN}\nold\n{END}\ntwo\n");
        let new = with_section(&readme, "new\n").expect("it has the marks");
        assert_eq!(new, format!("one\n{BEGIN}\nnew\n{END}\ntwo\n"));
        assert!(with_section("no marks", "new").is_err());
    }
}
