//! One warp: its registers, and its lanes in groups that stand at one instruction.

use super::block::Block;
use super::private::Private;
use super::{Env, Step, Trouble, arithmetic, lanes};
use crate::fault::FaultKind;
use crate::ir::{Op, Special, WAIT_ALL};

/// Instructions that a group may run while others of its warp wait for it: a spinning group must let them pass.
const TURN: u32 = 4096;
/// Instructions of a warp before the block's others get their turn.
const SLICE: u32 = 1 << 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Running,
    /// At an instruction that waits for the lanes of this mask.
    Collective(u32),
    /// At the barrier of this number.
    Barrier(u32),
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Group {
    pub pc: u32,
    pub mask: u32,
    /// Calls that the lanes are inside.
    pub depth: u32,
    pub state: State,
    /// It had its turn while others ran behind it.
    pub yielded: bool,
}

impl Group {
    /// The lanes of a warp where a kernel starts.
    fn of_all(mask: u32) -> Self {
        Self {
            pc: 0,
            mask,
            depth: 0,
            state: State::Running,
            yielded: false,
        }
    }
}

/// An asynchronous copy that has not landed.
pub(super) struct Copy {
    pub lane: usize,
    pub group: u32,
    pub offset: u32,
    pub bytes: u8,
    pub data: [u64; 2],
    pub pc: u32,
}

pub(crate) struct Warp {
    pub index: u32,
    /// Lanes that exist, and those that have not exited.
    pub initial: u32,
    pub live: u32,
    pub rows: Vec<super::Lanes>,
    pub preds: Vec<u32>,
    pub(super) groups: Vec<Group>,
    /// For each depth of calls, the instruction that each lane called from.
    returns: Vec<[u32; 32]>,
    /// Parameters of calls, and local variables.
    pub arena: Private,
    pub local: Private,
    pub(super) copies: Vec<Copy>,
    /// Groups of copies that each lane committed.
    pub commits: [u32; 32],
}

/// What an instruction did to the group that executed it.
pub(super) enum Flow {
    Next,
    /// The group's `pc` is set.
    Jumped,
    /// The group was put back, whole or in parts.
    Regroup,
}

/// Why a warp stopped running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pause {
    /// Its slice is over.
    Slice,
    /// No group can run.
    Blocked,
    /// All lanes exited.
    Done,
}

impl Warp {
    pub(crate) fn new(env: &Env<'_>, index: u32) -> Self {
        let program = env.program;
        let count = (env.threads() - index * 32).min(32);
        let initial = u32::MAX >> (32 - count);
        Self {
            index,
            initial,
            live: initial,
            rows: vec![[0; 32]; program.rows.len()],
            preds: vec![0; program.preds as usize],
            groups: vec![Group::of_all(initial)],
            returns: Vec::new(),
            arena: Private::new(program.arena_bytes, false),
            local: Private::new(program.local_bytes, env.check_uninitialised),
            copies: Vec::new(),
            commits: [0; 32],
        }
    }

    /// As at a kernel's start. A register that is read before it is written is zero, whichever block was here before.
    pub(crate) fn reset(&mut self) {
        self.rows.fill([0; 32]);
        self.preds.fill(0);
        self.live = self.initial;
        self.groups.clear();
        self.groups.push(Group::of_all(self.initial));
        self.arena.reset();
        self.local.reset();
        self.copies.clear();
        self.commits = [0; 32];
    }

    /// Of the running groups the deepest in calls, then the one furthest behind: lanes ahead wait for them to catch up.
    fn pick(&mut self) -> Option<Group> {
        let running = |g: &Group| g.state == State::Running;
        if self.groups.iter().all(|g| !running(g) || g.yielded) {
            self.groups.iter_mut().for_each(|g| g.yielded = false);
        }
        let candidates = self
            .groups
            .iter()
            .enumerate()
            .filter(|(_, g)| running(g) && !g.yielded);
        let (i, _) = candidates.min_by_key(|(_, g)| (u32::MAX - g.depth, g.pc))?;
        let mut group = self.groups.swap_remove(i);
        self.groups.retain(|g| {
            let same = running(g) && (g.pc, g.depth) == (group.pc, group.depth);
            if same {
                group.mask |= g.mask;
            }
            !same
        });
        Some(group)
    }

    pub(super) fn push(&mut self, group: Group) {
        if group.mask != 0 {
            self.groups.push(group);
        }
    }

    /// The lanes of a group that skip an instruction go on behind it.
    pub(super) fn leave(&mut self, group: &mut Group, mask: u32) {
        let rest = group.mask & !mask;
        self.push(Group {
            pc: group.pc + 1,
            mask: rest,
            state: State::Running,
            ..*group
        });
        group.mask = mask;
    }
}

