//! An interactive shell on a pseudo-terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::pty::openpty;
use nix::unistd::{Pid, tcgetpgrp};

use crate::program::{LEASEHOLD, LIMIT};

/// An interactive shell with job control. Dropping it ends all programs on its terminal.
pub(crate) struct Shell {
    bash: Child,
    keyboard: File,
    screen: Receiver<u8>,
    /// The output after the last text that was found.
    shown: String,
    attempts: u32,
}

const ATTEMPTS: u32 = 40;

impl Shell {
    /// Starts a shell in which `$L` is the program, with the store's URL in its environment.
    pub(crate) fn start(url: &str) -> Self {
        let pair = openpty(None, None).expect("a pseudo-terminal");
        let keyboard = File::from(pair.master);
        let terminal = File::from(pair.slave);
        let end = || terminal.try_clone().expect("another end");
        let bash = Command::new("setsid")
            .args(["--ctty", "env", "--default-signal=INT,QUIT,HUP,TERM"])
            .args(["bash", "--norc", "--noediting", "-i"])
            .env("LEASEHOLD_URL", url)
            .env("L", LEASEHOLD)
            .env("PS1", "")
            .env("TERM", "dumb")
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .expect("setsid and bash are there");
        let screen = read(keyboard.try_clone().expect("another end"));
        let mut shell = Self {
            bash,
            keyboard,
            screen,
            shown: String::new(),
            attempts: 0,
        };
        // The terminal echoes typed text, so an expected text is never typed whole.
        shell.types("stty -echo; echo rea''dy\n");
        shell.sees("ready");
        shell
    }

    pub(crate) fn types(&mut self, keys: &str) {
        self.keyboard
            .write_all(keys.as_bytes())
            .expect("the terminal is there");
    }

    /// Waits until a job has the terminal. The shell prints a job's command before it hands the terminal over,
    /// and the effect of a control key depends on who has the terminal.
    pub(crate) fn hands_over(&self) {
        self.waits_for_terminal("a job's", |shell, foreground| foreground != shell);
    }

    /// Waits until the shell has the terminal again.
    pub(crate) fn has_it_back(&self) {
        self.waits_for_terminal("the shell's", |shell, foreground| foreground == shell);
    }

    fn waits_for_terminal(&self, whose: &str, wanted: impl Fn(Pid, Pid) -> bool) {
        let id = i32::try_from(self.bash.id()).expect("an id of a process");
        let end = Instant::now() + LIMIT;
        // There is no event when the terminal gets another foreground group.
        while !tcgetpgrp(&self.keyboard).is_ok_and(|group| wanted(Pid::from_raw(id), group)) {
            let shown = &self.shown;
            assert!(Instant::now() < end, "the terminal is not {whose}: {shown}");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits for a text in the output after the last one found, and returns the output between the two.
    pub(crate) fn sees(&mut self, text: &str) -> String {
        let seen = self.sees_within(text, LIMIT);
        seen.unwrap_or_else(|| panic!("{text:?} is not on the screen: {}", self.shown))
    }

    /// Returns true if a text is printed within half a second. A test may call this [`ATTEMPTS`] times.
    pub(crate) fn sees_soon(&mut self, text: &str) -> bool {
        self.attempts += 1;
        assert!(
            self.attempts <= ATTEMPTS,
            "{text:?} is not on the screen: {}",
            self.shown
        );
        self.sees_within(text, Duration::from_millis(500)).is_some()
    }

    fn sees_within(&mut self, text: &str, limit: Duration) -> Option<String> {
        let end = Instant::now() + limit;
        loop {
            if let Some(at) = self.shown.find(text) {
                let rest = self.shown.split_off(at + text.len());
                let mut before = std::mem::replace(&mut self.shown, rest);
                before.truncate(at);
                return Some(before);
            }
            let left = end.saturating_duration_since(Instant::now());
            let byte = self.screen.recv_timeout(left).ok()?;
            self.shown.push(char::from(byte));
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.bash.kill();
        let _ = self.bash.wait();
    }
}

fn read(mut from: File) -> Receiver<u8> {
    let (sender, screen) = channel();
    thread::spawn(move || {
        let mut bytes = [0; 1_024];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            for byte in &bytes[..count] {
                let _ = sender.send(*byte);
            }
        }
        // The last output can then still be searched.
        thread::sleep(Duration::from_millis(1));
    });
    screen
}
