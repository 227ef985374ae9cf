//! A server that never answers, and what an example prints before it waits for it.

use std::env;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Command, Stdio};

/// The first line of an example; empty if it waited for the server before it printed anything.
pub(crate) fn first_line(example: &str) -> String {
    let server = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = server.local_addr().expect("it is bound").port();
    // This test is target/<profile>/deps/<name>, and the examples are beside that folder.
    let this = env::current_exe().expect("a test has a file");
    let profile = this
        .ancestors()
        .nth(2)
        .expect("the file is two folders deep");
    let mut child = Command::new(profile.join("examples").join(example))
        .args(["--url", &format!("redis://127.0.0.1:{port}")])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{example} does not start (is it built?): {error}"));
    let mut line = String::new();
    let stdout = child.stdout.take().expect("it is piped");
    let read = BufReader::new(stdout).read_line(&mut line);
    child.kill().expect("it is this test's child");
    child.wait().expect("it is this test's child");
    read.expect("it prints text");
    line
}
