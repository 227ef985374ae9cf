//! The plot of latency over rate: a line for each side and percentile, both axes logarithmic.

use std::fmt::Write;

use super::{SHOWN, Side};
use crate::Result;
use crate::svg;

const HEIGHT: f64 = 380.0;
/// The edges of the area of the lines. The names of the sides are right of it.
const LEFT: f64 = 70.0;
const RIGHT: f64 = 500.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 330.0;
/// The least distance of two names.
const LINE: f64 = 16.0;
/// The colors of sides that are not ours.
const OTHERS: [&str; 4] = ["#A0A8B2", "#BF8700", "#8250DF", "#1A7F37"];
/// The dashes of the lines of [`SHOWN`].
const DASHES: [&str; 2] = ["none", "5 4"];

/// Draws the sides of a language.
pub(super) fn curves(language: &str, sides: &[&Side]) -> Result<String> {
    let rates: Vec<f64> = sides
        .iter()
        .flat_map(|side| side.rates.keys().map(|&rate| f64::from(rate)))
        .collect();
    let all = sides
        .iter()
        .flat_map(|side| SHOWN.into_iter().flat_map(|part| side.curve(part)));
    let micros: Vec<f64> = all.map(|(_, micros)| micros).collect();
    let (across, up) = (
        Axis::new(&rates, LEFT, RIGHT)?,
        Axis::new(&micros, BOTTOM, TOP)?,
    );
    let title = format!(
        "acquire and release in {language}: µs since due, p50 (p99 dashed), over pairs a second"
    );
    let mut svg = svg::head(&title, HEIGHT);
    for tick in across.ticks() {
        let at = across.at(tick);
        write!(
            svg,
            "<path d=\"M{at:.0} {TOP}V{BOTTOM}\" stroke=\"{0}\" opacity=\"0.25\"/>\n\
             <text x=\"{at:.0}\" y=\"{1}\" text-anchor=\"middle\">{tick:.0}</text>\n",
            svg::INK,
            BOTTOM + 20.0
        )?;
    }
    for tick in up.ticks() {
        let at = up.at(tick);
        write!(
            svg,
            "<path d=\"M{LEFT} {at:.0}H{RIGHT}\" stroke=\"{0}\" opacity=\"0.25\"/>\n\
             <text x=\"{1}\" y=\"{2:.0}\" text-anchor=\"end\">{tick:.0}</text>\n",
            svg::INK,
            LEFT - 8.0,
            at + 4.0
        )?;
    }
    let mut names = Vec::new();
    let mut others = OTHERS.into_iter().cycle();
    for side in sides {
        let color = if side.is_base() {
            svg::OWN
        } else {
            others.next().unwrap_or(svg::INK)
        };
        for (part, dashes) in SHOWN.into_iter().zip(DASHES) {
            let curve = side.curve(part);
            let points = curve
                .iter()
                .map(|&(rate, micros)| format!("{:.0},{:.0}", across.at(rate), up.at(micros)));
            let points = points.collect::<Vec<_>>().join(" ");
            writeln!(
                svg,
                "<polyline points=\"{points}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2\" stroke-dasharray=\"{dashes}\"/>"
            )?;
            if part == SHOWN[0]
                && let Some((_, micros)) = curve.last()
            {
                names.push((up.at(*micros), side.name, color));
            }
        }
    }
    names.sort_by(|(one, ..), (other, ..)| one.total_cmp(other));
    let mut free = f64::MIN;
    for (at, name, color) in names {
        free = at.max(free + LINE);
        writeln!(
            svg,
            "<text x=\"{}\" y=\"{:.0}\" fill=\"{color}\">{name}</text>",
            RIGHT + 8.0,
            free + 4.0
        )?;
    }
    Ok(svg + "</svg>\n")
}

/// A logarithmic axis between two edges.
struct Axis {
    least: f64,
    most: f64,
    from: f64,
    to: f64,
}

impl Axis {
    fn new(values: &[f64], from: f64, to: f64) -> Result<Self> {
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(0.0, f64::max);
        if !(least > 0.0 && least.is_finite() && most.is_finite()) {
            return Err("nothing was measured that could be plotted".into());
        }
        let most = most.max(least * 1.01);
        Ok(Self {
            least,
            most,
            from,
            to,
        })
    }

    fn at(&self, value: f64) -> f64 {
        self.from
            + (self.to - self.from) * (value / self.least).ln() / (self.most / self.least).ln()
    }

    /// Returns 1, 2 and 5 times each power of ten on the axis.
    fn ticks(&self) -> impl Iterator<Item = f64> {
        let powers = std::iter::successors(Some(1.0), |power| Some(power * 10.0))
            .take_while(|power| *power <= self.most);
        let ticks = powers.flat_map(|power| [power, power * 2.0, power * 5.0]);
        ticks.filter(|tick| (self.least..=self.most).contains(tick))
    }
}

#[cfg(test)]
mod tests {
    use super::Axis;

    #[test]
    fn an_axis_is_logarithmic_and_has_its_ticks() {
        let axis = Axis::new(&[1_000.0, 100.0, 10.0], 0.0, 200.0).expect("there are values");
        let near = |value: f64, at: f64| (axis.at(value) - at).abs() < 1e-9;
        assert!(near(10.0, 0.0) && near(100.0, 100.0) && near(1_000.0, 200.0));
        let ticks: Vec<f64> = axis.ticks().collect();
        assert_eq!(ticks, [10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0]);
        assert!(Axis::new(&[], 0.0, 1.0).is_err());
        assert!(Axis::new(&[f64::NAN], 0.0, 1.0).is_err());
    }
}
