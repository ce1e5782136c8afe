//! The blocks of a launch: their order, who runs them, and how a race among them is looked at again.

use crate::counts::Counts;
use crate::exec::{Block, Env};
use crate::fault::{Fault, FaultKind, FaultPlace};
use crate::random::Random;
use rayon::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering};

/// The order of the blocks: a permutation that needs no list, since grids may be large.
pub(crate) struct Order {
    blocks: u64,
    /// A power of two at least as large, cut into a bijection by multiplying with an odd number and xoring.
    bits: u32,
    keys: Option<[u64; 4]>,
}

impl Order {
    pub(crate) fn new(grid: [u32; 3], seed: u64) -> Self {
        let blocks: u64 = grid.iter().map(|g| u64::from(*g)).product();
        let mut random = Random::new(seed);
        let keys = (seed != 0).then(|| std::array::from_fn(|_| random.next()));
        Self {
            blocks,
            bits: 64 - (blocks - 1).leading_zeros().min(63),
            keys,
        }
    }

    /// The block that runs at `position`: the seed's permutation of a power of two, walked until it lands inside the
    /// grid.
    fn block(&self, position: u64) -> u64 {
        let Some(keys) = self.keys else {
            return position;
        };
        let mask = u64::MAX >> (64 - self.bits);
        let mut x = position;
        loop {
            for k in keys {
                x = x.wrapping_mul(k | 1) & mask;
                x ^= (k >> 20) & mask;
                x ^= x >> self.bits.div_ceil(2);
            }
            if x < self.blocks {
                return x;
            }
        }
    }
}

/// The first fault in the order of blocks.
pub(crate) struct Failure {
    pub position: u64,
    pub fault: Box<Fault>,
    /// A race in global memory, to be looked at again.
    pub watch: Option<u64>,
}

/// Blocks that one task runs, so that its registers and tables are made once.
const CHUNK: u64 = 16;

/// Runs all blocks, in parallel where the results are the same. `races` gets the lowest address of a race between
/// blocks.
pub(crate) fn run_blocks(
    env: &Env<'_>,
    order: &Order,
    races: &AtomicU64,
) -> Result<Counts, Failure> {
    let first_failure = AtomicU64::new(u64::MAX);
    let run_chunk = |range: std::ops::Range<u64>| -> Result<Counts, Failure> {
        let mut block = Block::new(env, races);
        for position in range {
            // What lies behind a fault does not matter; what lies before it does, whichever thread is ahead.
            if position > first_failure.load(Ordering::Relaxed) {
                break;
            }
            if let Err(fault) = block.run(order.block(position)) {
                first_failure.fetch_min(position, Ordering::Relaxed);
                return Err(Failure {
                    position,
                    fault,
                    watch: block.race_in_block,
                });
            }
        }
        Ok(block.counts)
    };
    let merge = |a: Result<Counts, Failure>, b: Result<Counts, Failure>| match (a, b) {
        (Ok(mut a), Ok(b)) => {
            a += b;
            Ok(a)
        }
        (Err(a), Err(b)) => Err(if a.position <= b.position { a } else { b }),
        (Err(e), _) | (_, Err(e)) => Err(e),
    };
    let parallel =
        !env.program.orders_blocks && order.blocks > 1 && rayon::current_num_threads() > 1;
    if !parallel {
        return run_chunk(0..order.blocks);
    }
    // A few tasks a thread: enough to balance, few enough that making their registers costs nothing.
    let tasks = order
        .blocks
        .div_ceil(CHUNK)
        .min(rayon::current_num_threads() as u64 * 8);
    let size = order.blocks.div_ceil(tasks);
    (0..tasks)
        .into_par_iter()
        .map(|t| run_chunk(t * size..((t + 1) * size).min(order.blocks)))
        .reduce(|| Ok(Counts::default()), merge)
}

/// Runs blocks in order until the watched race shows itself; only the block at `only` for a race inside it.
pub(crate) fn replay(env: &Env<'_>, order: &Order, only: Option<u64>) -> Option<Box<Fault>> {
    let races = AtomicU64::new(u64::MAX);
    let mut block = Block::new(env, &races);
    let range = only.map_or(0..order.blocks, |p| p..p + 1);
    for position in range {
        let wanted = |f: &Fault| {
            matches!(
                f.kind,
                FaultKind::RaceBetweenBlocks | FaultKind::RaceInBlock
            )
        };
        match block.run(order.block(position)) {
            Err(fault) if wanted(&fault) => return Some(fault),
            _ => {}
        }
    }
    None
}

/// A race that did not come back when the blocks were run again, since it had changed what they do.
pub(crate) fn unnamed_race(env: &Env<'_>) -> Box<Fault> {
    let address = env.watch.unwrap_or_default();
    Box::new(Fault {
        kind: FaultKind::RaceBetweenBlocks,
        kernel: env.kernel.to_owned(),
        function: env.kernel.to_owned(),
        block: [0; 3],
        thread: [0; 3],
        place: FaultPlace {
            instruction: "unknown".to_owned(),
            line: 0,
            source: None,
        },
        access: None,
        allocation: None,
        other: None,
        detail: format!(
            "two blocks touched {address:#x}; run again, one after the other, they did not"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_seed_is_a_permutation() {
        for blocks in [1u32, 2, 3, 31, 64, 1000] {
            for seed in [0, 1, 2, u64::MAX] {
                let order = Order::new([blocks, 1, 1], seed);
                let mut seen: Vec<u64> = (0..u64::from(blocks)).map(|p| order.block(p)).collect();
                if seed == 0 {
                    assert!(seen.is_sorted());
                } else if blocks >= 31 {
                    assert!(!seen.is_sorted(), "{blocks} {seed}");
                }
                seen.sort_unstable();
                assert!(seen.into_iter().eq(0..u64::from(blocks)));
            }
        }
    }
}
