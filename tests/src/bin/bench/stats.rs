//! Clocks, medians and how figures are shown.

use std::cmp::Ordering;

use rustix::time::{ClockId, clock_gettime};

use crate::Result;

/// Nanoseconds on the machine's monotonic clock: the same one in all its processes.
pub(crate) fn now() -> i64 {
    nanos(ClockId::Monotonic)
}

/// Nanoseconds of processor time that this process has used, in all its threads.
pub(crate) fn processor_time() -> i64 {
    nanos(ClockId::ProcessCPUTime)
}

fn nanos(clock: ClockId) -> i64 {
    let time = clock_gettime(clock);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

pub(crate) fn micros(nanos: i64) -> f64 {
    nanos as f64 / 1e3
}

/// How many microseconds the work takes, each time.
pub(crate) async fn times(
    count: usize,
    mut work: impl AsyncFnMut() -> Result<()>,
) -> Result<Vec<f64>> {
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let begin = now();
        work().await?;
        times.push(micros(now() - begin));
    }
    Ok(times)
}

pub(crate) fn median(values: &[f64]) -> f64 {
    percentile(values, 50)
}

/// The percentile: this many per cent of the values are no greater. 0 if there are none.
pub(crate) fn percentile(values: &[f64], percent: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(|one, other| one.partial_cmp(other).unwrap_or(Ordering::Equal));
    let last = sorted.len().saturating_sub(1);
    sorted
        .get(last * percent / 100)
        .copied()
        .unwrap_or_default()
}

/// The process's resident memory in bytes.
pub(crate) fn resident() -> Result<usize> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line
        .and_then(|line| line.split_whitespace().next())
        .ok_or("/proc/self/status has no VmRSS")?;
    Ok(kib.parse::<usize>()? * 1_024)
}

/// One line of a report: what was measured, beside what it should be.
pub(crate) fn line(what: &str, figure: &str, aim: &str) {
    let aim = if aim.is_empty() {
        String::new()
    } else {
        format!("aim {aim}")
    };
    println!(
        "{}",
        format!("  {what:<44} {figure:>22}   {aim}").trim_end()
    );
}
