//! The command as a client: `leasehold run` with a program that writes to the guarded store.

use std::io;

use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_tests::Random;
use tokio::time::{Instant, sleep};

use crate::client::{LONGEST_TTL, Settings, TTL, WAIT, answered, hold_time};
use crate::fleet::Programs;
use crate::history::{Event, Kind, Outcome, Recorder, now};
use crate::store::StoreClient;

/// The exit code of `leasehold run` if somebody else held the lock the whole time.
const NOT_ACQUIRED: i32 = 75;
/// The exit code of `leasehold run` if the store could not be reached.
const STORE_AWAY: i32 = 69;
const POLL: Duration = Duration::from_millis(5);
/// How often the program records that it is alive.
const LOOK: Duration = Duration::from_millis(40);

/// The process of the command that runs now, if any.
pub type Present = Arc<Mutex<Option<Child>>>;

/// Runs the command again and again, until the task is aborted.
pub async fn repeat(settings: Settings, programs: Programs, present: Present) {
    let mut random = Random::new(settings.seed);
    let Ok(mut recorder) = Recorder::open(&settings.history, settings.client.clone()) else {
        return;
    };
    loop {
        let name = usize::try_from(random.below(settings.names.len() as u64)).unwrap_or(0);
        let name = &settings.names[name];
        recorder.call(Kind::Acquire, name, None, None);
        let hold = hold_time(settings.usage, &mut random);
        let child = start(&settings, &programs, name, recorder.op(), hold);
        *present.lock().unwrap_or_else(PoisonError::into_inner) = child.ok();
        let code = ended(&present).await.and_then(|status| status.code());
        // In any other case the program has recorded the acquisition, or was killed before.
        match code {
            Some(NOT_ACQUIRED) => recorder.back(Kind::Acquire, name, Outcome::None, |_| ()),
            Some(STORE_AWAY) => recorder.back(Kind::Acquire, name, Outcome::Failed, |_| ()),
            _ => {}
        }
        // The operations of the program have the numbers after that of the acquisition.
        recorder = recorder.skip(OPERATIONS);
        sleep(Duration::from_millis(random.between(0, 20))).await;
    }
}

/// The number of operations of [`work`].
const OPERATIONS: u64 = 2;

fn start(
    settings: &Settings,
    programs: &Programs,
    name: &str,
    op: u64,
    hold: Duration,
) -> io::Result<Child> {
    let millis = |time: Duration| format!("{}ms", time.as_millis());
    let text = serde_json::to_string(settings)?;
    Command::new(&programs.leasehold)
        .args(["run", name, "--ttl", &millis(TTL), "--wait", &millis(WAIT)])
        .args(["--longest-ttl", &millis(LONGEST_TTL), "--"])
        .arg(&programs.faults)
        .args([
            "work",
            &text,
            name,
            &op.to_string(),
            &hold.as_millis().to_string(),
        ])
        .env("LEASEHOLD_URL", settings.urls.join(" "))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}

async fn ended(present: &Present) -> Option<ExitStatus> {
    loop {
        {
            let mut child = present.lock().unwrap_or_else(PoisonError::into_inner);
            match child.as_mut().map(Child::try_wait) {
                None | Some(Err(_)) => return None,
                Some(Ok(Some(status))) => {
                    *child = None;
                    return Some(status);
                }
                Some(Ok(None)) => {}
            }
        }
        sleep(POLL).await;
    }
}

/// Reads and writes under the token of the environment. While it is alive, the command promises that the lease is
/// valid.
pub async fn work(settings: Settings, name: &str, op: u64, hold: Duration) -> io::Result<()> {
    let token = std::env::var("LEASEHOLD_TOKEN").map_err(io::Error::other)?;
    let token: u64 = token.parse().map_err(io::Error::other)?;
    let mut recorder = Recorder::open(&settings.history, settings.client.clone())?.skip(op);
    recorder.back(Kind::Acquire, name, Outcome::Ok, |entry| {
        entry.token = Some(token);
    });
    let alive = |recorder: &mut Recorder| {
        let mut entry = recorder.entry(Event::Valid, name);
        entry.at = now();
        entry.token = Some(token);
        recorder.record(&entry);
    };
    let mut store = StoreClient::new(settings.store);
    recorder.call(Kind::Read, name, Some(token), None);
    let answer = store.ask(&format!("read {name} {token}")).await;
    answered(&mut recorder, Kind::Read, name, token, answer);
    let end = Instant::now() + hold;
    loop {
        alive(&mut recorder);
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        sleep(left.min(LOOK)).await;
    }
    let value = recorder.value();
    recorder.call(Kind::Write, name, Some(token), Some(value.clone()));
    let answer = store.ask(&format!("write {name} {token} {value}")).await;
    answered(&mut recorder, Kind::Write, name, token, answer);
    Ok(())
}
