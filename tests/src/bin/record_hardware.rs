//! Runs the cases of [`halfgnn_tests::hardware`] on a card and stores what it computed.
//!
//! ```text
//! cargo run --release -p halfgnn-tests --features cuda --bin record_hardware -- tests/data/hardware
//! record_hardware FOLDER --operators   only the library's own operators, into FOLDER/operators; they want the PTX
//! record_hardware --print-ptx          every kernel as one module, for an assembler; needs no card
//! ```
//!
//! A case that the card's compiler or the card refuses is reported and left out, and the exit code is then 1.

use halfgnn::backend::gpu::Gpu;
use halfgnn::driver::cuda::Cuda;
use halfgnn::driver::{DeviceBuffer as _, DeviceInfo, Driver, DriverError, LaunchConfig};
use halfgnn::kernels::Kernels;
use halfgnn_tests::hardware::store::{self, Record};
use halfgnn_tests::hardware::{BLOCK, Case, PARAM_BYTES, all_ptx, cases, operators};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [flag] if flag == "--print-ptx" => {
            println!("{}", all_ptx(&cases()));
            ExitCode::SUCCESS
        }
        [folder] if !folder.starts_with('-') => tell(|| {
            let instructions = record_instructions(Path::new(folder))?;
            Ok(record_operators(Path::new(folder))? && instructions)
        }),
        [folder, flag] if flag == "--operators" => tell(|| record_operators(Path::new(folder))),
        _ => {
            eprintln!("usage: record_hardware FOLDER [--operators] | --print-ptx");
            ExitCode::from(2)
        }
    }
}

/// The exit code of a recording, which is whole or not.
fn tell(record: impl FnOnce() -> Result<bool, Box<dyn std::error::Error>>) -> ExitCode {
    match record() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The card and its driver, in a line.
fn describe(info: &DeviceInfo) -> String {
    let (major, minor) = info.compute_capability;
    let multiprocessors = info.multiprocessors;
    let driver = info.driver_version.map_or(String::new(), |(major, minor)| {
        format!(", driver for CUDA {major}.{minor}")
    });
    format!(
        "{}, compute capability {major}.{minor}, {multiprocessors} multiprocessors{driver}",
        info.name
    )
}

/// Records every operator's case; whether all of them.
fn record_operators(folder: &Path) -> Result<bool, Box<dyn std::error::Error>> {
    let driver = Cuda::open(0)?;
    let device = describe(driver.info());
    let kernels = Kernels::find(Some(driver.info().compute_capability))?;
    let backend = Gpu::new(driver, kernels)?;
    let cases = operators::cases();
    let mut records = Vec::new();
    for case in &cases {
        let outcomes = catch_unwind(AssertUnwindSafe(|| {
            [case.run(&backend), case.run(&backend)]
        }));
        match outcomes {
            Ok([first, second]) if first.results.to_bytes() == second.results.to_bytes() => {
                records.push(Record {
                    name: case.name.clone(),
                    fingerprint: first.fingerprint,
                    bytes: first.results.to_bytes(),
                });
            }
            Ok(_) => eprintln!("{}: left out: two runs gave different results", case.name),
            Err(_) => eprintln!("{}: left out: it failed, as told above", case.name),
        }
    }
    let folder = folder.join("operators");
    store::write(&folder, &device, &records)?;
    let (stored, all) = (records.len(), cases.len());
    println!(
        "{device}: {stored} of {all} operators' cases are in {}",
        folder.display()
    );
    Ok(stored == all)
}

/// Records every instruction's case; whether all of them.
fn record_instructions(folder: &Path) -> Result<bool, Box<dyn std::error::Error>> {
    let driver = Cuda::open(0)?;
    let device = describe(driver.info());
    let cases = cases();
    let mut records = Vec::new();
    for case in &cases {
        match run(&driver, case) {
            Ok(bytes) => records.push(Record {
                name: case.name.clone(),
                fingerprint: case.fingerprint(),
                bytes,
            }),
            Err(error) => eprintln!("{}: left out: {error}", case.name),
        }
    }
    store::write(folder, &device, &records)?;
    println!(
        "{device}: {} of {} cases are in {}",
        records.len(),
        cases.len(),
        folder.display()
    );
    Ok(records.len() == cases.len())
}

/// The results of one case; of two runs, which must be the same.
fn run(driver: &Cuda, case: &Case) -> Result<Vec<u8>, DriverError> {
    let module = driver.load(&case.ptx())?;
    let function = driver.function(&module, &case.entry())?;
    let input = case.input();
    let operands = driver.alloc(input.len())?;
    driver.upload(&operands, 0, &input)?;
    let results = driver.alloc(case.output_bytes())?;
    let mut params = [0; PARAM_BYTES];
    params[..8].copy_from_slice(&operands.address().to_le_bytes());
    params[8..].copy_from_slice(&results.address().to_le_bytes());
    let config = LaunchConfig {
        grid: [case.grid(), 1, 1],
        block: [BLOCK, 1, 1],
        shared_bytes: 0,
    };
    let launch = || {
        driver.fill(&results, 0)?;
        // SAFETY: the parameter is the two addresses that every case's kernel declares. Each lane reads its
        // `input_stride` bytes of `operands`, which holds them for all lanes of the grid, and writes its `output_stride`
        // bytes of `results`, or words below `output_bytes`; both buffers live until the download has waited.
        unsafe { driver.launch(&function, config, &params)? };
        let mut bytes = vec![0; results.len()];
        driver.download(&results, 0, &mut bytes)?;
        Ok::<_, DriverError>(bytes)
    };
    let (first, second) = (launch()?, launch()?);
    if first == second {
        Ok(first)
    } else {
        let reason = "two runs gave different results".into();
        Err(DriverError::Launch {
            kernel: case.entry(),
            reason,
        })
    }
}
