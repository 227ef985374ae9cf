//! `leasehold serve`: a live page of the locks.

mod agenda;
mod board;
mod demo;
mod eye;
mod follow;
mod gate;
mod http;
mod listen;
pub(crate) mod look;
mod metrics;
mod page;
mod past;
mod show;
mod state;
mod tally;
mod walk;

use std::fs;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use leasehold::Locker;
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::args::ServeArgs;
use crate::connect::{connect, shown};
use crate::doctor;
use crate::exit::{FILE, Failure, INTERNAL, STORE_AWAY, USAGE};
use crate::out;
use crate::say::Voice;
use eye::{Eye, Inputs, Pace};
use gate::{Gate, Session};
use http::{About, Site};
use state::State;

const TOKEN: &str = "LEASEHOLD_SERVE_TOKEN";
const LEAST_TOKEN: usize = 16;
const MOST_TOKEN: usize = 256;
const TO_CONNECT: Duration = Duration::from_secs(10);
/// Time for the first attempt to connect, before the page starts without the store; and the pause between attempts.
const AT_FIRST: Duration = Duration::from_secs(2);
const AGAIN: Duration = Duration::from_secs(1);
/// A look that is later than this is one at a store that is away.
const PATIENCE: Duration = Duration::from_secs(2);
const TO_END: Duration = Duration::from_secs(2);
const MOST_LOOKS: u32 = 10_000;
/// How often the pages hear of changes, in quarters of a second; and of the sums in whole ones.
const SEND: Duration = Duration::from_millis(250);
const SUM: u32 = 4;
/// How often the doctor's findings are renewed.
const EXAMINE: Duration = Duration::from_secs(60);
/// Steps of the walk that the eye has not taken in yet.
const STEPS: usize = 4;

#[derive(Serialize)]
struct Serving<'a> {
    r#type: &'static str,
    url: &'a str,
}

pub(crate) fn main(args: &ServeArgs, voice: &Voice) -> Result<u8, Failure> {
    if !(1..=MOST_LOOKS).contains(&args.looks) {
        let what = format!("--looks is from 1 to {MOST_LOOKS}");
        return Err(Failure::usage(what));
    }
    crate::block_on(serve(args, voice))
}

async fn serve(args: &ServeArgs, voice: &Voice) -> Result<u8, Failure> {
    let (token, made) = token(args)?;
    let urls = if args.demo {
        vec![format!("memory://demo-{}", std::process::id())]
    } else {
        args.store.urls()?
    };
    let state = Arc::new(State::new());
    let locker = Arc::new(connected_at_first(args, &urls, &state).await?);
    let listener = listen(args).await?;
    let address = listener
        .local_addr()
        .map_err(|error| listening(args, &error))?;
    let mut tasks = JoinSet::new();
    tasks.spawn(send(state.clone()));
    let mut players = JoinSet::new();
    if args.demo {
        players = demo::play(&args.store, &urls[0]).await?;
    }
    let shown: Vec<_> = urls.iter().map(|url| shown(url)).collect();
    let site = Site {
        state: state.clone(),
        locker: locker.clone(),
        gate: Gate::new(
            token.clone(),
            Session::new(random()?, &random()?),
            args.host.clone(),
        ),
        about: About {
            store: shown.join(", "),
            namespace: args.store.namespace().to_owned(),
            version: env!("CARGO_PKG_VERSION"),
            demo: args.demo,
            release: args.allow_release,
        },
    };
    tasks.spawn(listen::serve(listener, http::router(Arc::new(site))));
    let query = token
        .filter(|_| made)
        .map(|token| format!("?token={token}"));
    let here = format!("http://{address}/{}", query.unwrap_or_default());
    say(args, voice, &here)?;
    tokio::select! {
        stopped = stopped() => stopped?,
        () = watch(args, &urls, &locker, &state) => {}
    }
    players.abort_all();
    tasks.shutdown().await;
    if let Some(locker) = locker.get() {
        let _ = timeout(TO_END, locker.shutdown()).await;
    }
    Ok(0)
}

/// Tries to connect. Returns nothing inside if the store is down, and a failure if it refuses.
async fn connected_at_first(
    args: &ServeArgs,
    urls: &[String],
    state: &State,
) -> Result<OnceLock<Locker>, Failure> {
    match timeout(AT_FIRST, connect_once(args, urls)).await {
        Ok(Ok(locker)) => return Ok(locker.into()),
        Ok(Err(failure)) if failure.exit != STORE_AWAY => return Err(failure),
        Ok(Err(failure)) => state.board().away(&failure.to_string()),
        Err(_) => state
            .board()
            .away("there is no connection to the store yet"),
    }
    Ok(OnceLock::new())
}

async fn connect_once(args: &ServeArgs, urls: &[String]) -> Result<Locker, Failure> {
    let settings = args.store.builder();
    let settings = settings.patience(PATIENCE).command_timeout(PATIENCE);
    connect(urls, settings, Some(TO_CONNECT)).await
}

/// Tries to connect until the store is there.
async fn connected(args: &ServeArgs, urls: &[String], state: &State) -> Locker {
    loop {
        match connect_once(args, urls).await {
            Ok(locker) => return locker,
            // Whoever runs the store may put right what it refuses.
            Err(failure) => state.board().away(&failure.to_string()),
        }
        tokio::time::sleep(AGAIN).await;
    }
}

