//! The terminal: whose it is, and handing it on.

use std::fs::{File, OpenOptions};
use std::io::IsTerminal;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};
use nix::unistd::{Pid, getpgrp, getsid, tcgetpgrp, tcsetpgrp};

/// The terminal that this process runs on.
#[derive(Debug)]
pub(super) struct Terminal {
    file: File,
    /// How it was set before the command had it.
    modes: Option<Termios>,
    /// To which process group it was handed.
    given: Option<Pid>,
}

impl Terminal {
    /// `None` if there is none, as under cron.
    pub(super) fn open() -> Option<Self> {
        let file = open().ok()?;
        let modes = tcgetattr(&file).ok();
        Some(Self {
            file,
            modes,
            given: None,
        })
    }

    /// Whether the command should have it from the beginning. In a pipeline another member may be using it
    /// (`… | less`), so there the command has to ask.
    pub(super) fn is_ours_alone(&self) -> bool {
        self.is_ours() && std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
    }

    /// Whether this process is in the foreground.
    pub(super) fn is_ours(&self) -> bool {
        tcgetpgrp(&self.file) == Ok(getpgrp())
    }

    /// Whether somebody continues this process if it stops: a shell with job control gives each job a process
    /// group of its own, and while it lives the terminal is not hung up.
    pub(super) fn has_job_control(&self) -> bool {
        let is_job = getsid(None).is_ok_and(|session| session != getpgrp());
        is_job && tcgetpgrp(&self.file).is_ok()
    }

    pub(super) fn is_given(&self) -> bool {
        self.given.is_some()
    }

    /// The command was started in the foreground.
    pub(super) fn was_given(&mut self, group: Pid) {
        self.given = Some(group);
    }

    /// Hands it to the command, if it is this process's to give.
    pub(super) fn give(&mut self, group: Pid) -> bool {
        let gives = self.is_ours() && tcsetpgrp(&self.file, group).is_ok();
        if gives {
            self.given = Some(group);
        }
        gives
    }

    /// Hands it to the command, as soon as it is this process's to give. Until then this process is stopped
    /// with its whole job: by the kernel, because between a look at the terminal and a stop of one's own the
    /// shell's `fg` could come, and go unnoticed.
    pub(super) fn give_or_stop(&mut self, group: Pid) -> bool {
        let mask = SigSet::from(Signal::SIGTTOU);
        let gives = mask.thread_unblock().is_ok() && tcsetpgrp(&self.file, group).is_ok();
        let _ = mask.thread_block();
        if gives {
            self.given = Some(group);
        }
        gives
    }

    /// Takes it back when the command is gone; one that was killed may have left it in a strange mode.
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

/// Makes a process group that of the foreground, from the background.
pub(super) fn take(group: Pid) {
    if let Ok(file) = open() {
        let mask = SigSet::from(Signal::SIGTTOU);
        // Blocked it may, as it would stop otherwise; the command begins with nothing blocked.
        let blocked = mask.thread_block();
        let _ = tcsetpgrp(&file, group);
        if blocked.is_ok() {
            let _ = mask.thread_unblock();
        }
    }
}

/// To be called before there are other threads.
pub(super) fn allow_to_take_it_back() -> nix::Result<()> {
    SigSet::from(Signal::SIGTTOU).thread_block()
}

fn open() -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).open("/dev/tty")
}
