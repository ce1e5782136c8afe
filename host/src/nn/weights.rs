//! Weights of edges and the degree norm that follows from them.

use super::Norm;
use crate::error::Error;
use crate::graph::Graph;
use crate::tensor::{Element, Precision};

/// The sums of the weights of the in-edges and of the out-edges of each vertex, and the largest sum of magnitudes of a
/// row, rounded up. An edge without a weight counts 1. Sums of out-edges are those that the norm needs.
pub(super) fn sums(
    graph: &Graph,
    weights: Option<&[f32]>,
    norm: Norm,
) -> Result<([Vec<f64>; 2], u32), Error> {
    let Some(weights) = weights else {
        let rows = graph.in_degrees();
        let largest = rows.iter().copied().max().unwrap_or(0);
        let sums = [rows, norm.column_degrees(graph)]
            .map(|degrees| degrees.into_iter().map(f64::from).collect());
        return Ok((sums, largest));
    };
    if let Some(at) = weights.iter().position(|weight| !weight.is_finite()) {
        return Err(Error::Unsupported {
            operator: "Propagation::weighted",
            reason: format!(
                "the weight of edge {at}, from vertex {} to {}, is {}; weights are finite numbers",
                graph.cols()[at],
                graph.csr().row_of(at),
                weights[at]
            ),
        });
    }
    let mut sums = [(); 2].map(|()| vec![0.0_f64; graph.vertices()]);
    let mut largest = 0.0_f64;
    for row in 0..graph.vertices() {
        let range = graph.csr().row_range(row);
        let mut size = 0.0;
        for edge in range {
            let weight = f64::from(weights[edge]);
            sums[0][row] += weight;
            sums[1][graph.cols()[edge] as usize] += weight;
            size += weight.abs();
        }
        largest = largest.max(size);
    }
    Ok((sums, largest.ceil() as u32))
}

/// `r[i] · w(i,j) · c[j]` of every edge, and the largest of the [sums] that a row has.
pub(super) fn factors(
    graph: &Graph,
    weights: &[f32],
    norm: Norm,
) -> Result<(Vec<f32>, u32), Error> {
    let (sums, largest) = sums(graph, Some(weights), norm)?;
    let [rows, columns] = sides([&sums[0], &sums[1]], norm)?;
    let factors = graph.csr().iter().zip(weights);
    let factors = factors.map(|((row, column), &weight)| {
        (rows[row as usize] * f64::from(weight) * columns[column as usize]) as f32
    });
    Ok((factors.collect(), largest))
}

/// `r` and `c` of every vertex, from the sums of the weights of its in-edges and out-edges.
pub(super) fn sides(sums: [&[f64]; 2], norm: Norm) -> Result<[Vec<f64>; 2], Error> {
    let refuse = |reason: String| Error::Unsupported {
        operator: "Propagation::weighted",
        reason,
    };
    let inverse = |sum: f64| if sum == 0.0 { 0.0 } else { 1.0 / sum };
    let root = |sums: &[f64]| {
        let negative = sums.iter().position(|&sum| sum < 0.0);
        match negative {
            Some(vertex) => Err(refuse(format!(
                "the weights of the edges of vertex {vertex} add up to {}, and the symmetric norm takes the root of that; use \
                 weights that are not negative, another norm, or none of the weights",
                sums[vertex]
            ))),
            None => Ok(sums.iter().map(|&sum| inverse(sum).sqrt()).collect()),
        }
    };
    let ones = || vec![1.0_f64; sums[0].len()];
    Ok(match norm {
        Norm::Both => [root(sums[0])?, root(sums[1])?],
        Norm::In => {
            let factors: Vec<f64> = root(sums[0])?;
            [factors.clone(), factors]
        }
        Norm::Right => [sums[0].iter().map(|&sum| inverse(sum)).collect(), ones()],
        Norm::Left => [ones(), sums[1].iter().map(|&sum| inverse(sum)).collect()],
        Norm::None => [ones(), ones()],
    })
}

/// The factors as elements of which none overflows, and the power of two that they were divided by.
pub(super) fn scaled<E: Element>(factors: &[f32]) -> (Vec<E>, f32) {
    scaled_by(factors, largest_magnitude(factors))
}

/// The largest of the factors without their signs.
pub(super) fn largest_magnitude(factors: &[f32]) -> f32 {
    let magnitudes = factors.iter().map(|factor| factor.abs());
    magnitudes.fold(0.0, f32::max)
}

/// [`scaled`] by the largest of these factors and of others.
pub(super) fn scaled_by<E: Element>(factors: &[f32], largest: f32) -> (Vec<E>, f32) {
    let scale = scale_of::<E>(largest);
    let element = |factor: &f32| E::from_f32(factor / scale);
    (factors.iter().map(element).collect(), scale)
}

/// The power of two that factors are divided by of which this is the largest.
pub(super) fn scale_of<E: Element>(largest: f32) -> f32 {
    // To from 2¹⁴ to 2¹⁵: the upper end of half. Floats and bfloats are as precise anywhere.
    let power = match E::PRECISION {
        Precision::Half if largest > 0.0 => (libm::ilogbf(largest) - 14).max(f32::MIN_EXP),
        _ => 0,
    };
    2.0_f32.powi(power)
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::f16;

    fn graph() -> Graph {
        Graph::from_edges(3, &[0, 0, 1, 2], &[0, 1, 0, 2]).expect("a graph")
    }

    #[test]
    fn the_symmetric_norm_is_that_of_sums_of_weights() {
        // By hand: sums of rows 4, 3, 0.25, of columns 4, 3, 0.25.
        let (factors, largest) = factors(&graph(), &[1.0, 3.0, 3.0, 0.25], Norm::Both).unwrap();
        let expected = [0.25, 3.0 / 12.0_f32.sqrt(), 3.0 / 12.0_f32.sqrt(), 1.0];
        for (factor, expected) in factors.iter().zip(expected) {
            assert!((factor - expected).abs() < 1e-6, "{factor} {expected}");
        }
        assert_eq!(largest, 4);
    }

    #[test]
    fn means_may_have_weights_of_both_signs_and_sums_of_zero() {
        let (factors, _) = factors(&graph(), &[2.0, -2.0, -4.0, 5.0], Norm::Right).unwrap();
        assert_eq!(factors, [0.0, 0.0, 1.0, 1.0]);
    }

    #[test]
    fn what_has_no_root_is_refused() {
        let refused = |weights| {
            factors(&graph(), weights, Norm::Both)
                .unwrap_err()
                .to_string()
        };
        let message = refused(&[1.0, -3.0, 3.0, 1.0]);
        assert!(
            message.contains("edges of vertex 0 add up to -2"),
            "{message}"
        );
        let message = refused(&[1.0, f32::NAN, 3.0, 1.0]);
        assert!(
            message.contains("edge 1, from vertex 1 to 0, is NaN"),
            "{message}"
        );
    }

    #[test]
    fn halves_keep_their_digits_whatever_the_size_of_the_weights() {
        for size in [1e-30_f32, 1e-5, 1.0, 1e30] {
            let (values, scale) = scaled::<f16>(&[size, -0.3 * size, 1e-5 * size]);
            for (value, expected) in values.iter().zip([size, -0.3 * size, 1e-5 * size]) {
                let error = (value.to_f32() * scale / expected - 1.0).abs();
                assert!(error < 5e-4, "{value} · {scale} of {expected}");
            }
        }
        assert_eq!(scaled::<f16>(&[0.0]).1, 1.0);
    }
}
