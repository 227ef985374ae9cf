//! The command `leasehold`: distributed locks for shells, cron jobs and programs in any language.
//! The book's chapter on the command line says what it promises to scripts.

mod args;
mod child;
mod connect;
mod cron;
#[cfg(test)]
mod docs_tests;
mod doctor;
mod exit;
mod fence;
mod held;
mod hold;
mod job;
mod look;
mod out;
mod probe;
mod run;
mod say;
#[cfg(feature = "serve")]
mod serve;
mod shared;
mod times;
mod watch;
mod work;
mod yields;

use std::path::Path;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, Parser};

use args::{Cli, FenceTask, Task};
use exit::{FILE, Failure, INTERNAL, USAGE};
use say::Voice;

fn main() -> ExitCode {
    if let Some(code) = child::as_helper() {
        return code;
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let code = if error.use_stderr() { USAGE } else { 0 };
            let _ = advised(error).print();
            return ExitCode::from(code);
        }
    };
    let voice = Voice::new(cli.task.json());
    let code = match cli.task.main(&voice) {
        Ok(code) => code,
        Err(failure) => {
            voice.failure(&failure);
            failure.exit
        }
    };
    voice.finish();
    ExitCode::from(code)
}

/// Adds a tip for common mistakes: the command right after the name, a store where none is used, and the page in a build
/// without it.
fn advised(mut error: clap::Error) -> clap::Error {
    use clap::error::ErrorKind::{InvalidSubcommand, MissingRequiredArgument, UnknownArgument};
    let task = std::env::args_os().nth(1).unwrap_or_default();
    let tip = match (
        task.to_str().unwrap_or_default(),
        error.get(ContextKind::InvalidArg),
    ) {
        ("cron", Some(ContextValue::String(arg))) if !arg.starts_with('-') => {
            "one NAME, one SCHEDULE in quotes, then --, then the command and its arguments"
        }
        ("hold", Some(ContextValue::String(arg))) if !arg.starts_with('-') => {
            "one NAME, then --, then the command and its arguments"
        }
        ("run", _) if error.kind() == MissingRequiredArgument => {
            "one NAME or several, then --, then the command and its arguments"
        }
        ("fence", Some(ContextValue::String(arg))) if arg == "--url" => {
            "fence uses no store: FILE.fence has the greatest token that was seen"
        }
        ("serve", None) if cfg!(not(feature = "serve")) => {
            "this build has no page: it was made without the feature `serve`"
        }
        _ => return error,
    };
    if matches!(
        error.kind(),
        UnknownArgument | InvalidSubcommand | MissingRequiredArgument
    ) {
        let tips = ContextValue::StyledStrs(vec![tip.into()]);
        error.insert(ContextKind::Suggested, tips);
    }
    error
}

impl Task {
    fn json(&self) -> bool {
        match self {
            Self::Run(args) => args.json,
            Self::Hold(args) => args.json,
            Self::Cron(args) => args.json,
            Self::List(args) => args.json,
            Self::Inspect(args) => args.json,
            Self::Release(args) => args.json,
            Self::Yield(args) => args.json,
            Self::Resize(args) => args.json,
            Self::Watch(args) => args.json,
            #[cfg(feature = "serve")]
            Self::Serve(args) => args.json,
            Self::Doctor(args) => args.json,
            Self::Fence(FenceTask::Check(args) | FenceTask::Write(args)) => args.json,
            Self::Completions { .. } | Self::Man { .. } => false,
        }
    }

    fn main(&self, voice: &Voice) -> Result<u8, Failure> {
        match self {
            Self::Run(args) => run::main(args, voice),
            Self::Hold(args) => hold::main(args, voice),
            Self::Cron(args) => cron::main(args, voice),
            Self::List(args) => look::list(args, voice),
            Self::Inspect(args) => look::inspect(args, voice),
            Self::Release(args) => look::release(args, voice),
            Self::Yield(args) => yields::main(args, voice),
            Self::Resize(args) => shared::resize(args, voice),
            Self::Watch(args) => watch::main(args, voice),
            #[cfg(feature = "serve")]
            Self::Serve(args) => serve::main(args, voice),
            Self::Doctor(args) => doctor::main(args),
            Self::Fence(FenceTask::Check(args)) => fence::check(args),
            Self::Fence(FenceTask::Write(args)) => fence::write(args),
            Self::Completions { shell } => {
                let mut out = Vec::new();
                clap_complete::generate(*shell, &mut Cli::command(), "leasehold", &mut out);
                out::text(&String::from_utf8_lossy(&out))
            }
            Self::Man { folder } => man(folder),
        }
    }
}

/// Runs the work on a runtime, on this thread except for the library's tasks.
fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| Failure::new(INTERNAL, format!("starting a runtime: {error}")))?;
    let output = runtime.block_on(work);
    runtime.shutdown_background();
    output
}

fn man(folder: &Path) -> Result<u8, Failure> {
    let written = std::fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), folder));
    let what = |error| format!("writing manual pages into {}: {error}", folder.display());
    written.map_err(|error| Failure::new(FILE, what(error)))?;
    Ok(0)
}
