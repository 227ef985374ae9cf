//! The programs in `examples`, run as their readers run them: the short ones, made to be copied, and the
//! demonstrations.

mod demos;
mod short;

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::time::Duration;

use leasehold_tests::Child;
use rustix::process::{Pid, Signal, kill_process};

const LIMIT: Duration = Duration::from_secs(30);

/// Returns the file of an example. It builds all of them first, with the features of the workspace's tests.
fn program(example: &str) -> PathBuf {
    static BUILT: LazyLock<PathBuf> = LazyLock::new(|| {
        // This test is target/<profile>/deps/<name>.
        let this = env::current_exe().expect("a test has a file");
        let folder = |depth| this.ancestors().nth(depth).expect("the file is in folders");
        let mut build = Command::new(env!("CARGO"));
        // Build scripts such as ring's read the variables that cargo sets for this test's package. They would run
        // again here, and again for the next test: much would be compiled twice more.
        for (name, _) in env::vars() {
            if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
                build.env_remove(name);
            }
        }
        build.args([
            "build",
            "--quiet",
            "--locked",
            "--workspace",
            "--exclude=xtask",
        ]);
        build.arg("--examples");
        build.arg("--target-dir").arg(folder(3));
        if folder(2).ends_with("release") {
            build.arg("--release");
        }
        let status = build.status().expect("cargo starts");
        assert!(status.success(), "the examples are not built: {status}");
        folder(2).join("examples")
    });
    BUILT.join(example)
}

/// Starts an example on the store of this URL.
fn start(example: &str, url: &str) -> Child {
    let url = format!("LEASEHOLD_URL={url}");
    Child::spawn(Path::new("env"), [Path::new(&url), &program(example)])
}

fn signal(child: &Child, signal: Signal) {
    let pid = i32::try_from(child.pid()).ok().and_then(Pid::from_raw);
    kill_process(pid.expect("the child has an ID"), signal).expect("the process runs");
}
