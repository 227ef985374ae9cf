//! Programs under test: their output, line by line, and their exit codes.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use leasehold_tests::{Admin, RedisServer, eventually};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

pub(crate) const LEASEHOLD: &str = env!("CARGO_BIN_EXE_leasehold");
/// The time limit of each step: much longer than any takes.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// Returns the command `leasehold`, without the settings in this environment.
pub(crate) fn leasehold<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Command {
    // In the background of a script, SIGINT is ignored.
    let mut command = Command::new("env");
    command.args(["--default-signal=INT,QUIT,HUP,TERM", LEASEHOLD]);
    for name in [
        "URL",
        "PASSWORD",
        "PASSWORD_FILE",
        "NAMESPACE",
        "LONGEST_TTL",
    ] {
        command.env_remove(format!("LEASEHOLD_{name}"));
    }
    command.args(args);
    command
}

/// Returns the command `leasehold` for this server.
pub(crate) fn on<A: AsRef<OsStr>>(
    server: &RedisServer,
    args: impl IntoIterator<Item = A>,
) -> Command {
    let mut command = leasehold(args);
    command.env("LEASEHOLD_URL", server.url());
    command
}

/// The output and exit code of a program.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) took: Duration,
}

/// Runs a program to its end, and returns its output.
pub(crate) fn output(mut command: Command) -> Output {
    let start = Instant::now();
    let output = command.stdin(Stdio::null()).output().expect("it starts");
    Output {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).expect("text"),
        stderr: String::from_utf8(output.stderr).expect("text"),
        took: start.elapsed(),
    }
}

/// A running program. Dropping it kills it.
pub(crate) struct Program {
    child: Child,
    stdin: Option<ChildStdin>,
    out: Receiver<String>,
    err: Receiver<String>,
}

impl Program {
    pub(crate) fn spawn(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let out = lines(child.stdout.take().expect("it is piped"));
        let err = lines(child.stderr.take().expect("it is piped"));
        let stdin = child.stdin.take();
        Self {
            child,
            stdin,
            out,
            err,
        }
    }

    /// Returns the next line of the standard output with this beginning, without the beginning.
    #[track_caller]
    pub(crate) fn line(&self, begin: &str) -> String {
        find(&self.out, |line| after(line, begin))
    }

    /// Returns the next line of the standard output that contains this part.
    #[track_caller]
    pub(crate) fn line_with(&self, part: &str) -> String {
        find(&self.out, |line| {
            line.contains(part).then(|| line.to_owned())
        })
    }

    /// Returns the next line of the standard error with this beginning, without the beginning.
    #[track_caller]
    pub(crate) fn error_line(&self, begin: &str) -> String {
        find(&self.err, |line| after(line, begin))
    }

    pub(crate) fn unread_errors(&self) -> Vec<String> {
        self.err.try_iter().collect()
    }

    pub(crate) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    pub(crate) fn pid(&self) -> Pid {
        pid(self.child.id())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("it runs");
    }

    /// Waits for the program's end, and returns its exit code; `None` if a signal ended it.
    pub(crate) async fn code(&mut self) -> Option<i32> {
        let child = &mut self.child;
        let end = eventually(LIMIT, "the end of the program", async || {
            child.try_wait().expect("it can be waited for")
        });
        end.await.code()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn pid(id: u32) -> Pid {
    Pid::from_raw(i32::try_from(id).expect("an id of a process"))
}

fn lines(from: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    lines
}

fn after(line: &str, begin: &str) -> Option<String> {
    line.strip_prefix(begin).map(|rest| rest.trim().to_owned())
}

#[track_caller]
fn find(lines: &Receiver<String>, wanted: impl Fn(&str) -> Option<String>) -> String {
    let end = Instant::now() + LIMIT;
    let mut others = Vec::new();
    loop {
        match lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(line) => match wanted(&line) {
                Some(found) => return found,
                None => others.push(line),
            },
            Err(RecvTimeoutError::Timeout) => panic!("the line did not come: {others:#?}"),
            Err(RecvTimeoutError::Disconnected) => {
                panic!("the output ended without the line: {others:#?}")
            }
        }
    }
}

/// A process group that a test observes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessGroup(Pid);

impl ProcessGroup {
    /// Returns the group whose leader has this ID.
    pub(crate) fn of(id: &str) -> Self {
        Self(pid(id.parse().expect("an id of a process")))
    }

    /// Returns true if any process of the group can still act. A zombie cannot.
    pub(crate) fn is_alive(self) -> bool {
        let processes = std::fs::read_dir("/proc").expect("this is Linux");
        processes.flatten().any(|process| self.has(&process.path()))
    }

    /// Returns true if the command itself can still act.
    pub(crate) fn has_leader(self) -> bool {
        self.has(format!("/proc/{}", self.0).as_ref())
    }

    fn has(self, process: &Path) -> bool {
        let stat = std::fs::read_to_string(process.join("stat")).unwrap_or_default();
        // The program's name, in parentheses, may contain any characters.
        let fields = stat.rsplit_once(')').map(|(_, fields)| fields);
        let mut fields = fields.unwrap_or_default().split_whitespace();
        let (state, group) = (fields.next(), fields.nth(1));
        !matches!(state, Some("Z" | "X")) && group == Some(&self.0.to_string())
    }

    /// Waits until the group is gone. Returns when, by the wall clock, which the server's expiries use.
    pub(crate) async fn gone_at(self) -> Duration {
        let gone = eventually(LIMIT, "the end of the process group", async || {
            (!self.is_alive()).then(wall)
        });
        gone.await
    }

    pub(crate) fn kill(self) {
        let _ = killpg(self.0, Signal::SIGKILL);
    }
}

/// Returns the wall clock's time since 1970.
pub(crate) fn wall() -> Duration {
    SystemTime::UNIX_EPOCH.elapsed().expect("past 1970")
}

/// Returns when the lock expires at the server.
pub(crate) async fn expiry(server: &RedisServer, name: &str) -> Duration {
    let mut admin = Admin::connect(server).await;
    let tenure = admin.tenure(&key(name)).await;
    tenure.expect("it is held").expires
}

pub(crate) async fn is_held(server: &RedisServer, name: &str) -> bool {
    Admin::connect(server)
        .await
        .tenure(&key(name))
        .await
        .is_some()
}

pub(crate) fn key(name: &str) -> String {
    format!("{{leasehold:{name}}}")
}
