//! The client processes of a round.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::client::Settings;
use crate::command::{self, Present};

/// The kind of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// A process of this crate.
    Rust,
    /// `client.mjs`.
    Node,
    /// `leasehold run`.
    Command,
}

impl Language {
    /// Returns its name in histories.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rust => "rust",
            Self::Node => "node",
            Self::Command => "command",
        }
    }
}

/// The programs that clients run.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The program of this crate.
    pub faults: PathBuf,
    /// The command `leasehold`.
    pub leasehold: PathBuf,
    /// The client in JavaScript.
    pub node: PathBuf,
}

impl Programs {
    /// Finds the programs beside the program of this crate, and the npm package. An error names what is missing and how
    /// to build it.
    pub fn find(faults: &Path) -> io::Result<Self> {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
        let programs = Self {
            faults: faults.to_owned(),
            leasehold: faults.with_file_name("leasehold"),
            node: tests.join("client.mjs"),
        };
        let package = tests.join("../../bindings/node/dist/index.js");
        for (path, build) in [
            (&programs.leasehold, "cargo build -p leasehold-cli"),
            (&package, "cargo xtask package"),
        ] {
            if !path.exists() {
                let text = format!("{} is not built; run `{build}`", path.display());
                return Err(io::Error::new(io::ErrorKind::NotFound, text));
            }
        }
        Ok(programs)
    }
}

/// A client, whose process may be killed, stopped, and started again.
#[derive(Debug)]
pub struct Client {
    language: Language,
    settings: Settings,
    programs: Programs,
    starts: u64,
    present: Present,
    /// The loop of a command.
    task: Option<JoinHandle<()>>,
}

impl Client {
    /// Starts a client.
    pub fn start(language: Language, settings: Settings, programs: Programs) -> io::Result<Self> {
        let mut client = Self {
            language,
            settings,
            programs,
            starts: 0,
            present: Present::default(),
            task: None,
        };
        client.launch()?;
        Ok(client)
    }

    /// Returns the name of the client, without the number of the process.
    pub fn name(&self) -> &str {
        &self.settings.client
    }

    /// Starts a process if none runs. A command starts by itself.
    pub fn launch(&mut self) -> io::Result<()> {
        let mut settings = self.settings.clone();
        settings.client = format!("{}.{}", settings.client, self.starts);
        settings.seed = settings.seed.wrapping_add(self.starts << 32);
        if self.language == Language::Command {
            if self.task.is_none() {
                let programs = self.programs.clone();
                self.task = Some(tokio::spawn(command::repeat(
                    settings,
                    programs,
                    self.present.clone(),
                )));
            }
            return Ok(());
        }
        let mut present = lock(&self.present);
        if present.is_some() {
            return Ok(());
        }
        self.starts += 1;
        let text = serde_json::to_string(&settings)?;
        let mut command = if self.language == Language::Node {
            let mut command = Command::new("node");
            command.arg(&self.programs.node);
            command
        } else {
            let mut command = Command::new(&self.programs.faults);
            command.arg("client");
            command
        };
        let child = command
            .arg(text)
            .stdin(Stdio::piped())
            .stdout(Stdio::null());
        *present = Some(child.spawn()?);
        Ok(())
    }

    /// Stops the process (SIGSTOP). Returns false if none runs.
    pub fn pause(&self) -> bool {
        self.signal(Signal::STOP)
    }

    /// Continues the process (SIGCONT).
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills the process (SIGKILL). Returns false if none runs.
    pub fn kill(&self) -> bool {
        if self.language == Language::Command {
            // The loop reaps it, and starts the next.
            return self.signal(Signal::KILL);
        }
        let child = lock(&self.present).take();
        child.is_some_and(|mut child| {
            let killed = child.kill().is_ok();
            drop(child.wait());
            killed
        })
    }

    /// Sends a signal. The process is not reaped yet, so its ID is its own.
    fn signal(&self, signal: Signal) -> bool {
        let child = lock(&self.present);
        child
            .as_ref()
            .is_some_and(|child| kill_process(Pid::from_child(child), signal).is_ok())
    }

    /// Lets the client finish its turn, and ends it after this time. Returns true if it ended by itself.
    pub async fn end(&mut self, limit: Duration) -> bool {
        if let Some(task) = self.task.take() {
            task.abort();
            // An aborted loop no longer starts a process.
            drop(task.await);
        }
        if let Some(child) = &mut *lock(&self.present) {
            drop(child.stdin.take());
        }
        let end = Instant::now() + limit;
        while Instant::now() < end {
            if let Some(child) = &mut *lock(&self.present) {
                if matches!(child.try_wait(), Ok(None)) {
                    // Continue below, without the lock.
                } else {
                    return true;
                }
            } else {
                return true;
            }
            sleep(Duration::from_millis(10)).await;
        }
        false
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
        if let Some(mut child) = lock(&self.present).take() {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

fn lock(present: &Mutex<Option<Child>>) -> std::sync::MutexGuard<'_, Option<Child>> {
    present.lock().unwrap_or_else(PoisonError::into_inner)
}
