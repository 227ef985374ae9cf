//! The cost of an operation, in numbers that repeat to about 1 % whatever else the machine does:
//! instructions, which valgrind counts, commands at the server, and allocations.
//!
//! `cargo xtask costs` runs this program, which compares them with `baseline.json`. It only uses the public
//! API, so it depends on neither the script nor its keys nor the wire.

#![allow(clippy::cast_precision_loss)]

mod callgrind;
mod client;
mod engine;
mod gate;
mod heap;
mod host;
mod server;
mod stores;

use std::collections::BTreeMap;
use std::error::Error;
use std::process::ExitCode;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// The figures by name: the count and its subject.
type Figures = BTreeMap<String, f64>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        [] => gate::check(&measure()?),
        ["--write"] => gate::write(measure()?),
        // Valgrind runs this.
        [engine::WORK, work, socket] => engine::work(work, socket),
        _ => Err("it takes --write or nothing: see `cargo xtask costs`".into()),
    }
}

fn measure() -> Result<Figures> {
    let mut figures = Figures::new();
    server::measure(&mut figures)?;
    engine::measure(&mut figures)?;
    heap::measure(&mut figures)?;
    Ok(figures)
}
