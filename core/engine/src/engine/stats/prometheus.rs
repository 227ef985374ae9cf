//! The statistics in the Prometheus text format.

use std::fmt::{Display, Write};
use std::time::Duration;

use super::{Histogram, Stats};
use crate::error::Error;
use crate::event::LossReason;

/// The name of a metric, its help text, and its value.
pub(crate) type Metric<T> = (&'static str, &'static str, T);

impl Stats {
    /// Returns the text for Prometheus to scrape (`text/plain; version=0.0.4`), with these labels on each
    /// line. Values of labels are escaped. Fails with [`ErrorKind::Config`] if a label's name is invalid,
    /// reserved or given twice.
    ///
    /// | metric | |
    /// |---|---|
    /// | `leasehold_held`, `leasehold_waiting` | gauges |
    /// | `leasehold_acquired_total`, `leasehold_busy_total`, `leasehold_failed_total`, `leasehold_released_total` | counters |
    /// | `leasehold_lost_total` | counter, with the label `reason`: `expired`, `deleted`, `superseded`, `revoked`, `shutdown`, `overheld` |
    /// | `leasehold_renewals_total`, `leasehold_renewal_failures_total` | counters |
    /// | `leasehold_ticks_completed_total`, `leasehold_ticks_repeated_total`, `leasehold_ticks_missed_total` | counters |
    /// | `leasehold_script_calls_total`, `leasehold_operations_total`, `leasehold_timeouts_total`, `leasehold_pushes_total` | counters |
    /// | `leasehold_waiting_seconds`, `leasehold_holding_seconds`, `leasehold_round_trip_seconds` | histograms |
    ///
    /// ```
    /// # use leasehold_engine as leasehold;
    /// let mut stats = leasehold::Stats::default();
    /// stats.held = 1;
    /// let text = stats.to_prometheus(&[("service", "shop")])?;
    /// assert!(text.contains("\nleasehold_held{service=\"shop\"} 1\n"));
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// [`ErrorKind::Config`]: crate::ErrorKind::Config
    pub fn to_prometheus(&self, labels: &[(&str, &str)]) -> Result<String, Error> {
        let mut shown = String::new();
        for (at, (name, value)) in labels.iter().enumerate() {
            let earlier = labels.iter().take(at);
            if !is_label(name) || earlier.clone().any(|(other, _)| other == name) {
                let rule = format!("cannot have the name {name:?}");
                return Err(Error::bad_option("a label of metrics", rule));
            }
            // Here and below, writing to a string cannot fail.
            let _ = write!(shown, "{name}=\"{}\",", escaped(value));
        }
        let mut page = Page {
            text: String::new(),
            labels: shown,
        };
        for (name, help, value) in self.gauges() {
            page.metric(name, "gauge", help);
            page.line(name, "", value);
        }
        for (name, help, value) in self.counters() {
            page.metric(name, "counter", help);
            page.line(name, "", value);
        }
        page.metric(Self::LOST.0, "counter", Self::LOST.1);
        for reason in LossReason::ALL {
            let label = format!("reason=\"{}\"", reason.code());
            page.line(Self::LOST.0, &label, self.lost.of(*reason));
        }
        for (name, help, histogram) in self.histograms() {
            page.metric(name, "histogram", help);
            page.histogram(name, histogram);
        }
        Ok(page.text)
    }
}

/// All metrics.
impl Stats {
    /// The metric that has the label `reason`.
    #[doc(hidden)]
    pub const LOST: (&'static str, &'static str) =
        ("leasehold_lost_total", "Tenures that were lost.");

    #[doc(hidden)]
    pub fn gauges(&self) -> [Metric<u64>; 2] {
        [
            ("leasehold_held", "Tenures that are held.", self.held),
            (
                "leasehold_waiting",
                "Acquisitions in progress.",
                self.waiting,
            ),
        ]
    }

    #[doc(hidden)]
    pub fn counters(&self) -> [Metric<u64>; 13] {
        [
            (
                "leasehold_acquired_total",
                "Tenures that began.",
                self.acquired,
            ),
            (
                "leasehold_busy_total",
                "Calls that did not get the lock because another holder has it.",
                self.busy,
            ),
            (
                "leasehold_failed_total",
                "Calls to acquire that failed.",
                self.failed,
            ),
            (
                "leasehold_released_total",
                "Tenures that were released.",
                self.released,
            ),
            (
                "leasehold_renewals_total",
                "Renewals that extended a lease.",
                self.renewals,
            ),
            (
                "leasehold_renewal_failures_total",
                "Renewals that failed, and warnings that the store cannot be reached.",
                self.renewal_failures,
            ),
            (
                "leasehold_ticks_completed_total",
                "Turns of jobs that completed their tick.",
                self.ticks_completed,
            ),
            (
                "leasehold_ticks_repeated_total",
                "Turns whose tick an earlier turn had begun and not completed.",
                self.ticks_repeated,
            ),
            (
                "leasehold_ticks_missed_total",
                "Ticks that nobody completed before the turns.",
                self.ticks_missed,
            ),
            (
                "leasehold_script_calls_total",
                "Script calls.",
                self.script_calls,
            ),
            (
                "leasehold_operations_total",
                "Operations in script calls.",
                self.operations,
            ),
            (
                "leasehold_timeouts_total",
                "Script calls without a reply in time.",
                self.timeouts,
            ),
            (
                "leasehold_pushes_total",
                "Messages on the client's channel.",
                self.pushes,
            ),
        ]
    }

