//! The helper processes: this program under another name. One prepares a new process before the command takes its
//! place, the other is the guard. They are programs of their own because code between fork and exec cannot be safe
//! Rust.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use nix::unistd::{Pid, getpgrp, getppid};

use super::guard::{self, GUARD};
use super::terminal;
use crate::exit::{NOT_FOUND, NOT_RUN};

/// The name under which the process runs that becomes the command.
pub(super) const EXEC: &str = "leasehold: exec";
/// The argument that gives the command the terminal from the start.
pub(super) const WITH_TERMINAL: &str = "terminal";
pub(super) const WITHOUT_TERMINAL: &str = "none";

/// Runs the helper that this process was started as, if it is one.
pub(crate) fn as_helper() -> Option<ExitCode> {
    let mut args = std::env::args_os();
    match args.next()?.to_str()? {
        EXEC => Some(become_command(args)),
        GUARD => {
            guard::main();
            Some(ExitCode::SUCCESS)
        }
        _ => None,
    }
}

/// Becomes the command. Returns only if the command cannot be run.
fn become_command(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let (Some(parent), Some(terminal), Some(program)) = (args.next(), args.next(), args.next())
    else {
        return ExitCode::from(NOT_RUN);
    };
    if !die_with(&parent) {
        return ExitCode::from(NOT_RUN);
    }
    if terminal == WITH_TERMINAL {
        terminal::take(getpgrp());
    }
    let error = Command::new(&program).args(args).exec();
    let shown = program.display();
    let (exit, what) = match error.kind() {
        std::io::ErrorKind::NotFound if is_script(&program) => (
            NOT_RUN,
            "the interpreter named in its first line does not exist".to_owned(),
        ),
        std::io::ErrorKind::NotFound => (NOT_FOUND, "there is no such command".to_owned()),
        std::io::ErrorKind::PermissionDenied => {
            (NOT_RUN, "it is not executable, or is a folder".to_owned())
        }
        _ => (NOT_RUN, format!("it cannot be run: {error}")),
    };
    eprintln!("leasehold: {shown}: {what}");
    ExitCode::from(exit)
}

/// Returns true if the program exists, so it is the script's interpreter that was not found. Only a name with a
/// slash is a path; any other was searched in the PATH.
fn is_script(program: &OsString) -> bool {
    let path = std::path::Path::new(program);
    path.components().count() > 1 && path.exists()
}

/// Has the system kill this process, and the program that it becomes, when the parent's main thread ends, which
/// started it.
fn die_with(parent: &OsString) -> bool {
    #[cfg(target_os = "linux")]
    if nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL).is_err() {
        return false;
    }
    // The parent may have ended before that. Then this process has another parent.
    let parent = parent.to_str().and_then(|digits| digits.parse().ok());
    parent.map(Pid::from_raw) == Some(getppid())
}
