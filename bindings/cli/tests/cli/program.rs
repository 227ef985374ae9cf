//! Programs under test: their output, line by line, and their ends.

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
/// Much more than anything here takes.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// `leasehold` without any settings of this environment.
pub(crate) fn leasehold<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Command {
    // A test that runs in the background of a script has SIGINT ignored.
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

/// `leasehold` with this server.
pub(crate) fn on<A: AsRef<OsStr>>(
    server: &RedisServer,
    args: impl IntoIterator<Item = A>,
) -> Command {
    let mut command = leasehold(args);
    command.env("LEASEHOLD_URL", server.url());
    command
}

/// What a program said and returned.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) took: Duration,
}

/// Runs a program to its end.
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

/// A program that runs. Dropping it kills it.
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

    /// The next line of the standard output that begins so, without its beginning.
    #[track_caller]
    pub(crate) fn line(&self, begin: &str) -> String {
        find(&self.out, |line| after(line, begin))
    }

    /// The next line of the standard output that has this in it.
    #[track_caller]
    pub(crate) fn line_with(&self, part: &str) -> String {
        find(&self.out, |line| {
            line.contains(part).then(|| line.to_owned())
        })
    }

    /// The same of the standard error.
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

    /// Its end; `None` for a signal's.
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

/// A process group that a test looks at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessGroup(Pid);

impl ProcessGroup {
    /// Of the leader with this id.
    pub(crate) fn of(id: &str) -> Self {
        Self(pid(id.parse().expect("an id of a process")))
    }

    /// Whether anybody of it can still do something: one that has ended, and whose parent has not looked
    /// yet, cannot.
    pub(crate) fn is_alive(self) -> bool {
        let processes = std::fs::read_dir("/proc").expect("this is Linux");
        processes.flatten().any(|process| self.has(&process.path()))
    }

    /// The same of the command itself.
    pub(crate) fn has_leader(self) -> bool {
        self.has(format!("/proc/{}", self.0).as_ref())
    }

    fn has(self, process: &Path) -> bool {
        let stat = std::fs::read_to_string(process.join("stat")).unwrap_or_default();
        // The name of the program, in brackets, may have anything in it.
        let fields = stat.rsplit_once(')').map(|(_, fields)| fields);
        let mut fields = fields.unwrap_or_default().split_whitespace();
        let (state, group) = (fields.next(), fields.nth(1));
        !matches!(state, Some("Z" | "X")) && group == Some(&self.0.to_string())
    }

    /// When the last of it was gone, by the wall clock, as the server counts expiries.
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

/// The wall clock.
pub(crate) fn wall() -> Duration {
    SystemTime::UNIX_EPOCH.elapsed().expect("past 1970")
}

/// When the lock expires at the server.
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
