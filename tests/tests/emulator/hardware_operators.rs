//! The library's operators on the emulator give what they gave on a card: every case of
//! [`halfgnn_tests::hardware::operators`], bit for bit, or within the bound of a tensor core's sums.

use halfgnn::backend::gpu::Gpu;
use halfgnn::driver::Driver;
use halfgnn::driver::emulated::{Emulated, Options};
use halfgnn::kernels::Kernels;
use halfgnn_tests::hardware::operators::{OperatorCase, Outcome, cases, folder};
use halfgnn_tests::hardware::store::{self, Recording};
use rayon::prelude::*;
use std::collections::BTreeSet;
use std::sync::LazyLock;

/// How the recording is made again, after an operator's rounding or a case was changed on purpose.
const AGAIN: &str = "cargo run --release -p halfgnn-tests --features cuda --bin record_hardware -- \
                     tests/data/hardware --operators, on a card";

/// What names of cases begin with that wait for their first recording. Other tests compare the same operators with float64.
const NOT_RECORDED: [&str; 2] = ["reductions of messages ", "spmm half of a long row, "];

fn waits(name: &str) -> bool {
    NOT_RECORDED.iter().any(|first| name.starts_with(first))
}

/// Multiprocessors of the card, by which products are split.
const MULTIPROCESSORS: u32 = 132;

static KERNELS: LazyLock<Kernels> = LazyLock::new(|| {
    let newest = Emulated::new().info().compute_capability;
    Kernels::find(Some(newest)).expect("the kernels")
});

fn card() -> Gpu<Emulated> {
    let options = Options {
        multiprocessors: MULTIPROCESSORS,
        record: true,
        ..Options::default()
    };
    Gpu::new(Emulated::with_options(options), KERNELS.clone())
        .expect("the kernels fit this program")
}

/// What all cases gave, and the kernels that they launched.
struct Ran {
    outcomes: Vec<(String, Outcome)>,
    kernels: BTreeSet<String>,
}

/// Once, in parallel, and so on several devices: launches of one follow one another.
static RAN: LazyLock<Ran> = LazyLock::new(|| {
    let run = |card: &mut Gpu<Emulated>, case: &OperatorCase<_>| {
        let outcome = (case.name.clone(), case.run(card));
        (outcome, card.driver().take_launches())
    };
    let ran: Vec<_> = cases().par_iter().map_init(card, run).collect();
    let (outcomes, launches): (_, Vec<_>) = ran.into_iter().unzip();
    let launches = launches.into_iter().flatten();
    Ran {
        outcomes,
        kernels: launches.map(|launch| launch.kernel).collect(),
    }
});

fn recording() -> Recording {
    store::read(&folder()).expect("results of a GPU, which the program record_hardware writes")
}

#[test]
fn the_emulator_agrees_with_the_card() {
    let recording = recording();
    let card = format!(", {MULTIPROCESSORS} multiprocessors,");
    assert!(recording.device.contains(&card), "{}", recording.device);
    let mut reports = Vec::new();
    for (name, outcome) in &RAN.outcomes {
        let told = match recording.records.get(name) {
            None if waits(name) => None,
            None => Some("it was not recorded".to_owned()),
            Some(_) if waits(name) => Some("it was recorded, and NOT_RECORDED has it".to_owned()),
            Some(record) if record.fingerprint != outcome.fingerprint => {
                Some("it was recorded with other operands".to_owned())
            }
            Some(record) => outcome.results.disagreement(&record.bytes),
        };
        reports.extend(told.map(|told| format!("{name}: {told}")));
    }
    let names: BTreeSet<&String> = RAN.outcomes.iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), RAN.outcomes.len(), "two cases of one name");
    let gone = recording
        .records
        .keys()
        .filter(|name| !names.contains(name));
    reports.extend(gone.map(|name| format!("{name}: it was recorded and is no case any more")));
    assert!(
        reports.is_empty(),
        "{} cases:\n{}\nif this was intended, record again: {AGAIN}",
        reports.len(),
        reports.join("\n")
    );
}

/// Kernels of `contract::baselines`, which no operator takes.
const OF_NO_OPERATOR: [&str; 3] = ["gather_half8", "gather_8_bytes", "sddmm_dgl_half"];

#[test]
fn every_kernel_is_launched() {
    let modules = KERNELS.modules();
    let entries: Vec<&str> = modules
        .flat_map(|(_, module)| module.entries.keys().map(String::as_str))
        .collect();
    let missing: Vec<&&str> = entries
        .iter()
        .filter(|name| !RAN.kernels.contains(**name))
        .filter(|name| !OF_NO_OPERATOR.contains(name))
        .collect();
    assert!(
        missing.is_empty(),
        "no operator's case launches {missing:?}"
    );
}
