//! Texts for the emulator: an error or kernels, and kernels that end in a result or a fault.

use crate::Answer;
use ptx_emulator::{Device, DeviceOptions, LaunchError, LaunchOptions, Module, ParseError};

/// Warp instructions that a block may execute.
const STEPS: u64 = 4000;
/// Bytes of each of the two buffers that the kernels' parameters point to.
const BUFFER: usize = 4096;

/// Parses a text.
///
/// # Panics
/// If an error is not one short line or names a line that is not there, or if its outline declares something else.
pub fn parse(bytes: &[u8]) -> Answer {
    let text = String::from_utf8_lossy(bytes);
    if let (Ok(whole), Ok(outline)) = (ptx_syntax::parse(&text), ptx_syntax::outline(&text)) {
        let entries = |source: &ptx_syntax::Source<'_>| -> Vec<(String, usize)> {
            let entries = source.entries();
            entries
                .map(|entry| (entry.name.to_owned(), entry.params.len()))
                .collect()
        };
        assert_eq!(entries(&whole), entries(&outline), "a text and its outline");
    }
    match module(&text) {
        Ok(module) => Answer::Accepted(format!("{} entries", module.entries().count())),
        Err(error) => Answer::Refused(kind_of(&error)),
    }
}

/// Parses a text and launches each of its kernels twice, which must give the same both times.
///
/// # Panics
/// As [`parse`], and if a launch's error is not one line, or a second one differs.
pub fn launch(bytes: &[u8]) -> Answer {
    let text = String::from_utf8_lossy(bytes);
    let module = match module(&text) {
        Ok(module) => module,
        Err(error) => return Answer::Refused(kind_of(&error)),
    };
    let seed = bytes.iter().fold(0, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    });
    let mut kinds = Vec::new();
    for entry in module.entries() {
        let [first, second] = [(); 2].map(|()| run(&module, &entry.name, seed));
        assert_eq!(first, second, "{}: one seed, two outcomes", entry.name);
        let Some(outcome) = first else { continue };
        kinds.push(match &outcome.0 {
            Ok(_) => "it runs".to_owned(),
            Err(message) => {
                let is_line = !message.contains(char::is_control) && message.len() < 8000;
                assert!(is_line, "an error of one short line: {message:?}");
                // The kind of a fault stands before the place.
                message
                    .split(" in kernel ")
                    .next()
                    .unwrap_or_default()
                    .to_owned()
            }
        });
    }
    kinds.truncate(4);
    Answer::Accepted(kinds.join(", "))
}

fn module(text: &str) -> Result<Module, ParseError> {
    Module::parse(text).inspect_err(|error| {
        let shown = error.to_string();
        assert!(
            !shown.contains(char::is_control) && shown.len() < 2000,
            "an error of one short line: {shown:?}"
        );
        assert!(error.line as usize <= text.lines().count() + 1, "{shown}");
    })
}

/// The first words of a message, which come before what it cites.
fn kind_of(error: &ParseError) -> String {
    let cited = |c: char| c.is_ascii_digit() || "`%$\"'(:".contains(c);
    let words = error.message.split(cited).next().unwrap_or_default();
    words.chars().take(60).collect()
}

/// What a launch said, and the buffers behind it; nothing where the device has no memory for the module's variables.
type Outcome = (Result<String, String>, Vec<u8>);

fn run(module: &Module, entry: &str, seed: u64) -> Option<Outcome> {
    let entry = module.entry(entry)?;
    let device = Device::new(DeviceOptions { memory: 80 << 20 });
    let buffers = [
        device.alloc(BUFFER as u64).ok()?,
        device.alloc(BUFFER as u64).ok()?,
    ];
    // Small integers, as counts and indices are; the end stays unwritten.
    let content: Vec<u8> = (0..BUFFER * 3 / 4)
        .map(|i| (seed >> (i / 4 % 48)) as u8 & if i % 4 == 0 { 0x3f } else { 0 })
        .collect();
    for buffer in buffers {
        device.write(buffer, &content).ok()?;
    }
    let slot = |i: usize| match seed >> (i % 32) & 3 {
        0 => seed >> (i % 48) & 0x1f,
        _ => buffers[i % 2] + (seed >> (i % 16) & 0x30),
    };
    let params: Vec<u8> = (0..entry.param_bytes().div_ceil(8))
        .flat_map(|i| slot(i).to_le_bytes())
        .take(entry.param_bytes())
        .collect();
    let options = LaunchOptions {
        seed: seed % 5,
        step_limit: STEPS,
        ..LaunchOptions::default()
    };
    let threads = entry.max_threads.unwrap_or(64).min(96);
    let grid = [if seed.is_multiple_of(4) { 3 } else { 1 }, 1, 1];
    let outcome = device.launch(
        module,
        &entry.name,
        grid,
        [threads, 1, 1],
        1024,
        &params,
        &options,
    );
    if let Err(LaunchError::Memory(_)) = outcome {
        return None;
    }
    let ran = outcome.is_ok();
    let said = outcome
        .map(|report| format!("{:?}", report.counts))
        .map_err(|error| error.to_string());
    // After a fault, memory is undefined.
    let mut bytes = vec![0; if ran { 2 * BUFFER } else { 0 }];
    for (buffer, part) in buffers.into_iter().zip(bytes.chunks_mut(BUFFER)) {
        device.read(buffer, part).ok()?;
    }
    Some((said, bytes))
}
