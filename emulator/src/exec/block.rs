//! One block: its warps one after the other, its barriers, and what it reports.

use super::warp::{Pause, State, Warp};
use super::{Env, Seen, Step, Trouble};
use crate::counts::Counts;
use crate::fault::{Fault, FaultKind, FaultPlace, OtherParty};
use crate::ir::{BarrierReduce, Op};
use crate::order::Clocks;
use crate::random::Random;
use crate::shared::Shared;
use std::sync::atomic::AtomicU64;

/// Runs blocks, one after the other, on one thread.
pub(crate) struct Block<'a> {
    pub(super) env: &'a Env<'a>,
    /// The lowest address on which two blocks race, shared by all threads of the launch.
    pub(super) races: &'a AtomicU64,
    pub(super) linear: u64,
    pub(super) index: [u32; 3],
    warps: Vec<Warp>,
    /// No block has run in it yet.
    fresh: bool,
    pub(super) shared: Shared,
    pub(super) clocks: Clocks,
    pub(crate) counts: Counts,
    /// For each instruction the allocation that it met last.
    pub(super) hints: Vec<u32>,
    pub(super) pc: u32,
    pub(super) steps: u64,
    /// Accesses to the watched address.
    pub(crate) seen: Vec<Seen>,
    /// Where a race inside the block was found in global memory.
    pub(crate) race_in_block: Option<u64>,
}

/// A warp that has arrived at a barrier and waits there.
struct Arrival {
    warp: usize,
    pc: u32,
    waits: bool,
}

#[derive(Default)]
struct Barrier {
    arrivals: Vec<Arrival>,
    /// Threads that were said to take part; 0 for the whole block.
    count: u32,
    /// Predicates of a reduction: how many were true, of how many.
    votes: u32,
    voters: u32,
}

impl<'a> Block<'a> {
    pub(crate) fn new(env: &'a Env<'a>, races: &'a AtomicU64) -> Self {
        let warps = env.threads().div_ceil(32);
        Self {
            env,
            races,
            linear: 0,
            index: [0; 3],
            warps: (0..warps).map(|w| Warp::new(env, w)).collect(),
            fresh: true,
            shared: Shared::new(env.shared_bytes() as usize, env.check_races),
            clocks: Clocks::new(warps as usize),
            counts: Counts::default(),
            hints: vec![0; env.program.instructions.len()],
            pc: 0,
            steps: 0,
            seen: Vec::new(),
            race_in_block: None,
        }
    }

    /// Runs the block at `linear` in the grid to its end or its first fault.
    pub(crate) fn run(&mut self, linear: u64) -> Result<(), Box<Fault>> {
        self.linear = linear;
        self.index = self.env.block_index(linear);
        self.steps = 0;
        let mut warps = std::mem::take(&mut self.warps);
        if !std::mem::take(&mut self.fresh) {
            self.shared.reset();
            self.clocks.reset();
            warps.iter_mut().for_each(Warp::reset);
        }
        let result = self.run_warps(&mut warps);
        self.warps = warps;
        result
    }

