//! The measurements.

use std::time::{Duration, Instant};

use leasehold_tests::Resp;
use tokio::time::timeout_at;

use super::Plan;
use super::results::{Held, Loss, Results};
use crate::Result;
use crate::peer::{Peer, Process, number};
use crate::stats::percentile;

pub(super) const CALLERS: [usize; 4] = [1, 16, 64, 256];
/// Tasks in each process, and the number of processes.
pub(super) const CONFIGURATIONS: [(usize, usize); 4] = [(2, 1), (16, 1), (200, 1), (16, 4)];
/// The most warm-up rounds, whether they agree by then or not.
const MOST_WARM_UPS: usize = 12;
/// Slightly more than the time to live of all sides.
const LOSS_LIMIT: Duration = Duration::from_secs(35);

/// Returns the name of a configuration.
pub(super) fn configuration((tasks, processes): (usize, usize)) -> String {
    match processes {
        1 => format!("{tasks} tasks"),
        _ => format!("{processes} processes of {tasks}"),
    }
}

/// Measures acquire and release; each caller has its own name.
pub(super) async fn pairs(plan: &Plan, peers: &mut [Peer], results: &mut Results) -> Result<()> {
    for callers in CALLERS {
        for (peer, measured) in peers.iter_mut().zip(&mut results.sides) {
            eprintln!("pairs: {callers} callers, warm-up of {}", peer.program.name);
            let mut warm_up = WarmUp::default();
            while !peer.program.waits_only && warm_up.goes_on() {
                let rate = rate_of_pairs(peer, callers, plan.warm_up_millis).await?;
                warm_up.rates.extend(rate);
                if rate.is_none() {
                    break;
                }
            }
            let what = || format!("{callers} callers");
            measured.unsettled.extend(warm_up.is_cut_off().then(what));
        }
        for round in 1..=plan.rounds {
            eprintln!("pairs: {callers} callers, round {round} of {}", plan.rounds);
            for (peer, measured) in peers.iter_mut().zip(&mut results.sides) {
                if peer.program.waits_only {
                    continue;
                }
                let rate = rate_of_pairs(peer, callers, plan.pairs_millis).await?;
                measured.pairs.entry(callers).or_default().extend(rate);
            }
        }
    }
    Ok(())
}

/// Returns pairs per second; `None` if the side no longer answers.
async fn rate_of_pairs(peer: &mut Peer, callers: usize, millis: u64) -> Result<Option<f64>> {
    let Some(done) = peer.tell(&format!("pairs {callers} {millis}")).await else {
        return Ok(None);
    };
    Ok(Some(
        number(&done, "count")? / number(&done, "millis")? * 1e3,
    ))
}

/// Rounds that do not count: a virtual machine that compiles while it runs is several times slower at first.
#[derive(Default)]
struct WarmUp {
    rates: Vec<f64>,
}

impl WarmUp {
    /// Returns false once three rounds in a row differ by at most a tenth, or once there were too many.
    fn goes_on(&self) -> bool {
        self.rates.len() < MOST_WARM_UPS && !self.agree()
    }

    fn is_cut_off(&self) -> bool {
        self.rates.len() >= MOST_WARM_UPS && !self.agree()
    }

    fn agree(&self) -> bool {
        let Some(newest) = self.rates.last_chunk::<3>() else {
            return false;
        };
        percentile(newest, 100) <= percentile(newest, 0) * 1.1
    }
}

/// Measures one name that all tasks of all processes acquire and release. Each round of a side runs beside a
/// round of its base.
pub(super) async fn handoff(plan: &Plan, peers: &mut [Peer], results: &mut Results) -> Result<()> {
    for shape in CONFIGURATIONS {
        for at in 0..peers.len() {
            eprintln!(
                "handoff: {}, {}",
                configuration(shape),
                peers[at].program.name
            );
            let base = peers
                .iter()
                .position(|peer| peer.program.name == peers[at].program.base);
            let base = base.filter(|base| *base != at);
            let mut more = peers[at].more(shape.1 - 1).await?;
            let mut base_more = match base {
                Some(base) => peers[base].more(shape.1 - 1).await?,
                None => Vec::new(),
            };
            let mut warm_up = WarmUp::default();
            let mut left = plan.handoff_rounds;
            while left > 0 {
                let is_counted = !warm_up.goes_on();
                let Some(own) = turn(plan, &mut peers[at], &mut more, shape).await? else {
                    break;
                };
                let other = match base {
                    Some(base) => turn(plan, &mut peers[base], &mut base_more, shape).await?,
                    None => Some(own),
                };
                if !is_counted {
                    warm_up.rates.push(own.per_second);
                    continue;
                }
                left -= 1;
                if let Some(other) = other {
                    let into = results.sides[at]
                        .handoff
                        .entry(configuration(shape))
                        .or_default();
                    into.per_second.push(own.per_second);
                    into.base_per_second.push(other.per_second);
                    into.commands.push(own.commands);
                    into.least_to_most.push(own.least_to_most);
                    into.most.push(own.most);
                }
            }
            let what = || configuration(shape);
            let unsettled = &mut results.sides[at].unsettled;
            unsettled.extend(warm_up.is_cut_off().then(what));
        }
    }
    Ok(())
}

