//! The help, the manual pages, and the examples of the book.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use leasehold_tests::RedisServer;
use tempfile::TempDir;

use crate::look::hold;
use crate::program::{LEASEHOLD, Output, leasehold, output};

/// Returns the chapter of the book on this program.
fn chapter() -> String {
    let chapter = "../../docs/book/src/command-line.md";
    let chapter = Path::new(env!("CARGO_MANIFEST_DIR")).join(chapter);
    std::fs::read_to_string(chapter).expect("it is there")
}

/// Returns the names of the commands that `--help` shows.
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
fn every_command_has_a_help_a_manual_page_and_a_place_in_the_book() {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().to_str().expect("text");
    assert_eq!(output(leasehold(["man", path])).code, Some(0));
    let chapter = chapter();
    let commands = commands();
    assert!(commands.len() > 2, "{commands:?}");
    for name in commands {
        let help = output(leasehold([&*name, "--help"]));
        assert_eq!(help.code, Some(0), "{name}");
        assert!(help.stdout.contains("Usage: leasehold"), "{name}");
        let page = folder.path().join(format!("leasehold-{name}.1"));
        let page = std::fs::read_to_string(page).expect("a manual page");
        assert!(page.starts_with(".ie"), "{page:.80}");
        assert!(chapter.contains(&format!("leasehold {name}")), "{name}");
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
fn the_exit_codes_of_the_book_are_those_of_the_help() {
    let chapter = chapter();
    let help = output(leasehold(["run", "--help"])).stdout;
    let table = help.split_once("Exit codes:").expect("there is a table").1;
    let codes = table
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    let codes: Vec<_> = codes.filter(|code| code.parse::<u8>().is_ok()).collect();
    assert!(codes.len() > 5, "{codes:?}");
    for code in codes {
        assert!(chapter.contains(&format!("| {code} |")), "{code}");
    }
}

/// A folder with this program and the programs that the examples run.
struct Examples {
    folder: TempDir,
    server: RedisServer,
}

impl Examples {
    async fn start() -> Self {
        let folder = TempDir::new().expect("a folder");
        std::os::unix::fs::symlink(LEASEHOLD, folder.path().join("leasehold")).expect("a link");
        for (name, script) in [
            ("backup.sh", "true"),
            ("render", "true"),
            ("import", "true"),
            ("make", "test \"$*\" = deploy"),
            ("make-report", "echo a report"),
            ("nightly", "echo >> nights"),
            ("report", "echo a report"),
            ("sleep", "test $# = 1"),
            ("transfer", "test $(echo $LEASEHOLD_TOKENS | wc -w) = 2"),
        ] {
            let path = folder.path().join(name);
            std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("it is written");
            let mode = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(path, mode).expect("it is ours");
        }
        let server = RedisServer::start().await;
        Self { folder, server }
    }

    /// Runs lines unchanged in a shell that finds these programs.
    fn run(&self, lines: &str) -> Output {
        let folder = self.folder.path().display().to_string();
        let lines = lines.replace("/usr/local/bin", &folder);
        let path = format!("PATH={folder}:/usr/bin:/bin");
        let mut command = std::process::Command::new("env");
        command.args([&path, "sh", "-ec", &lines]);
        command.current_dir(&self.folder);
        command.env("LEASEHOLD_URL", self.server.url());
        output(command)
    }

    #[track_caller]
    fn works(&self, lines: &str) {
        let ran = self.run(lines);
        assert_eq!(ran.code, Some(0), "{lines}: {ran:?}");
    }

    fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(name)).expect("it is there")
    }
}

/// Returns the code blocks of this language.
fn blocks(language: &str) -> Vec<String> {
    let (chapter, begin) = (chapter(), format!("```{language}\n"));
    let parts = chapter.split(&begin).skip(1);
    let blocks = parts.filter_map(|part| part.split("```").next());
    blocks.map(str::to_owned).collect()
}

