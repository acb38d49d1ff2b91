//! The three-dimensional transform by its definition, and how far from it single precision may be.

use std::f64::consts::TAU;

/// Real and imaginary part.
pub(crate) type Point = (f64, f64);

/// Returns the distance of `output` from the transform of `values`, axis by axis in double precision, in the 2-norm and relative to
/// that.
pub(crate) fn distance(side: usize, mut values: Vec<Point>, output: &[Point]) -> f64 {
    let roots: Vec<Point> = (0..side).map(|k| (-TAU * k as f64 / side as f64).sin_cos()).collect();
    for stride in [side * side, side, 1] {
        let one = |at: usize| {
            let (k, first) = (at / stride % side, at - at / stride % side * stride);
            (0..side).fold((0.0, 0.0), |(re, im), i| {
                let ((sin, cos), (x, y)) = (roots[i * k % side], values[first + i * stride]);
                (re + x * cos - y * sin, im + x * sin + y * cos)
            })
        };
        values = (0..values.len()).map(one).collect();
    }
    let square = |(re, im): Point| re * re + im * im;
    let off: f64 = output.iter().zip(&values).map(|(a, b)| square((a.0 - b.0, a.1 - b.1))).sum();
    (off / values.iter().map(|one| square(*one)).sum::<f64>()).sqrt()
}

/// Returns the bound of Higham's theorem 24.2 for single precision and twiddle factors that are rounded:
/// log2(points) (u + 4 (sqrt(2) + u) u), with the factor 1 / (1 - x) left out.
pub(crate) fn bound(side: u32) -> f64 {
    let unit = f64::from(f32::EPSILON) / 2.0;
    f64::from(3 * side.ilog2()) * unit * (1.0 + 4.0 * 2_f64.sqrt())
}
