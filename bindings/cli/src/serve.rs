//! `leasehold serve`: the crate `leasehold-serve` with the options of the command line.

use std::fs;
use std::sync::Arc;

use leasehold_serve::{Error, Options};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::ServeArgs;
use crate::doctor;
use crate::exit::{FILE, Failure, INTERNAL};
use crate::out;
use crate::say::Voice;

const TOKEN: &str = "LEASEHOLD_SERVE_TOKEN";

pub(crate) fn main(args: &ServeArgs, voice: &Voice) -> Result<u8, Failure> {
    crate::block_on(async {
        let page = leasehold_serve::serve(options(args)?);
        let page = page.await.map_err(failure)?;
        // Before the address is printed: a program may send a signal as soon as it has read that.
        let stopped = stopped()?;
        say(args, voice, page.url())?;
        page.run_until(stopped).await;
        Ok(0)
    })
}

fn options(args: &ServeArgs) -> Result<Options, Failure> {
    let mut options = if args.demo {
        Options::demo()
    } else {
        Options::new(args.store.urls()?)
    };
    args.store.namespace().clone_into(&mut options.namespace);
    options.longest_ttl = args.store.longest_ttl();
    options.listen = args.listen;
    options.token = token(args)?;
    options.hosts.clone_from(&args.host);
    options.allow_release = args.allow_release;
    options.looks = args.looks;
    options.poll_only = args.poll_only;
    let urls = Arc::new(options.urls.clone());
    options.findings = Some(Box::new(move |locker| {
        let urls = urls.clone();
        Box::pin(async move {
            serde_json::to_value(doctor::glance(&urls, &locker).await).unwrap_or_default()
        })
    }));
    Ok(options)
}

/// Reads the token of the file or of the environment.
fn token(args: &ServeArgs) -> Result<Option<String>, Failure> {
    let Some(file) = &args.token_file else {
        return Ok(std::env::var(TOKEN).ok().filter(|token| !token.is_empty()));
    };
    let text = fs::read_to_string(file).map_err(|error| {
        let what = format!("the token file {} cannot be read: {error}", file.display());
        Failure::new(FILE, what)
    })?;
    Ok(Some(text.lines().next().unwrap_or_default().to_owned()))
}

/// Describes an error in terms of the command line.
fn failure(error: Error) -> Failure {
    let (what, advice) = match error {
        Error::Store(error) => return error.into(),
        Error::Option { name, what } => match name {
            "token" => (
                format!("the token {what}"),
                "for example: openssl rand -hex 16",
            ),
            "allow_release" => (
                format!("--allow-release {what}"),
                "set LEASEHOLD_SERVE_TOKEN, or give --token-file a file with what `openssl rand -hex 16` prints",
            ),
            name => return Failure::usage(format!("--{name} {what}")),
        },
        error @ Error::Listen { .. } => (
            error.to_string(),
            "give another --listen; port 0 picks a free one",
        ),
        error => return Failure::new(INTERNAL, error.to_string()),
    };
    Failure::usage(what).advise(advice)
}

fn say(args: &ServeArgs, voice: &Voice, url: &str) -> Result<(), Failure> {
    if args.json {
        out::json(&json!({ "type": "serving", "url": url }))?;
    } else {
        out::text(&format!("serving {url}\n"))?;
    }
    if !args.listen.ip().is_loopback() {
        voice.note(
            "what is sent is not encrypted: put a TLS proxy in front, and name its host by --host",
        );
    }
    Ok(())
}

/// Waits for a signal to end.
fn stopped() -> Result<impl Future<Output = ()>, Failure> {
    let failed = |error| Failure::new(INTERNAL, format!("signals cannot be received: {error}"));
    let mut ends = signal(SignalKind::terminate()).map_err(failed)?;
    let mut hangs_up = signal(SignalKind::hangup()).map_err(failed)?;
    let mut interrupts = signal(SignalKind::interrupt()).map_err(failed)?;
    Ok(async move {
        tokio::select! {
            _ = ends.recv() => {}
            _ = hangs_up.recv() => {}
            _ = interrupts.recv() => {}
        }
    })
}