fn say(args: &ServeArgs, voice: &Voice, here: &str) -> Result<(), Failure> {
    if args.json {
        let (r#type, url) = ("serving", here);
        out::json(&Serving { r#type, url })?;
    } else {
        out::text(&format!("serving {here}\n"))?;
    }
    if !args.listen.ip().is_loopback() {
        voice.note(
            "what is sent is not encrypted: put a TLS proxy in front, and name its host by --host",
        );
    }
    Ok(())
}

/// Looks at the locks for ever, as soon as the store is there.
async fn watch(
    args: &ServeArgs,
    urls: &[String],
    connected_to: &OnceLock<Locker>,
    state: &Arc<State>,
) {
    if connected_to.get().is_none() {
        let locker = connected(args, urls, state).await;
        connected_to.get_or_init(|| locker);
    }
    let Some(locker) = connected_to.get() else {
        return;
    };
    state.board().back();
    let mut tasks = JoinSet::new();
    let (steps, walked) = mpsc::channel(STEPS);
    let free = urls[0].starts_with("memory://");
    let looks = args.looks;
    let eye = Eye::new(locker.clone(), state.clone(), Pace { looks, free });
    let seen = state.seen();
    tasks.spawn(eye.look(Inputs { walked, seen }));
    tasks.spawn(walk::walk(locker.clone(), state.clone(), steps));
    // The servers of a quorum each know of other changes: it is only looked at.
    if let ([url], false, false) = (urls, free, args.poll_only) {
        let namespace = args.store.namespace().to_owned();
        tasks.spawn(follow::follow(url.clone(), namespace, state.clone()));
    }
    tasks.spawn(examine(urls.to_owned(), locker.clone(), state.clone()));
    tasks.join_all().await;
}

/// Sends the pages what was found.
async fn send(state: Arc<State>) {
    let mut ticks = interval(SEND);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for tick in (0_u32..).cycle() {
        ticks.tick().await;
        state.send_changes(Instant::now());
        if tick % SUM == 0 {
            state.send_sum(Instant::now());
        }
    }
}

/// Has the doctor look at the store, again and again.
async fn examine(urls: Vec<String>, locker: Locker, state: Arc<State>) {
    loop {
        let found = doctor::glance(&urls, &locker).await;
        if let Ok(found) = serde_json::to_string(&found) {
            state.set_findings(found);
        }
        tokio::time::sleep(EXAMINE).await;
    }
}

async fn listen(args: &ServeArgs) -> Result<TcpListener, Failure> {
    let listening_at = TcpListener::bind(args.listen).await;
    listening_at.map_err(|error| listening(args, &error))
}

fn listening(args: &ServeArgs, error: &std::io::Error) -> Failure {
    Failure::new(USAGE, format!("listening at {}: {error}", args.listen))
        .advise("give another --listen; port 0 stands for any that is free")
}

/// The token, and whether it was made just now.
fn token(args: &ServeArgs) -> Result<(Option<String>, bool), Failure> {
    let given = match &args.token_file {
        Some(file) => {
            let text = fs::read_to_string(file).map_err(|error| {
                let what = format!("the token file {} cannot be read: {error}", file.display());
                Failure::new(FILE, what)
            })?;
            Some(text.lines().next().unwrap_or_default().to_owned())
        }
        None => std::env::var(TOKEN).ok().filter(|token| !token.is_empty()),
    };
    let Some(token) = given else {
        let needed = !args.listen.ip().is_loopback();
        if args.allow_release && !needed {
            let what = "--allow-release needs a token: without one every user and program of this machine \
                        could release locks";
            return Err(Failure::usage(what).advise(
                "set LEASEHOLD_SERVE_TOKEN, or give --token-file a file with what `openssl rand -hex 16` prints",
            ));
        }
        let made = needed.then(random).transpose()?;
        return Ok((made, needed));
    };
    let fits = (LEAST_TOKEN..=MOST_TOKEN).contains(&token.len())
        && token
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte));
    if !fits {
        let what = format!(
            "the token has to have {LEAST_TOKEN} to {MOST_TOKEN} characters: letters, digits, - _ . ~"
        );
        return Err(Failure::usage(what).advise("for example: openssl rand -hex 16"));
    }
    Ok((Some(token), false))
}

/// 128 bits that nobody can guess.
fn random() -> Result<String, Failure> {
    let mut bits = [0; 16];
    getrandom::fill(&mut bits)
        .map_err(|error| Failure::new(INTERNAL, format!("there is no randomness: {error}")))?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bits)))
}

/// Until somebody ends it.
async fn stopped() -> Result<(), Failure> {
    let failed = |error| Failure::new(INTERNAL, format!("signals cannot be heard: {error}"));
    let mut ends = signal(SignalKind::terminate()).map_err(failed)?;
    let mut hangs_up = signal(SignalKind::hangup()).map_err(failed)?;
    let mut interrupts = signal(SignalKind::interrupt()).map_err(failed)?;
    tokio::select! {
        _ = ends.recv() => {}
        _ = hangs_up.recv() => {}
        _ = interrupts.recv() => {}
    }
    Ok(())
}
