//! Servers in temporary folders that refuse to run as root.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// A way to end a server.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) enum Stop {
    /// SIGINT first, so that the server ends its own children.
    Interrupt,
    /// SIGKILL.
    Kill,
}

/// Makes a folder with a short path, since the path of a socket has at most 107 bytes.
pub(crate) fn folder(name: &str) -> TempDir {
    tempfile::Builder::new()
        .prefix(&format!("{name}-"))
        .tempdir_in("/tmp")
        .expect("a folder can be made in /tmp")
}

fn is_root() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let user = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    user.is_some_and(|ids| ids.split_whitespace().nth(1) == Some("0"))
}

/// Gives a folder and its content to a user if the present user is root.
pub(crate) fn give(user: &str, folder: &Path) {
    if is_root() {
        let mut command = Command::new("chown");
        run(command.args(["-R", user]).arg(folder), "no such user?");
    }
}

/// Returns a command that runs as `user` if the present user is root, and as the present user otherwise. The
/// process is the program itself, not a shell around it.
pub(crate) fn command_as(user: &str, program: &Path) -> Command {
    let mut command = if is_root() {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid", user, "--regid", user, "--clear-groups", "--"])
            .arg(program);
        command
    } else {
        Command::new(program)
    };
    command.current_dir("/");
    command
}

/// Runs a command to its end. Panics with its output if it fails.
pub(crate) fn run(command: &mut Command, install: &str) {
    let output = command
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}; {install}"));
    assert!(
        output.status.success(),
        "{command:?}: {}{}; {install}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Starts a server that writes its output to a log.
pub(crate) fn spawn(command: &mut Command, log: &Path, install: &str) -> Child {
    let log = File::create(log).expect("the temporary folder can be written to");
    let errors = log.try_clone().expect("a file handle can be duplicated");
    command
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors)
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}; {install}"))
}

/// Panics with the log if the server has ended.
pub(crate) fn must_run(process: &mut Child, log: &Path) {
    let ended = process.try_wait().expect("a child can be waited for");
    if let Some(status) = ended {
        panic!(
            "a server ended, {status}: {}",
            fs::read_to_string(log).unwrap_or_default()
        );
    }
}

/// Ends a server and waits until it has ended.
pub(crate) fn stop(process: &mut Child, how: Stop) {
    if how == Stop::Interrupt {
        let id = process.id().to_string();
        drop(Command::new("kill").args(["-INT", &id]).status());
        let end = Instant::now() + Duration::from_secs(10);
        while Instant::now() < end {
            if matches!(process.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    // The process may have just ended by itself.
    drop(process.kill());
    drop(process.wait());
}
