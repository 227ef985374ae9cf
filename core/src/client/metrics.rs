//! Reports a locker's counts to the crate `metrics`.

use std::sync::{Mutex, PoisonError};

use leasehold_engine::LossReason;
use leasehold_engine::engine::{Histogram, Stats};
use metrics::Unit;

/// The counts reported so far. Only the difference is reported, so that several lockers add up.
#[derive(Default)]
pub(super) struct Recorded(Mutex<Option<Stats>>);

impl Recorded {
    pub(super) fn record(&self, namespace: &str, stats: impl FnOnce() -> Stats) {
        let mut recorded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Taken under the lock, so that of two concurrent calls the later one has the later counts.
        let stats = stats();
        if recorded.is_none() {
            describe(&stats);
        }
        let before = recorded.get_or_insert_default();
        record(namespace, before, &stats);
        *before = stats;
    }
}

fn describe(stats: &Stats) {
    for (name, help, _) in stats.gauges() {
        metrics::describe_gauge!(name, Unit::Count, help);
    }
    for (name, help, _) in stats.counters() {
        metrics::describe_counter!(name, Unit::Count, help);
    }
    let (name, help) = Stats::LOST;
    metrics::describe_counter!(name, Unit::Count, help);
    for (name, help, _) in stats.histograms() {
        metrics::describe_histogram!(name, Unit::Seconds, help);
    }
}

fn record(namespace: &str, before: &Stats, stats: &Stats) {
    let namespace = || namespace.to_owned();
    for ((name, _, now), (_, _, before)) in stats.gauges().into_iter().zip(before.gauges()) {
        let gauge = metrics::gauge!(name, "namespace" => namespace());
        if now >= before {
            gauge.increment(float(now - before));
        } else {
            gauge.decrement(float(before - now));
        }
    }
    for ((name, _, now), (_, _, before)) in stats.counters().into_iter().zip(before.counters()) {
        let counter = metrics::counter!(name, "namespace" => namespace());
        counter.increment(now.saturating_sub(before));
    }
    for reason in LossReason::ALL {
        let more = stats
            .lost
            .of(*reason)
            .saturating_sub(before.lost.of(*reason));
        let labels = [
            ("namespace", namespace()),
            ("reason", reason.code().to_owned()),
        ];
        metrics::counter!(Stats::LOST.0, &labels).increment(more);
    }
    for ((name, _, now), (_, _, before)) in stats.histograms().into_iter().zip(before.histograms())
    {
        let histogram = metrics::histogram!(name, "namespace" => namespace());
        for (value, count) in values(before, now) {
            histogram.record_many(value, count);
        }
    }
}

/// Returns the new times of each bucket, in seconds and with their counts, such that their sum is the right
/// one. Each lies at the same fraction of its bucket.
fn values(before: &Histogram, now: &Histogram) -> Vec<(f64, usize)> {
    let bounds = Histogram::BOUNDS.map(|bound| bound.as_secs_f64());
    let lower = [0.0].into_iter().chain(bounds);
    // The last bucket has no upper bound; assume twice its lower one.
    let last = bounds.last().map(|bound| bound * 2.0);
    let upper = bounds.into_iter().chain(last);
    let counts = now.buckets.iter().zip(before.buckets);
    let counts = counts.map(|(now, before)| now.saturating_sub(before));
    let buckets = lower.zip(upper).zip(counts);
    let buckets: Vec<_> = buckets.filter(|(_, count)| *count > 0).collect();
    let sum = |of: &dyn Fn(f64, f64) -> f64| {
        let terms = buckets.iter();
        let terms = terms.map(|((lower, upper), count)| of(*lower, *upper) * float(*count));
        terms.sum::<f64>()
    };
    let above = now.sum.saturating_sub(before.sum).as_secs_f64() - sum(&|lower, _| lower);
    let width = sum(&|lower, upper| upper - lower);
    let part = (above / width.max(f64::MIN_POSITIVE)).clamp(0.0, 1.0);
    let values = buckets.iter().map(|((lower, upper), count)| {
        let count = usize::try_from(*count).unwrap_or(usize::MAX);
        (lower + part * (upper - lower), count)
    });
    values.collect()
}

