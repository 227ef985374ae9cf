//! The command line: the store's URL, interruption, and the exit status.

use std::error::Error;
use std::fmt;
use std::io;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold::{Builder, Locker};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What an example ends with. Its error is shown to the user as it is.
pub type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// How long an interrupted program tries to release its locks. What is left ends by its time to live.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(2);

/// Where the locks are.
#[derive(clap::Args, Clone, Debug)]
pub struct StoreArgs {
    /// The store of the locks.
    #[arg(
        long,
        default_value = "memory://",
        help = "The store of the locks: memory:// is in this program; redis://host:port and \
                unix:///path/to/socket are servers"
    )]
    pub url: String,
}

impl StoreArgs {
    /// Connects, in a namespace that no other run uses.
    pub async fn connect(&self, example: &str) -> Outcome<Locker> {
        connect(&self.url, namespace(example)?).await
    }

    /// Where the locks are, for people; without the URL, which may hold a password.
    pub fn shown(&self) -> &'static str {
        if self.url.starts_with("memory:") {
            "in the memory of this program; --url redis://… takes a server"
        } else {
            "on the server of --url"
        }
    }
}

/// A namespace that no other run uses.
pub fn namespace(example: &str) -> Outcome<String> {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let run = format!("{}-{}", std::process::id(), since_1970.as_millis());
    Ok(format!("leasehold-examples/{example}/{run}"))
}

/// Connects with settings for names that are used once.
pub async fn connect(url: &str, namespace: impl Into<String>) -> Outcome<Locker> {
    Ok(builder(namespace).connect(url).await?)
}

/// The settings of [`connect`].
pub fn builder(namespace: impl Into<String>) -> Builder {
    Locker::builder()
        .namespace(namespace)
        // A server soon forgets the names.
        .token_retention(Duration::from_secs(60))
}

/// Ctrl-C (and the signal that `kill` sends), caught from the moment this is made.
#[derive(Debug)]
pub struct Interrupt {
    ctrl_c: Signal,
    kill: Signal,
}

impl Interrupt {
    /// From now on the signals do not end the program by themselves.
    pub fn catch() -> io::Result<Self> {
        Ok(Self {
            ctrl_c: signal(SignalKind::interrupt())?,
            kill: signal(SignalKind::terminate())?,
        })
    }

    /// Does some work. An interruption drops it, and is the error.
    pub async fn or<T>(&mut self, work: impl Future<Output = Outcome<T>>) -> Outcome<T> {
        tokio::select! {
            outcome = work => outcome,
            _ = self.ctrl_c.recv() => Err(Interrupted { exit_code: 130 }.into()),
            _ = self.kill.recv() => Err(Interrupted { exit_code: 143 }.into()),
        }
    }

    /// Releases whatever is still held and leaves every line; gives up after two seconds, or at a second
    /// interruption.
    pub async fn shut_down(&mut self, locker: &Locker) {
        let shutdown = async {
            // If it is not done in time, what was not released ends by its time to live.
            let _ = tokio::time::timeout(SHUTDOWN_LIMIT, locker.shutdown()).await;
            Ok(())
        };
        let _ = self.or(shutdown).await;
    }
}

/// The user ended the program.
#[derive(Debug)]
struct Interrupted {
    exit_code: u8,
}

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted")
    }
}

impl Error for Interrupted {}

/// Prints the error, if there is one, and returns the exit status: 0 if all is well, 1 after an error or a
/// broken promise, 130 after Ctrl-C.
pub fn exit(outcome: Outcome) -> ExitCode {
    let Err(error) = outcome else {
        return ExitCode::SUCCESS;
    };
    if let Some(interrupted) = error.downcast_ref::<Interrupted>() {
        eprintln!("{interrupted}");
        return ExitCode::from(interrupted.exit_code);
    }
    eprintln!("error: {error}");
    ExitCode::FAILURE
}

/// Turns a broken promise into an error that says which.
pub fn promise(kept: bool, broken: impl FnOnce() -> String) -> Outcome {
    if kept {
        Ok(())
    } else {
        Err(format!("a promise was broken: {}", broken()).into())
    }
}
