//! Plots with a bar for each side, the longest first.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use super::results::{Measured, Results};
use crate::Result;
use crate::stats::{median, number};
use crate::svg::{self, OTHER, OWN, WIDTH};

/// The plot that README shows.
pub(super) const MAIN: &str = "pairs-64.svg";

const BAR: u32 = 22;
/// The left end of the bars, right of their names.
const LEFT: u32 = 250;
const TOP: u32 = 44;
/// The space for the number at the end of the longest bar.
const RIGHT: u32 = 90;

/// The figure of a plot: a number for each side, NaN if it has none.
type Figure = fn(&Measured) -> f64;

pub(super) fn all(results: &Results, folder: &Path) -> Result<()> {
    let plots: [(&str, &str, Figure); 5] = [
        (
            MAIN,
            "acquire and release, 64 callers: thousand pairs a second",
            |side| side.thousand_pairs(64),
        ),
        (
            "pairs-1.svg",
            "acquire and release, one caller: thousand pairs a second",
            |side| side.thousand_pairs(1),
        ),
        (
            "handoff-16.svg",
            "one name, 16 tasks: thousand tenures a second",
            |side| {
                let handoff = side.handoff.get("16 tasks");
                handoff.map_or(f64::NAN, |handoff| median(&handoff.per_second) / 1e3)
            },
        ),
        (
            "held.svg",
            "leases that are held: per cent of a core, client and server",
            |side| {
                let held = side.held.as_ref();
                held.map_or(f64::NAN, |held| held.client_cpu + held.server_cpu)
            },
        ),
        (
            "loss.svg",
            "from a DEL until the holder hears of it: milliseconds",
            |side| {
                side.loss
                    .as_ref()
                    .and_then(|loss| loss.millis)
                    .unwrap_or(f64::NAN)
            },
        ),
    ];
    for (file, title, figure) in plots {
        fs::write(folder.join(file), bars(title, results, figure)?)?;
    }
    Ok(())
}

fn bars(title: &str, results: &Results, figure: Figure) -> Result<String> {
    let mut bars: Vec<_> = results
        .sides
        .iter()
        .map(|side| (side, figure(side)))
        .collect();
    bars.retain(|(_, value)| !value.is_nan());
    bars.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    let most = bars
        .first()
        .map_or(1.0, |(_, value)| value.max(f64::MIN_POSITIVE));
    let height = TOP + BAR * u32::try_from(bars.len())? + 12;
    let mut svg = svg::head(title, height);
    for (top, (side, value)) in (TOP..).step_by(BAR as usize).zip(bars) {
        let width = (value / most * f64::from(WIDTH - LEFT - RIGHT)).max(1.0);
        let color = if side.is_own() { OWN } else { OTHER };
        let (name, language, value) = (side.name, side.language, number(value));
        let (text, before, after) = (top + BAR - 8, LEFT - 8, f64::from(LEFT) + width + 6.0);
        write!(
            svg,
            "<rect x=\"{LEFT}\" y=\"{top}\" width=\"{width:.0}\" height=\"{}\" fill=\"{color}\"/>\n\
             <text x=\"{before}\" y=\"{text}\" text-anchor=\"end\">{name} ({language})</text>\n\
             <text x=\"{after:.0}\" y=\"{text}\">{value}</text>\n",
            BAR - 5
        )?;
    }
    Ok(svg + "</svg>\n")
}
