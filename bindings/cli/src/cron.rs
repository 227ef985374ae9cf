//! `leasehold cron`: a command that runs once per tick of a schedule, on one of many machines.

use leasehold::{Missed, Turn};

use crate::args::CronArgs;
use crate::child::{self, EventsPipe, Signals};
use crate::exit::{Failure, NOT_FOUND, NOT_RUN};
use crate::held::{Held, with_time};
use crate::job::{job, scheduled};
use crate::run::{by, leave, next_with_time, pipe, policy, unless_asked};
use crate::say::Voice;
use crate::work::{Ended, Policy, Work};

pub(crate) fn main(args: &CronArgs, voice: &Voice) -> Result<u8, Failure> {
    let policy = policy(&args.lease, true)?;
    let missed = missed(&args.missed)?;
    let pipe = pipe()?;
    child::prepare()?;
    crate::block_on(cron(args, (policy, missed), pipe, voice))
}

async fn cron(
    args: &CronArgs,
    (policy, missed): (Policy, Missed),
    first: EventsPipe,
    voice: &Voice,
) -> Result<u8, Failure> {
    let mut signals = Signals::listen()?;
    let locker = match unless_asked(args.store.connect(None, voice), &mut signals).await {
        Ok(locker) => locker?,
        Err(signal) => return Ok(by(signal)),
    };
    let job = job(&locker, &args.name, &args.lease)?.missed(missed);
    let mut turns = scheduled(job, &args.schedule, &args.time_zone)?.turns();
    let mut events = locker.events();
    let work = Work {
        command: &args.command,
        policy,
        voice,
    };
    let mut next = Some(first);
    let code = loop {
        let mut pipe = match next.take() {
            Some(pipe) => pipe,
            None => pipe()?,
        };
        let waiting = next_with_time(
            &mut turns,
            async |turn: &Turn| with_time(turn.lease(), args.lease.ttl).await,
            (&mut events, &mut pipe),
            voice,
        );
        let turn = match unless_asked(waiting, &mut signals).await {
            Ok(Ok(turn)) => turn,
            Ok(Err(failure)) => {
                leave(&locker).await;
                return Err(failure);
            }
            Err(signal) => break by(signal),
        };
        note_missed(voice, &turn);
        let tick = turn.tick();
        match work
            .run(Held::Turn(turn), &mut events, pipe, &mut signals)
            .await
        {
            Ok(Ended::Ran(ran, asked)) => {
                let code = ran.code();
                if asked.is_some() || matches!(code, NOT_RUN | NOT_FOUND) {
                    break code;
                }
                if code != 0 {
                    voice.note(&format!(
                        "tick {tick} is not completed: the command ended with {code}"
                    ));
                }
            }
            Ok(Ended::Lost(failure, None)) => voice.note(&failure.to_string()),
            Ok(Ended::Lost(failure, Some(_))) | Err(failure) => {
                leave(&locker).await;
                return Err(failure);
            }
        }
    };
    drop(turns);
    leave(&locker).await;
    Ok(code)
}

/// Reads `--missed`.
fn missed(text: &str) -> Result<Missed, Failure> {
    let all = text.strip_prefix("all:").and_then(|most| most.parse().ok());
    match (text, all) {
        ("skip", _) => Ok(Missed::Skip),
        ("latest", _) => Ok(Missed::Latest),
        (_, Some(most)) => Ok(Missed::All(most)),
        _ => {
            let what =
                format!("--missed is skip, latest or all:COUNT, such as all:10; got {text:?}");
            Err(Failure::usage(what))
        }
    }
}

fn note_missed(voice: &Voice, turn: &Turn) {
    let missed = turn.missed();
    if missed > 0 {
        let ticks = if missed == 1 {
            "tick was"
        } else {
            "ticks were"
        };
        voice.note(&format!(
            "{missed} {ticks} missed before tick {}",
            turn.tick()
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_to_missed_ticks_is_read() {
        let read = |text| missed(text).ok();
        assert_eq!(read("skip"), Some(Missed::Skip));
        assert_eq!(read("latest"), Some(Missed::Latest));
        assert_eq!(read("all:10"), Some(Missed::All(10)));
        for text in ["", "all", "all:", "all:-1", "all:x", "none"] {
            let error = missed(text).expect_err(text).to_string();
            assert!(error.contains("all:10"), "{error}");
        }
    }
}
