//! Runs commands, and shows them as one would type them.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// How long a command's output may stay open and silent after the command has ended.
const OPEN_OUTPUT_LIMIT: Duration = Duration::from_secs(5);
/// How often a silent command is checked for its end.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// The number of lines that may be read ahead of the one being passed on.
const LINES_AHEAD: usize = 256;

/// A command that runs in the root of the repository or a folder of it.
#[derive(Debug, Clone)]
pub(crate) struct Cmd {
    env: Vec<(String, String)>,
    program: String,
    args: Vec<String>,
    /// The folder, relative to the root; empty for the root itself.
    folder: String,
}

impl Cmd {
    /// Makes a command without arguments. The program's path may have spaces.
    pub(crate) fn new(program: &str) -> Self {
        Self {
            env: Vec::new(),
            program: program.to_owned(),
            args: Vec::new(),
            folder: String::new(),
        }
    }

    /// Makes a command from a line as one types it: only text between single quotes has spaces.
    pub(crate) fn line(line: &str) -> Self {
        let parts = line.split('\'').enumerate();
        let mut words = parts.flat_map(|(at, part)| match at % 2 {
            0 => part.split_whitespace().collect(),
            _ => vec![part],
        });
        Self::new(words.next().unwrap_or_default()).args(words)
    }

    /// Adds arguments, which may have spaces.
    pub(crate) fn args<T: AsRef<str>>(mut self, args: impl IntoIterator<Item = T>) -> Self {
        let args = args.into_iter().map(|arg| arg.as_ref().to_owned());
        self.args.extend(args);
        self
    }

    pub(crate) fn with_env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn with_envs(self, variables: &[(&str, &str)]) -> Self {
        let variables = variables.iter();
        variables.fold(self, |cmd, (name, value)| cmd.with_env(name, value))
    }

    pub(crate) fn at(mut self, folder: &str) -> Self {
        folder.clone_into(&mut self.folder);
        self
    }

    /// Returns the same command, run by sudo if it asks for no password.
    pub(crate) fn by_sudo(self) -> Self {
        let variables = self
            .env
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        let sudo = Self::line("sudo -n env").args(variables);
        sudo.args([self.program]).args(self.args)
    }

    /// Runs it on this terminal.
    pub(crate) fn run(&self) -> Result<()> {
        let status = self
            .command()
            .status()
            .with_context(|| self.not_started())?;
        ensure!(status.success(), "`{self}` failed ({status})");
        Ok(())
    }

    /// Runs it without output. Returns its standard output, or `None` if it failed or does not exist.
    pub(crate) fn probe(&self) -> Option<String> {
        let output = self.command().stdin(Stdio::null()).output().ok()?;
        output
            .status
            .success()
            .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs it without output. Returns its standard output.
    pub(crate) fn read(&self) -> Result<String> {
        self.probe().with_context(|| format!("`{self}` failed"))
    }

    /// Runs it without a terminal. Passes each line that it prints, with its line end, to `on_line`.
    pub(crate) fn run_and_read(&self, mut on_line: impl FnMut(&str)) -> Result<()> {
        let (output, input) = io::pipe()?;
        let mut child = self
            .command()
            .stdin(Stdio::null())
            .stdout(input.try_clone()?)
            .stderr(input)
            .spawn()
            .with_context(|| self.not_started())?;
        let (sender, lines) = sync_channel(LINES_AHEAD);
        std::thread::spawn(move || send_lines(output, &sender));
        let ended = copy_lines(
            &lines,
            OPEN_OUTPUT_LIMIT,
            || Ok(child.try_wait()?.is_some()),
            &mut on_line,
        );
        if let Err(error) = ended {
            // The child may still run if asking for its state failed.
            let _ = child.kill();
            return Err(error.context(format!("`{self}`")));
        }
        let status: ExitStatus = child.wait()?;
        ensure!(status.success(), "`{self}` failed ({status})");
        Ok(())
    }

    fn not_started(&self) -> String {
        format!("could not start `{}`", self.program)
    }

    fn command(&self) -> Command {
        let (program, args) = match &self.args[..] {
            // This program itself: cargo would first wait for another build.
            [first, args @ ..] if self.program == "cargo" && first == "xtask" => {
                (std::env::current_exe().ok(), args)
            }
            // The cargo that runs this task.
            args if self.program == "cargo" => (std::env::var_os("CARGO").map(PathBuf::from), args),
            args => (None, args),
        };
        let mut command = Command::new(program.unwrap_or_else(|| (&self.program).into()));
        // Build scripts such as ring's read the variables that cargo sets for this program's package. They
        // would run again after each command that was typed by hand meanwhile.
        for name in std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()) {
            if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
                command.env_remove(name);
            }
        }
        command
            .args(args)
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .current_dir(root().join(&self.folder));
        command
    }
}

