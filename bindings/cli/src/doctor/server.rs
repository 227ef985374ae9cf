//! Checks the server: its speed, version, memory, persistence, replicas, scripts and clock.

use std::collections::HashMap;
use std::time::{Duration, Instant, SystemTime};

use super::{Found, Level};
use crate::probe::Probe;
use crate::times::show;

const ROUND_TRIPS: usize = 25;
const SLOW: Duration = Duration::from_millis(50);
const VERY_SLOW: Duration = Duration::from_millis(500);
/// The largest difference of two synchronized clocks.
const CLOCK_OFF: Duration = Duration::from_secs(1);
/// The number of cached scripts that suggests a program generates them.
const MANY_SCRIPTS: u64 = 1_000;

/// Measures round trips and the clock.
pub(super) async fn pace(probe: &Probe) -> Vec<Found> {
    let mut trips = Vec::new();
    let mut offset: Option<(Duration, f64)> = None;
    for _ in 0..ROUND_TRIPS {
        let (start, wall) = (
            Instant::now(),
            SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default(),
        );
        let time = match probe.time().await {
            Ok(time) => time,
            Err(refusal) => {
                let what = format!("the server's clock cannot be read: {}", refusal.0);
                return vec![Found::new("round trip", Level::Bad, what)];
            }
        };
        let trip = start.elapsed();
        // The shortest round trip shows most exactly when the server read its clock.
        if offset.is_none_or(|(shortest, _)| trip < shortest) {
            offset = Some((trip, time.as_secs_f64() - (wall + trip / 2).as_secs_f64()));
        }
        trips.push(trip);
    }
    trips.sort();
    let clock = offset.map(|(_, offset)| clock(offset));
    [round_trip(&trips)].into_iter().chain(clock).collect()
}

fn round_trip(sorted: &[Duration]) -> Found {
    let at = |share: usize| sorted[(sorted.len() - 1) * share / 100];
    let (median, most) = (at(50), at(100));
    let what = format!(
        "{} (median of {}; from {} to {})",
        exactly(median),
        sorted.len(),
        exactly(at(0)),
        exactly(most)
    );
    let level = match median {
        median if median >= VERY_SLOW => Level::Warning,
        median if median >= SLOW => Level::Note,
        _ => Level::Good,
    };
    let found = Found::new("round trip", level, what);
    if level == Level::Good {
        return found;
    }
    found
        .so("acquiring a lock takes at least this long, and a time to live should be many times longer")
        .todo("put the store nearer to its clients, or set longer times to live")
}

pub(super) fn exactly(time: Duration) -> String {
    match time.as_micros() {
        micros @ 0..10_000 => format!("{micros} µs"),
        micros => format!("{} ms", micros / 1_000),
    }
}

fn clock(offset: f64) -> Found {
    let by = Duration::from_secs_f64(offset.abs());
    if by < CLOCK_OFF {
        let what = format!(
            "the server's clock differs from this machine's by {}",
            exactly(by)
        );
        return Found::good("clock", what);
    }
    // The measurement is exact to a part of a round trip.
    let rounded = Duration::from_secs_f64((offset.abs() * 10.0).round() / 10.0);
    let way = if offset > 0.0 { "ahead of" } else { "behind" };
    Found::new(
        "clock",
        Level::Warning,
        format!("the server's clock is {} {way} this machine's", show(rounded)),
    )
    .so("this does not shorten leases, but one of the clocks is wrong: if the server's clock is set while the server \
         runs, locks expire too early or too late, and tokens stand still until the clock has caught up")
    .todo("synchronize both clocks (ntpd, chrony with maxslewrate 500), and step a clock only before the server starts")
}

