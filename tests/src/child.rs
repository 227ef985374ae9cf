//! A child process that the test talks to line by line.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use crate::process;

/// Lines that the child may print before the test reads them.
const UNREAD_LIMIT: usize = 16_384;

/// A running program. Its standard error goes to that of the test.
///
/// Dropping the value kills the program, paused or not.
#[derive(Debug)]
pub struct Child {
    program: String,
    process: std::process::Child,
    lines: mpsc::Receiver<String>,
}

/// Starts contenders for one lock, half of them in Rust and half in JavaScript, and waits until each is
/// ready. Without the npm package all are in Rust.
pub async fn contenders(rust: &Path, args: &[&str], count: usize, limit: Duration) -> Vec<Child> {
    spawn_mixed((rust, Some("topologies/contender.mjs")), args, count, limit).await
}

/// Starts processes, every second one by a script in JavaScript if there is one, and waits until each is ready.
/// Without the npm package all are in Rust.
pub async fn spawn_mixed(
    (rust, script): (&Path, Option<&str>),
    args: &[&str],
    count: usize,
    limit: Duration,
) -> Vec<Child> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let has_node = tests.join("../bindings/node/dist/index.js").exists();
    if !has_node {
        println!("the npm package is not built: all processes are in Rust");
    }
    let script = script.filter(|_| has_node).map(|script| tests.join(script));
    let children = (0..count).map(|at| match &script {
        Some(script) if at % 2 == 1 => {
            let args = std::iter::once(script.clone()).chain(args.iter().map(PathBuf::from));
            Child::spawn(Path::new("node"), args)
        }
        _ => Child::spawn(rust, args),
    });
    let mut children: Vec<_> = children.collect();
    for child in &mut children {
        child.wait_line("ready", limit).await;
    }
    children
}

impl Child {
    /// Starts `program` with `args`.
    pub fn spawn<A: AsRef<OsStr>>(program: &Path, args: impl IntoIterator<Item = A>) -> Self {
        let name = program.display().to_string();
        let mut process = Command::new(program)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("starting {name}: {error}"));
        let stdout = process.stdout.take().expect("standard output is piped");
        let (sender, lines) = mpsc::channel(UNREAD_LIMIT);
        // The thread ends with the child, since that closes the pipe.
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if let Err(mpsc::error::TrySendError::Full(_)) = sender.try_send(line) {
                    eprintln!(
                        "a child has more than {UNREAD_LIMIT} unread lines: the rest is lost"
                    );
                    break;
                }
            }
        });
        Self {
            program: name,
            process,
            lines,
        }
    }

    /// Returns the next line that starts with `prefix`, and drops the lines before it.
    ///
    /// Panics with the lines that it read if none starts so within `limit`, or if the output ends first.
    pub async fn wait_line(&mut self, prefix: &str, limit: Duration) -> String {
        let end = Instant::now() + limit;
        let mut others = Vec::new();
        loop {
            match timeout_at(end, self.lines.recv()).await {
                Ok(Some(line)) if line.starts_with(prefix) => return line,
                Ok(Some(line)) => others.push(line),
                Ok(None) => panic!(
                    "{}: the output ended without a line \"{prefix}…\"; instead: {others:#?}",
                    self.program
                ),
                Err(elapsed) => panic!(
                    "{}: no line \"{prefix}…\" within {limit:?} ({elapsed}); instead: {others:#?}",
                    self.program
                ),
            }
        }
    }

    /// Writes a line to the child's standard input. Panics if the child has ended.
    pub fn write_line(&mut self, line: &str) {
        let stdin = self.process.stdin.as_mut();
        let stdin = stdin.expect("standard input is piped");
        writeln!(stdin, "{line}")
            .unwrap_or_else(|error| panic!("writing to {}: {error}", self.program));
    }

    /// Returns the lines that were printed so far and not read yet.
    pub fn unread_lines(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.lines.try_recv().ok()).collect()
    }

    /// Returns the process ID.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Stops the process (SIGSTOP) and returns once it has stopped.
    pub fn pause(&self) {
        process::pause(&self.process);
    }

    /// Continues the process (SIGCONT).
    pub fn resume(&self) {
        process::resume(&self.process);
    }

    /// Kills the process (SIGKILL) and waits until it has ended.
    pub fn kill9(&mut self) {
        process::kill(&mut self.process);
    }

    /// Waits until the process ends by itself. Returns true if it succeeded.
    ///
    /// Panics after `limit`.
    pub async fn wait_exit(&mut self, limit: Duration) -> bool {
        let process = &mut self.process;
        let what = format!("the end of {}", self.program);
        let status = crate::eventually(limit, &what, async || {
            process.try_wait().expect("the child can be waited for")
        });
        status.await.success()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        process::kill(&mut self.process);
    }
}
