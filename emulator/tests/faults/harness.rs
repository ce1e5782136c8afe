//! A kernel from its body, launched in several orders; and what a report has to say.

use ptx_emulator::{Device, DeviceOptions, Fault, FaultKind, LaunchError, LaunchOptions, Module};

/// Orders of blocks and warps in which every case runs.
pub const SEEDS: std::ops::Range<u64> = 0..8;

/// What a buffer holds when the kernel begins.
#[derive(Clone, Copy, Default, PartialEq)]
pub enum State {
    #[default]
    Zeroed,
    /// Allocated, and nothing else.
    Unwritten,
    /// Allocated, zeroed and freed again.
    Freed,
}

/// One launch. The kernel's parameters are the addresses of `a` and `b`, `offset` added to the first, and `n`.
#[derive(Clone, Copy)]
pub struct Case<'a> {
    /// Instructions of the kernel, one a line. They find `tid`, `block` (`%ctaid.x`), `rank` (in the grid), `lane`,
    /// `n`, the global addresses `a` and `b`, and 1024 bytes of shared memory called `fixed` to begin with. A comment
    /// `//@name` marks a line that an assertion speaks of.
    pub body: &'a str,
    pub blocks: u32,
    pub threads: u32,
    pub dynamic_shared: u32,
    pub bytes: u64,
    pub state: State,
    pub offset: i64,
    pub n: u32,
    pub step_limit: u64,
}

impl Default for Case<'_> {
    /// Two blocks of two warps; `a` and `b` of 1024 zeroed bytes each.
    fn default() -> Self {
        Self {
            body: "",
            blocks: 2,
            threads: 64,
            dynamic_shared: 0,
            bytes: 1024,
            state: State::Zeroed,
            offset: 0,
            n: 0,
            step_limit: 1_000_000,
        }
    }
}

/// A report and the addresses that it should name.
#[derive(Debug)]
pub struct Report {
    pub fault: Fault,
    pub a: u64,
    pub b: u64,
    text: String,
}

/// Line 7 of `kernel.rs` is where all instructions of a body come from.
fn module_text(body: &str) -> String {
    format!(
        r#".version 8.0
.target sm_80
.address_size 64
.file 1 "kernel.rs"
.extern .shared .align 16 .b8 dynamic[];
.visible .entry kernel(
    .param .u64 kernel_param_0,
    .param .u64 kernel_param_1,
    .param .u32 kernel_param_2
)
{{
    .local .align 16 .b8 frame[64];
    .shared .align 16 .b8 fixed[1024];
    .reg .pred p, q;
    .reg .b16 %h<8>;
    .reg .b32 tid, block, rank, lane, n, size, %r<16>;
    .reg .b64 a, b, %d<16>;
    ld.param.u64 a, [kernel_param_0];
    ld.param.u64 b, [kernel_param_1];
    ld.param.u32 n, [kernel_param_2];
    mov.u32 tid, %tid.x;
    mov.u32 block, %ctaid.x;
    mov.u32 size, %ntid.x;
    mov.u32 lane, %laneid;
    mad.lo.s32 rank, block, size, tid;
    .loc 1 7 5
{body}
    ret;
}}
"#
    )
}

