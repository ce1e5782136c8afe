//! The rows that an instruction names.

use super::{BarrierReduce, Collective, Op, Row, VoteMode};

/// What an instruction does with a row that it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Read,
    /// Of all lanes that execute it.
    Write,
}

impl Op {
    /// Gives `f` each row that the instruction names, constants and [`SINK`](super::SINK) among them. All are read
    /// before any is written.
    pub(crate) fn rows(&mut self, mut f: impl FnMut(&mut Row, Use)) {
        let mut visit = |reads: &mut [&mut Row], writes: &mut [&mut Row]| {
            reads.iter_mut().for_each(|row| f(row, Use::Read));
            writes.iter_mut().for_each(|row| f(row, Use::Write));
        };
        match self {
            Op::Mov { d, a }
            | Op::Int1 { d, a, .. }
            | Op::Float1 { d, a, .. }
            | Op::Convert { d, a, .. }
            | Op::ToGeneric { d, a, .. }
            | Op::FromGeneric { d, a, .. } => visit(&mut [a], &mut [d]),
            Op::Int2 { d, a, b, .. }
            | Op::Float2 { d, a, b, .. }
            | Op::Selp { d, a, b, .. }
            | Op::ConvertPair { d, a, b, .. } => visit(&mut [a, b], &mut [d]),
            Op::Int3 { d, a, b, c, .. } | Op::Fma { d, a, b, c, .. } => {
                visit(&mut [a, b, c], &mut [d]);
            }
            Op::Bfi {
                d,
                a,
                b,
                position,
                length,
                ..
            } => visit(&mut [a, b, position, length], &mut [d]),
            Op::Special { d, .. } | Op::ActiveMask { d } => visit(&mut [], &mut [d]),
            Op::Pack { d, s, .. } => visit(&mut s.each_mut(), &mut [d]),
            Op::Unpack { d, a, .. } => visit(&mut [a], &mut d.each_mut()),
            Op::Testp { a, .. } | Op::IsSpace { a, .. } => visit(&mut [a], &mut []),
            Op::Setp { a, b, .. } => visit(&mut [a, b], &mut []),
            // The address of a parameter is no register's.
            Op::LoadParam { d, .. } => visit(&mut [], &mut d.each_mut()),
            Op::Load { d, access, .. } => visit(&mut [&mut access.address], &mut d.each_mut()),
            Op::Store { s, access } => {
                visit(&mut [&mut access.address], &mut []);
                visit(&mut s.each_mut(), &mut []);
            }
            Op::Atomic {
                d, access, b, c, ..
            } => visit(&mut [&mut access.address, b, c], &mut [d]),
            Op::CopyAsync {
                to,
                from,
                from_bytes,
                ..
            } => visit(&mut [to, from, from_bytes], &mut []),
            Op::BranchIndexed { index, .. } => visit(&mut [index], &mut []),
            Op::Collective { what, mask, .. } => {
                visit(&mut [mask], &mut []);
                match what {
                    Collective::Shuffle { d, a, b, c, .. } => visit(&mut [a, b, c], &mut [d]),
                    Collective::Vote {
                        mode: VoteMode::Ballot,
                        d,
                        ..
                    } => visit(&mut [], &mut [d]),
                    Collective::Match { d, a, .. } | Collective::Redux { d, a, .. } => {
                        visit(&mut [a], &mut [d]);
                    }
                    Collective::LoadMatrix { d, address, .. } => {
                        visit(&mut [address], &mut d.each_mut());
                    }
                    Collective::Mma { d, a, b, c, .. } => {
                        visit(&mut a.each_mut(), &mut []);
                        visit(&mut b.each_mut(), &mut []);
                        visit(&mut c.each_mut(), &mut d.each_mut());
                    }
                    Collective::Vote { .. } | Collective::WarpBarrier => {}
                }
            }
            Op::Barrier {
                id, count, reduce, ..
            } => {
                visit(&mut [id], &mut []);
                if let Some(count) = count {
                    visit(&mut [count], &mut []);
                }
                if let Some((BarrierReduce::Popc, _, d)) = reduce {
                    visit(&mut [], &mut [d]);
                }
            }
            Op::PredConst { .. }
            | Op::PredLogic { .. }
            | Op::CopyCommit
            | Op::CopyWait { .. }
            | Op::Branch { .. }
            | Op::Call { .. }
            | Op::Return
            | Op::Exit
            | Op::Trap
            | Op::Nop => {}
        }
    }
}
