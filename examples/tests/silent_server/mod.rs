//! A server that never answers, and what an example prints before it waits for it.

use std::env;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

/// The first line of an example; empty if it waited for the server before it printed anything.
pub(crate) fn first_line(example: &str) -> String {
    let server = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = server.local_addr().expect("it is bound").port();
    let mut child = Command::new(built().join(example))
        .args(["--url", &format!("redis://127.0.0.1:{port}")])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{example} does not start: {error}"));
    let mut line = String::new();
    let stdout = child.stdout.take().expect("it is piped");
    let read = BufReader::new(stdout).read_line(&mut line);
    child.kill().expect("it is this test's child");
    child.wait().expect("it is this test's child");
    read.expect("it prints text");
    line
}

/// The folder of this package's examples, built: where all targets are tested, examples are not.
fn built() -> &'static Path {
    static BUILT: LazyLock<PathBuf> = LazyLock::new(|| {
        // This test is target/<profile>/deps/<name>.
        let this = env::current_exe().expect("a test has a file");
        let folder = |depth| this.ancestors().nth(depth).expect("the file is in folders");
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--locked", "--examples"]);
        build.args(["--package", env!("CARGO_PKG_NAME")]);
        build.arg("--target-dir").arg(folder(3));
        if folder(2).ends_with("release") {
            build.arg("--release");
        }
        let status = build.status().expect("cargo starts");
        assert!(status.success(), "the examples are not built: {status}");
        folder(2).join("examples")
    });
    &BUILT
}
