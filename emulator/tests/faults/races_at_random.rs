//! Random straight-line kernels against happens-before worked out in full: a clock for every thread, and every pair of
//! accesses compared. What is reported must be a race, in every order, and next to nothing may be missed.

use crate::harness::Case;
use ptx_emulator::FaultKind::{RaceBetweenBlocks, RaceInBlock};

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    fn one_of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Read,
    Write,
    Atomic,
}

#[derive(Clone, Copy)]
enum Step {
    /// The threads from `first` on, `count` of them, touch the same bytes.
    Touch {
        kind: Kind,
        shared: bool,
        offset: u64,
        bytes: u64,
        first: usize,
        count: usize,
    },
    /// All threads of each block.
    Barrier,
    /// The first two warps of each block.
    BarrierOfTwoWarps,
    /// The lanes of the mask, in every warp.
    WarpBarrier(u32),
}

/// A kernel for blocks of `threads` threads, `blocks` of them.
struct Program {
    blocks: usize,
    threads: usize,
    steps: Vec<Step>,
}

impl Program {
    fn random(random: &mut Random) -> Self {
        let (blocks, threads) = random.one_of(&[(1, 32), (1, 64), (1, 96), (2, 32), (3, 64)]);
        let total = blocks * threads;
        let step = |random: &mut Random| match random.below(8) {
            0 => Step::Barrier,
            1 if threads >= 64 => Step::BarrierOfTwoWarps,
            2 => Step::WarpBarrier(random.one_of(&[
                u32::MAX,
                u32::MAX,
                0x0000_ffff,
                0xffff_0000,
                0x0000_00ff,
            ])),
            _ => {
                let kind = random.one_of(&[Kind::Read, Kind::Read, Kind::Write, Kind::Atomic]);
                let bytes = if kind == Kind::Atomic {
                    4
                } else {
                    random.one_of(&[2, 4, 4, 8])
                };
                let count = random.one_of(&[1, 1, 1, 2, 16]).min(total);
                let count = if kind == Kind::Write { 1 } else { count };
                Step::Touch {
                    kind,
                    shared: blocks == 1 && random.below(2) == 0,
                    offset: random.below(24 / bytes) * bytes,
                    bytes,
                    first: random.below((total - count + 1) as u64) as usize,
                    count,
                }
            }
        };
        let steps = (0..2 + random.below(7)).map(|_| step(random)).collect();
        Self {
            blocks,
            threads,
            steps,
        }
    }

    /// The kernel's instructions. Shared memory is written first, so that no read finds it empty.
    fn body(&self) -> String {
        let mut body = "setp.ne.u32 p, tid, 0;
            @!p st.shared.v4.u32 [fixed], {n, n, n, n};
            @!p st.shared.v2.u32 [fixed+16], {n, n};
            mov.b16 %h1, 1;
            mov.u64 %d1, 1;
            bar.sync 0;\n"
            .to_owned();
        for step in &self.steps {
            body += &match *step {
                Step::Barrier => "bar.sync 0;\n".to_owned(),
                Step::BarrierOfTwoWarps => {
                    "setp.lt.u32 p, tid, 64;\n@p bar.sync 1, 64;\n".to_owned()
                }
                Step::WarpBarrier(mask) => format!(
                    "shr.u32 %r1, {mask}, lane;
                    and.b32 %r1, %r1, 1;
                    setp.ne.u32 p, %r1, 0;
                    @p bar.warp.sync {mask};\n"
                ),
                Step::Touch {
                    kind,
                    shared,
                    offset,
                    bytes,
                    first,
                    count,
                } => {
                    let space = if shared { "shared" } else { "global" };
                    let address = if shared {
                        format!("[fixed+{offset}]")
                    } else {
                        format!("[a+{offset}]")
                    };
                    let (ty, from, to) = match bytes {
                        2 => ("b16", "%h1", "%h2"),
                        4 => ("b32", "n", "%r2"),
                        _ => ("b64", "%d1", "%d2"),
                    };
                    let instruction = match kind {
                        Kind::Read => format!("ld.{space}.{ty} {to}, {address};"),
                        Kind::Write => format!("st.{space}.{ty} {address}, {from};"),
                        Kind::Atomic => format!("red.{space}.add.u32 {address}, 1;"),
                    };
                    format!(
                        "sub.u32 %r1, rank, {first};
                        setp.lt.u32 p, %r1, {count};
                        @p {instruction}\n"
                    )
                }
            };
        }
        body
    }

