//! Registers of a program to few rows.
//!
//! PTX names a register for each value: a kernel has thousands, of which some hundred hold what is still wanted. As
//! many rows lie in the first-level cache of the machine that runs this, and are quickly cleared for the next block. A
//! register has its row from the first instruction at which it is written or may be wanted to the last (its *span*);
//! two of as many bits whose spans do not meet may have the same. That lanes stand at different instructions changes
//! nothing: each has its own column of a row, and its own path through the program.

use crate::ir::{CONSTANT, Op, Program, Row, Use};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

/// A program whose registers have rows of it: those of each function apart, as a caller's are kept during a call.
pub(crate) fn allocate(mut program: Program) -> Program {
    let starts = program.functions.iter().map(|(start, _)| *start as usize);
    let ends = starts.clone().skip(1);
    let ranges: Vec<_> = starts
        .zip(ends.chain([program.instructions.len()]))
        .collect();
    let mut given = vec![0; program.rows.len()];
    let mut rows = Vec::new();
    for (start, end) in ranges {
        Function::new(&program, start..end).assign(&mut given, &mut rows);
    }
    for instruction in &mut program.instructions {
        instruction.op.rows(|row, _| {
            if *row & CONSTANT == 0 {
                *row = given[*row as usize];
            }
        });
    }
    program.rows = rows;
    program
}

/// A set of registers.
#[derive(Clone)]
struct Set(Vec<u64>);

impl Set {
    fn new(registers: usize) -> Self {
        Self(vec![0; registers.div_ceil(64)])
    }

    fn insert(&mut self, register: Row) {
        self.0[register as usize / 64] |= 1 << (register % 64);
    }

    fn remove(&mut self, register: Row) {
        self.0[register as usize / 64] &= !(1 << (register % 64));
    }

    fn iter(&self) -> impl Iterator<Item = Row> + '_ {
        let bits = |word: u64| (0..64).filter(move |bit| word >> bit & 1 == 1);
        let words = self.0.iter().enumerate();
        words.flat_map(move |(at, word)| bits(*word).map(move |bit| at as Row * 64 + bit))
    }
}

/// Instructions of which none but the last goes anywhere but to the next.
struct Straight {
    range: Range<usize>,
    /// Those that come behind it, by their numbers.
    next: Vec<usize>,
    /// Registers that are read in it before they are written, and those that it writes whatever happens.
    reads: Set,
    writes: Set,
    /// Registers that are wanted where it begins.
    wanted: Set,
}

/// The instructions of a function.
struct Function<'a> {
    program: &'a Program,
    range: Range<usize>,
    parts: Vec<Straight>,
    /// Its first register; it has those from there on.
    first: Row,
    registers: usize,
}

impl<'a> Function<'a> {
    fn new(program: &'a Program, range: Range<usize>) -> Self {
        let (mut first, mut end) = (CONSTANT, 0);
        for at in range.clone() {
            registers(program, at, |register, _| {
                first = first.min(register);
                end = end.max(register + 1);
            });
        }
        let mut function = Self {
            program,
            range,
            parts: Vec::new(),
            first,
            registers: end.saturating_sub(first) as usize,
        };
        function.parts = function.straight_parts();
        function.spread_what_is_wanted();
        function
    }

    /// The instructions that may come after one.
    fn next(&self, at: usize) -> Vec<usize> {
        let instruction = &self.program.instructions[at];
        let mut next = match instruction.op {
            Op::Branch { target } => vec![target as usize],
            Op::BranchIndexed { table, .. } => {
                let targets = self.program.branch_tables[table as usize].iter();
                targets.map(|target| *target as usize).collect()
            }
            Op::Return | Op::Exit | Op::Trap => Vec::new(),
            _ => return vec![at + 1],
        };
        if instruction.guard.is_some() {
            next.push(at + 1);
        }
        next
    }

    fn straight_parts(&self) -> Vec<Straight> {
        let of = |at: usize| at - self.range.start;
        // A function ends with a return, behind which nothing comes.
        let mut begins = vec![false; self.range.len() + 1];
        begins[0] = true;
        for at in self.range.clone() {
            let next = self.next(at);
            if next != [at + 1] {
                begins[of(at + 1)] = true;
                next.iter().for_each(|next| begins[of(*next)] = true);
            }
        }
        let starts: Vec<_> = self.range.clone().filter(|at| begins[of(*at)]).collect();
        let number = |at: &usize| starts.partition_point(|start| start < at);
        let ends = starts.iter().skip(1).copied().chain([self.range.end]);
        let ranges = starts.iter().zip(ends).map(|(start, end)| *start..end);
        ranges
            .map(|range| {
                let next = self.next(range.end - 1);
                let (reads, writes) = self.uses(range.clone());
                Straight {
                    next: next.iter().map(number).collect(),
                    wanted: reads.clone(),
                    range,
                    reads,
                    writes,
                }
            })
            .collect()
    }

