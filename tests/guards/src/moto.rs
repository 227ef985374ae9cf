//! An S3-compatible server with conditional writes: moto, from the Python package index, in a virtual
//! environment in the target directory.
//!
//! moto 5.2.5 obeys `If-Match` and `If-None-Match: *` on a put. It checks them before the put and sets the
//! metadata after it, without a lock in between. So here it runs on one thread, where each request is one
//! step, as on Amazon S3. As there, an etag is the MD5 of the content alone.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::{ClientOptions, RetryConfig};
use tokio_rustls::rustls::crypto::ring;

/// The arguments of `pip install`. moto's extra `server` would bring many packages that S3 does not need.
const PACKAGES: [&str; 4] = [
    "moto[s3]==5.2.5",
    "flask==3.1.3",
    "flask-cors==6.0.5",
    "werkzeug==3.1.9",
];

const BUCKET: &str = "leasehold";

/// A program that prints its port, serves one request after the other, and ends with its input: that is when
/// the process that started it ends, in whatever way.
const SERVE: &str = r#"
import logging, os, sys, threading
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from moto.s3.models import s3_backends
from werkzeug.serving import make_server

logging.getLogger("werkzeug").setLevel(logging.ERROR)
s3_backends["123456789012"]["aws"].create_bucket(sys.argv[1], "us-east-1")
server = make_server("127.0.0.1", 0, DomainDispatcherApplication(create_backend_app), threaded=False)
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
print(server.server_port, flush=True)
server.serve_forever()
"#;

/// A moto server with an empty bucket, which ends when this value is dropped.
pub struct Moto {
    child: Child,
    url: String,
}

impl Moto {
    /// Starts a server. The first start installs moto, which needs the network.
    ///
    /// Panics with the packages to install if that fails.
    pub async fn start() -> Self {
        tokio::task::spawn_blocking(start)
            .await
            .expect("moto starts")
    }

    /// Returns its address.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns its bucket, `leasehold`.
    pub fn store(&self) -> Arc<AmazonS3> {
        let store = s3(&self.url, BUCKET, 1).build();
        Arc::new(store.expect("the settings are complete"))
    }
}

/// Returns the settings of a bucket of an S3 server at this address.
pub fn s3(address: &str, bucket: &str, max_retries: usize) -> AmazonS3Builder {
    // An error means that it was installed before.
    drop(ring::default_provider().install_default());
    AmazonS3Builder::new()
        .with_endpoint(address)
        .with_client_options(
            ClientOptions::new()
                .with_allow_http(true)
                .with_timeout(Duration::from_secs(60)),
        )
        .with_retry(RetryConfig {
            max_retries,
            ..RetryConfig::default()
        })
        .with_bucket_name(bucket)
        .with_region("us-east-1")
        .with_access_key_id("nobody")
        .with_secret_access_key("hunter2")
}

impl Drop for Moto {
    fn drop(&mut self) {
        // The process may have just ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn start() -> Moto {
    let python = python();
    let mut child = Command::new(&python)
        .args(["-c", SERVE, BUCKET])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{} does not start: {error}", python.display()));
    let output = child.stdout.take().expect("the output is a pipe");
    let mut line = String::new();
    drop(BufReader::new(output).read_line(&mut line));
    let Ok(port) = line.trim().parse::<u16>() else {
        drop(child.kill());
        drop(child.wait());
        panic!(
            "{} did not serve moto; its output is above. It needs {PACKAGES:?}",
            python.display()
        );
    };
    let url = format!("http://127.0.0.1:{port}");
    Moto { child, url }
}

/// Returns a Python that has moto. It is in cargo's target directory, so that `cargo clean` removes it.
fn python() -> PathBuf {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    if let Some(python) = env::var_os("LEASEHOLD_MOTO_PYTHON") {
        return python.into();
    }
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let program = env::current_exe().expect("a test has a file");
    let target = program
        .ancestors()
        .find(|folder| folder.join(".rustc_info.json").exists());
    let target = target
        .or(program.parent())
        .expect("the file is in a folder");
    let done = target.join("moto-5.2.5");
    if !done.exists() {
        // The folder has another name until it is complete, since another process may make it at the same
        // time.
        let begun = target.join(format!("moto-5.2.5.{}", process::id()));
        install(&begun);
        if fs::rename(&begun, &done).is_err() {
            drop(fs::remove_dir_all(&begun));
        }
    }
    done.join("bin/python")
}

fn install(folder: &Path) {
    let mut venv = Command::new("python3");
    run(venv.args(["-m", "venv"]).arg(folder));
    let mut pip = Command::new(folder.join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet"])
        .arg("--disable-pip-version-check")
        .args(PACKAGES);
    run(&mut pip);
}

fn run(command: &mut Command) {
    let status = command.status();
    assert!(
        status.as_ref().is_ok_and(process::ExitStatus::success),
        "{command:?} failed ({status:?}). The tests of the object store's guard need an \
         S3-compatible server: install python3-venv (apt-get install python3-venv) and let pip \
         reach PyPI once, or set LEASEHOLD_MOTO_PYTHON to a Python that has {PACKAGES:?}"
    );
}
