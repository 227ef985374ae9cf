//! The look of all plots.

/// The width of a plot.
pub(crate) const WIDTH: u32 = 760;
/// The colors of Leasehold, of others, and of text.
pub(crate) const OWN: &str = "#1F6FEB";
pub(crate) const OTHER: &str = "#A0A8B2";
pub(crate) const INK: &str = "#6E7681";

/// Returns the beginning of a plot, to be ended by `</svg>`.
pub(crate) fn head(title: &str, height: impl std::fmt::Display) -> String {
    format!(
        "<svg width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" xmlns=\"http://www.w3.org/2000/svg\" \
         font-family=\"sans-serif\" font-size=\"13\" fill=\"{INK}\">\n<text x=\"12\" y=\"28\" font-size=\"16\">{title}</text>\n"
    )
}