    fn uses(&self, range: Range<usize>) -> (Set, Set) {
        let (mut reads, mut writes) = (Set::new(self.registers), Set::new(self.registers));
        for at in range.rev() {
            let always = self.program.instructions[at].guard.is_none();
            registers(self.program, at, |register, what| {
                if what == Use::Write && always {
                    reads.remove(register - self.first);
                    writes.insert(register - self.first);
                }
            });
            registers(self.program, at, |register, what| {
                if what == Use::Read {
                    reads.insert(register - self.first);
                }
            });
        }
        (reads, writes)
    }

    /// Finds what is wanted where each part begins: what it reads, and what is wanted behind it and not written in it.
    fn spread_what_is_wanted(&mut self) {
        let mut changed = true;
        while changed {
            changed = false;
            for part in (0..self.parts.len()).rev() {
                let after = self.wanted_after(part);
                let part = &mut self.parts[part];
                for (at, wanted) in part.wanted.0.iter_mut().enumerate() {
                    let all = part.reads.0[at] | after.0[at] & !part.writes.0[at];
                    changed |= all != *wanted;
                    *wanted = all;
                }
            }
        }
    }

    fn wanted_after(&self, part: usize) -> Set {
        let mut after = Set::new(self.registers);
        for next in &self.parts[part].next {
            let wanted = &self.parts[*next].wanted.0;
            after.0.iter_mut().zip(wanted).for_each(|(a, b)| *a |= b);
        }
        after
    }

    /// The first instruction and the last at which each register is written or wanted; none of one that is neither.
    fn spans(&self) -> Vec<Option<(usize, usize)>> {
        let mut spans = vec![None; self.registers];
        let mut extend = |register: Row, at: usize| {
            let span = &mut spans[register as usize];
            let (first, last) = span.unwrap_or((at, at));
            *span = Some((first.min(at), last.max(at)));
        };
        for (number, part) in self.parts.iter().enumerate() {
            let (start, end) = (part.range.start, part.range.end - 1);
            part.wanted.iter().for_each(|r| extend(r, start));
            let after = self.wanted_after(number);
            after.iter().for_each(|r| extend(r, end));
            for at in part.range.clone() {
                registers(self.program, at, |register, _| {
                    extend(register - self.first, at);
                });
            }
        }
        // What may be read before it is written is zero: no register is shared.
        let unwritten = self.parts.first().map(|part| &part.wanted);
        for register in unwritten.into_iter().flat_map(Set::iter) {
            extend(register, self.range.start);
            extend(register, self.range.end);
        }
        spans
    }

    /// Gives the function's registers rows of their own behind those that are there.
    fn assign(&self, given: &mut [Row], rows: &mut Vec<u8>) {
        let spans = self.spans();
        let numbered = (self.first..).zip(&spans);
        let mut order: Vec<_> = numbered
            .filter_map(|(register, span)| Some(((*span)?, register)))
            .collect();
        order.sort_unstable();
        // Of each number of bits, which is a power of two.
        let mut free: [BinaryHeap<Reverse<Row>>; 7] = Default::default();
        let mut taken = BinaryHeap::new();
        for ((first, last), register) in order {
            while let Some((Reverse(end), row)) = taken.peek().copied()
                && end < first
            {
                taken.pop();
                free[rows[row as usize].ilog2() as usize].push(Reverse(row));
            }
            let bits = self.program.rows[register as usize];
            let row = free[bits.ilog2() as usize].pop();
            let row = row.map_or(rows.len() as Row, |Reverse(row)| row);
            if row as usize == rows.len() {
                rows.push(bits);
            }
            taken.push((Reverse(last), row));
            given[register as usize] = row;
        }
    }
}

/// Gives `f` each register that the instruction at `at` names.
fn registers(program: &Program, at: usize, mut f: impl FnMut(Row, Use)) {
    let mut op = program.instructions[at].op;
    op.rows(|row, what| {
        if *row & CONSTANT == 0 {
            f(*row, what);
        }
    });
}

#[cfg(test)]
mod tests {
    use crate::{Device, LaunchOptions, Module};

