//! The command line.

use std::time::Duration;

pub(crate) const USAGE: &str = "\
What a guard costs: the time of a guarded write as a ratio to that of the same write without a
guard, on servers of its own. A plain and a guarded write take turns, and so does which of them is
first. Each round gives the ratio of the medians of its writes; shown are the median of the rounds'
ratios, and the lowest and the highest of them.

options:
  --rounds N     of each row, after one that warms up; 1 to 1000, 11 by default
  --millis N     how long a round lasts; 10 to 60000, 1000 by default
  --only STORE   gate, redis, postgres, mariadb, sqlite, memory or s3; may be given several times
  --control      compares each plain write with itself: every ratio must be near 1
";

/// The stores, in the order in which they are measured.
pub(crate) const STORES: [&str; 7] = [
    "gate", "redis", "postgres", "mariadb", "sqlite", "memory", "s3",
];

#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Options {
    pub(crate) rounds: u32,
    pub(crate) round: Duration,
    pub(crate) only: Vec<String>,
    pub(crate) control: bool,
}

impl Options {
    pub(crate) fn parse(args: &[String]) -> Result<Self, String> {
        let mut options = Self {
            rounds: 11,
            round: Duration::from_secs(1),
            only: Vec::new(),
            control: false,
        };
        let mut args = args.iter();
        while let Some(option) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{option} needs a value"));
            match option.as_str() {
                "--rounds" => options.rounds = number(option, value()?, 1, 1_000)?,
                "--millis" => {
                    let millis = number(option, value()?, 10, 60_000)?;
                    options.round = Duration::from_millis(millis.into());
                }
                "--only" => {
                    let store = value()?;
                    if !STORES.contains(&store.as_str()) {
                        return Err(format!("--only: {store:?} is none of {STORES:?}"));
                    }
                    options.only.push(store.clone());
                }
                "--control" => options.control = true,
                _ => return Err(format!("there is no option {option:?}")),
            }
        }
        Ok(options)
    }

    pub(crate) fn wants(&self, store: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == store)
    }
}

fn number(option: &str, value: &str, least: u32, most: u32) -> Result<u32, String> {
    let number = value.parse().ok();
    number
        .filter(|number| (least..=most).contains(number))
        .ok_or_else(|| format!("{option}: {value:?} is not a number from {least} to {most}"))
}
