//! HP-SpMM's dynamic task partition (Fan, Wang, Chu, IPDPS 2023, §III-B): how many edges a warp has, by an inequality.

/// The paper's candidates for the edges of a warp.
const CANDIDATES: [u32; 6] = [8, 32, 64, 128, 256, 512];

/// The scale factor α of the inequality, which the paper leaves open: full waves that there shall be.
const ALPHA: u128 = 4;

/// Threads of a warp, in the inequality.
const WARP_SIZE: u128 = 32;

/// What the inequality asks of a launch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Launch {
    /// `NNZ`.
    pub(super) edges: u32,
    /// `K / VectorWidth`: loads of a row.
    pub(super) loads: u32,
    /// `FullWaveSize`: CTAs that are on the GPU at once.
    pub(super) full_wave: u64,
    /// `WarpsPerBlock`.
    pub(super) warps_per_cta: u32,
}

impl Launch {
    /// `α · FullWaveSize ≤ NNZ / (NnzPerWarp · WarpsPerBlock) · K / (WarpSize · VectorWidth)`, inequality (5), in
    /// integers.
    fn suits(self, edges_per_warp: u32) -> bool {
        let product = |factors: [u64; 2]| u128::from(factors[0]) * u128::from(factors[1]);
        let a_warp = product([edges_per_warp.into(), self.warps_per_cta.into()]);
        ALPHA * u128::from(self.full_wave) * a_warp * WARP_SIZE
            <= product([self.edges.into(), self.loads.into()])
    }

    /// `NnzPerWarp`: the largest candidate that `built` kernels can have and the inequality allows; where it allows
    /// none, the smallest that can be had. None where no candidate can.
    pub(super) fn edges_per_warp(self, built: impl Fn(u32) -> bool) -> Option<u32> {
        let mut candidates = CANDIDATES.into_iter().filter(|&edges| built(edges));
        let smallest = candidates.next()?;
        let suiting = candidates.rev().find(|&edges| self.suits(edges));
        Some(suiting.unwrap_or(smallest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A V100 of the paper: 80 multiprocessors, of which each holds 8 CTAs of 8 warps, and rows of 64 floats by float4.
    fn of(edges: u32) -> Launch {
        Launch {
            edges,
            loads: 16,
            full_wave: 640,
            warps_per_cta: 8,
        }
    }

    #[test]
    fn the_largest_that_the_inequality_allows() {
        let all = |edges| of(edges).edges_per_warp(|_| true);
        // 4 · 640 · n · 8 · 32 ≤ NNZ · 16, so n ≤ NNZ / 40,960.
        assert_eq!(all(40_960 * 512), Some(512));
        assert_eq!(all(40_960 * 512 - 1), Some(256));
        assert_eq!(all(40_960 * 64), Some(64));
        assert_eq!(all(40_960 * 32 - 1), Some(8));
        assert_eq!(all(0), Some(8));
        assert_eq!(all(u32::MAX), Some(512));
        // Rows of twice as many loads are as good as twice the edges.
        let wide = Launch {
            loads: 32,
            ..of(40_960 * 64)
        };
        assert_eq!(wide.edges_per_warp(|_| true), Some(128));
    }

    #[test]
    fn what_cannot_be_had_is_no_candidate() {
        assert_eq!(of(u32::MAX).edges_per_warp(|edges| edges <= 256), Some(256));
        assert_eq!(of(0).edges_per_warp(|edges| edges >= 128), Some(128));
        assert_eq!(of(0).edges_per_warp(|_| false), None);
    }

    /// The product of a full wave and a warp's edges is counted in 128 bits.
    #[test]
    fn large_cards_do_not_wrap() {
        let launch = Launch {
            full_wave: u64::MAX / 4,
            ..of(u32::MAX)
        };
        assert_eq!(launch.edges_per_warp(|_| true), Some(8));
    }
}