    fn run_warps(&mut self, warps: &mut [Warp]) -> Result<(), Box<Fault>> {
        let mut pauses = vec![Pause::Slice; warps.len()];
        let mut barriers: [Barrier; 16] = Default::default();
        let mut order: Vec<usize> = (0..warps.len()).collect();
        let mut random =
            Random::new(self.env.seed ^ self.linear.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        loop {
            random.shuffle(&mut order);
            let mut progress = false;
            for &w in &order {
                if pauses[w] != Pause::Slice {
                    continue;
                }
                progress = true;
                pauses[w] = self
                    .run_warp(&mut warps[w])
                    .map_err(|t| self.fault(&warps[w], *t))?;
                if pauses[w] == Pause::Blocked {
                    self.arrive(warps, w, &mut barriers, &mut pauses)
                        .map_err(|t| self.fault(&warps[w], *t))?;
                }
            }
            if pauses.iter().all(|p| *p == Pause::Done) {
                return Ok(());
            }
            if !progress {
                return Err(self.stuck(warps));
            }
        }
    }

    /// A warp that cannot run on: if all its lanes stand at one barrier it has arrived there.
    fn arrive(
        &mut self,
        warps: &mut [Warp],
        w: usize,
        barriers: &mut [Barrier; 16],
        pauses: &mut [Pause],
    ) -> Step<()> {
        let warp = &warps[w];
        let first = warp.groups[0];
        let State::Barrier(id) = first.state else {
            return Ok(());
        };
        let whole = warp
            .groups
            .iter()
            .all(|g| g.state == first.state && g.pc == first.pc);
        if !whole || warp.live != warp.initial {
            // Divergent: the block will get stuck on it, and the report then says how.
            return Ok(());
        }
        let Op::Barrier {
            count,
            arrive,
            reduce,
            ..
        } = self.env.program.instructions[first.pc as usize].op
        else {
            return Ok(());
        };
        self.pc = first.pc;
        self.counts.block_barriers += 1;
        let lane = warp.live.trailing_zeros();
        let count = count.map_or(0, |c| {
            warp.row(&self.env.constants, c)[lane as usize] as u32
        });
        if count % 32 != 0 || count > self.env.threads().next_multiple_of(32) {
            let detail = format!(
                "a barrier of {count} threads, in a block of {}",
                self.env.threads()
            );
            return Err(Trouble::new(FaultKind::InvalidOperand, lane, detail));
        }
        let barrier = &mut barriers[id as usize];
        if !barrier.arrivals.is_empty() && barrier.count != count {
            let detail = format!(
                "barrier {id} was said to have {} threads, and now {count}",
                barrier.count
            );
            return Err(Trouble::new(FaultKind::DivergentBarrier, lane, detail));
        }
        barrier.count = count;
        if let Some((_, p, _)) = reduce {
            let votes =
                (warp.preds[p.pred as usize] ^ if p.negated { u32::MAX } else { 0 }) & warp.live;
            barrier.votes += votes.count_ones();
            barrier.voters += warp.live.count_ones();
        }
        barrier.arrivals.push(Arrival {
            warp: w,
            pc: first.pc,
            waits: !arrive,
        });
        let complete = match count {
            0 => barrier.arrivals.len() == warps.len(),
            n => barrier.arrivals.len() as u32 * 32 >= n,
        };
        let released = if complete {
            std::mem::take(barrier)
        } else {
            Barrier::default()
        };
        if complete {
            let participants: Vec<usize> = released.arrivals.iter().map(|a| a.warp).collect();
            self.clocks.block_barrier(&participants);
            for a in released.arrivals.iter().filter(|a| a.waits) {
                self.pass(&mut warps[a.warp], a.pc, released.votes, released.voters);
                pauses[a.warp] = Pause::Slice;
            }
        }
        if arrive {
            self.pass(&mut warps[w], first.pc, 0, 0);
            pauses[w] = Pause::Slice;
        }
        Ok(())
    }

    /// Lets a warp run on behind its barrier.
    fn pass(&self, warp: &mut Warp, pc: u32, votes: u32, voters: u32) {
        if let Op::Barrier {
            reduce: Some((op, _, d)),
            ..
        } = self.env.program.instructions[pc as usize].op
        {
            let mask = warp.live;
            match op {
                BarrierReduce::Popc => warp.put(d, mask, &[votes.into(); 32]),
                BarrierReduce::And => {
                    warp.put_pred(d, mask, if votes == voters { u32::MAX } else { 0 })
                }
                BarrierReduce::Or => warp.put_pred(d, mask, if votes > 0 { u32::MAX } else { 0 }),
            }
        }
        for g in &mut warp.groups {
            g.pc += 1;
            g.state = State::Running;
        }
    }

    /// No warp can run: who waits for whom?
    fn stuck(&mut self, warps: &[Warp]) -> Box<Fault> {
        let total = self.env.threads();
        let waiting = |w: &Warp| {
            w.groups
                .iter()
                .filter(|g| matches!(g.state, State::Barrier(_)))
                .fold(0, |m, g| m | g.mask)
        };
        let at_barrier: u32 = warps.iter().map(|w| waiting(w).count_ones()).sum();
        let exited: u32 = warps
            .iter()
            .map(|w| (w.initial & !w.live).count_ones())
            .sum();
        // A warp whose lanes wait for each other is the cause of whatever else waits.
        let collective = warps.iter().find_map(|w| {
            let g = w
                .groups
                .iter()
                .find(|g| matches!(g.state, State::Collective(_)))?;
            Some((w, *g))
        });
        if let Some((warp, g)) = collective {
            let State::Collective(members) = g.state else {
                unreachable!("found by its state")
            };
            self.pc = g.pc;
            let here = warp
                .groups
                .iter()
                .filter(|h| h.state == g.state && h.pc == g.pc)
                .fold(0, |m, h| m | h.mask);
            let detail = format!(
                "the lanes of {here:#010x} wait for those of {:#010x}, which never come",
                members & warp.live & !here
            );
            return self.fault(
                warp,
                *Trouble::new(FaultKind::Deadlock, g.mask.trailing_zeros(), detail),
            );
        }
        let split = warps.iter().find(|w| {
            w.live != w.initial
                || w.groups
                    .iter()
                    .any(|g| (g.pc, g.state) != (w.groups[0].pc, w.groups[0].state))
        });
        let warp = split
            .filter(|w| !w.groups.is_empty())
            .or_else(|| warps.iter().find(|w| !w.groups.is_empty()));
        let Some(warp) = warp else {
            return self.fault(
                &warps[0],
                *Trouble::new(FaultKind::Deadlock, 0, "nothing can run"),
            );
        };
        let g = warp.groups[0];
        self.pc = g.pc;
        let mut others: Vec<u32> = warps
            .iter()
            .flat_map(|w| w.groups.iter().map(|h| h.pc))
            .filter(|pc| *pc != g.pc)
            .collect();
        others.sort_unstable();
        others.dedup();
        let elsewhere: Vec<String> = others
            .iter()
            .take(3)
            .map(|pc| self.env.program.places[*pc as usize].line.to_string())
            .collect();
        let mut detail =
            format!("{at_barrier} of {total} threads wait at a barrier, {exited} have exited");
        if !elsewhere.is_empty() {
            detail += &format!("; others wait at PTX line {}", elsewhere.join(", "));
        }
        let kind = if exited > 0 || split.is_some() {
            FaultKind::DivergentBarrier
        } else {
            FaultKind::Deadlock
        };
        self.fault(warp, *Trouble::new(kind, g.mask.trailing_zeros(), detail))
    }

    /// Gives a trouble its place.
    fn fault(&self, warp: &Warp, t: Trouble) -> Box<Fault> {
        let env = self.env;
        Box::new(Fault {
            kind: t.kind,
            kernel: env.kernel.to_owned(),
            function: self.function(self.pc),
            block: self.index,
            thread: env.thread_index(warp.index * 32 + t.lane.min(31)),
            place: self.place(self.pc),
            access: t.access,
            allocation: t.allocation,
            other: t.other.map(|o| OtherParty {
                block: env.block_index(o.block),
                thread: env.thread_index(o.thread),
                kind: o.kind,
                place: self.place(o.pc),
            }),
            detail: t.detail,
        })
    }

    fn function(&self, pc: u32) -> String {
        let functions = &self.env.program.functions;
        let i = functions.partition_point(|(start, _)| *start <= pc);
        i.checked_sub(1)
            .map_or(String::new(), |i| functions[i].1.clone())
    }

    fn place(&self, pc: u32) -> FaultPlace {
        let place = self.env.program.places[pc as usize];
        FaultPlace {
            instruction: self.env.module.instruction_text(place.span),
            line: place.line,
            source: self.env.module.source_line(place.loc),
        }
    }
}
