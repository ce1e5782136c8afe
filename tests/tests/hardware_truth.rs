//! The emulator computes what a card computed: every case of [`halfgnn_tests::hardware`], bit for bit, or within the
//! error that the PTX ISA documents where an instruction is approximate.

use halfgnn_tests::hardware::store::{self, Recording};
use halfgnn_tests::hardware::{BLOCK, Case, PARAM_BYTES, cases};
use ptx_emulator::{Device, DeviceOptions, LaunchOptions, Module};
use rayon::prelude::*;
use std::collections::HashSet;
use std::sync::LazyLock;

static RECORDING: LazyLock<Recording> = LazyLock::new(|| {
    store::read(&store::folder())
        .expect("results of a GPU, which the program record_hardware writes")
});

/// Roundings of arithmetic on doubles, which the emulator refuses by name, as it should rather than compute something
/// else.
const REFUSED: [&str; 3] = ["rz", "rm", "rp"];

fn is_refused(case: &Case) -> bool {
    let arithmetic_on_doubles = case.base() != "cvt" && case.name.ends_with(".f64");
    arithmetic_on_doubles
        && case
            .name
            .split('.')
            .any(|modifier| REFUSED.contains(&modifier))
}

/// The results of a case on the emulator, whose order of blocks and warps `seed` decides.
fn run(case: &Case, input: &[u8], seed: u64) -> Result<Vec<u8>, String> {
    let module = Module::parse(&case.ptx()).map_err(|e| e.to_string())?;
    let device = Device::new(DeviceOptions::default());
    let bytes = case.output_bytes();
    let buffers = || {
        let operands = device.alloc(input.len() as u64)?;
        device.write(operands, input)?;
        let results = device.alloc(bytes as u64)?;
        device.fill(results, 0, bytes as u64)?;
        Ok::<_, ptx_emulator::MemoryError>((operands, results))
    };
    let (operands, results) = buffers().map_err(|e| e.to_string())?;
    let mut params = [0; PARAM_BYTES];
    params[..8].copy_from_slice(&operands.to_le_bytes());
    params[8..].copy_from_slice(&results.to_le_bytes());
    let options = LaunchOptions {
        seed,
        ..LaunchOptions::default()
    };
    let (grid, block) = ([case.grid(), 1, 1], [BLOCK, 1, 1]);
    device
        .launch(&module, &case.entry(), grid, block, 0, &params, &options)
        .map_err(|e| e.to_string())?;
    let mut out = vec![0; bytes];
    device.read(results, &mut out).map_err(|e| e.to_string())?;
    Ok(out)
}

/// Each report on a line of its own.
fn expect_none(reports: &[String]) {
    assert!(
        reports.is_empty(),
        "{} cases:\n{}",
        reports.len(),
        reports.join("\n")
    );
}

#[test]
fn the_recording_is_of_these_cases() {
    let mut reports = Vec::new();
    let cases = cases();
    for case in &cases {
        match RECORDING.records.get(&case.name) {
            None => reports.push(format!("{}: it was not recorded", case.name)),
            Some(record) if record.fingerprint != case.fingerprint() => {
                reports.push(format!(
                    "{}: it was recorded with another kernel or other operands",
                    case.name
                ));
            }
            Some(record) if record.bytes.len() != case.output_bytes() => {
                reports.push(format!(
                    "{}: the GPU wrote {} bytes",
                    case.name,
                    record.bytes.len()
                ));
            }
            Some(_) => {}
        }
    }
    let names: HashSet<&str> = cases.iter().map(|c| c.name.as_str()).collect();
    let gone = RECORDING
        .records
        .keys()
        .filter(|name| !names.contains(name.as_str()));
    reports.extend(gone.map(|name| format!("{name}: it was recorded and is no case any more")));
    expect_none(&reports);
}

#[test]
fn the_emulator_agrees_with_the_card() {
    let reports: Vec<String> = cases()
        .par_iter()
        .filter(|case| !is_refused(case))
        .filter_map(|case| {
            let record = RECORDING.records.get(&case.name)?;
            let input = case.input();
            match run(case, &input, 0) {
                Ok(ours) => case.disagreement(&input, &ours, &record.bytes),
                Err(error) => Some(format!("{}: {error}", case.name)),
            }
        })
        .collect();
    expect_none(&reports);
}

#[test]
fn the_order_of_blocks_and_warps_does_not_matter() {
    let reports: Vec<String> = cases()
        .par_iter()
        .filter(|case| {
            [
                "shfl", "vote", "match", "redux", "bar", "mma", "ldmatrix", "cp", "atom", "red",
            ]
            .contains(&case.base())
        })
        .filter_map(|case| {
            let input = case.input();
            let first = run(case, &input, 1);
            (2..5)
                .any(|seed| run(case, &input, seed) != first)
                .then(|| format!("{}: a seed changes the result", case.name))
        })
        .collect();
    expect_none(&reports);
}

#[test]
fn what_is_not_implemented_is_refused_by_name() {
    let reports: Vec<String> = cases()
        .iter()
        .filter(|case| is_refused(case))
        .filter_map(|case| match Module::parse(&case.ptx()) {
            Ok(_) => Some(format!(
                "{}: it is implemented and stands in the list of what is not",
                case.name
            )),
            Err(error) if error.to_string().contains(case.base()) => None,
            Err(error) => Some(format!(
                "{}: the error does not name it: {error}",
                case.name
            )),
        })
        .collect();
    expect_none(&reports);
}
