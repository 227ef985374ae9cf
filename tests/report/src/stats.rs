//! Medians of rounds.

pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len().checked_sub(1)? / 2;
    sorted.get(middle).copied()
}

/// How many times as much one side did as another.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Ratio {
    pub(crate) median: f64,
    /// Of all rounds.
    pub(crate) least: f64,
    pub(crate) greatest: f64,
}

/// The rounds' ratios: the sides took turns, so each round is compared with its neighbor.
pub(crate) fn ratio(own: &[f64], others: &[f64]) -> Option<Ratio> {
    let ratios = own.iter().zip(others).filter(|(_, other)| **other > 0.0);
    let ratios: Vec<_> = ratios.map(|(own, other)| own / other).collect();
    Some(Ratio {
        median: median(&ratios)?,
        least: ratios.iter().copied().fold(f64::MAX, f64::min),
        greatest: ratios.iter().copied().fold(0.0, f64::max),
    })
}

#[cfg(test)]
mod tests {
    use super::{Ratio, median, ratio};

    #[test]
    fn takes_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        let (median, least, greatest) = (3.0, 2.0, 4.0);
        let expected = Ratio {
            median,
            least,
            greatest,
        };
        assert_eq!(ratio(&[2.0, 9.0, 8.0], &[1.0, 3.0, 2.0]), Some(expected));
        assert_eq!(ratio(&[2.0], &[0.0]), None);
    }
}