    #[doc(hidden)]
    pub fn histograms(&self) -> [Metric<&Histogram>; 3] {
        [
            (
                "leasehold_waiting_seconds",
                "How long calls waited for the lock that they got.",
                &self.waiting_times,
            ),
            (
                "leasehold_holding_seconds",
                "How long tenures lasted.",
                &self.holding_times,
            ),
            (
                "leasehold_round_trip_seconds",
                "How long script calls took.",
                &self.round_trips,
            ),
        ]
    }
}

struct Page {
    text: String,
    /// The labels of all lines, each followed by a comma.
    labels: String,
}

impl Page {
    fn metric(&mut self, name: &str, kind: &str, help: &str) {
        let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn line(&mut self, name: &str, label: &str, value: impl Display) {
        let labels = format!("{}{label}", self.labels);
        let labels = match labels.trim_end_matches(',') {
            "" => String::new(),
            labels => format!("{{{labels}}}"),
        };
        let _ = writeln!(self.text, "{name}{labels} {value}");
    }

    /// Writes a histogram. Each bucket also counts the durations of the buckets before it.
    fn histogram(&mut self, name: &str, histogram: &Histogram) {
        let bucket = format!("{name}_bucket");
        let mut count = 0;
        let bounds = Histogram::BOUNDS.iter().map(Duration::as_secs_f64);
        let bounds = bounds.map(|bound| bound.to_string());
        let bounds = bounds.chain(["+Inf".to_owned()]);
        for (bound, more) in bounds.zip(histogram.buckets) {
            count += more;
            self.line(&bucket, &format!("le=\"{bound}\""), count);
        }
        self.line(&format!("{name}_sum"), "", histogram.sum.as_secs_f64());
        self.line(&format!("{name}_count"), "", histogram.count);
    }
}

/// True if this is a valid name for a label and reserved neither by these metrics nor by Prometheus.
fn is_label(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes
        .next()
        .is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && !name.starts_with("__")
        && !["le", "reason"].contains(&name)
}

fn escaped(value: &str) -> String {
    let value = value.replace('\\', r"\\").replace('"', "\\\"");
    value.replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::stats::Counts;

    /// Catches a value that ends its line or its quotes, and a name that ends the labels.
    #[test]
    fn labels_cannot_break_out() {
        let stats = Stats::default();
        let text = stats.to_prometheus(&[("service", "a\"b\\c\nd"), ("_x1", "ü")]);
        let text = text.expect("the names are valid");
        assert!(text.contains("leasehold_held{service=\"a\\\"b\\\\c\\nd\",_x1=\"ü\"} 0\n"));
        for name in ["", "1a", "a-b", "a=\"", "ü", "__name__", "le", "reason"] {
            let refused = stats.to_prometheus(&[(name, "")]);
            assert!(refused.is_err_and(|error| error.is_config()), "{name}");
        }
        let twice = stats.to_prometheus(&[("a", "1"), ("a", "2")]);
        assert!(twice.is_err());
    }

    /// Catches buckets that are not cumulative, a malformed line, and a metric without a type.
    #[test]
    fn the_text_has_the_prometheus_format() {
        let mut counts = Counts::new();
        let at = crate::time::Timestamp::from_nanos;
        for micros in [50, 100, 101, 9_000_000_000] {
            counts.replied(at(micros * 1_000), at(0));
        }
        let text = Stats::from(counts).to_prometheus(&[]);
        let text = text.expect("there are no labels");
        for line in [
            "# TYPE leasehold_round_trip_seconds histogram",
            "leasehold_round_trip_seconds_bucket{le=\"0.0001\"} 2",
            "leasehold_round_trip_seconds_bucket{le=\"0.00025\"} 3",
            "leasehold_round_trip_seconds_bucket{le=\"3600\"} 3",
            "leasehold_round_trip_seconds_bucket{le=\"+Inf\"} 4",
            "leasehold_round_trip_seconds_sum 9000.000251",
            "leasehold_round_trip_seconds_count 4",
            "leasehold_lost_total{reason=\"revoked\"} 0",
            "leasehold_held 0",
        ] {
            assert!(text.lines().any(|own| own == line), "{line} in {text}");
        }
        let mut kinds = text.lines().filter(|line| line.starts_with("# TYPE "));
        assert_eq!(kinds.clone().count(), 19);
        assert!(kinds.all(|line| line.split(' ').count() == 4));
        let values = text.lines().filter(|line| !line.starts_with('#'));
        for line in values {
            let value = line.rsplit_once(' ').map(|(_, value)| value.parse::<f64>());
            assert!(matches!(value, Some(Ok(0.0..))), "{line}");
        }
    }
}
