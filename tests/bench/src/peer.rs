//! The program of a side, which takes commands line by line: see `peers/README.md`.

use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::Result;
use crate::languages::Program;

/// Longer than a side takes for anything, including its end with many waiters.
const LIMIT: Duration = Duration::from_secs(45);

/// A running program. Dropping it ends the program.
pub(crate) struct Process {
    name: &'static str,
    /// The version that the program reports.
    pub(crate) version: String,
    pub(crate) child: Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts a side on the servers at these ports.
    pub(crate) async fn start(program: &Program, ports: &str) -> Result<Self> {
        let name = program.name;
        let [command, args @ ..] = &program.command[..] else {
            return Err(format!("{name} has no command").into());
        };
        let mut child = Command::new(command)
            .args(args)
            .args([ports, program.argument])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("starting {name}: {error}"))?;
        let piped = "its input and output are piped";
        let input = child.stdin.take().ok_or(piped)?;
        let lines = BufReader::new(child.stdout.take().ok_or(piped)?).lines();
        let version = String::new();
        let mut process = Self {
            name,
            version,
            child,
            input,
            lines,
        };
        let ready = process.read().await?;
        let version = ready["ready"].as_str().ok_or("a side says its version")?;
        version.clone_into(&mut process.version);
        Ok(process)
    }

    /// Sends a command, and reads the result; `None` if the side cannot do it.
    pub(crate) async fn tell(&mut self, work: &str) -> Result<Option<Value>> {
        self.input.write_all(format!("{work}\n").as_bytes()).await?;
        let done = self.read().await?;
        Ok(done.get("cannot").is_none().then_some(done))
    }

    /// Returns the next line that the program prints.
    pub(crate) async fn read(&mut self) -> Result<Value> {
        let line = timeout(LIMIT, self.lines.next_line()).await;
        let line = line.map_err(|_| format!("{} said nothing for {LIMIT:?}", self.name))?;
        let line = line?.ok_or_else(|| format!("{} has ended", self.name))?;
        Ok(serde_json::from_str(&line)?)
    }
}

/// Returns a number from a program's output.
pub(crate) fn number(done: &Value, field: &str) -> Result<f64> {
    let number = done[field].as_f64();
    Ok(number.ok_or_else(|| format!("no {field} in {done}"))?)
}
