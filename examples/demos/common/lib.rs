//! Helpers that the demonstrations share: output, promises, and a `redis-server`.

mod server;

use std::env;
use std::error::Error;
use std::fmt::Display;
use std::process::ExitCode;
use std::sync::LazyLock;
use std::time::Instant;

use leasehold::Locker;
use tokio::signal::ctrl_c;
use tokio::signal::unix::{SignalKind, signal};

pub use server::Server;

/// The result of a demonstration. [`run`] shows its error as it is.
pub type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Runs a demonstration, and returns the exit status: 0 if all is well, 1 after an error or a broken promise.
/// Ctrl-C and SIGTERM drop it, and all that it has started with it.
pub async fn run(demonstration: impl Future<Output = Outcome>) -> ExitCode {
    let mut kill = signal(SignalKind::terminate()).expect("this signal can be caught");
    let outcome = tokio::select! {
        outcome = demonstration => outcome,
        _ = ctrl_c() => return ExitCode::from(130),
        _ = kill.recv() => return ExitCode::from(143),
    };
    let Err(error) = outcome else {
        return ExitCode::SUCCESS;
    };
    eprintln!("error: {error}");
    ExitCode::FAILURE
}

/// Connects to the store of `LEASEHOLD_URL`, or else to one in this program's memory.
pub async fn connect() -> Outcome<Locker> {
    let url = env::var("LEASEHOLD_URL").unwrap_or("memory://".into());
    Ok(Locker::connect(url).await?)
}

/// Prints a line with the time since the first of them.
pub fn log(line: impl Display) {
    println!("{:8.3} s  {line}", START.elapsed().as_secs_f64());
}

/// Turns a broken promise into an error that says which.
pub fn promise(kept: bool, broken: impl Display) -> Outcome {
    if kept {
        return Ok(());
    }
    Err(format!("a promise was broken: {broken}").into())
}

/// Prints rows, of which the first has the headings; the first column is set left, and the others right.
pub fn print_table<const COLUMNS: usize>(rows: &[[String; COLUMNS]]) {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    for row in rows {
        let padded = row
            .iter()
            .enumerate()
            .map(|(column, cell)| match (column, width(column)) {
                (0, width) => format!("  {cell:<0$}", width.unwrap_or(0)),
                (_, width) => format!("  {cell:>0$}", width.unwrap_or(0)),
            });
        println!("{}", padded.collect::<String>().trim_end());
    }
}
