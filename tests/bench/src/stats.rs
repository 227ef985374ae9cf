//! Clocks, medians, and the format of figures.

use leasehold_tests::Admin;
use rustix::time::{ClockId, clock_gettime};

use crate::Result;

/// Returns the microseconds of processor time that this process has used, in all its threads.
pub(crate) fn processor_time() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

/// Returns the number of context switches of all threads of this process.
pub(crate) fn context_switches() -> Result<f64> {
    let mut sum = 0.0;
    for thread in std::fs::read_dir("/proc/self/task")? {
        let status = std::fs::read_to_string(thread?.path().join("status"))?;
        let counts = status
            .lines()
            .filter_map(|line| line.split_once("ctxt_switches:"));
        for (_, count) in counts {
            sum += count.trim().parse::<f64>()?;
        }
    }
    Ok(sum)
}

/// Returns the microseconds of processor time that a server has used.
pub(crate) async fn server_time(admin: &mut Admin) -> Result<f64> {
    let mut sum = 0.0;
    for field in ["used_cpu_user", "used_cpu_sys"] {
        let seconds = admin.info("cpu", field).await.ok_or("INFO has no CPU")?;
        sum += seconds.parse::<f64>()? * 1e6;
    }
    Ok(sum)
}

/// Returns the seconds of processor time that a process has used, in all its threads, to a hundredth.
pub(crate) fn seconds_of(process: u32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The program's name may contain any character, so the fields begin after it.
    let (_, fields) = stat.rsplit_once(") ").ok_or("/proc names the program")?;
    // The time in the program and in the kernel: the 14th and 15th of all fields.
    let mut times = fields.split(' ').skip(11).take(2);
    let ticks = times.try_fold(0.0, |sum, time| time.parse::<f64>().map(|time| sum + time))?;
    Ok(ticks / 100.0)
}

/// Returns this process's resident memory in bytes.
pub(crate) fn resident() -> Result<usize> {
    Ok(status("VmRSS:")? * 1_024)
}

/// Returns the number of this process's threads.
pub(crate) fn threads() -> Result<usize> {
    status("Threads:")
}

fn status(field: &str) -> Result<usize> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let value = status.lines().find_map(|line| line.strip_prefix(field));
    let number = value.and_then(|value| value.split_whitespace().next());
    let number = number.ok_or_else(|| format!("/proc/self/status has no {field}"))?;
    Ok(number.parse()?)
}

/// Returns the middle value, or NaN if there are none.
pub(crate) fn median(values: &[f64]) -> f64 {
    percentile(values, 50)
}

/// Returns the value that this percentage of the values does not exceed, or NaN if there are none.
pub(crate) fn percentile(values: &[f64], percent: usize) -> f64 {
    permille(values, percent * 10)
}

/// Returns the value that this many thousandths of the values do not exceed, or NaN if there are none.
pub(crate) fn permille(values: &[f64], thousandths: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    sorted
        .get(last * thousandths / 1_000)
        .copied()
        .unwrap_or(f64::NAN)
}

/// Returns the rounds' ratios: sides take turns, so each round is compared with its neighbor.
pub(crate) fn ratios(own: &[f64], others: &[f64]) -> Vec<f64> {
    let ratios = own.iter().zip(others).filter(|(_, other)| **other > 0.0);
    ratios.map(|(own, other)| own / other).collect()
}

/// Shows the median, and the least and the greatest value: `1.20 (1.00–1.50)`.
pub(crate) fn spread(values: &[f64]) -> String {
    if values.is_empty() {
        return number(f64::NAN);
    }
    let [median, least, greatest] = [50, 0, 100].map(|at| number(percentile(values, at)));
    format!("{median} ({least}–{greatest})")
}

/// Shows a number to three digits; `-` if it is none.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        0.0.. => format!("{value:.2}"),
        _ => "-".to_owned(),
    }
}

/// Shows a number of callers.
pub(crate) fn callers(count: usize) -> String {
    match count {
        1 => "1 caller".to_owned(),
        _ => format!("{count} callers"),
    }
}

/// Prints one line: a measured figure beside its target.
pub(crate) fn line(what: &str, figure: &str, aim: &str) {
    let aim = if aim.is_empty() {
        String::new()
    } else {
        format!("   aim {aim}")
    };
    println!("  {what:<44} {figure:>22}{aim}");
}

#[cfg(test)]
mod tests {
    use super::{median, ratios, spread};

    #[test]
    fn takes_the_middle() {
        assert!(median(&[]).is_nan());
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
        let ratios = ratios(&[2.0, 9.0, 8.0, 1.0], &[1.0, 3.0, 2.0, 0.0]);
        assert_eq!(spread(&ratios), "3.00 (2.00–4.00)");
        assert_eq!(spread(&[]), "-");
    }
}