/// Catches an example of the file guard that does not work.
#[tokio::test]
async fn the_examples_of_fences_work_once_and_again() {
    let examples = Examples::start().await;
    let blocks = blocks("sh");
    let fences = blocks.iter().find(|block| block.contains("fence write"));
    let fences = fences.expect("there are some");
    examples.works(fences);
    let once = |line: &&str| !line.starts_with("echo");
    let again: Vec<_> = fences.lines().filter(once).collect();
    examples.works(&again.join("\n"));
    assert_eq!(examples.file("count"), "2\n");
    assert_eq!(examples.file("report.html"), "a report\n");
    // A report that fails halfway replaces nothing.
    let fails = "#!/bin/sh\necho half\nexit 1\n";
    std::fs::write(examples.folder.path().join("make-report"), fails).expect("it is ours");
    assert_eq!(examples.run(again[0]).code, Some(1));
    assert_eq!(examples.file("report.html"), "a report\n");
}

#[tokio::test]
async fn the_examples_of_the_help_work() {
    let examples = Examples::start().await;
    let mut count = 0;
    for task in ["run", "fence"] {
        let help = output(leasehold([task, "--help"])).stdout;
        let (_, text) = help.split_once("Examples:\n").expect("there are some");
        let text = text.split("\n\n").next().expect("the first");
        let text = text.replace("\\\n    ", "");
        for line in text.lines() {
            let line = line.trim_start();
            // An explanation follows after some spaces.
            let line = line.split_once("   ").map_or(line, |(line, _)| line);
            examples.works(line);
            count += 1;
        }
    }
    assert_eq!(count, 9);
    assert_eq!(examples.file("report.csv"), "a report\n");
}

/// Catches a cron or systemd job that fails because another machine runs it.
#[tokio::test]
async fn the_jobs_of_cron_and_systemd_run_on_one_machine_at_a_time() {
    let examples = Examples::start().await;
    let crontabs = blocks("crontab").concat();
    let jobs = crontabs
        .lines()
        .filter_map(|line| line.strip_prefix("0 3 * * * "));
    let mut jobs: Vec<_> = jobs.map(str::to_owned).collect();
    let units = blocks("ini").concat();
    assert!(units.contains("\nSuccessExitStatus=76 143\n"), "{units}");
    let starts = units
        .lines()
        .filter_map(|line| line.strip_prefix("ExecStart="));
    let once = starts.filter(|start| start.contains(" run "));
    jobs.extend(once.map(|start| format!("{start} || [ $? -eq 76 ]")));
    assert_eq!(jobs.len(), 3, "{jobs:?}");
    for job in &jobs {
        examples.works(job);
        // A job with --at-least keeps its name taken.
        examples.run("leasehold release --force --yes nightly");
    }
    let _elsewhere = hold(&examples.server, "backup");
    for job in &jobs {
        examples.works(job);
    }
    let nights = examples.file("nights").lines().count();
    assert_eq!(
        nights, 1,
        "the second and all later ones are done elsewhere"
    );
}

/// Catches a unit that systemd rejects, or that kills a command before it can stop.
#[tokio::test]
async fn systemd_takes_the_units_and_signals_leasehold_alone() {
    let examples = Examples::start().await;
    let folder = examples.folder.path();
    let mut count = 0;
    for unit in blocks("ini") {
        let unit = unit.replace("/usr/local/bin", &folder.display().to_string());
        // The unit is only named, never run.
        let unit = unit.replace("/scheduler\n", "/nightly\n");
        let path = unit.lines().next().expect("a path");
        let path = folder.join(path.rsplit('/').next().expect("a name"));
        std::fs::write(&path, &unit).expect("it is written");
        if unit.contains("ExecStart=") {
            let stops = ["KillSignal=SIGTERM", "KillMode=mixed", "TimeoutStopSec="];
            assert!(stops.iter().all(|line| unit.contains(line)), "{unit}");
        }
        let mut command = std::process::Command::new("systemd-analyze");
        command.arg("verify").arg(&path);
        match command.output() {
            Ok(ran) => {
                let said = String::from_utf8_lossy(&ran.stderr);
                assert!(ran.status.success() && said.is_empty(), "{said}{unit}");
            }
            Err(error) => eprintln!("systemd did not look at {}: {error}", path.display()),
        }
        count += 1;
    }
    assert_eq!(count, 3);
}
