//! Tests that this program accepts every command line in the documentation and the help.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{CommandFactory, Parser};

use crate::args::Cli;

/// The languages of code blocks that contain no shell commands.
const OTHER_LANGUAGES: [&str; 6] = ["js", "json", "rust", "toml", "ts", "yaml"];

/// Returns all pages in a folder of the book and its subfolders.
fn pages(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the folder is there");
    let entries = entries.map(|entry| entry.expect("it can be read").path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let is_page = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "md");
    let below = folders.iter().flat_map(|folder| pages(folder));
    files.into_iter().filter(is_page).chain(below).collect()
}

/// Returns the READMEs and the pages of the book, each with its path.
fn documents() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let pages = pages(&root.join("docs/book/src"));
    let readmes = [
        "",
        "bindings/",
        "bindings/cli/",
        "bindings/node/",
        "examples/",
    ];
    let readmes = readmes.map(|folder| root.join(folder).join("README.md"));
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("it can be read");
        let place = path.strip_prefix(&root).expect("it is within");
        (place.display().to_string(), text)
    };
    readmes.into_iter().chain(pages).map(read).collect()
}

/// Splits a shell script into commands, each a list of words. A quoted text is one word.
fn commands(text: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let last = commands.last_mut().expect("there is one");
        match (quote, c) {
            (Some(end), c) if c == end => quote = None,
            (None, '\'' | '"') => {
                word.get_or_insert_default();
                quote = Some(c);
            }
            (None, '\\') if chars.peek() == Some(&'\n') => _ = chars.next(),
            (None, ' ') => last.extend(word.take()),
            (None, '#') if word.is_none() => while chars.next_if(|c| *c != '\n').is_some() {},
            (None, '\n' | ';' | '&' | '<' | '>') => {
                last.extend(word.take());
                commands.push(Vec::new());
            }
            (None, '|') if word.is_none() => commands.push(Vec::new()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    commands.last_mut().expect("there is one").extend(word);
    commands
}

/// Returns the arguments of each call of this program, also of calls within `sh -c`.
fn calls(text: &str) -> Vec<Vec<String>> {
    let mut calls = Vec::new();
    for words in commands(text) {
        let is_here = |word: &String| word == "leasehold" || word.ends_with("/leasehold");
        let begin = match words.first().map(String::as_str) {
            Some("cargo")
                if words
                    .starts_with(&["cargo", "run", "-p", "leasehold-cli"].map(str::to_owned)) =>
            {
                words.iter().position(|word| word == "--")
            }
            // There the word names the package.
            Some("npm" | "cargo") => continue,
            _ => words.iter().position(is_here),
        };
        let begin = begin.map(|at| at + 1);
        if let Some(begin) = begin {
            calls.push(words[begin..].to_vec());
        }
        let scripts = words.windows(3).filter(|words| words[..2] == ["sh", "-c"]);
        calls.extend(scripts.flat_map(|words| self::calls(&words[2])));
    }
    calls
}

/// Returns the shell code in a Markdown document: its code blocks and its inline code.
fn code(markdown: &str) -> (Vec<&str>, Vec<&str>) {
    let mut blocks: Vec<&str> = markdown.split("\n```").collect();
    let mut inline = Vec::new();
    let mut is_block = false;
    blocks.retain(|part| {
        if !is_block {
            inline.extend(part.split('`').skip(1).step_by(2));
        }
        is_block = !is_block;
        !is_block
    });
    // The first line of a block names its language.
    let blocks = blocks.iter().filter_map(|block| block.split_once('\n'));
    // After a comma come the attributes of the block.
    let language = |info: &str| info.split(',').next().unwrap_or_default().to_owned();
    let commands = blocks.filter(|(info, _)| !OTHER_LANGUAGES.contains(&&*language(info)));
    (commands.map(|(_, block)| block).collect(), inline)
}

/// Fills in a synopsis such as `run NAME [--wait TIME | --no-wait] -- COMMAND...`: with all optional parts,
/// and the first or the last of the alternatives.
fn filled_in(synopsis: &str, last: bool) -> String {
    let pick = |text: &'_ str, between| -> String {
        let mut all = text.split(between);
        let one = if last { all.last() } else { all.next() };
        one.unwrap_or_default().to_owned()
    };
    let text = synopsis.replace("\\\n", " ").replace("\\|", "|");
    let parts = text.replace(['[', ']'], "\0").replace("...", "");
    let parts = parts.split('\0').map(|part| pick(part, " | "));
    let text = parts.collect::<String>();
    let words = text.split_whitespace().map(|word| pick(word, "|"));
    let words = words.map(|word| match &*word {
        "TIME" => "1s".to_owned(),
        "SHELL" => "bash".to_owned(),
        "COUNT" => "3".to_owned(),
        _ => word,
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Parses each command line, with a token in its environment, and returns their number.
#[track_caller]
fn read(place: &str, text: &str) -> usize {
    let calls = calls(text);
    for args in &calls {
        let token = (args[0] == "fence").then_some(["--token", "34"]);
        let words = ["leasehold"]
            .into_iter()
            .chain(args.iter().map(String::as_str));
        let result = Cli::try_parse_from(words.chain(token.into_iter().flatten()));
        if let Err(error) = result
            && error.use_stderr()
        {
            panic!("{place} shows {args:?}: {error}");
        }
    }
    calls.len()
}

/// Returns true if the text is the name of a command, such as `leasehold fence check`.
fn is_name(text: &str) -> bool {
    let mut command = Cli::command();
    let mut words = text.split_whitespace();
    words.next() == Some("leasehold")
        && words.all(|word| {
            let found = command.find_subcommand(word).cloned();
            found.is_some_and(|found| {
                command = found;
                true
            })
        })
}

#[test]
fn every_command_line_of_the_documentation_is_read() {
    let documents = documents();
    assert!(
        documents
            .iter()
            .any(|(place, _)| place == "docs/book/src/coming-from.md")
    );
    for (place, text) in documents {
        let (blocks, inline) = code(&text);
        let mut count = 0;
        let inline = inline.into_iter().filter(|text| text.contains("leasehold"));
        // `leasehold run` alone is a name, not a call.
        let (names, inline): (Vec<_>, Vec<_>) =
            inline.partition(|text| text.split_whitespace().count() < 3 || is_name(text));
        for name in names {
            let known = !name.starts_with("leasehold ") || is_name(name);
            assert!(known, "{place} names `{name}`");
        }
        for text in blocks.into_iter().chain(inline) {
            let names_any = |part: &&str| text.contains(*part);
            let is_synopsis = ["NAME", "FILE", "SHELL", "["].iter().any(names_any);
            if text.starts_with("leasehold ") && is_synopsis {
                count += read(&place, &filled_in(text, false));
                count += read(&place, &filled_in(text, true));
            } else {
                count += read(&place, text);
            }
        }
        let least = match &*place {
            "README.md" => 1,
            "bindings/cli/README.md" => 10,
            _ => 0,
        };
        assert!(count >= least, "{place} shows {count}");
        let is_reference = place == "docs/book/src/command-line.md";
        assert!(count >= 20 || !is_reference, "{place} shows {count}");
    }
}

#[test]
fn every_example_of_the_help_is_read() {
    let mut count = 0;
    for task in Cli::command().get_subcommands_mut() {
        let help = task.render_long_help().to_string();
        let examples = help.split_once("Examples:\n").map(|(_, examples)| examples);
        let examples = examples.map(|text| text.split("\n\n").next().unwrap_or_default());
        for line in examples.unwrap_or_default().replace("\\\n", " ").lines() {
            // An explanation follows after two spaces.
            let line = line
                .trim_start()
                .split("  ")
                .filter(|part| !part.is_empty());
            let line: Vec<_> = line.collect();
            let is_continued = line.len() > 1 && line[0].ends_with("-c");
            let line = if is_continued {
                line.join(" ")
            } else {
                line[0].to_owned()
            };
            let calls = read(task.get_name(), &line);
            assert!(calls > 0, "no command in {line:?}");
            count += calls;
        }
    }
    assert!(count > 6, "{count} examples");
}

/// Catches a search for examples that finds none.
#[test]
fn calls_are_found() {
    let found = |text| {
        calls(text)
            .iter()
            .map(|args| args.join(" "))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        found("leasehold run a -- sh -c 'x < y && leasehold list b' || [ $? -eq 75 ] # leasehold"),
        ["run a -- sh -c x < y && leasehold list b", "list b"]
    );
    assert_eq!(
        found("# no\n0 3 * * * /bin/leasehold run a \\\n -n -- b\nExecStart=/bin/leasehold list"),
        ["run a -n -- b", "list"]
    );
    assert_eq!(
        found("cargo add leasehold\ncargo run -p leasehold-cli -- list 'a b'"),
        ["list a b"]
    );
    let synopsis = "leasehold run NAME [-w TIME | -n] [watch|list]... -- COMMAND...";
    let filled = |last| filled_in(synopsis, last);
    assert_eq!(filled(false), "leasehold run NAME -w 1s watch -- COMMAND");
    assert_eq!(filled(true), "leasehold run NAME -n list -- COMMAND");
    let page = "Text.\n```bash\nleasehold list\n```\n`leasehold run a -- b`\n```rust,no_run\nleasehold = 1\n```\n";
    assert_eq!(
        code(page),
        (vec!["leasehold list"], vec!["leasehold run a -- b"])
    );
    assert!(std::panic::catch_unwind(|| read("here", "leasehold run a --waits 1s -- b")).is_err());
    assert!(is_name("leasehold fence check") && !is_name("leasehold run a"));
}
