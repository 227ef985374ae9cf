//! Counts a program's instructions with valgrind.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::Result;

/// A program that valgrind runs. Dropping it ends the program.
pub(crate) struct Counted {
    child: Child,
    folder: TempDir,
}

impl Counted {
    /// Starts a program in a folder of its own and counts its instructions: all, or only those of functions
    /// with this name and their callees.
    pub(crate) fn start(
        program: impl AsRef<OsStr>,
        args: &[&str],
        only: Option<&str>,
    ) -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("leasehold-costs-")
            .tempdir()?;
        let log = File::create(folder.path().join("log"))?;
        let mut valgrind = Command::new("valgrind");
        valgrind.args(["--tool=callgrind", "--callgrind-out-file=counts"]);
        if let Some(pattern) = only {
            valgrind.args([
                "--collect-atstart=no",
                &format!("--toggle-collect={pattern}"),
            ]);
        }
        let child = valgrind
            .arg(program)
            .args(args)
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .map_err(|error| format!("starting valgrind: {error}"))?;
        Ok(Self { child, folder })
    }

    /// Returns a path in the program's folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns true if the program has not ended yet.
    pub(crate) fn is_running(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// Returns what the program has printed.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Waits for the end of the program. Returns the number of instructions, and what the program printed.
    pub(crate) fn instructions(mut self) -> Result<(f64, String)> {
        let status = self.child.wait()?;
        if !status.success() {
            return Err(format!("valgrind ended with {status}: {}", self.log()).into());
        }
        let counts = fs::read_to_string(self.path("counts"))?;
        let total = counts
            .lines()
            .find_map(|line| line.strip_prefix("totals: "));
        let total = total.ok_or("callgrind wrote no totals")?;
        Ok((total.trim().parse()?, self.log()))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        // The program has ended if its instructions were read.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
