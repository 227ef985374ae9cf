//! Latencies as Markdown.

use std::fmt::Write;

use super::{PART_NAMES, SHOWN, Side, by_language, file};
use crate::report::table;
use crate::stats::number;

/// Returns a table and a plot for each language.
pub(super) fn markdown(sides: &[Side], folder: &str) -> String {
    let names = SHOWN.map(|part| PART_NAMES[part]);
    let rounds = sides.first().map_or(0, Side::rounds);
    let mut text = format!(
        "Microseconds from when a pair was due until its lock was released: {}. In brackets is Leasehold's figure \
         divided by the side's; **bold: the side is ahead**. Figures are medians of {rounds} rounds, in which the \
         sides take turns.\n",
        names.join(", and ")
    );
    for (language, sides) in by_language(sides) {
        let base = sides.iter().find(|side| side.is_base()).copied();
        let rates: Vec<u32> = sides[0].rates.keys().copied().collect();
        let mut head = vec![String::new()];
        head.extend(rates.iter().map(|rate| format!("{rate} pairs/s")));
        let rows = sides.iter().map(|side| {
            let mut row = vec![format!("{} ({language}; {})", side.name, side.version)];
            row.extend(rates.iter().map(|&rate| cell(side, base, rate)));
            row
        });
        text.push('\n');
        table(&mut text, &head, rows);
        let _ = writeln!(
            text,
            "\n![latency over rate in {language}]({folder}{})",
            file(language)
        );
    }
    for side in sides {
        for &rate in side.rates.keys() {
            let refused: f64 = side.each(rate, |turn| turn.refused).iter().sum();
            if refused > 0.0 {
                let _ = writeln!(
                    text,
                    "\n**Overloaded:** {} refused {refused:.0} pairs at {rate} pairs/s.",
                    side.name
                );
            }
        }
    }
    text
}

/// Shows the percentiles of a side at a rate, with the ratios of its base to it.
fn cell(side: &Side, base: Option<&Side>, rate: u32) -> String {
    let base = base.filter(|_| !side.is_base());
    let parts = SHOWN.map(|part| {
        let value = number(side.figure(rate, |turn| turn.released[part]));
        match base.map(|base| base.ratio(side, rate, |turn| turn.released[part])) {
            None => value,
            Some(ratio @ 1.0..) => format!("{value} (**{ratio:.2}**)"),
            Some(ratio) => format!("{value} ({ratio:.2})"),
        }
    });
    parts.join(", ")
}
