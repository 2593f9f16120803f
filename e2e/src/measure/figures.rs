//! Medians, percentiles, spreads: pure. None of them is asked about nothing at all; if one is, it answers with what
//! is no number, which reaches no bar.

use k8s_openapi::jiff::Timestamp;

/// The middle one; of an even number of figures the mean of the two in the middle.
pub fn median(figures: &[f64]) -> f64 {
    let sorted = sorted(figures);
    let middle = sorted.len() / 2;
    match sorted.as_slice() {
        [] => f64::NAN,
        all if all.len() % 2 == 1 => all[middle],
        all => f64::midpoint(all[middle - 1], all[middle]),
    }
}

/// The smallest figure that at least `percent` of all do not exceed (nearest rank).
pub fn percentile(figures: &[f64], percent: usize) -> f64 {
    let sorted = sorted(figures);
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(f64::NAN)
}

/// The smallest.
pub fn smallest(figures: &[f64]) -> f64 {
    sorted(figures).first().copied().unwrap_or(f64::NAN)
}

/// The largest; one that is no number counts as such.
pub fn largest(figures: &[f64]) -> f64 {
    sorted(figures).last().copied().unwrap_or(f64::NAN)
}

/// Milliseconds from one moment to a later one.
pub fn milliseconds(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64() * 1000.0
}

/// A count as a figure; beyond 2⁵³ it is rounded, and nothing is counted that far.
#[allow(clippy::cast_precision_loss, reason = "see above")]
pub fn count(number: usize) -> f64 {
    number as f64
}

/// Bytes in MiB.
#[allow(clippy::cast_precision_loss, reason = "no process has that many")]
pub fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn sorted(figures: &[f64]) -> Vec<f64> {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
        assert!((median(&[4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < f64::EPSILON);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn percentiles_are_figures_that_were_measured() {
        let figures: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        let at = |percent| percentile(&figures, percent);
        let expected = [(0, 1.0), (1, 2.0), (50, 100.0), (99, 198.0), (100, 200.0)];
        assert!(expected.iter().all(|(percent, figure)| (at(*percent) - figure).abs() < f64::EPSILON));
        assert!((percentile(&[7.0], 99) - 7.0).abs() < f64::EPSILON);
        assert!(percentile(&[], 50).is_nan());
    }

    #[test]
    fn what_is_no_number_is_the_largest() {
        assert!(largest(&[1.0, f64::NAN, 2.0]).is_nan());
        assert!((smallest(&[1.0, f64::NAN, 0.5]) - 0.5).abs() < f64::EPSILON);
    }
}
