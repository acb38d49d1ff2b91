//! The same transform in double precision, and how far single precision may be from it.

use fpga_select::novog::Complex32;
use rustfft::FftPlanner;
use rustfft::num_complex::Complex64;

/// A result beside the transform in double precision.
#[derive(Debug)]
pub(super) struct Comparison {
    /// Distance from it in the 2-norm, relative to that.
    pub(super) error: f64,
    /// Largest error that single precision explains.
    pub(super) bound: f64,
    /// The first point that is wrong, if the error is larger or not a number.
    pub(super) wrong: Option<Wrong>,
}

/// A wrong point of a result.
#[derive(Debug)]
pub(super) struct Wrong {
    pub(super) index: usize,
    pub(super) found: Complex32,
    pub(super) right: Complex64,
}

/// Compares `output` with the transform of `input`.
pub(super) fn compare(n: u32, input: &[Complex32], output: &[Complex32]) -> Comparison {
    let right = transform(n as usize, input);
    let off = |(found, right): (&Complex32, &Complex64)| (wide(*found) - right).norm();
    let distance = norm(output.iter().zip(&right).map(off));
    let scale = norm(right.iter().map(|right| right.norm()));
    let most = rounding(n) * scale + underflow(n);
    // If all are farther than they may be, at least one point is farther than its share, which is less here because sums are rounded.
    let share = 0.99 * most / (output.len() as f64).sqrt();
    // No range contains NaN.
    let wrong = match (0.0..=most).contains(&distance) {
        true => None,
        false => output.iter().zip(&right).position(|pair| !(0.0..=share).contains(&off(pair))),
    };
    // An array of zeros has a transform of zeros.
    let unit = if scale == 0.0 { 1.0 } else { scale };
    Comparison {
        error: distance / unit,
        bound: most / unit,
        wrong: wrong.map(|index| Wrong { index, found: output[index], right: right[index] }),
    }
}

fn norm(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|value| value * value).sum::<f64>().sqrt()
}

/// Returns the largest distance that products below the normal numbers explain, which are rounded to multiples of 2^-149. Each of
/// N = n^3 points has four real products in a level, so that it is off by at most sqrt(2) 2^-149, and all of them by sqrt(2 N)
/// 2^-149. The log2 N - 1 other levels multiply that by sqrt(2) each: N 2^-149 for each of the log2 N levels. Sums below the normal
/// numbers are exact.
fn underflow(n: u32) -> f64 {
    f64::from(n).powi(3) * f64::from(3 * n.ilog2()) * 2_f64.powi(-149)
}

/// Returns the largest error that rounding explains, relative to the transform (Higham, Accuracy and Stability of Numerical
/// Algorithms, theorem 24.2), with factors that are rounded themselves.
fn rounding(n: u32) -> f64 {
    let unit = f64::from(f32::EPSILON) / 2.0;
    let level = unit + 4.0 * (2_f64.sqrt() + unit) * unit;
    let levels = f64::from(3 * n.ilog2()) * level;
    levels / (1.0 - levels)
}

fn wide(one: Complex32) -> Complex64 {
    Complex64 { re: one.re.into(), im: one.im.into() }
}

/// Transforms all lines along the last axis, and rotates the axes, three times.
fn transform(n: usize, input: &[Complex32]) -> Vec<Complex64> {
    let line = FftPlanner::new().plan_fft_forward(n);
    let mut values: Vec<Complex64> = input.iter().copied().map(wide).collect();
    for _ in 0..3 {
        line.process(&mut values);
        values = (0..values.len()).map(|at| values[at / n + at % n * n * n]).collect();
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fft3d::array;

    /// The transform of one wave is one peak, on each axis at its own place.
    #[test]
    fn a_wave_is_a_peak() {
        let (n, [x, y, z]) = (16, [3, 5, 0]);
        let at = |i: usize| {
            let turns = (i % n * x + i / n % n * y + i / n / n * z) as f64 / n as f64;
            let (sin, cos) = (turns * std::f64::consts::TAU).sin_cos();
            Complex32 { re: cos as f32, im: sin as f32 }
        };
        let values = transform(n, &(0..n * n * n).map(at).collect::<Vec<_>>());
        for (i, value) in values.iter().enumerate() {
            let expected = if i == x + n * (y + n * z) { 4096.0 } else { 0.0 };
            assert!((value - expected).norm() < 1e-2, "{i}: {value}");
        }
    }

    const N: u32 = 16;

    /// Numbers with parts from -`size` to `size`, and their transform in single precision.
    fn transformed(size: f32) -> (Vec<Complex32>, Vec<Complex32>) {
        let input: Vec<Complex32> =
            array::random(N, 1).into_iter().map(|one| Complex32 { re: size * one.re, im: size * one.im }).collect();
        let (n, mut values) = (N as usize, input.clone());
        let line = FftPlanner::new().plan_fft_forward(n);
        for _ in 0..3 {
            line.process(&mut values);
            values = (0..values.len()).map(|at| values[at / n + at % n * n * n]).collect();
        }
        (input, values)
    }

    /// From the smallest numbers to the largest ones whose transform has no infinity.
    #[test]
    fn single_precision_is_right_at_any_magnitude() {
        for size in [0.0, 1e-45, 1e-44, 1e-42, 1e-40, 1e-38, 1.0, 1e34] {
            let (input, output) = transformed(size);
            let Comparison { error, bound, wrong } = compare(N, &input, &output);
            assert!(wrong.is_none() && error <= bound, "{size:e}: {error:e}, at most {bound:e}, {wrong:?}");
        }
    }

    #[test]
    fn the_first_wrong_point_is_found() {
        for size in [0.0, 1e-40, 1.0, 1e34] {
            let (input, right) = transformed(size);
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX] {
                let mut output = right.clone();
                (output[77].im, output[4000].re) = (bad, bad);
                let Comparison { error, bound, wrong } = compare(N, &input, &output);
                assert_eq!(wrong.map(|wrong| wrong.index), Some(77), "{size:e}, {bad}: {error:e}, at most {bound:e}");
            }
        }
        // A thousandth more than there is to be.
        let (input, mut output) = transformed(1.0);
        output.iter_mut().for_each(|one| one.re *= 1.001);
        assert!(compare(N, &input, &output).wrong.is_some());
    }
}
