//! Medians of rounds.

pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len().checked_sub(1)? / 2;
    sorted.get(middle).copied()
}

/// The median of the rounds' ratios: the sides took turns, so each round is compared with its neighbour.
pub(crate) fn ratio(own: &[f64], others: &[f64]) -> Option<f64> {
    let ratios = own.iter().zip(others).filter(|(_, other)| **other > 0.0);
    median(&ratios.map(|(own, other)| own / other).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::{median, ratio};

    #[test]
    fn takes_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(ratio(&[2.0, 9.0, 8.0], &[1.0, 3.0, 2.0]), Some(3.0));
        assert_eq!(ratio(&[2.0], &[0.0]), None);
    }
}
