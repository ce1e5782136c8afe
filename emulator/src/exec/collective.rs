//! Instructions that wait for the lanes of a mask: shuffles, votes, matches, reductions, warp barriers, matrices.

use super::block::Block;
use super::warp::{Flow, Group, State, Warp};
use super::{Lanes, Step, Trouble, lanes};
use crate::alu::{convert, half, matrix};
use crate::fault::{AccessKind, FaultKind};
use crate::ir::*;
use crate::shadow::Touch;

/// The lanes at one instruction that take part.
struct Part {
    pc: u32,
    mask: u32,
    what: Collective,
}

impl Block<'_> {
    /// Executes a collective at once if all lanes that it waits for are here, else puts the group to wait.
    pub(super) fn collective(
        &mut self,
        warp: &mut Warp,
        group: &mut Group,
        mask: u32,
        what: Collective,
        members: Row,
        aligned: bool,
    ) -> Step<Flow> {
        let values = *warp.row(&self.env.constants, members);
        let first = values[mask.trailing_zeros() as usize] as u32;
        let uniform = lanes(mask).all(|l| values[l] as u32 == first);
        if let Some(lane) = lanes(mask).find(|l| values[*l] as u32 >> l & 1 == 0) {
            let detail = format!(
                "the lane executes this with the member mask {:#010x}, which does not name it",
                values[lane] as u32
            );
            return Err(Trouble::new(FaultKind::InactiveLane, lane as u32, detail));
        }
        if aligned && warp.live != u32::MAX {
            let detail = format!(
                "all 32 lanes of the warp must execute this, and only those of {:#010x} are left",
                warp.live
            );
            return Err(Trouble::new(
                FaultKind::InactiveLane,
                mask.trailing_zeros(),
                detail,
            ));
        }
        if uniform && first & warp.live == mask {
            self.perform(
                warp,
                &[Part {
                    pc: group.pc,
                    mask,
                    what,
                }],
                first,
            )?;
            if mask == group.mask {
                return Ok(Flow::Next);
            }
            warp.leave(group, mask);
            warp.push(Group {
                pc: group.pc + 1,
                ..*group
            });
            return Ok(Flow::Regroup);
        }
        warp.leave(group, mask);
        let mut rest = mask;
        while rest != 0 {
            let members = values[rest.trailing_zeros() as usize] as u32;
            let same = lanes(rest)
                .filter(|l| values[*l] as u32 == members)
                .fold(0, |m, l| m | 1 << l);
            warp.push(Group {
                mask: same,
                state: State::Collective(members),
                ..*group
            });
            rest &= !same;
        }
        self.release_collectives(warp)?;
        Ok(Flow::Regroup)
    }

    /// Executes every collective whose lanes have all arrived, also at different instructions of one kind.
    pub(super) fn release_collectives(&mut self, warp: &mut Warp) -> Step<bool> {
        let mut released = false;
        let mut i = 0;
        while i < warp.groups.len() {
            let g = warp.groups[i];
            let State::Collective(members) = g.state else {
                i += 1;
                continue;
            };
            let what = self.collective_at(g.pc);
            let together: Vec<usize> = (i..warp.groups.len())
                .filter(|j| {
                    let h = warp.groups[*j];
                    h.state == State::Collective(members)
                        && same_kind(&what, &self.collective_at(h.pc))
                })
                .collect();
            let parts: Vec<Part> = together
                .iter()
                .map(|j| warp.groups[*j])
                .map(|h| Part {
                    pc: h.pc,
                    mask: h.mask,
                    what: self.collective_at(h.pc),
                })
                .collect();
            if parts.iter().fold(0, |m, p| m | p.mask) != members & warp.live {
                i += 1;
                continue;
            }
            self.perform(warp, &parts, members)?;
            for j in together {
                let h = &mut warp.groups[j];
                h.pc += 1;
                h.state = State::Running;
            }
            released = true;
            i += 1;
        }
        Ok(released)
    }

    fn collective_at(&self, pc: u32) -> Collective {
        match self.env.program.instructions[pc as usize].op {
            Op::Collective { what, .. } => what,
            _ => Collective::WarpBarrier,
        }
    }

    fn perform(&mut self, warp: &mut Warp, parts: &[Part], members: u32) -> Step<()> {
        let active = parts.iter().fold(0, |m, p| m | p.mask);
        self.pc = parts[0].pc;
        match parts[0].what {
            Collective::Shuffle { mode, .. } => self.shuffle(warp, parts, mode, active)?,
            Collective::Vote { mode, .. } => self.vote(warp, parts, mode, active),
            Collective::Match { wide, all, .. } => self.matches(warp, parts, wide, all, active),
            Collective::Redux { op, .. } => self.redux(warp, parts, op),
            Collective::WarpBarrier => {
                self.counts.warp_barriers += 1;
                self.clocks.warp_barrier(
                    warp.index as usize,
                    active,
                    members & warp.live == warp.live,
                );
            }
            Collective::LoadMatrix { .. } => self.load_matrix(warp, parts)?,
            Collective::Mma { .. } => self.mma(warp, parts),
        }
        Ok(())
    }

    /// A source row, each lane from the operand of its own instruction.
    fn gather(&self, warp: &Warp, parts: &[Part], row: impl Fn(&Collective) -> Row) -> Lanes {
        let mut out = [0; 32];
        for part in parts {
            let source = warp.row(&self.env.constants, row(&part.what));
            lanes(part.mask).for_each(|l| out[l] = source[l]);
        }
        out
    }

    fn shuffle(
        &mut self,
        warp: &mut Warp,
        parts: &[Part],
        mode: ShuffleMode,
        active: u32,
    ) -> Step<()> {
        let source = |pick: fn(&Collective) -> Row| self.gather(warp, parts, pick);
        let a = source(|c| {
            if let Collective::Shuffle { a, .. } = c {
                *a
            } else {
                0
            }
        });
        let b = source(|c| {
            if let Collective::Shuffle { b, .. } = c {
                *b
            } else {
                0
            }
        });
        let c = source(|c| {
            if let Collective::Shuffle { c, .. } = c {
                *c
            } else {
                0
            }
        });
        let (mut values, mut valid) = ([0; 32], 0u32);
        for lane in lanes(active) {
            let (me, by) = (lane as u32, b[lane] as u32 & 31);
            let (clamp, segment) = (c[lane] as u32 & 31, c[lane] as u32 >> 8 & 31);
            let (last, first) = (me & segment | clamp & !segment, me & segment);
            let (from, inside) = match mode {
                ShuffleMode::Up => (me.wrapping_sub(by), me as i32 - by as i32 >= last as i32),
                ShuffleMode::Down => (me + by, me + by <= last),
                ShuffleMode::Bfly => (me ^ by, me ^ by <= last),
                ShuffleMode::Idx => {
                    let from = first | by & !segment;
                    (from, from <= last)
                }
            };
            let from = if inside { from } else { me };
            if active >> from & 1 == 0 {
                let state = if warp.live >> from & 1 == 0 {
                    "has exited"
                } else {
                    "is not in the member mask"
                };
                return Err(Trouble::new(
                    FaultKind::InactiveLane,
                    me,
                    format!("it reads from lane {from}, which {state}"),
                ));
            }
            values[lane] = a[from as usize];
            valid |= u32::from(inside) << lane;
        }
        for part in parts {
            if let Collective::Shuffle { d, valid: p, .. } = part.what {
                warp.put(d, part.mask, &values);
                warp.put_pred(p, part.mask, valid);
            }
        }
        Ok(())
    }

    fn vote(&mut self, warp: &mut Warp, parts: &[Part], mode: VoteMode, active: u32) {
        let mut votes = 0;
        for part in parts {
            if let Collective::Vote { p, negated, .. } = part.what {
                votes |= (warp.preds[p as usize] ^ if negated { u32::MAX } else { 0 }) & part.mask;
            }
        }
        let answer = match mode {
            VoteMode::All => votes == active,
            VoteMode::Any => votes != 0,
            VoteMode::Uni => votes == 0 || votes == active,
            VoteMode::Ballot => false,
        };
        for part in parts {
            if let Collective::Vote { d, .. } = part.what {
                if mode == VoteMode::Ballot {
                    warp.put(d, part.mask, &[votes.into(); 32]);
                } else {
                    warp.put_pred(d, part.mask, if answer { u32::MAX } else { 0 });
                }
            }
        }
    }

    fn matches(&mut self, warp: &mut Warp, parts: &[Part], wide: bool, all: bool, active: u32) {
        let a = self.gather(warp, parts, |c| {
            if let Collective::Match { a, .. } = c {
                *a
            } else {
                0
            }
        });
        let a = if wide { a } else { a.map(|v| v & 0xFFFF_FFFF) };
        let equal_to = |lane: usize| {
            lanes(active)
                .filter(|l| a[*l] == a[lane])
                .fold(0u32, |m, l| m | 1 << l)
        };
        let agree = equal_to(active.trailing_zeros() as usize) == active;
        let mut values = [0; 32];
        for lane in lanes(active) {
            values[lane] = match (all, agree) {
                (false, _) => equal_to(lane).into(),
                (true, true) => active.into(),
                (true, false) => 0,
            };
        }
        for part in parts {
            if let Collective::Match { d, valid, .. } = part.what {
                warp.put(d, part.mask, &values);
                warp.put_pred(valid, part.mask, if agree { u32::MAX } else { 0 });
            }
        }
    }

    fn redux(&mut self, warp: &mut Warp, parts: &[Part], op: ReduxOp) {
        let a = self.gather(warp, parts, |c| {
            if let Collective::Redux { a, .. } = c {
                *a
            } else {
                0
            }
        });
        let active = parts.iter().fold(0, |m, p| m | p.mask);
        let values = lanes(active).map(|l| a[l] as u32);
        let result = match op {
            ReduxOp::Add => values.fold(0, u32::wrapping_add),
            ReduxOp::And => values.fold(u32::MAX, |x, y| x & y),
            ReduxOp::Or => values.fold(0, |x, y| x | y),
            ReduxOp::Xor => values.fold(0, |x, y| x ^ y),
            ReduxOp::MinU => values.min().unwrap_or(0),
            ReduxOp::MaxU => values.max().unwrap_or(0),
            ReduxOp::MinS => values.min_by_key(|v| *v as i32).unwrap_or(0),
            ReduxOp::MaxS => values.max_by_key(|v| *v as i32).unwrap_or(0),
        };
        for part in parts {
            if let Collective::Redux { d, .. } = part.what {
                warp.put(d, part.mask, &[result.into(); 32]);
            }
        }
    }

    /// Lane `8m + r` gives the address of row `r` of matrix `m`; lane `l` receives elements `2(l % 4)` and the next of
    /// row `l / 4`, or of that column when transposed.
    fn load_matrix(&mut self, warp: &mut Warp, parts: &[Part]) -> Step<()> {
        let Collective::LoadMatrix {
            count, transposed, ..
        } = parts[0].what
        else {
            return Ok(());
        };
        let mut addresses = self.gather(warp, parts, |c| {
            if let Collective::LoadMatrix { address, .. } = c {
                *address
            } else {
                0
            }
        });
        for part in parts {
            if let Collective::LoadMatrix { offset, .. } = part.what {
                lanes(part.mask)
                    .for_each(|l| addresses[l] = addresses[l].wrapping_add(offset as u64));
            }
        }
        let rows = 8 * usize::from(count);
        let mut matrices = [[[0u16; 8]; 8]; 4];
        for lane in 0..rows {
            // An address may be generic.
            let address = addresses[lane];
            let address = if (SHARED_WINDOW..SHARED_WINDOW + WINDOW).contains(&address) {
                address - SHARED_WINDOW
            } else {
                address
            };
            let offset = self.shared_offset(lane, address, 16, AccessKind::Read)?;
            self.check_shared_written(lane, offset, 16, AccessKind::Read)?;
            self.touch_shared(warp, lane, offset, 16, Touch::Read)?;
            for (i, v) in matrices[lane / 8][lane % 8].iter_mut().enumerate() {
                *v = self.shared.load(offset + 2 * i as u32, 2) as u16;
            }
        }
        self.counts.shared_requests += 1;
        self.counts.shared_bytes += 16 * rows as u64;
        let offsets = std::array::from_fn(|i| addresses[i] as u32);
        self.counts.bank_conflicts +=
            crate::shared::bank_conflicts(&offsets, (u64::MAX >> (64 - rows)) as u32, 16);
        for (m, matrix) in matrices.iter().enumerate().take(count.into()) {
            let values: Lanes = std::array::from_fn(|lane| {
                let (row, column) = (lane / 4, 2 * (lane % 4));
                let (low, high) = if transposed {
                    (matrix[column][row], matrix[column + 1][row])
                } else {
                    (matrix[row][column], matrix[row][column + 1])
                };
                u64::from(low) | u64::from(high) << 16
            });
            for part in parts {
                if let Collective::LoadMatrix { d, .. } = part.what {
                    warp.put(d[m], part.mask, &values);
                }
            }
        }
        Ok(())
    }

    fn mma(&mut self, warp: &mut Warp, parts: &[Part]) {
        let Collective::Mma { kind, .. } = parts[0].what else {
            return;
        };
        let [of_a, of_b, accumulators] = kind.registers();
        let fragment = |i: usize, which: fn(&Collective, usize) -> Row| {
            self.gather(warp, parts, |c| which(c, i))
        };
        let a_row = |c: &Collective, i: usize| {
            if let Collective::Mma { a, .. } = c {
                a[i]
            } else {
                0
            }
        };
        let b_row = |c: &Collective, i: usize| {
            if let Collective::Mma { b, .. } = c {
                b[i]
            } else {
                0
            }
        };
        let c_row = |c: &Collective, i: usize| {
            if let Collective::Mma { c, .. } = c {
                c[i]
            } else {
                0
            }
        };
        let a: Vec<Lanes> = (0..of_a).map(|i| fragment(i, a_row)).collect();
        let b: Vec<Lanes> = (0..of_b).map(|i| fragment(i, b_row)).collect();
        let c: Vec<Lanes> = (0..accumulators).map(|i| fragment(i, c_row)).collect();
        let out = match kind {
            MmaKind::Bits { and, .. } => matrix::count(&a, &b, &c, and),
            MmaKind::Bytes { signed, .. } => matrix::multiply_bytes(&a, &b, &c, signed),
            MmaKind::Floats {
                half_out, bfloats, ..
            } => {
                let c: [[f32; 32]; 4] = std::array::from_fn(|i| {
                    c[if half_out { i / 2 } else { i }].map(|v| match (half_out, i % 2) {
                        (false, _) => f32::from_bits(v as u32),
                        (true, 0) => half::to_f32(v as u16),
                        (true, _) => half::to_f32((v >> 16) as u16),
                    })
                });
                let widen = if bfloats {
                    convert::bf16_to_f32
                } else {
                    half::to_f32
                };
                let out = matrix::multiply(&a, &b, c, widen);
                let register = |i: usize| -> Lanes {
                    std::array::from_fn(|lane| {
                        if half_out {
                            let pair = [out[2 * i][lane], out[2 * i + 1][lane]].map(half::from_f32);
                            u64::from(pair[0]) | u64::from(pair[1]) << 16
                        } else {
                            crate::alu::float::bits(out[i][lane])
                        }
                    })
                };
                (0..accumulators).map(register).collect()
            }
        };
        for (i, values) in out.iter().enumerate() {
            for part in parts {
                if let Collective::Mma { d, .. } = part.what {
                    warp.put(d[i], part.mask, values);
                }
            }
        }
    }
}

/// Whether two instructions may meet: the same operation with the same qualifiers.
fn same_kind(a: &Collective, b: &Collective) -> bool {
    use Collective::*;
    match (a, b) {
        (Shuffle { mode: a, .. }, Shuffle { mode: b, .. }) => a == b,
        (Vote { mode: a, .. }, Vote { mode: b, .. }) => a == b,
        (
            Match {
                wide: w, all: a, ..
            },
            Match {
                wide: v, all: b, ..
            },
        ) => (w, a) == (v, b),
        (Redux { op: a, .. }, Redux { op: b, .. }) => a == b,
        (WarpBarrier, WarpBarrier) => true,
        (
            LoadMatrix {
                count: c,
                transposed: t,
                ..
            },
            LoadMatrix {
                count: d,
                transposed: u,
                ..
            },
        ) => (c, t) == (d, u),
        (Mma { kind: a, .. }, Mma { kind: b, .. }) => a == b,
        _ => false,
    }
}
