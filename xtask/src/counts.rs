//! The number of tests that ran, read from the output of `cargo test` and `node --test`.

use std::fmt;
use std::ops::AddAssign;

/// Tests that passed, failed and were skipped (`#[ignore]`, `{ skip: true }`).
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

impl Counts {
    /// Reads a line of results; returns `None` for any other line.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        Self::parse_cargo(line).or_else(|| Self::parse_node(line))
    }

    /// Reads the results of a test binary, which are in one line.
    fn parse_cargo(line: &str) -> Option<Self> {
        let (_, result) = line.split_once("test result: ")?;
        let (_, counts) = result.split_once(". ")?;
        let count = |word: &str| {
            counts
                .split(';')
                .find_map(|part| part.trim().strip_suffix(word)?.trim().parse().ok())
        };
        Some(Self {
            passed: count("passed")?,
            failed: count("failed")?,
            skipped: count("ignored")?,
        })
    }

    /// Reads a line of Node's reporter `spec`, which has a line for each count: `ℹ pass 3`.
    fn parse_node(line: &str) -> Option<Self> {
        let (what, count) = line.trim_end().strip_prefix("ℹ ")?.split_once(' ')?;
        let count = count.parse().ok()?;
        let mut counts = Self::default();
        match what {
            "pass" => counts.passed = count,
            // Cancelled: the test did not end in time, or its parent failed.
            "fail" | "cancelled" => counts.failed = count,
            "skipped" | "todo" => counts.skipped = count,
            _ => return None,
        }
        Some(counts)
    }

    /// Returns how many tests really ran.
    pub(crate) fn ran(self) -> u64 {
        self.passed + self.failed
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            passed,
            failed,
            skipped,
        } = self;
        write!(f, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}

#[cfg(test)]
mod tests {
    use super::Counts;

    #[test]
    fn a_result_line_is_read() {
        let line = "test result: ok. 12 passed; 0 failed; 3 ignored; 0 measured; \
                    7 filtered out; finished in 0.01s";
        assert_eq!(
            Counts::parse(line),
            Some(Counts {
                passed: 12,
                failed: 0,
                skipped: 3
            })
        );
    }

    #[test]
    fn a_failed_result_line_is_read_after_other_output() {
        let line = "noise without an end of line test result: FAILED. 1 passed; 2 failed; \
                    0 ignored; 0 measured; 0 filtered out; finished in 1.50s\n";
        assert_eq!(
            Counts::parse(line),
            Some(Counts {
                passed: 1,
                failed: 2,
                skipped: 0
            })
        );
    }

    #[test]
    fn other_lines_are_ignored() {
        for line in [
            "",
            "running 3 tests",
            "test a::b ... ok",
            "test result: ok",
            "3 passed",
        ] {
            assert_eq!(Counts::parse(line), None, "{line:?}");
        }
    }

    #[test]
    fn the_lines_of_nodes_reporter_are_added_up() {
        let printed = "▶ a suite\n  ✔ works (1.2ms)\nℹ tests 9\nℹ suites 1\nℹ pass 3\nℹ fail 1\n\
                       ℹ cancelled 2\nℹ skipped 2\nℹ todo 1\nℹ duration_ms 45.6\n";
        let mut sum = Counts::default();
        printed
            .lines()
            .filter_map(Counts::parse)
            .for_each(|more| sum += more);
        assert_eq!(
            sum,
            Counts {
                passed: 3,
                failed: 3,
                skipped: 3
            }
        );
        for line in ["ℹ pass", "ℹ pass many", "  ℹ pass 1", "pass 1"] {
            assert_eq!(Counts::parse(line), None, "{line:?}");
        }
    }

    #[test]
    fn counts_are_added_up_and_printed() {
        let mut sum = Counts {
            passed: 1,
            failed: 2,
            skipped: 3,
        };
        sum += Counts {
            passed: 10,
            failed: 20,
            skipped: 30,
        };
        assert_eq!(sum.to_string(), "11 passed, 22 failed, 33 skipped");
        assert_eq!(sum.ran(), 33);
    }
}