    /// Whether two accesses of two threads conflict and neither happens before the other.
    fn races(&self) -> bool {
        let total = self.blocks * self.threads;
        // `clocks[t][s]`: what thread t has seen of thread s.
        let mut clocks: Vec<Vec<u32>> = (0..total)
            .map(|t| (0..total).map(|s| u32::from(s == t)).collect())
            .collect();
        let mut touched: Vec<(usize, u32, Kind, bool, u64, u64)> = Vec::new();
        for step in &self.steps {
            let groups: Vec<Vec<usize>> = match *step {
                Step::Touch {
                    kind,
                    shared,
                    offset,
                    bytes,
                    first,
                    count,
                } => {
                    for (t, mine) in clocks.iter().enumerate().skip(first).take(count) {
                        let races = touched.iter().any(|&(s, time, other, in_shared, at, len)| {
                            let conflict = kind != other || kind == Kind::Write;
                            let overlap =
                                shared == in_shared && offset < at + len && at < offset + bytes;
                            s != t && conflict && overlap && time > mine[s]
                        });
                        if races {
                            return true;
                        }
                        touched.push((t, mine[t], kind, shared, offset, bytes));
                    }
                    continue;
                }
                Step::Barrier => (0..self.blocks)
                    .map(|b| (b * self.threads..(b + 1) * self.threads).collect())
                    .collect(),
                Step::BarrierOfTwoWarps => (0..self.blocks)
                    .map(|b| (b * self.threads..b * self.threads + 64).collect())
                    .collect(),
                Step::WarpBarrier(mask) => {
                    let lanes = |w: usize| {
                        (0..32)
                            .filter(|l| mask >> l & 1 == 1)
                            .map(|l| w * 32 + l)
                            .collect()
                    };
                    (0..total / 32).map(lanes).collect()
                }
            };
            for group in groups {
                let joined: Vec<u32> = (0..total)
                    .map(|s| group.iter().map(|t| clocks[*t][s]).max().unwrap_or(0))
                    .collect();
                for t in group {
                    clocks[t].clone_from(&joined);
                    clocks[t][t] += 1;
                }
            }
        }
        false
    }
}

#[test]
fn what_is_reported_is_a_race() {
    let mut random = Random(2024);
    let (mut racy, mut missed) = (0, 0);
    for number in 0..1500 {
        let program = Program::random(&mut random);
        let body = program.body();
        let case = Case {
            body: &body,
            blocks: program.blocks as u32,
            threads: program.threads as u32,
            n: 1,
            ..Case::default()
        };
        let expected = program.races();
        racy += usize::from(expected);
        for seed in [0, 1, 2] {
            match case.run(seed) {
                Ok(()) => missed += usize::from(expected && seed == 0),
                Err(report) => {
                    let kind = report.fault.kind;
                    assert!(
                        matches!(kind, RaceInBlock | RaceBetweenBlocks),
                        "program {number}: {}\n{body}",
                        report.fault
                    );
                    assert!(
                        expected,
                        "program {number}, seed {seed}: a false alarm: {}\n{body}",
                        report.fault
                    );
                    let other = report.fault.other.as_ref();
                    assert!(other.is_none_or(
                        |o| (o.block, o.thread) != (report.fault.block, report.fault.thread)
                    ));
                }
            }
        }
    }
    assert!((300..1200).contains(&racy), "{racy} programs race");
    // Cells remember a few accesses, not all: a third thread may hide two others.
    assert!(missed * 50 <= racy, "{missed} of {racy} races were missed");
}
