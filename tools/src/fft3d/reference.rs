//! The same transform in double precision, and how far single precision may be from it.

use fpga_select::novog::Complex32;
use rustfft::FftPlanner;
use rustfft::num_complex::Complex64;

/// Returns the distance of `output` from the transform of `input`, in the 2-norm, relative to that.
pub(super) fn error(n: u32, input: &[Complex32], output: &[Complex32]) -> f64 {
    let right = transform(n as usize, input);
    let off: f64 = output.iter().zip(&right).map(|(found, right)| (wide(*found) - right).norm_sqr()).sum();
    let norm: f64 = right.iter().map(Complex64::norm_sqr).sum();
    // An array of zeros has a transform of zeros.
    if norm == 0.0 { off.sqrt() } else { (off / norm).sqrt() }
}

/// Returns the largest error that rounding explains (Higham, Accuracy and Stability of Numerical Algorithms, theorem 24.2), with
/// factors that are rounded themselves.
pub(super) fn bound(n: u32) -> f64 {
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
}