impl Block<'_> {
    /// Runs a warp until its slice ends, it waits, or it is done.
    pub(super) fn run_warp(&mut self, warp: &mut Warp) -> Step<Pause> {
        let mut budget = SLICE;
        loop {
            let Some(mut group) = warp.pick() else {
                if warp.groups.is_empty() {
                    return Ok(Pause::Done);
                }
                if self.release_collectives(warp)? {
                    continue;
                }
                return Ok(Pause::Blocked);
            };
            let ahead = warp
                .groups
                .iter()
                .filter(|g| g.state == State::Running && g.depth == group.depth && !g.yielded);
            let stop = ahead.map(|g| g.pc).min().unwrap_or(u32::MAX);
            let alone = !warp.groups.iter().any(|g| g.state == State::Running);
            let mut turn = if alone { budget } else { TURN.min(budget) };
            let allowed = turn;
            self.run_group(warp, &mut group, stop, &mut turn)?;
            budget -= allowed - turn;
            if group.mask != 0 {
                group.yielded = turn == 0 && !alone;
                warp.push(group);
            }
            if budget == 0 {
                return Ok(Pause::Slice);
            }
        }
    }

    /// Runs one group until it meets another, its turn ends, or its lanes part; a group that was put back comes out
    /// empty.
    fn run_group(
        &mut self,
        warp: &mut Warp,
        group: &mut Group,
        stop: u32,
        turn: &mut u32,
    ) -> Step<()> {
        let program = self.env.program;
        while group.pc < stop && *turn > 0 {
            *turn -= 1;
            let instruction = &program.instructions[group.pc as usize];
            let mask = match instruction.guard {
                None => group.mask,
                Some(g) => {
                    group.mask
                        & (warp.preds[g.pred as usize] ^ if g.negated { u32::MAX } else { 0 })
                }
            };
            self.pc = group.pc;
            self.steps += 1;
            if self.steps > self.env.step_limit {
                return Err(Trouble::new(
                    FaultKind::StepLimit,
                    group.mask.trailing_zeros(),
                    format!(
                        "the block has executed {} warp instructions",
                        self.env.step_limit
                    ),
                ));
            }
            if mask == 0 {
                if matches!(instruction.op, Op::Branch { .. }) {
                    self.counts
                        .instruction(instruction.class, group.mask.count_ones());
                    self.counts.conditional_branches += 1;
                }
                group.pc += 1;
                continue;
            }
            self.counts
                .instruction(instruction.class, mask.count_ones());
            if arithmetic::execute(warp, self.env, &instruction.op, mask) {
                group.pc += 1;
                continue;
            }
            match self.execute(
                warp,
                group,
                mask,
                &instruction.op,
                instruction.guard.is_some(),
            )? {
                Flow::Next => group.pc += 1,
                Flow::Jumped => {}
                Flow::Regroup => {
                    group.mask = 0;
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn execute(
        &mut self,
        warp: &mut Warp,
        group: &mut Group,
        mask: u32,
        op: &Op,
        guarded: bool,
    ) -> Step<Flow> {
        match *op {
            Op::Special { d, s } => {
                let values = self.special(warp, s);
                // Rows of 16-bit registers hold 16 bits.
                warp.put(d, mask, &values);
                Ok(Flow::Next)
            }
            Op::LoadParam {
                d,
                offset,
                access,
                width,
            } => {
                self.load_param(warp, mask, d, offset, access, width);
                Ok(Flow::Next)
            }
            Op::Load { d, access, width } => {
                self.load(warp, mask, d, access, width).map(|()| Flow::Next)
            }
            Op::Store { s, access } => self.store(warp, mask, s, access).map(|()| Flow::Next),
            Op::Atomic {
                op,
                ty,
                d,
                access,
                b,
                c,
            } => self
                .atomic(warp, mask, (op, ty), d, access, [b, c])
                .map(|()| Flow::Next),
            Op::CopyAsync { .. } => self.copy_async(warp, mask, op).map(|()| Flow::Next),
            Op::CopyCommit => {
                lanes(mask).for_each(|l| warp.commits[l] += 1);
                Ok(Flow::Next)
            }
            Op::CopyWait { pending } => {
                let all = pending == WAIT_ALL;
                self.finish_copies(warp, mask, if all { None } else { Some(pending) })
                    .map(|()| Flow::Next)
            }
            Op::ActiveMask { d } => {
                warp.put(d, mask, &[mask.into(); 32]);
                Ok(Flow::Next)
            }
            Op::Nop => Ok(Flow::Next),
            Op::Branch { target } => {
                self.counts.conditional_branches += u64::from(guarded);
                if mask == group.mask {
                    group.pc = target;
                    return Ok(Flow::Jumped);
                }
                self.counts.divergent_branches += 1;
                warp.leave(group, mask);
                warp.push(Group {
                    pc: target,
                    ..*group
                });
                Ok(Flow::Regroup)
            }
            Op::BranchIndexed { table, index } => {
                let targets = &self.env.program.branch_tables[table as usize];
                warp.leave(group, mask);
                let indices = *warp.row(&self.env.constants, index);
                let mut rest = mask;
                let before = warp.groups.len();
                while rest != 0 {
                    let lane = rest.trailing_zeros();
                    let chosen = indices[lane as usize];
                    let Some(target) = targets.get(chosen as usize) else {
                        let detail = format!(
                            "the branch table has {} targets, and index {chosen} is asked for",
                            targets.len()
                        );
                        return Err(Trouble::new(FaultKind::InvalidOperand, lane, detail));
                    };
                    let same = lanes(rest)
                        .filter(|l| indices[*l] == chosen)
                        .fold(0, |m, l| m | 1 << l);
                    warp.push(Group {
                        pc: *target,
                        mask: same,
                        ..*group
                    });
                    rest &= !same;
                }
                self.counts.conditional_branches += 1;
                self.counts.divergent_branches += u64::from(warp.groups.len() - before > 1);
                Ok(Flow::Regroup)
            }
            Op::Call { site } => {
                let site = &self.env.program.calls[site as usize];
                warp.copy_arena(&site.arguments, mask);
                let pc = group.pc;
                warp.leave(group, mask);
                if warp.returns.len() <= group.depth as usize {
                    warp.returns.push([0; 32]);
                }
                lanes(mask).for_each(|l| warp.returns[group.depth as usize][l] = pc);
                warp.push(Group {
                    pc: site.target,
                    depth: group.depth + 1,
                    ..*group
                });
                Ok(Flow::Regroup)
            }
            Op::Return => {
                warp.leave(group, mask);
                let depth = group.depth - 1;
                let mut rest = mask;
                while rest != 0 {
                    let pc = warp.returns[depth as usize][rest.trailing_zeros() as usize];
                    let same = lanes(rest)
                        .filter(|l| warp.returns[depth as usize][*l] == pc)
                        .fold(0, |m, l| m | 1 << l);
                    if let Op::Call { site } = self.env.program.instructions[pc as usize].op {
                        warp.copy_arena(&self.env.program.calls[site as usize].results, same);
                    }
                    warp.push(Group {
                        pc: pc + 1,
                        mask: same,
                        depth,
                        ..*group
                    });
                    rest &= !same;
                }
                Ok(Flow::Regroup)
            }
            Op::Exit => {
                warp.leave(group, mask);
                warp.live &= !mask;
                Ok(Flow::Regroup)
            }
            Op::Trap => Err(Trouble::new(FaultKind::Trap, mask.trailing_zeros(), "")),
            Op::Collective {
                what,
                mask: members,
                aligned,
            } => self.collective(warp, group, mask, what, members, aligned),
            Op::Barrier { id, .. } => {
                let id = warp.row(&self.env.constants, id)[mask.trailing_zeros() as usize];
                let lane = mask.trailing_zeros();
                if id > 15 {
                    return Err(Trouble::new(
                        FaultKind::InvalidOperand,
                        lane,
                        format!("barriers are numbered 0 to 15, not {id}"),
                    ));
                }
                warp.leave(group, mask);
                warp.push(Group {
                    state: State::Barrier(id as u32),
                    ..*group
                });
                Ok(Flow::Regroup)
            }
            // The rest was executed lane by lane.
            _ => Ok(Flow::Next),
        }
    }

    fn special(&self, warp: &Warp, s: Special) -> super::Lanes {
        let env = self.env;
        std::array::from_fn(|lane| {
            let thread = warp.index * 32 + lane as u32;
            let lane = lane as u32;
            u64::from(match s {
                Special::Tid(axis) => env.thread_index(thread)[axis as usize],
                Special::Ntid(axis) => env.block[axis as usize],
                Special::Ctaid(axis) => self.index[axis as usize],
                Special::Nctaid(axis) => env.grid[axis as usize],
                Special::LaneId => lane,
                Special::WarpId => warp.index,
                Special::NWarpId => env.threads().div_ceil(32),
                Special::SmId | Special::GridId => 0,
                Special::NSmId => 1,
                Special::LaneMaskEq => 1 << lane,
                Special::LaneMaskLe => u32::MAX >> (31 - lane),
                Special::LaneMaskLt => (1 << lane) - 1,
                Special::LaneMaskGe => u32::MAX << lane,
                Special::LaneMaskGt => u32::MAX << lane & !(1 << lane),
                Special::Clock => self.steps as u32,
                Special::DynamicShared => env.dynamic_shared,
                Special::TotalShared => env.shared_bytes(),
            })
        })
    }
}

impl Warp {
    /// Copies parameters or results of a call for the lanes of `mask`.
    fn copy_arena(&mut self, list: &[(u32, u32, u32)], mask: u32) {
        for lane in lanes(mask) {
            let frame = self.arena.frame(lane);
            for (from, to, bytes) in list
                .iter()
                .map(|(f, t, b)| (*f as usize, *t as usize, *b as usize))
            {
                frame.copy_within(from..from + bytes, to);
            }
        }
    }
}