impl Case<'_> {
    /// The module with the kernel.
    pub fn text(&self) -> String {
        module_text(self.body)
    }

    /// Runs the kernel once on a device of its own.
    pub fn run(&self, seed: u64) -> Result<(), Box<Report>> {
        let text = self.text();
        let module = Module::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let device = Device::new(DeviceOptions::default());
        let [a, b] = ["a", "b"].map(|name| {
            let address = device.alloc(self.bytes).unwrap();
            device.name_allocation(address, name).unwrap();
            if self.state != State::Unwritten {
                device.fill(address, 0, self.bytes).unwrap();
            }
            if self.state == State::Freed {
                device.free(address).unwrap();
            }
            address
        });
        let mut params = [0u8; 20];
        params[..8].copy_from_slice(&a.wrapping_add_signed(self.offset).to_le_bytes());
        params[8..16].copy_from_slice(&b.to_le_bytes());
        params[16..].copy_from_slice(&self.n.to_le_bytes());
        let options = LaunchOptions {
            seed,
            step_limit: self.step_limit,
            ..LaunchOptions::default()
        };
        let (grid, block) = ([self.blocks, 1, 1], [self.threads, 1, 1]);
        match device.launch(
            &module,
            "kernel",
            grid,
            block,
            self.dynamic_shared,
            &params,
            &options,
        ) {
            Ok(_) => Ok(()),
            Err(LaunchError::Fault(fault)) => Err(Box::new(Report {
                fault: *fault,
                a,
                b,
                text,
            })),
            Err(other) => panic!("no launch at all: {other}"),
        }
    }

    /// The kernel is right: nothing is reported in any order.
    #[track_caller]
    pub fn passes(&self) {
        for seed in SEEDS {
            if let Err(report) = self.run(seed) {
                panic!(
                    "seed {seed}: a false alarm: {}\n{}",
                    report.fault, self.body
                );
            }
        }
    }

    /// The kernel commits `kind` in every order, and one order gives one report.
    #[track_caller]
    pub fn reports(&self, kind: FaultKind) -> Vec<Report> {
        SEEDS
            .map(|seed| {
                let report = match self.run(seed) {
                    Ok(()) => panic!("seed {seed}: {kind:?} was not reported\n{}", self.body),
                    Err(report) => *report,
                };
                assert_eq!(
                    report.fault.kind, kind,
                    "seed {seed}: {}\n{}",
                    report.fault, self.body
                );
                assert_eq!(report.fault.kernel, "kernel");
                let again = self
                    .run(seed)
                    .expect_err("a launch with the same seed passes")
                    .fault;
                assert_eq!(again, report.fault, "two reports of seed {seed}");
                report
            })
            .collect()
    }
}

impl Report {
    /// The line of the text that `marker` marks, and the instruction there.
    fn marked(&self, marker: &str) -> (u32, &str) {
        let marker = format!("//@{marker}");
        let found = self
            .text
            .lines()
            .enumerate()
            .find(|(_, line)| line.trim_end().ends_with(&marker));
        let (i, line) = found.unwrap_or_else(|| panic!("the kernel has no {marker}"));
        (
            i as u32 + 1,
            line.split("//")
                .next()
                .unwrap_or("")
                .trim()
                .trim_end_matches(';'),
        )
    }

    /// The report names the marked instruction, with its line here and in the source.
    #[track_caller]
    pub fn at(&self, marker: &str) -> &Self {
        let (line, instruction) = self.marked(marker);
        let place = &self.fault.place;
        assert_eq!(place.line, line, "{}", self.fault);
        assert_eq!(place.instruction.trim_end_matches(';').trim(), instruction);
        assert_eq!(place.source, Some(("kernel.rs".into(), 7)));
        let shown = self.fault.to_string();
        assert!(
            shown.contains(instruction) && shown.contains("kernel.rs:7") && !shown.contains('\n'),
            "{shown}"
        );
        self
    }

    #[track_caller]
    pub fn by(&self, block: u32, thread: u32) -> &Self {
        assert_eq!(
            (self.fault.block, self.fault.thread),
            ([block, 0, 0], [thread, 0, 0]),
            "{}",
            self.fault
        );
        self
    }

    #[track_caller]
    pub fn accessing(&self, address: u64, bytes: u32) -> &Self {
        let access = self.fault.access.expect("a fault of memory has an access");
        assert_eq!(
            (access.address, access.bytes),
            (address, bytes),
            "{}",
            self.fault
        );
        self
    }

    /// The allocation that the report names.
    #[track_caller]
    pub fn concerning(&self, name: &str) -> &Self {
        let allocation = self
            .fault
            .allocation
            .as_ref()
            .expect("the report names an allocation");
        assert_eq!(allocation.name, name, "{}", self.fault);
        let base = if name == "a" { self.a } else { self.b };
        if name.len() == 1 {
            assert_eq!(allocation.base, base);
        }
        assert!(self.fault.to_string().contains(name), "{}", self.fault);
        self
    }

    /// The two parties of a race, as block, thread and marker, in either order.
    #[track_caller]
    pub fn between(&self, one: (u32, u32, &str), other: (u32, u32, &str)) -> &Self {
        let f = &self.fault;
        let second = f.other.as_ref().expect("a race has two parties");
        let mut found = [
            (f.block[0], f.thread[0], f.place.line),
            (second.block[0], second.thread[0], second.place.line),
        ];
        let mut expected =
            [one, other].map(|(block, thread, marker)| (block, thread, self.marked(marker).0));
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected, "{f}");
        self
    }
}
