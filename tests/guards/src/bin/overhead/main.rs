//! What the guards cost: a write behind a guard as a ratio to the same write without, on the same
//! store. `cargo xtask bench guards`.

mod compare;
mod gate;
mod object;
mod options;
mod redis;
mod sql;

use std::process::ExitCode;

use compare::Bench;
use options::{Options, USAGE};

// One thread, because waking another one can take longer than a write, and takes a different time each
// time. So these ratios are about the greatest that are possible.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.iter().any(|arg| arg == "--help" || arg == "-h") {
        print!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let options = match Options::parse(&args) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("error: {error}\n\n{USAGE}");
            return ExitCode::FAILURE;
        }
    };
    let bench = Bench::new(options);
    // Boxed because it is large: all servers and stores are in it.
    match Box::pin(bench.run()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
