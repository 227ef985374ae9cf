//! Writes observations of the locks in the text format of Prometheus. It has no names of locks: there may be many, and
//! they belong to others.

use std::fmt::Write;
use std::time::Instant;

use leasehold_observe::ChangeKind;

use crate::counts::UP_TO;
use crate::json::Store;
use crate::lock_table::LockTable;
use crate::shares::Shares;

/// Returns the body of /metrics.
pub(crate) fn text(table: &LockTable, namespace: &str, now: Instant) -> String {
    let sum = table.sum(now);
    let counts = sum.counts;
    let namespace = label_value(namespace);
    let mut out = Out {
        text: String::new(),
        label: format!("namespace=\"{namespace}\""),
    };
    let up = u64::from(*sum.store == Store::Up);
    out.gauge("store_up", "1 if the store replies.", up);
    let help = "1 if the store reports which locks change.";
    out.gauge("follows", help, u64::from(sum.follows));
    out.gauge("locks_held", "Locks that are held.", sum.held);
    out.gauge("waiting", "Waiters in line.", sum.waiting);
    out.shares(&sum.shares);
    let longest = sum.longest.map_or(0, |(_, waiting)| u64::from(waiting));
    out.gauge("line_longest", "Length of the longest line.", longest);
    let oldest = sum.oldest.map_or(0, |(_, held)| held);
    let help = "How long the oldest holder has held its lock, by its token.";
    out.head("holder_oldest_seconds", help, "gauge");
    out.put("holder_oldest_seconds", "", seconds(oldest));
    let help =
        "Acquisitions that were seen; others may have come between two inspections of a lock.";
    out.counter("acquired_total", help, counts.acquired);
    let help = "Acquisitions by a client that had been seen in line.";
    out.counter("handoffs_total", help, counts.handoffs);
    out.head(
        "ended_total",
        "Tenures that were seen to end, by how they ended.",
        "counter",
    );
    for (kind, count) in ChangeKind::ENDS.into_iter().zip(counts.ends) {
        out.put("ended_total", &format!(",how=\"{}\"", how(kind)), count);
    }
    let help = "Time that waiters spent in line before they got the lock.";
    out.head("waited_seconds", help, "histogram");
    let mut below = 0;
    for (up_to, count) in UP_TO.iter().zip(counts.waits.buckets) {
        below += count;
        let le = format!(",le=\"{}\"", up_to.as_secs_f64());
        out.put("waited_seconds_bucket", &le, below);
    }
    let count: u64 = counts.waits.buckets.iter().sum();
    out.put("waited_seconds_bucket", ",le=\"+Inf\"", count);
    out.put("waited_seconds_sum", "", counts.waits.sum.as_secs_f64());
    out.put("waited_seconds_count", "", count);
    out.counter("looks_total", "Inspections of locks.", sum.looks);
    let help = "Steps of SCAN over the database.";
    out.counter("walk_steps_total", help, sum.steps);
    out.text
}

struct Out {
    text: String,
    label: String,
}

impl Out {
    /// Writes the gauges of shared names. Units have no sum: bytes and rows do not add up.
    fn shares(
        &mut self,
        Shares {
            slots,
            units,
            access,
        }: &Shares,
    ) {
        let all = [("slots", slots), ("units", units), ("access", access)];
        self.head(
            "permits_held",
            "Permits of shared names that are held, by kind.",
            "gauge",
        );
        for (kind, share) in all {
            self.put("permits_held", &sharing(kind), share.permits);
        }
        self.head(
            "permits_waiting",
            "Waiters for shared names, by kind.",
            "gauge",
        );
        for (kind, share) in all {
            self.put("permits_waiting", &sharing(kind), share.waiting);
        }
        self.gauge(
            "slots_in_use",
            "Slots of semaphores that are held.",
            slots.used,
        );
        self.gauge(
            "slots_capacity",
            "Slots that semaphores have.",
            slots.capacity,
        );
        let help = "The part in use of the semaphore or quota with the greatest one.";
        self.head("fullest_ratio", help, "gauge");
        for (kind, share) in &all[..2] {
            self.put("fullest_ratio", &sharing(kind), share.fullest);
        }
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, help, "gauge");
        self.put(name, "", value);
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, help, "counter");
        self.put(name, "", value);
    }

    fn head(&mut self, name: &str, help: &str, kind: &str) {
        let _ = write!(
            self.text,
            "# HELP leasehold_{name} {help}\n# TYPE leasehold_{name} {kind}\n"
        );
    }

    fn put(&mut self, name: &str, labels: &str, value: impl std::fmt::Display) {
        let label = &self.label;
        let _ = writeln!(self.text, "leasehold_{name}{{{label}{labels}}} {value}");
    }
}

fn sharing(kind: &str) -> String {
    format!(",sharing=\"{kind}\"")
}

fn how(kind: ChangeKind) -> &'static str {
    match kind {
        ChangeKind::Released => "released",
        ChangeKind::Expired => "expired",
        ChangeKind::Superseded => "superseded",
        ChangeKind::Revoked => "revoked",
        ChangeKind::Acquired | ChangeKind::Ended => "unseen",
    }
}

/// Converts milliseconds.
fn seconds(millis: u64) -> f64 {
    std::time::Duration::from_millis(millis).as_secs_f64()
}

fn label_value(label: &str) -> String {
    label
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}
