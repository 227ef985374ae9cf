//! `leasehold fence`: a guard for files.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Stdio;

use leasehold_tests::{RedisServer, eventually};
use tempfile::TempDir;

use crate::program::{LIMIT, Program, leasehold, on, output};

/// Runs a task of `leasehold fence`. Returns the exit code and the messages.
fn fence(task: &str, file: &Path, token: &str, content: &str) -> (Option<i32>, String) {
    let mut command = leasehold(["fence", task]);
    command.arg(file).args(["--token", token]);
    command.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let mut stdin = child.stdin.take().expect("it is piped");
    // A refused write does not read its input.
    let _ = stdin.write_all(content.as_bytes());
    drop(stdin);
    let ended = child.wait_with_output().expect("it ends");
    let said = String::from_utf8(ended.stderr).expect("text");
    (ended.status.code(), said)
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).expect("it is there")
}

#[test]
fn a_stale_token_is_refused() {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("data");
    assert_eq!(fence("write", &file, "34", "new").0, Some(0));
    assert_eq!(read(&file), "new");
    // A holder writes many times.
    assert_eq!(fence("write", &file, "34", "newer").0, Some(0));
    let (code, said) = fence("write", &file, "33", "old");
    assert_eq!((code, &*read(&file)), (Some(65), "newer"));
    assert!(said.contains("33") && said.contains("34"), "{said}");
    // A token that was checked counts, even if nothing was written.
    assert_eq!(fence("check", &file, "40", "").0, Some(0));
    assert_eq!(fence("check", &file, "39", "").0, Some(65));
    assert_eq!(fence("write", &file, "34", "old").0, Some(65));
    assert_eq!(read(&file), "newer");
    assert_eq!(read(&folder.path().join("data.fence")), "40\n");
    let left = fs::read_dir(folder.path()).expect("it is there").count();
    assert_eq!(left, 2, "nothing else is left behind");
}

#[test]
fn it_fits_into_a_run() {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("data");
    let runtime = tokio_runtime();
    let server = runtime.block_on(RedisServer::start());
    let script = format!("echo hello | \"$L\" fence write {}", file.display());
    let mut run = on(&server, ["run", "a", "--", "sh", "-c", &script]);
    run.env("L", crate::program::LEASEHOLD);
    assert_eq!(output(run).code, Some(0));
    assert_eq!(read(&file), "hello\n");
    // An old token, of another name, is smaller than all later ones.
    assert_eq!(fence("check", &file, "7", "").0, Some(65));
}

fn tokio_runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}

/// The write with the greatest token comes last, or later ones are refused. Either way its content stays.
#[test]
fn of_many_at_once_the_greatest_token_wins() {
    for round in 0..3 {
        let folder = TempDir::new().expect("a folder");
        let file = folder.path().join("data");
        let (file, runs) = (&file, 20);
        let codes: Vec<_> = std::thread::scope(|scope| {
            // The tokens are not in order, so that most are neither first nor last.
            let tokens = (0..runs).map(|run| 1 + (run * 7 + round) % runs);
            let started: Vec<_> = tokens
                .map(|token| {
                    let token = token.to_string();
                    scope.spawn(move || fence("write", file, &token, &token).0)
                })
                .collect();
            let ended = started.into_iter().map(|run| run.join().expect("it ran"));
            ended.collect()
        });
        assert!(
            codes.iter().all(|code| matches!(code, Some(0 | 65))),
            "{codes:?}"
        );
        assert_eq!(read(file), runs.to_string(), "round {round}");
        assert_eq!(read(&folder.path().join("data.fence")), format!("{runs}\n"));
    }
}

/// Catches a comparison only before the input is read.
#[tokio::test]
async fn a_greater_token_may_come_while_the_input_is_read() {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("data");
    let path = file.to_str().expect("text");
    let mut slow = Program::spawn(leasehold(["fence", "write", path, "--token", "33"]));
    let is_stored = || fs::read_to_string(folder.path().join("data.fence")).ok();
    let begun = async || is_stored().as_deref() == Some("33\n");
    eventually(LIMIT, "the first comparison", begun).await;
    assert_eq!(fence("write", &file, "34", "new").0, Some(0));
    slow.close_stdin();
    assert_eq!(slow.code().await, Some(65));
    assert_eq!(read(&file), "new");
}

#[test]
fn one_file_has_one_fence_and_keeps_its_rights() {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("data");
    fs::write(&file, "").expect("it is written");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("it is ours");
    let link = folder.path().join("link");
    symlink(&file, &link).expect("a link");
    assert_eq!(fence("write", &link, "34", "new").0, Some(0));
    assert!(link.is_symlink());
    assert_eq!(read(&file), "new");
    assert_eq!(fence("write", &file, "33", "old").0, Some(65));
    let mode = fs::metadata(&file)
        .expect("it is there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o640);
}

#[test]
fn what_is_wrong_is_said() {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("data");
    for token in ["0", "-1", "x", "9007199254740992", ""] {
        assert_eq!(fence("check", &file, token, "").0, Some(64), "{token:?}");
    }
    let without = output(leasehold(["fence", "check", "x"]));
    assert_eq!(without.code, Some(64), "{without:?}");
    assert!(without.stderr.contains("--token"), "{without:?}");
    for file in [
        folder.path(),
        Path::new("/no/such/folder/file"),
        Path::new("/"),
    ] {
        assert_eq!(
            fence("check", file, "7", "").0,
            Some(74),
            "{}",
            file.display()
        );
    }
    // A damaged fence refuses every token.
    fs::write(folder.path().join("data.fence"), "no token").expect("it is written");
    let (code, said) = fence("write", &file, "7", "new");
    assert_eq!(code, Some(74));
    assert!(
        said.contains("data.fence") && said.contains("restore"),
        "{said}"
    );
    assert!(!file.exists());
}

#[test]
fn a_fence_says_that_it_uses_no_store() {
    let args = ["fence", "check", "a", "--token", "3", "--url", "redis://a"];
    let ran = output(leasehold(args));
    assert_eq!(ran.code, Some(64), "{ran:?}");
    assert!(ran.stderr.contains("fence uses no store"), "{ran:?}");
}
