//! The command that runs under a lease: its process group, its terminal, its end.

mod events;
mod group;
mod guard;
mod helper;
mod signals;
mod terminal;

pub(crate) use events::EventsPipe;
pub(crate) use group::{Change, Group, Ran, Start};
pub(crate) use helper::as_helper;
pub(crate) use signals::Signals;

use std::path::PathBuf;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use crate::exit::{Failure, INTERNAL};

/// Prepares this process, before it has threads. Orphans of the command become its children, so that it sees them end,
/// and it may take the terminal back from the command.
pub(crate) fn prepare() -> Result<(), Failure> {
    let failed = |error: nix::Error| Failure::new(INTERNAL, format!("preparing: {error}"));
    terminal::allow_to_take_it_back().map_err(failed)?;
    #[cfg(target_os = "linux")]
    nix::sys::prctl::set_child_subreaper(true).map_err(failed)?;
    Ok(())
}

/// Returns the path of this program, which works even if the file was replaced after the start.
fn this_program() -> std::io::Result<PathBuf> {
    if cfg!(target_os = "linux") {
        return Ok("/proc/self/exe".into());
    }
    std::env::current_exe()
}

/// Reads a clock that goes on while the machine sleeps, and that all processes share.
pub(crate) fn now() -> Duration {
    #[cfg(target_os = "linux")]
    let clock = ClockId::CLOCK_BOOTTIME;
    #[cfg(not(target_os = "linux"))]
    let clock = ClockId::CLOCK_MONOTONIC;
    clock_gettime(clock).map_or(Duration::ZERO, Duration::from)
}
