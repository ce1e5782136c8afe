//! Launches whose results were recorded on a card, and with which the emulator must agree.
//!
//! A [`Case`] is one instruction, or a few that belong together, in a kernel of its own: each lane loads its operands,
//! executes the instruction and stores the result. Operands are drawn from the case's name ([`values`]), so only results
//! are stored ([`store`]). `record_hardware` runs the cases on a card and writes the results; the test `hardware_truth`
//! runs them on the emulator and compares ([`agreement`]). The same for whole operators, with the kernels of this
//! library, is in [`operators`].
//!
//! ```text
//!            ┌ record_hardware ── card ──────▶ tests/data/hardware
//! cases() ───┤                                        │ compared
//!            └ hardware_truth ─── emulator ───────────┘
//! ```

pub mod agreement;
mod convert;
mod float;
mod half_float;
mod integer;
mod matrix;
mod memory;
pub mod operators;
pub mod store;
pub mod values;
mod warp;

use agreement::Agreement;
use std::fmt::Write as _;
use values::{Random, Values, fnv};

/// Threads of a CTA in every launch.
pub const BLOCK: u32 = 128;

/// Bytes of a kernel's parameter: the addresses of its operands and of its results.
pub const PARAM_BYTES: usize = 16;

/// One launch.
#[derive(Clone, Debug)]
pub struct Case {
    /// The instruction, and behind a `/` what tells cases of one instruction apart. Unique.
    pub name: String,
    /// How near to the card's results others must be.
    pub agreement: Agreement,
    /// Threads in all; a multiple of [`BLOCK`].
    lanes: u32,
    inputs: Vec<Values>,
    results: Results,
    /// Declarations and instructions between the loads and the stores.
    body: String,
}

/// What a kernel writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Results {
    /// So many registers `%o0`, `%o1`, … of so many bytes from each lane.
    EachLane { count: usize, bytes: u8 },
    /// So many bytes that all lanes share and the body writes itself, through `%base`. They begin as zeros.
    Shared { bytes: usize },
}

impl Case {
    /// `name %o0, %i0, %i1, …;`, an operand for each of `inputs`, its result of `bytes` bytes.
    fn new(name: impl Into<String>, inputs: &[Values], bytes: u8) -> Self {
        let name = name.into();
        let operands: String = (0..inputs.len()).map(|i| format!(", %i{i}")).collect();
        Self {
            body: format!("{name} %o0{operands};"),
            name,
            agreement: Agreement::Bits,
            lanes: if inputs.len() == 1 { 384 } else { 1024 },
            inputs: inputs.to_vec(),
            results: Results::EachLane { count: 1, bytes },
        }
    }

    fn body(mut self, body: impl Into<String>) -> Self {
        self.body = body.into();
        self
    }

    /// So many results from each lane.
    fn results(mut self, count: usize) -> Self {
        if let Results::EachLane { count: c, .. } = &mut self.results {
            *c = count;
        }
        self
    }

    /// Results that all lanes share.
    fn shared_results(mut self, bytes: usize) -> Self {
        self.results = Results::Shared { bytes };
        self
    }

    fn lanes(mut self, lanes: u32) -> Self {
        assert_eq!(lanes % BLOCK, 0, "{}: whole CTAs", self.name);
        self.lanes = lanes;
        self
    }

    fn agreement(mut self, agreement: Agreement) -> Self {
        self.agreement = agreement;
        self
    }

    /// The name of the kernel.
    pub fn entry(&self) -> String {
        let word = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        format!("k_{}", self.name.chars().map(word).collect::<String>())
    }

    /// The instruction without its modifiers.
    pub fn base(&self) -> &str {
        self.name.split('.').next().unwrap_or(&self.name)
    }

    /// CTAs of the launch.
    pub fn grid(&self) -> u32 {
        self.lanes / BLOCK
    }

    /// The operands, eight bytes each, lane by lane, each lane's padded to [`Case::input_stride`].
    pub fn input(&self) -> Vec<u8> {
        let lanes = self.lanes as usize;
        let values = values::operands(&self.inputs, lanes, &mut Random::named(&self.name));
        let mut bytes = vec![0; lanes * self.input_stride()];
        if self.inputs.is_empty() {
            return bytes;
        }
        for (lane, operands) in bytes
            .chunks_exact_mut(self.input_stride())
            .zip(values.chunks_exact(self.inputs.len()))
        {
            for (slot, value) in lane.chunks_exact_mut(8).zip(operands) {
                slot.copy_from_slice(&value.to_le_bytes());
            }
        }
        bytes
    }

    /// Bytes from one lane's operands to the next one's; a multiple of 16.
    pub fn input_stride(&self) -> usize {
        (8 * self.inputs.len()).next_multiple_of(16).max(16)
    }

    /// Bytes of the results.
    pub fn output_bytes(&self) -> usize {
        match self.results {
            Results::EachLane { .. } => self.lanes as usize * self.output_stride(),
            Results::Shared { bytes } => bytes,
        }
    }