    /// What lane 0 to 31 of a kernel leave in `%r0`, and the rows that it takes.
    fn run(registers: &str, functions: &str, body: &str) -> ([u32; 32], usize) {
        let text = format!(
            ".version 8.0 .target sm_80 .address_size 64
            {functions}
            .visible .entry k(.param .u64 out) {{
                .reg .b32 %r<{registers}>; .reg .b64 %rd<4>; .reg .pred %p<4>;
                mov.u32 %r1, %tid.x;
                {body}
                ld.param.b64 %rd1, [out];
                mov.u32 %r2, %tid.x;
                mul.wide.u32 %rd2, %r2, 4;
                add.s64 %rd1, %rd1, %rd2;
                st.global.b32 [%rd1], %r0;
                ret;
            }}"
        );
        let module = Module::parse(&text).unwrap();
        let device = Device::default();
        let out = device.alloc(128).unwrap();
        let (params, options) = (out.to_le_bytes(), LaunchOptions::default());
        device
            .launch(&module, "k", [1; 3], [32, 1, 1], 0, &params, &options)
            .unwrap();
        let mut bytes = [0; 128];
        device.read(out, &mut bytes).unwrap();
        let word = |i: usize| u32::from_le_bytes(std::array::from_fn(|byte| bytes[4 * i + byte]));
        let rows = module.entry("k").unwrap().program().rows.len();
        (std::array::from_fn(word), rows)
    }

    #[test]
    fn values_that_are_wanted_one_after_the_other_share_a_row() {
        let chain = (10..1000).map(|r| format!("add.u32 %r{}, %r{r}, 1;\n", r + 1));
        let chain: String = chain.collect();
        let (out, rows) = run(
            "1001",
            "",
            &format!("mov.b32 %r10, %r1; {chain} mov.b32 %r0, %r1000;"),
        );
        assert_eq!(out, std::array::from_fn(|lane| lane as u32 + 990));
        assert!(rows < 10, "{rows}");
    }

    /// `%r3` is wanted in every turn, and written before the loop; `%r4` is, of a lane that leaves early, behind it.
    #[test]
    fn what_a_loop_wants_is_kept_in_all_turns() {
        let body = "mov.b32 %r3, 5; mov.b32 %r0, 0; mov.b32 %r4, 0;
            AGAIN: add.u32 %r5, %r3, 1; add.u32 %r6, %r5, 1; add.u32 %r0, %r0, %r6; add.u32 %r4, %r4, 1;
            setp.le.u32 %p1, %r4, %r1; @%p1 bra AGAIN;
            add.u32 %r7, %r0, %r4; mov.b32 %r0, %r7;";
        let (out, _) = run("8", "", body);
        assert_eq!(out, std::array::from_fn(|lane| (lane as u32 + 1) * 8));
    }

    #[test]
    fn a_guarded_write_leaves_the_other_lanes_value() {
        let body = "mov.b32 %r3, 7; setp.lt.u32 %p1, %r1, 4; @%p1 mov.b32 %r3, 9;
            add.u32 %r4, %r1, 100; add.u32 %r0, %r3, %r4;";
        let (out, _) = run("5", "", body);
        let expected = |lane: usize| lane as u32 + if lane < 4 { 109 } else { 107 };
        assert_eq!(out, std::array::from_fn(expected));
    }

    /// The lanes of a branch stand behind those of the other when these write registers that those no longer want, or
    /// not yet.
    #[test]
    fn lanes_that_part_have_their_own_values() {
        let body = "setp.lt.u32 %p1, %r1, 16; @%p1 bra LOW;
            mov.b32 %r3, 1; add.u32 %r4, %r3, %r1; bra DONE;
            LOW: mov.b32 %r5, 2; mul.lo.u32 %r4, %r5, %r1;
            DONE: mov.b32 %r6, 1000; add.u32 %r0, %r4, %r6;";
        let (out, _) = run("7", "", body);
        let expected = |lane: u32| 1000 + if lane < 16 { 2 * lane } else { lane + 1 };
        assert_eq!(out, std::array::from_fn(|lane| expected(lane as u32)));
    }

    #[test]
    fn what_is_read_before_it_is_written_is_zero() {
        let body = "mov.b32 %r3, 77; add.u32 %r4, %r3, 1; add.u32 %r5, %r4, %r6; mov.b32 %r0, %r6;
            setp.eq.u32 %p1, %r1, 3; @%p1 mov.b32 %r6, %r5; add.u32 %r0, %r0, %r6;";
        let (out, _) = run("7", "", body);
        assert_eq!(
            out,
            std::array::from_fn(|lane| if lane == 3 { 78 } else { 0 })
        );
    }

    #[test]
    fn a_caller_keeps_its_values_during_a_call() {
        let functions = ".func (.param .b32 result) f(.param .b32 a) {
            .reg .b32 %r<5>;
            ld.param.b32 %r1, [a]; add.u32 %r2, %r1, 3; mul.lo.u32 %r3, %r2, 2; st.param.b32 [result], %r3; ret; }";
        let body = "add.u32 %r3, %r1, 40;
            { .param .b32 given; .param .b32 back; st.param.b32 [given], %r1; call.uni (back), f, (given); ld.param.b32 %r4, [back]; }
            add.u32 %r0, %r3, %r4;";
        let (out, _) = run("5", functions, body);
        assert_eq!(out, std::array::from_fn(|lane| 3 * lane as u32 + 46));
    }
}
