//! The terminal: which process group owns it, and passing it on.

use std::fs::{File, OpenOptions};
use std::io::IsTerminal;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};
use nix::unistd::{Pid, getpgrp, getsid, tcgetpgrp, tcsetpgrp};

/// The controlling terminal of this process.
#[derive(Debug)]
pub(super) struct Terminal {
    file: File,
    /// The settings before the command got the terminal.
    modes: Option<Termios>,
    /// The process group that got the terminal.
    given: Option<Pid>,
}

impl Terminal {
    /// Opens the terminal; `None` if there is none, as under cron.
    pub(super) fn open() -> Option<Self> {
        let file = open().ok()?;
        let modes = tcgetattr(&file).ok();
        Some(Self {
            file,
            modes,
            given: None,
        })
    }

    /// Returns true if the command should get the terminal from the start. In a pipeline (`… | less`) another member
    /// may be using it, so there the command must ask.
    pub(super) fn is_ours_alone(&self) -> bool {
        self.is_ours() && std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
    }

    /// Returns true if this process is in the foreground.
    pub(super) fn is_ours(&self) -> bool {
        tcgetpgrp(&self.file) == Ok(getpgrp())
    }

    /// Returns true if somebody continues this process when it stops. A shell with job control gives each job a process
    /// group of its own, and the terminal is not hung up while that shell lives.
    pub(super) fn has_job_control(&self) -> bool {
        let is_job = getsid(None).is_ok_and(|session| session != getpgrp());
        is_job && tcgetpgrp(&self.file).is_ok()
    }

    pub(super) fn is_given(&self) -> bool {
        self.given.is_some()
    }

    /// Notes that the command was started in the foreground.
    pub(super) fn was_given(&mut self, group: Pid) {
        self.given = Some(group);
    }

    /// Passes the terminal to the command, if this process owns it.
    pub(super) fn give(&mut self, group: Pid) -> bool {
        let gives = self.is_ours() && tcsetpgrp(&self.file, group).is_ok();
        if gives {
            self.given = Some(group);
        }
        gives
    }

    /// Passes the terminal to the command as soon as this process owns it. Until then the kernel stops this process
    /// with its whole job. A check followed by a stop of our own could miss the shell's `fg` in between.
    pub(super) fn give_or_stop(&mut self, group: Pid) -> bool {
        let mask = SigSet::from(Signal::SIGTTOU);
        let gives = mask.thread_unblock().is_ok() && tcsetpgrp(&self.file, group).is_ok();
        let _ = mask.thread_block();
        if gives {
            self.given = Some(group);
        }
        gives
    }

    /// Takes the terminal back when the command is gone, and restores its settings: a killed command may have left it in
    /// another mode.
    pub(super) fn take_back(&mut self, killed: bool) {
        let Some(group) = self.given.take() else {
            return;
        };
        if tcgetpgrp(&self.file) == Ok(group) {
            let _ = tcsetpgrp(&self.file, getpgrp());
            if let Some(modes) = self.modes.as_ref().filter(|_| killed) {
                let _ = tcsetattr(&self.file, SetArg::TCSADRAIN, modes);
            }
        }
    }
}

/// Moves a process group to the foreground, from a process in the background.
pub(super) fn take(group: Pid) {
    if let Ok(file) = open() {
        let mask = SigSet::from(Signal::SIGTTOU);
        // With SIGTTOU blocked this is allowed; otherwise this process would stop. The command starts with no signal
        // blocked.
        let blocked = mask.thread_block();
        let _ = tcsetpgrp(&file, group);
        if blocked.is_ok() {
            let _ = mask.thread_unblock();
        }
    }
}

/// Blocks SIGTTOU, so that this process may take the terminal back from the background. Call this before there
/// are other threads.
pub(super) fn allow_to_take_it_back() -> nix::Result<()> {
    SigSet::from(Signal::SIGTTOU).thread_block()
}

fn open() -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).open("/dev/tty")
}