#[derive(Clone, Copy)]
struct Turn {
    per_second: f64,
    commands: f64,
    least_to_most: f64,
    most: f64,
}

async fn turn(
    plan: &Plan,
    peer: &mut Peer,
    more: &mut [Process],
    (tasks, _): (usize, usize),
) -> Result<Option<Turn>> {
    let work = format!("handoff {tasks} {}", plan.handoff_millis);
    let before = peer.commands().await?;
    let Some(done) = peer.tell_all(more, &work).await else {
        return Ok(None);
    };
    let commands = peer.commands().await? - before;
    let all = |field: &str| {
        done.iter()
            .map(|done| number(done, field))
            .collect::<Result<Vec<_>>>()
    };
    let count: f64 = all("count")?.iter().sum();
    let most = all("most")?.into_iter().fold(0.0, f64::max);
    let least = all("least")?.into_iter().fold(most, f64::min);
    Ok(Some(Turn {
        per_second: count / number(&done[0], "millis")? * 1e3,
        commands: commands / count.max(1.0),
        least_to_most: least / most.max(1.0),
        most,
    }))
}

/// Measures held and renewed leases of all sides at once, since processor time is counted and not elapsed
/// time.
pub(super) async fn held(plan: &Plan, peers: &mut [Peer], results: &mut Results) -> Result<()> {
    let mut holding = Vec::new();
    for (at, peer) in peers.iter_mut().enumerate() {
        eprintln!("held: {}", peer.program.name);
        if peer.tell(&format!("hold {}", plan.leases)).await.is_some() {
            holding.push(at);
        }
    }
    let mut before = Vec::new();
    for &at in &holding {
        before.push((
            Instant::now(),
            peers[at].commands().await?,
            peers[at].processor()?,
        ));
    }
    tokio::time::sleep(plan.held).await;
    for (at, (begin, commands, [client, server])) in holding.into_iter().zip(before) {
        let seconds = begin.elapsed().as_secs_f64();
        let [client_now, server_now] = peers[at].processor()?;
        results.sides[at].held = Some(Held {
            seconds,
            commands: peers[at].commands().await? - commands,
            client_cpu: (client_now - client) / seconds * 100.0,
            server_cpu: (server_now - server) / seconds * 100.0,
        });
        peers[at].tell("drop").await;
    }
    Ok(())
}

/// Measures from a DEL of all keys of a held name until its holder hears of it, for all sides at once.
pub(super) async fn loss(peers: &mut [Peer], results: &mut Results) -> Result<()> {
    eprintln!("loss: up to {LOSS_LIMIT:?}");
    let told = futures::future::join_all(peers.iter_mut().map(lose)).await;
    for (told, side) in told.into_iter().zip(&mut results.sides) {
        side.loss = told?;
    }
    Ok(())
}

async fn lose(peer: &mut Peer) -> Result<Option<Loss>> {
    if peer.tell("watch").await.is_none() {
        return Ok(None);
    }
    // Time for the background work after an acquisition to end.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let mut delete = peer.admin.keys("*watched*").await;
    delete.insert(0, "DEL".to_owned());
    let deleted = peer.admin.command(&delete).await;
    if matches!(deleted, Resp::Error(_)) {
        return Err(format!("{delete:?}: {deleted:?}").into());
    }
    let begin = Instant::now();
    let told = timeout_at((begin + LOSS_LIMIT).into(), peer.process.read()).await;
    Ok(Some(Loss {
        millis: told.is_ok().then(|| begin.elapsed().as_secs_f64() * 1e3),
        waited_millis: LOSS_LIMIT.as_secs_f64() * 1e3,
    }))
}

#[cfg(test)]
mod tests {
    use super::{MOST_WARM_UPS, WarmUp};

    #[test]
    fn a_warm_up_ends_when_three_rounds_agree_or_at_its_limit() {
        let warm_up = |rates: &[f64]| WarmUp {
            rates: rates.to_vec(),
        };
        assert!(warm_up(&[]).goes_on());
        assert!(warm_up(&[10.0, 10.0]).goes_on());
        assert!(warm_up(&[1.0, 9.0, 10.0]).goes_on());
        assert!(!warm_up(&[1.0, 9.5, 10.0, 9.8]).goes_on());
        let growing: Vec<f64> = std::iter::successors(Some(1.0), |rate| Some(rate * 2.0))
            .take(MOST_WARM_UPS)
            .collect();
        assert!(!warm_up(&growing).goes_on());
        assert!(warm_up(&growing).is_cut_off());
    }
}
