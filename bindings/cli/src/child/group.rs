//! The command's process group, from its start until its last process is gone.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpgrp, getpid};

use super::events::EventsPipe;
use super::guard::Guard;
use super::helper::{EXEC, WITH_TERMINAL, WITHOUT_TERMINAL};
use super::terminal::Terminal;
use super::this_program;
use crate::exit::{BY_SIGNAL, Failure, INTERNAL};

/// The command to start, and its environment.
#[derive(Debug)]
pub(crate) struct Start<'a> {
    /// The name of the lock, shown in lists of processes.
    pub(crate) name: &'a str,
    pub(crate) command: &'a [OsString],
    /// Variables to set, and without a value to remove.
    pub(crate) environment: Vec<(&'static str, Option<String>)>,
    pub(crate) events: &'a EventsPipe,
}

/// How the command ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ran {
    Exited(u8),
    Killed(Signal),
}

impl Ran {
    /// Returns the exit code as a shell's `$?` would show it.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Exited(code) => code,
            Self::Killed(signal) => u8::try_from(signal as i32)
                .ok()
                .and_then(|number| BY_SIGNAL.checked_add(number))
                .unwrap_or(u8::MAX),
        }
    }
}

/// How a signal was handled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    /// The signal was for this process: a child ended or stopped, or this process was continued.
    Here,
    /// The command got the signal.
    HandedOn(Signal),
}

/// The process group of a running command.
#[derive(Debug)]
pub(crate) struct Group {
    id: Pid,
    ran: Option<Ran>,
    guard: Guard,
    terminal: Option<Terminal>,
}

impl Group {
    /// Starts the command. Call this on the main thread: the command is killed when the calling thread ends.
    pub(crate) fn start(start: &Start<'_>) -> Result<Self, Failure> {
        Self::try_start(start)
            .map_err(|error| Failure::new(INTERNAL, format!("starting a process: {error}")))
    }

    fn try_start(start: &Start<'_>) -> io::Result<Self> {
        let mut guard = Guard::start(start.name)?;
        let mut terminal = Terminal::open();
        let gives = terminal.as_ref().is_some_and(Terminal::is_ours_alone);
        start.events.inherit(true)?;
        let mut command = Command::new(this_program()?);
        for (name, value) in &start.environment {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let child = command
            .arg0(EXEC)
            .arg(getpid().to_string())
            .arg(if gives {
                WITH_TERMINAL
            } else {
                WITHOUT_TERMINAL
            })
            .args(start.command)
            .process_group(0)
            .spawn();
        start.events.inherit(false)?;
        let id = i32::try_from(child?.id()).map_err(io::Error::other)?;
        let id = Pid::from_raw(id);
        guard.group(id);
        if let Some(terminal) = terminal.as_mut().filter(|_| gives) {
            terminal.was_given(id);
        }
        Ok(Self {
            id,
            ran: None,
            guard,
            terminal,
        })
    }

    /// Returns how the command ended, if it has. Other processes of its group may still run.
    pub(crate) fn ran(&mut self) -> Option<Ran> {
        self.reap();
        self.ran
    }

    /// Returns true if any process of the group is left.
    pub(crate) fn is_alive(&mut self) -> bool {
        self.reap();
        killpg(self.id, None) != Err(Errno::ESRCH)
    }

    /// Sets the time after which the guard kills the group. A later call replaces it.
    pub(crate) fn may_live_until(&mut self, at: Option<Duration>) {
        self.guard.until(at);
    }

    /// Handles a signal to this process.
    pub(crate) fn take(&mut self, signal: Signal) -> Change {
        match signal {
            Signal::SIGCHLD => self.reap(),
            Signal::SIGCONT => self.go_on(),
            signal => {
                self.signal(signal);
                return Change::HandedOn(signal);
            }
        }
        Change::Here
    }

    /// Sends SIGTERM to the whole group, and continues stopped processes so that they receive it.
    pub(crate) fn ask_to_end(&self) {
        self.signal(Signal::SIGTERM);
        self.signal(Signal::SIGCONT);
    }

    /// Kills the whole group. Returns false if this user has no permission to.
    pub(crate) fn kill(&self) -> bool {
        killpg(self.id, Signal::SIGKILL) != Err(Errno::EPERM)
    }

    fn signal(&self, signal: Signal) {
        // An error means that the group is empty, or that this user has no permission.
        let _ = killpg(self.id, signal);
    }

    fn reap(&mut self) {
        let flags = WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED;
        loop {
            match waitpid(None, Some(flags)) {
                Ok(WaitStatus::Exited(process, code)) if process == self.id => {
                    self.ran = Some(Ran::Exited(u8::try_from(code & 0xff).unwrap_or(u8::MAX)));
                }
                Ok(WaitStatus::Signaled(process, signal, _)) if process == self.id => {
                    self.ran = Some(Ran::Killed(signal));
                }
                Ok(WaitStatus::Stopped(process, signal)) if process == self.id => {
                    self.has_stopped(signal);
                }
                Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return,
                // Another child, such as the guard or an orphan of the command; or a signal interrupted the call.
                Ok(_) | Err(_) => {}
            }
        }
    }

    /// Handles a stop of the command. Under a shell the whole job stops; otherwise nobody would continue it.
    fn has_stopped(&mut self, signal: Signal) {
        let Some(terminal) = &mut self.terminal else {
            return;
        };
        let wants_terminal = matches!(signal, Signal::SIGTTIN | Signal::SIGTTOU);
        if wants_terminal && terminal.give_or_stop(self.id) {
            return self.signal(Signal::SIGCONT);
        }
        if !terminal.has_job_control() {
            if signal != Signal::SIGSTOP {
                self.signal(Signal::SIGCONT);
            }
            return;
        }
        // Not SIGTSTP: this process would receive that when it goes on, and pass it on once more.
        let _ = killpg(getpgrp(), Signal::SIGSTOP);
    }

    fn go_on(&mut self) {
        if let Some(terminal) = &mut self.terminal {
            // After `fg` the terminal belongs to this process, which passes it on. After `bg` it is the shell's.
            if terminal.is_given() {
                terminal.give(self.id);
            }
        }
        self.signal(Signal::SIGCONT);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.guard.done();
        let killed = matches!(self.ran, Some(Ran::Killed(_)));
        if let Some(terminal) = &mut self.terminal {
            terminal.take_back(killed);
        }
        // Happens only if an error follows the start of the command.
        if self.ran.is_none() {
            let _ = kill(self.id, Signal::SIGKILL);
        }
    }
}