impl fmt::Display for Cmd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.folder.is_empty() {
            write!(f, "cd {} && ", quoted(&self.folder))?;
        }
        for (name, value) in &self.env {
            write!(f, "{name}={} ", quoted(value))?;
        }
        f.write_str(&self.program)?;
        self.args
            .iter()
            .try_for_each(|arg| write!(f, " {}", quoted(arg)))
    }
}

/// Returns the root of the repository.
pub(crate) fn root() -> PathBuf {
    // `cargo run` sets the variable; the other path is for a binary that is started by hand.
    let xtask = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    xtask
        .parent()
        .map_or_else(|| PathBuf::from("."), PathBuf::from)
}

/// Returns the folder in which cargo builds.
pub(crate) fn target() -> PathBuf {
    let chosen = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    root().join(chosen)
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

fn send_lines(from: impl Read, to: &SyncSender<Vec<u8>>) {
    let mut from = BufReader::new(from);
    loop {
        let mut line = Vec::new();
        match from.read_until(b'\n', &mut line) {
            Ok(1..) if to.send(line).is_ok() => {}
            _ => return,
        }
    }
}

/// Passes the lines on until they end, or until a limit after the command's end: a process that a test left
/// behind may keep the output open for ever.
fn copy_lines(
    lines: &Receiver<Vec<u8>>,
    limit: Duration,
    mut has_ended: impl FnMut() -> Result<bool>,
    on_line: &mut impl FnMut(&str),
) -> Result<()> {
    let mut ended_at = None;
    loop {
        match lines.recv_timeout(POLL_INTERVAL) {
            Ok(line) => on_line(&String::from_utf8_lossy(&line)),
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Err(RecvTimeoutError::Timeout) if ended_at.is_none() => {
                ended_at = has_ended()?.then(Instant::now);
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        if ended_at.is_some_and(|at| at.elapsed() > limit) {
            bail!("the command ended and left a process behind that holds its output open");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;
    use std::time::Duration;

    use super::{Cmd, copy_lines};

    #[test]
    fn a_command_is_shown_as_one_would_type_it() {
        let cmd = Cmd::line("cargo doc --no-deps").with_env("RUSTDOCFLAGS", "-D warnings");
        assert_eq!(
            cmd.to_string(),
            "RUSTDOCFLAGS='-D warnings' cargo doc --no-deps"
        );
        assert_eq!(
            Cmd::line("sh -c").args(["it's"]).to_string(),
            r"sh -c 'it'\''s'"
        );
    }

    #[test]
    fn lines_are_read_and_failures_reported() {
        let mut lines = Vec::new();
        let cmd = Cmd::line("sh -c 'echo one; printf two >&2'");
        cmd.run_and_read(|line| lines.push(line.trim_end().to_owned()))
            .expect("the command exits with 0");
        assert_eq!(lines, ["one", "two"]);

        let cmd = Cmd::line("sh -c 'exit 3'");
        let error = cmd
            .run_and_read(|_| {})
            .expect_err("the command exits with 3");
        assert!(error.to_string().contains("exit 3"), "{error}");
    }

    #[test]
    fn a_process_left_behind_is_a_failure_and_not_a_hang() {
        let (sender, lines) = sync_channel(1);
        let copy = || copy_lines(&lines, Duration::ZERO, || Ok(true), &mut |_| {});
        let error = copy().expect_err("the output is still open");
        assert!(
            error.to_string().contains("left a process behind"),
            "{error}"
        );
        drop(sender);
        copy().expect("the output is closed");
    }

    /// Catches crates that are rebuilt because the earlier command did not run in xtask.
    #[test]
    fn a_command_does_not_see_the_package_of_this_program() {
        assert!(std::env::var("CARGO_PKG_NAME").is_ok());
        let seen = Cmd::line("env").probe().expect("env exists");
        assert!(
            !seen.contains("CARGO_PKG_") && !seen.contains("CARGO_MANIFEST_"),
            "{seen}"
        );
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = Cmd::line("no-such-program")
            .run()
            .expect_err("the program does not exist");
        assert!(error.to_string().contains("no-such-program"), "{error}");
        assert_eq!(Cmd::line("no-such-program").probe(), None);
    }
}