#[allow(clippy::cast_precision_loss)]
fn float(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use metrics::{Counter, Gauge, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString};

    use super::*;
    use crate::Locker;

    #[derive(Default)]
    struct Times(Mutex<Vec<f64>>);

    impl HistogramFn for Times {
        fn record(&self, value: f64) {
            self.0.lock().expect("nobody panics").push(value);
        }
    }

    /// A recorder that keeps everything by name and labels.
    #[derive(Default)]
    struct Kept {
        numbers: Mutex<BTreeMap<String, Arc<AtomicU64>>>,
        times: Mutex<BTreeMap<String, Arc<Times>>>,
        described: Mutex<Vec<String>>,
    }

    impl Kept {
        fn number(&self, key: &Key) -> Arc<AtomicU64> {
            let mut numbers = self.numbers.lock().expect("nobody panics");
            numbers.entry(shown(key)).or_default().clone()
        }

        fn describe(&self, key: &KeyName) {
            let mut described = self.described.lock().expect("nobody panics");
            described.push(key.as_str().to_owned());
        }

        fn get(&self, key: &str) -> u64 {
            let numbers = self.numbers.lock().expect("nobody panics");
            numbers[key].load(Ordering::Relaxed)
        }

        fn gauge(&self, key: &str) -> f64 {
            f64::from_bits(self.get(key))
        }

        fn times(&self, key: &str) -> Vec<f64> {
            let times = self.times.lock().expect("nobody panics");
            times[key].0.lock().expect("nobody panics").clone()
        }
    }

    fn shown(key: &Key) -> String {
        let labels = key
            .labels()
            .map(|label| format!(" {}={}", label.key(), label.value()));
        key.name().to_owned() + &labels.collect::<String>()
    }

    impl Recorder for Kept {
        fn describe_counter(&self, key: KeyName, _: Option<Unit>, _: SharedString) {
            self.describe(&key);
        }
        fn describe_gauge(&self, key: KeyName, _: Option<Unit>, _: SharedString) {
            self.describe(&key);
        }
        fn describe_histogram(&self, key: KeyName, _: Option<Unit>, _: SharedString) {
            self.describe(&key);
        }
        fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
            Counter::from_arc(self.number(key))
        }
        fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::from_arc(self.number(key))
        }
        fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> metrics::Histogram {
            let mut times = self.times.lock().expect("nobody panics");
            metrics::Histogram::from_arc(times.entry(shown(key)).or_default().clone())
        }
    }

    /// Catches a count that is reported twice or never, and a locker that overwrites another one's counts.
    #[tokio::test]
    async fn lockers_hand_on_what_is_new_and_add_up() {
        let kept = Kept::default();
        let lockers = [Locker::in_memory(), Locker::in_memory()];
        let record = || {
            metrics::with_local_recorder(&kept, || {
                lockers.iter().for_each(Locker::record_metrics);
            });
        };
        let mut leases = Vec::new();
        for locker in &lockers {
            let lock = locker.lock("a").expect("a valid name");
            leases.push(lock.acquire().await.expect("it is free"));
            locker.force_release("a").await.expect("it is held");
            leases.push(lock.acquire().await.expect("it is free"));
        }
        record();
        record();
        assert_eq!(kept.get("leasehold_acquired_total namespace=leasehold"), 4);
        let lost = "leasehold_lost_total namespace=leasehold reason=revoked";
        assert_eq!(kept.get(lost), 2);
        assert!((kept.gauge("leasehold_held namespace=leasehold") - 2.0).abs() < 0.1);
        let waited = kept.times("leasehold_waiting_seconds namespace=leasehold");
        assert_eq!(waited.len(), 4);
        assert_eq!(kept.described.lock().expect("nobody panics").len(), 2 * 19);
        for lease in leases {
            // Releasing a lost lease fails.
            let _ = lease.release().await;
        }
        record();
        assert!(kept.gauge("leasehold_held namespace=leasehold").abs() < 0.1);
        assert_eq!(kept.get("leasehold_released_total namespace=leasehold"), 2);
    }

    /// Catches a value in a wrong bucket, and a wrong sum.
    #[test]
    fn values_are_in_their_buckets_and_have_their_sum() {
        let mut now = Histogram::default();
        // 1 to 2.5 ms, and 50 to 100 ms.
        (now.buckets[4], now.buckets[9]) = (2, 1);
        now.sum = Duration::from_millis(2 + 2 + 60);
        let values = values(&Histogram::default(), &now);
        let (&[(short, 2), (long, 1)], bounds) = (&values[..], 0.001..=0.0025) else {
            panic!("{values:?}");
        };
        assert!(bounds.contains(&short) && (0.05..=0.1).contains(&long));
        assert!((2.0 * short + long - 0.064).abs() < 1e-9);
        assert!(super::values(&now, &now).is_empty());
    }
}