/// The fields of `INFO`.
pub(super) async fn look(probe: &Probe) -> Vec<Found> {
    match probe.info().await {
        Ok(info) => {
            let info = Info(info);
            let all = [
                version(&info),
                memory(&info),
                keeps(&info),
                replicas(&info),
                scripts(&info),
            ];
            all.into_iter().flatten().collect()
        }
        // The check of rights reports what that means.
        Err(refusal) if refusal.want().is_some() => Vec::new(),
        Err(refusal) => vec![
            Found::new(
                "info",
                Level::Note,
                format!("INFO is refused: {}", refusal.0),
            )
            .so("version, eviction, persistence and replicas cannot be checked"),
        ],
    }
}

struct Info(HashMap<String, String>);

impl Info {
    fn text(&self, field: &str) -> Option<&str> {
        self.0.get(field).map(String::as_str)
    }

    fn number(&self, field: &str) -> Option<u64> {
        self.text(field)?.parse().ok()
    }

    fn is(&self, field: &str, value: &str) -> bool {
        self.text(field) == Some(value)
    }
}

fn version(info: &Info) -> Vec<Found> {
    let Some(version) = info.text("redis_version") else {
        return vec![Found::new(
            "version",
            Level::Note,
            "the server does not say its version",
        )];
    };
    let major: u64 = version
        .split('.')
        .next()
        .and_then(|major| major.parse().ok())
        .unwrap_or(0);
    let what = match info.text("valkey_version") {
        Some(valkey) => format!("Valkey {valkey}, as Redis {version}"),
        None => format!("Redis {version}"),
    };
    let version = if major >= 7 {
        Found::good("version", what)
    } else {
        Found::new("version", Level::Bad, what)
            .so("the script needs features of Redis 7.0: no lock can be taken")
            .todo("use Redis 7.0 or newer")
    };
    let mode = info.is("cluster_enabled", "1").then(|| {
        Found::new("topology", Level::Note, "the server belongs to a cluster")
            .so("only this node was checked")
    });
    [Some(version), mode].into_iter().flatten().collect()
}

fn memory(info: &Info) -> Vec<Found> {
    let (Some(used), Some(most)) = (info.number("used_memory"), info.number("maxmemory")) else {
        return Vec::new();
    };
    let evicts = !info.is("maxmemory_policy", "noeviction");
    if most == 0 {
        let what = format!("{} used, and no maxmemory is set", size(used));
        return vec![Found::good("memory", what)];
    }
    let what = format!("{} of {} used", size(used), size(most));
    if used / 9 < most / 10 {
        return vec![Found::good("memory", what)];
    }
    let so = if evicts {
        "keys will be evicted soon, locks among them"
    } else {
        "the server will refuse writes soon, and then no lock can be taken or renewed"
    };
    vec![
        Found::new("memory", Level::Warning, what)
            .so(so)
            .todo("give the server more memory, or move other data elsewhere"),
    ]
}

fn size(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(1 << 20))
}

fn keeps(info: &Info) -> Vec<Found> {
    let failed = [
        ("rdb_last_bgsave_status", "the last snapshot failed"),
        (
            "aof_last_write_status",
            "the last write to the append-only file failed",
        ),
        (
            "aof_last_bgrewrite_status",
            "the last rewrite of the append-only file failed",
        ),
    ];
    let failed = failed
        .into_iter()
        .filter(|(field, _)| info.is(field, "err"));
    let mut found: Vec<_> = failed
        .map(|(_, what)| {
            Found::new("persistence", Level::Warning, what)
                .so("the server may refuse writes until this is fixed, and then no lock can be taken")
                .todo("see the server's log and the disk")
        })
        .collect();
    if info.is("loading", "1") {
        found.push(Found::new(
            "persistence",
            Level::Warning,
            "the server is still loading its data",
        ));
    }
    found.push(if info.is("aof_enabled", "1") {
        Found::good("persistence", "there is an append-only file")
    } else {
        Found::new("persistence", Level::Note, "there is no append-only file")
            .so("a restart may lose locks: such a lock may have two holders until the first one's next renewal. Their \
                 tokens differ, unless they are dense")
            .todo("set appendonly yes if that matters, and check tokens in the storage that holders write to")
    });
    found
}

