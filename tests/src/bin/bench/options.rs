//! The command line.

use std::time::Duration;

use crate::Result;

pub(crate) const USAGE: &str = "\
What the lock costs, on a redis-server of its own. Figures are medians over rounds that take
turns with those of what they are compared with; ratios are within one run.

  roundtrip  a sequential acquire and release, beside two bare round trips
  handoff    from a holder's release to the next waiter's lease, beside one PING, with 2 and 16
             contenders, each with connections of its own, in one process and in two
  many       100,000 leases held for three periods of renewal: script calls, CPU, memory
  pairs      acquire and release on distinct names by 1 to 256 callers, beside bare script calls,
             SET NX PX and a compare-and-delete through the same client, and redis-benchmark
  clients    the same through fred and through redis-rs, beside SET NX PX and a compare-and-delete on each
  quorum     pairs at 3 and 5 servers, beside one of them, by 1 and 64 callers, and what bare calls lose
             that wait for a majority of them; and beside redlock in Node and redsync in Go on the same five
  topologies pairs and handoffs by TLS, on a cluster of three and there by redis-rs, beside a plain server;
             and the first lease in round trips, there and behind a sentinel
  cluster-handoff
             what all nodes of a cluster of 3, 6 and 12 masters do for one handoff

options:
  --rounds N    rounds of roundtrip, handoff, pairs, clients, quorum, topologies and cluster-handoff after one that warms up; 11 by default
  --turns N     handoff: how often each round hands the lock over; 800 by default
  --leases N    many: 100000 by default
  --ttl SECONDS many: 30 by default; the aims are for that
  --periods N   many: how many thirds of the time to live; 3 by default
  --callers N   pairs, quorum: only with so many
  --alone 1     pairs, quorum: nothing but the lock, for a profiler
  --node FILE   quorum: the program of the peers in Node; without it they are not measured
  --go FILE     quorum: the same in Go
";

#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) rounds: usize,
    pub(crate) turns: usize,
    pub(crate) leases: usize,
    pub(crate) ttl: Duration,
    pub(crate) periods: u32,
    pub(crate) callers: Option<usize>,
    pub(crate) alone: bool,
    pub(crate) node: Option<String>,
    pub(crate) go: Option<String>,
}

impl Options {
    pub(crate) fn parse(args: &[&str]) -> Result<Self> {
        let mut options = Self {
            rounds: 11,
            turns: 800,
            leases: 100_000,
            ttl: Duration::from_secs(30),
            periods: 3,
            callers: None,
            alone: false,
            node: None,
            go: None,
        };
        for pair in args.chunks(2) {
            let &[option, value] = pair else {
                return Err(format!("{} needs a value\n\n{USAGE}", pair[0]).into());
            };
            match option {
                "--node" => options.node = Some(value.to_owned()),
                "--go" => options.go = Some(value.to_owned()),
                _ => options.set(option, value)?,
            }
        }
        Ok(options)
    }

    fn set(&mut self, option: &str, value: &str) -> Result<()> {
        let number = value.parse::<u32>().ok().filter(|number| *number > 0);
        let number = number.ok_or_else(|| format!("{option}: {value:?} is not 1 or more"))?;
        let count = usize::try_from(number)?;
        match option {
            "--rounds" => self.rounds = count,
            "--turns" => self.turns = count,
            "--leases" => self.leases = count,
            "--ttl" => self.ttl = Duration::from_secs(number.into()),
            "--periods" => self.periods = number,
            "--callers" => self.callers = Some(count),
            "--alone" => self.alone = true,
            _ => return Err(format!("there is no option {option:?}\n\n{USAGE}").into()),
        }
        Ok(())
    }
}
