//! The second judge: Porcupine, a program in Go.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The program, once it is built.
#[derive(Clone, Debug)]
pub struct Porcupine(PathBuf);

/// The verdict of Porcupine.
#[derive(Clone, Debug)]
pub struct Judged {
    /// True if the history of each name is linearizable.
    pub is_ok: bool,
    /// True if the history of a name is certainly not linearizable. Otherwise the search may have taken too long.
    pub is_refused: bool,
    /// A line for each name: the name, its operations, and `Ok`, `Illegal` or `Unknown`.
    pub lines: Vec<String>,
}

impl Porcupine {
    /// Builds the program in this folder. Go fetches the version of Porcupine that `go.sum` pins.
    pub fn build(folder: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        let program = folder.canonicalize()?.join("porcupine");
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("porcupine");
        let mut go = Command::new("go");
        go.args(["build", "-mod=readonly", "-o"])
            .arg(&program)
            .arg(".");
        let status = go.current_dir(sources).status().map_err(|error| {
            let text = format!(
                "could not start `go`, which builds Porcupine: {error}; install Go 1.23 or newer"
            );
            io::Error::new(error.kind(), text)
        })?;
        if !status.success() {
            return Err(io::Error::other(format!(
                "`go build` of Porcupine failed ({status})"
            )));
        }
        Ok(Self(program))
    }

    /// Judges a history. If it is refused, the report shows where.
    pub fn judge(&self, history: &Path, report: &Path) -> io::Result<Judged> {
        let output = Command::new(&self.0).args([history, report]).output()?;
        let lines = String::from_utf8_lossy(&output.stdout);
        let lines: Vec<_> = lines.lines().map(str::to_owned).collect();
        match output.status.code() {
            Some(code @ 0..=2) if !lines.is_empty() => Ok(Judged {
                is_ok: code == 0,
                is_refused: code == 1,
                lines,
            }),
            _ => {
                let text = String::from_utf8_lossy(&output.stderr);
                Err(io::Error::other(format!(
                    "Porcupine could not judge {}: {text}",
                    history.display()
                )))
            }
        }
    }
}