fn replicas(info: &Info) -> Vec<Found> {
    if info.is("role", "slave") {
        return vec![
            Found::new("replicas", Level::Bad, "the server is a replica")
                .so("a replica accepts no writes: no lock can be taken")
                .todo("name the primary in the URL"),
        ];
    }
    let connected = info.number("connected_slaves").unwrap_or(0);
    if connected == 0 {
        return vec![
            Found::new("replicas", Level::Note, "there is no replica")
                .so("while the server is down no lock can be taken, and held ones are lost after their time to live")
        ];
    }
    vec![
        Found::new("replicas", Level::Note, format!("{connected} connected"))
            .so("a failover to a lagging replica can give a lock to a second holder for up to a lease's life; \
                 its token is greater")
            .todo("check tokens in the storage that holders write to"),
    ]
}

fn scripts(info: &Info) -> Vec<Found> {
    let Some(scripts) = info.number("number_of_cached_scripts") else {
        return Vec::new();
    };
    let what = format!("{scripts} cached");
    if scripts < MANY_SCRIPTS {
        return vec![Found::good("scripts", what)];
    }
    vec![
        Found::new("scripts", Level::Warning, what)
            .so("a program generates new scripts all the time, which fill the server's memory")
            .todo("find the program (MONITOR), and have it pass changing values as ARGV"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(fields: &[(&str, &str)]) -> Info {
        let fields = fields.iter();
        Info(
            fields
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
        )
    }

    fn worst(found: &[Found]) -> Level {
        found
            .iter()
            .map(|found| found.level)
            .max()
            .expect("something was found")
    }

    #[test]
    fn a_clock_that_is_off_is_found_either_way() {
        for (offset, way) in [(9.999_9, "ahead of"), (-10.000_1, "behind")] {
            let found = clock(offset);
            assert_eq!(found.level, Level::Warning);
            assert!(
                found.what.contains("is 10s") && found.what.contains(way),
                "{}",
                found.what
            );
        }
        assert_eq!(clock(0.9).level, Level::Good);
        assert_eq!(clock(-0.000_1).level, Level::Good);
    }

    #[test]
    fn a_slow_link_is_found_by_its_median() {
        let trips = |median| {
            let mut trips = vec![Duration::from_millis(median); 11];
            trips.extend([Duration::from_secs(2); 10]);
            round_trip(&trips).level
        };
        assert_eq!(trips(2), Level::Good);
        assert_eq!(trips(60), Level::Note);
        assert_eq!(trips(600), Level::Warning);
    }

    #[test]
    fn what_info_says_is_judged() {
        assert_eq!(
            worst(&version(&info(&[("redis_version", "6.2.14")]))),
            Level::Bad
        );
        assert_eq!(
            worst(&version(&info(&[("redis_version", "7.0.0")]))),
            Level::Good
        );
        let full = |used, policy| {
            let fields = [
                ("used_memory", used),
                ("maxmemory", "1000"),
                ("maxmemory_policy", policy),
            ];
            memory(&info(&fields))
        };
        assert_eq!(worst(&full("800", "noeviction")), Level::Good);
        assert!(
            full("950", "noeviction")[0]
                .so
                .as_ref()
                .expect("it has")
                .contains("refuse")
        );
        assert!(
            full("950", "allkeys-lru")[0]
                .so
                .as_ref()
                .expect("it has")
                .contains("evicted")
        );
        assert_eq!(worst(&keeps(&info(&[("aof_enabled", "1")]))), Level::Good);
        assert_eq!(
            worst(&keeps(&info(&[("rdb_last_bgsave_status", "err")]))),
            Level::Warning
        );
        assert_eq!(worst(&replicas(&info(&[("role", "slave")]))), Level::Bad);
        assert_eq!(
            worst(&scripts(&info(&[("number_of_cached_scripts", "5000")]))),
            Level::Warning
        );
    }
}