    /// Bytes from one lane's results to the next one's; zero where lanes share them.
    pub fn output_stride(&self) -> usize {
        match self.results {
            Results::EachLane { count, bytes } => count * usize::from(bytes),
            Results::Shared { .. } => 0,
        }
    }

    /// The registers' values of one lane, for a report: `%i0`, `%i1`, ….
    pub fn lane_operands<'i>(
        &self,
        input: &'i [u8],
        lane: usize,
    ) -> impl Iterator<Item = u64> + 'i {
        let at = lane * self.input_stride();
        input[at..at + 8 * self.inputs.len()]
            .chunks_exact(8)
            .map(|slot| u64::from_le_bytes(slot.try_into().expect("eight bytes")))
    }

    /// A module with this kernel alone.
    pub fn ptx(&self) -> String {
        format!("{MODULE_HEAD}{}", self.kernel())
    }

    /// What the stored results belong to: the kernel and its operands.
    pub fn fingerprint(&self) -> u64 {
        fnv(self.kernel().as_bytes()) ^ fnv(&self.input()).rotate_left(1)
    }

    /// The text of the kernel.
    fn kernel(&self) -> String {
        let entry = self.entry();
        let (count, bytes) = match self.results {
            Results::EachLane { count, bytes } => (count, bytes),
            Results::Shared { .. } => (0, 4),
        };
        let mut text = format!(
            "\n.visible .entry {entry}(.param .align 8 .b8 {entry}_param_0[{PARAM_BYTES}])\n{{\n\
             \x20   .reg .pred %p<4>;\n    .reg .b16 %h<8>;\n    .reg .b32 %thread, %lane, %index, %r<12>;\n\
             \x20   .reg .b64 %in, %out, %base, %at, %d<8>;\n"
        );
        for (i, values) in self.inputs.iter().enumerate() {
            let _ = writeln!(text, "    .reg .b{} %i{i};", 8 * values.bytes());
        }
        for i in 0..count {
            let _ = writeln!(text, "    .reg .b{} %o{i};", 8 * bytes);
        }
        let _ = write!(
            text,
            "    ld.param.b64 %in, [{entry}_param_0];\n    ld.param.b64 %base, [{entry}_param_0+8];\n\
             \x20   mov.u32 %thread, %tid.x;\n    mov.u32 %r0, %ctaid.x;\n\
             \x20   mad.lo.s32 %index, %r0, {BLOCK}, %thread;\n    and.b32 %lane, %thread, 31;\n\
             \x20   mul.wide.u32 %at, %index, {};\n    add.s64 %in, %in, %at;\n\
             \x20   mul.wide.u32 %at, %index, {};\n    add.s64 %out, %base, %at;\n",
            self.input_stride(),
            self.output_stride(),
        );
        for (i, values) in self.inputs.iter().enumerate() {
            let _ = writeln!(
                text,
                "    ld.global.b{} %i{i}, [%in+{}];",
                8 * values.bytes(),
                8 * i
            );
        }
        for line in self.body.lines().map(str::trim).filter(|l| !l.is_empty()) {
            let _ = writeln!(text, "    {line}");
        }
        for i in 0..count {
            let _ = writeln!(
                text,
                "    st.global.b{} [%out+{}], %o{i};",
                8 * bytes,
                i * usize::from(bytes)
            );
        }
        text.push_str("    ret;\n}\n");
        text
    }
}

/// What stands above the kernels of a module.
const MODULE_HEAD: &str = ".version 8.0\n.target sm_80\n.address_size 64\n";

/// Every case.
pub fn cases() -> Vec<Case> {
    let mut cases = half_float::cases();
    cases.extend(float::cases());
    cases.extend(convert::cases());
    cases.extend(integer::cases());
    cases.extend(warp::cases());
    cases.extend(matrix::cases());
    cases.extend(memory::cases());
    cases
}

/// One module with the kernels of all cases, to be assembled as a check.
pub fn all_ptx(cases: &[Case]) -> String {
    cases
        .iter()
        .fold(MODULE_HEAD.to_owned(), |text, case| text + &case.kernel())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_and_entries_are_unique() {
        let cases = cases();
        let entries: HashSet<String> = cases.iter().map(Case::entry).collect();
        assert_eq!(entries.len(), cases.len());
    }

    #[test]
    fn operands_repeat_and_reach_the_corners() {
        let case = Case::new("add.rn.f32", &[Values::Single; 2], 4);
        assert_eq!(case.input(), case.input());
        let input = case.input();
        let pairs: HashSet<Vec<u64>> = (0..1024)
            .map(|lane| case.lane_operands(&input, lane).collect())
            .collect();
        for pair in [
            [0x7F80_0000, 0xFF80_0000],
            [0x7F80_0001, 0x8000_0000],
            [0x7F7F_FFFF; 2],
            [1, 0x8000_0001],
        ] {
            assert!(pairs.contains(pair.as_slice()), "{pair:x?}");
        }
    }
}
