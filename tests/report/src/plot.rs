//! Plots: bars, one for each side, the longest first.

use std::path::Path;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::Result;
use crate::results::{Measured, Results};

/// The plot that README shows.
pub(crate) const MAIN: &str = "pairs-64.svg";

const WIDTH: u32 = 760;
const BAR: i32 = 22;
/// Where bars begin, right of their names.
const LEFT: i32 = 250;
const TOP: i32 = 44;
/// Left for the number at the end of the longest bar.
const RIGHT: i32 = 90;
const OWN: RGBColor = RGBColor(31, 111, 235);
const OTHER: RGBColor = RGBColor(160, 168, 178);
const INK: RGBColor = RGBColor(110, 118, 129);

/// What a plot shows: of each side a number, if it has one.
type Figure<'a> = &'a dyn Fn(&Measured) -> Option<f64>;

pub(crate) fn all(results: &Results, folder: &Path) -> Result<()> {
    let plots: [(&str, &str, Figure<'_>); 5] = [
        (
            MAIN,
            "acquire and release, 64 callers: thousand pairs a second",
            &|side| Some(side.pairs(64)? / 1e3),
        ),
        (
            "pairs-1.svg",
            "acquire and release, one caller: thousand pairs a second",
            &|side| Some(side.pairs(1)? / 1e3),
        ),
        (
            "handoff-16.svg",
            "one name, 16 tasks: thousand tenures a second",
            &|side| Some(side.handoff.get("16 tasks")?.per_second()? / 1e3),
        ),
        (
            "held.svg",
            "leases that are held: per cent of a core, client and server",
            &|side| {
                side.held
                    .as_ref()
                    .map(|held| held.client_cpu + held.server_cpu)
            },
        ),
        (
            "loss.svg",
            "from a DEL until the holder hears of it: milliseconds",
            &|side| side.loss.as_ref()?.millis,
        ),
    ];
    for (file, title, figure) in plots {
        bars(&folder.join(file), title, results, figure)?;
    }
    Ok(())
}

fn bars(file: &Path, title: &str, results: &Results, figure: Figure<'_>) -> Result<()> {
    let bars = results
        .sides
        .iter()
        .filter_map(|side| Some((side, figure(side)?)));
    let mut bars: Vec<_> = bars.collect();
    bars.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    let most = bars
        .first()
        .map_or(1.0, |(_, value)| value.max(f64::MIN_POSITIVE));
    let height = TOP + BAR * i32::try_from(bars.len())? + 12;
    let area = SVGBackend::new(file, (WIDTH, height.unsigned_abs())).into_drawing_area();
    let font = |size: i32| ("sans-serif", size).into_font().color(&INK);
    area.draw(&Text::new(title.to_owned(), (12, 14), font(16)))?;
    let room = f64::from(WIDTH.cast_signed() - LEFT - RIGHT);
    for (place, (side, value)) in (0..).zip(bars) {
        let top = TOP + BAR * place;
        let middle = top + BAR / 2 - 2;
        #[allow(clippy::cast_possible_truncation)]
        let end = LEFT + (value / most * room).round() as i32;
        let color = if side.is_own() { OWN } else { OTHER };
        let corners = [(LEFT, top), (end.max(LEFT + 1), top + BAR - 5)];
        area.draw(&Rectangle::new(corners, color.filled()))?;
        let name = format!("{} ({})", side.name, side.language);
        let right = font(13).pos(Pos::new(HPos::Right, VPos::Center));
        area.draw(&Text::new(name, (LEFT - 8, middle), right))?;
        let left = font(13).pos(Pos::new(HPos::Left, VPos::Center));
        area.draw(&Text::new(
            crate::text::number(value),
            (end + 6, middle),
            left,
        ))?;
    }
    area.present()?;
    Ok(())
}
