//! `cp.async`: the source is read when the copy is issued, and lands in shared memory when the thread waits for it.
//!
//! Landing as late as the program allows is what finds a missing wait: a read before it sees the old bytes, or bytes
//! that nothing wrote. For races the destination counts as written at both ends.

use super::access::Request;
use super::block::Block;
use super::warp::{Copy, Warp};
use super::{Step, lanes};
use crate::fault::AccessKind;
use crate::ir::Op;
use crate::shadow::Touch;

impl Block<'_> {
    pub(super) fn copy_async(&mut self, warp: &mut Warp, mask: u32, op: &Op) -> Step<()> {
        let Op::CopyAsync {
            to,
            to_offset,
            from,
            from_offset,
            bytes,
            from_bytes,
            ignore,
        } = *op
        else {
            return Ok(());
        };
        let k = &self.env.constants;
        let ignored = ignore.map_or(0, |g| {
            warp.preds[g.pred as usize] ^ if g.negated { u32::MAX } else { 0 }
        });
        let wanted = *warp.row(k, from_bytes);
        let targets: [u64; 32] = warp.row(k, to).map(|a| a.wrapping_add(to_offset as u64));
        let addresses = warp
            .row(k, from)
            .map(|a| a.wrapping_add(from_offset as u64));
        let sizes: [u32; 32] = std::array::from_fn(|l| {
            if ignored >> l & 1 == 1 {
                0
            } else {
                (wanted[l] as u32).min(bytes.into())
            }
        });
        self.count_global_reads(
            &Request {
                mask,
                addresses: &addresses,
            },
            &sizes,
        );
        self.counts.shared_bytes += u64::from(u32::from(bytes) * mask.count_ones());
        for lane in lanes(mask) {
            let offset =
                self.shared_offset(lane, targets[lane], bytes.into(), AccessKind::Write)?;
            let data = self.read_global(warp, lane, addresses[lane], sizes[lane], bytes.into())?;
            self.touch_shared(warp, lane, offset, bytes.into(), Touch::Write)?;
            warp.copies.push(Copy {
                lane,
                group: warp.commits[lane],
                offset,
                bytes,
                data,
                pc: self.pc,
            });
        }
        Ok(())
    }

    /// Lands the copies of these lanes except those in the newest `pending` committed groups; all of them for `None`.
    pub(super) fn finish_copies(
        &mut self,
        warp: &mut Warp,
        mask: u32,
        pending: Option<u32>,
    ) -> Step<()> {
        let commits = warp.commits;
        let is_due = |c: &Copy| {
            let due = match pending {
                None => true,
                Some(n) => c.group < commits[c.lane].saturating_sub(n),
            };
            mask >> c.lane & 1 == 1 && due
        };
        let copies = std::mem::take(&mut warp.copies);
        let (due, rest): (Vec<Copy>, Vec<Copy>) = copies.into_iter().partition(is_due);
        warp.copies = rest;
        let here = self.pc;
        for copy in due {
            // A race found here is one of the copy, not of the wait.
            self.pc = copy.pc;
            self.touch_shared(
                warp,
                copy.lane,
                copy.offset,
                copy.bytes.into(),
                Touch::Write,
            )?;
            for (i, word) in copy
                .data
                .iter()
                .enumerate()
                .take(usize::from(copy.bytes).div_ceil(8))
            {
                let n = u32::from(copy.bytes).min(8);
                self.shared.store(copy.offset + 8 * i as u32, n, *word);
            }
            self.shared.mark_written(copy.offset, copy.bytes.into());
        }
        self.pc = here;
        Ok(())
    }
}
