//! What the program says of itself.

use std::path::Path;

use tempfile::TempDir;

use crate::program::{leasehold, output};

/// The names of the commands that `--help` shows.
fn commands() -> Vec<String> {
    let help = output(leasehold(["--help"]));
    assert_eq!(help.code, Some(0));
    let lines = help.stdout.lines().skip_while(|line| *line != "Commands:");
    let lines = lines.skip(1).take_while(|line| !line.is_empty());
    let names = lines.filter_map(|line| line.split_whitespace().next());
    names
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_command_has_a_help_a_manual_page_and_a_place_in_the_readme() {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().to_str().expect("text");
    assert_eq!(output(leasehold(["man", path])).code, Some(0));
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let readme = std::fs::read_to_string(readme).expect("it is there");
    let commands = commands();
    assert!(commands.len() > 2, "{commands:?}");
    for name in commands {
        let help = output(leasehold([&*name, "--help"]));
        assert_eq!(help.code, Some(0), "{name}");
        assert!(help.stdout.contains("Usage: leasehold"), "{name}");
        let page = folder.path().join(format!("leasehold-{name}.1"));
        let page = std::fs::read_to_string(page).expect("a manual page");
        assert!(page.starts_with(".ie"), "{page:.80}");
        assert!(readme.contains(&format!("leasehold {name}")), "{name}");
    }
}

#[test]
fn shells_get_completions() {
    for (shell, has) in [
        ("bash", "complete -F _leasehold"),
        ("zsh", "#compdef leasehold"),
        ("fish", "complete -c leasehold"),
    ] {
        let ran = output(leasehold(["completions", shell]));
        assert_eq!(ran.code, Some(0));
        assert!(ran.stdout.contains(has), "{shell}");
    }
    assert_eq!(
        output(leasehold(["completions", "no-such-shell"])).code,
        Some(64)
    );
}

#[test]
fn the_exit_codes_of_the_readme_are_those_of_the_help() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let readme = std::fs::read_to_string(readme).expect("it is there");
    let help = output(leasehold(["run", "--help"])).stdout;
    let table = help.split_once("Exit codes:").expect("there is a table").1;
    let codes = table
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    let codes: Vec<_> = codes.filter(|code| code.parse::<u8>().is_ok()).collect();
    assert!(codes.len() > 5, "{codes:?}");
    for code in codes {
        assert!(readme.contains(&format!("| {code} |")), "{code}");
    }
}
