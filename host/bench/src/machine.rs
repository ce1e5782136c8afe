//! What a figure came from: the program, the command, the machine. The first line of everything that `--json` writes.

use halfgnn::device::{CudaDriver, Processor, cuda_driver};
use halfgnn::driver::{DeviceInfo, DriverError};
use serde::Serialize;
use std::ffi::{OsStr, OsString};

/// Environment variables that change what a command does, and are reported where they are set.
const VARIABLES: [&str; 7] = [
    "CUDA_VISIBLE_DEVICES",
    "HALFGNN_CPU_INSTRUCTIONS",
    "HALFGNN_CUDA_NO_POOL",
    "HALFGNN_DATA",
    "HALFGNN_LIBCUDA",
    "HALFGNN_PTX_DIR",
    "RAYON_NUM_THREADS",
];

/// Program, command and machine.
#[derive(Debug, Serialize)]
pub struct Machine {
    event: &'static str,
    /// Version of the program.
    pub version: &'static str,
    /// Whether the program was built with the feature `cuda`.
    pub built_with_cuda: bool,
    /// The command, as a shell would take it.
    pub command: String,
    /// Variables that change what a command does, where they are set, as `NAME=value`.
    pub environment: Vec<String>,
    /// The operating system that the program was built for, such as `linux`, `macos` or `windows`.
    pub system: &'static str,
    /// The architecture that it was built for, such as `x86_64` or `aarch64`.
    pub architecture: &'static str,
    /// What the system calls the CPU.
    pub cpu: Option<String>,
    /// The vector instructions of the CPU that its operators can use, narrower ones first.
    pub cpu_instructions: Vec<String>,
    /// Threads that the process may run at a time.
    pub threads: usize,
    /// Bytes of memory.
    pub memory_bytes: Option<u64>,
    /// Bytes of it that are free.
    pub free_memory_bytes: Option<u64>,
    /// Release of NVIDIA's driver.
    pub driver: Option<String>,
    /// The driver's library.
    pub driver_library: Option<String>,
    /// CUDA version that the driver supports.
    pub cuda: Option<String>,
    /// The visible GPUs.
    pub gpus: Vec<Card>,
    /// Why there is no GPU, where the driver says why.
    pub no_gpu: Option<String>,
}

/// A GPU.
#[derive(Debug, Serialize)]
pub struct Card {
    /// Its name.
    pub name: String,
    /// Such as `9.0`.
    pub compute_capability: String,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// The most that the memory can deliver, in 10^12 bytes a second.
    pub memory_tb_per_s: Option<f64>,
    /// Bytes of the L2 cache.
    pub l2_bytes: u64,
}

impl Machine {
    /// Asks the machine and the process.
    pub fn survey() -> Self {
        Self::of(Processor::survey(), cuda_driver())
    }

    fn of(processor: Processor, cuda: Result<CudaDriver, DriverError>) -> Self {
        let (cuda, no_gpu) = match cuda {
            Ok(driver) => (Some(driver), None),
            Err(error) => (None, Some(error.to_string())),
        };
        let cards = cuda.as_ref().map_or(&[][..], |driver| &driver.cards);
        Self {
            event: "machine",
            version: env!("CARGO_PKG_VERSION"),
            built_with_cuda: cfg!(feature = "cuda"),
            command: command_line(std::env::args_os()),
            environment: environment(|name| std::env::var_os(name)),
            system: processor.system,
            architecture: processor.architecture,
            cpu: processor.model,
            cpu_instructions: processor
                .instructions
                .iter()
                .map(ToString::to_string)
                .collect(),
            threads: processor.threads,
            memory_bytes: processor.memory.map(|(_, total)| total),
            free_memory_bytes: processor.memory.map(|(free, _)| free),
            cuda: cards
                .first()
                .and_then(|card| card.driver_version)
                .map(|(major, minor)| format!("{major}.{minor}")),
            gpus: cards.iter().map(Card::from).collect(),
            driver: cuda.as_ref().and_then(|driver| driver.release.clone()),
            driver_library: cuda.map(|driver| driver.library),
            no_gpu,
        }
    }
}

impl From<&DeviceInfo> for Card {
    fn from(info: &DeviceInfo) -> Self {
        let (major, minor) = info.compute_capability;
        Self {
            name: info.name.clone(),
            compute_capability: format!("{major}.{minor}"),
            multiprocessors: info.multiprocessors,
            memory_bytes: info.memory_bytes,
            memory_tb_per_s: info.memory_bytes_per_second.map(|rate| rate as f64 / 1e12),
            l2_bytes: info.l2_bytes,
        }
    }
}

/// The words of a command as a person would type them: the program by its name alone, quotes where a shell needs them.
pub fn command_line(mut words: impl Iterator<Item = OsString>) -> String {
    let program = words.next().unwrap_or_default();
    let name = std::path::Path::new(&program)
        .file_stem()
        .map_or_else(|| "halfgnn".into(), |name| name.to_string_lossy());
    std::iter::once(name.into_owned())
        .chain(words.map(|word| quoted(&word)))
        .collect::<Vec<_>>()
        .join(" ")
}

fn environment(value: impl Fn(&str) -> Option<OsString>) -> Vec<String> {
    VARIABLES
        .iter()
        .filter_map(|name| Some(format!("{name}={}", quoted(&value(name)?))))
        .collect()
}

/// A word as a POSIX shell takes it; one that is no Unicode as bash and zsh do.
fn quoted(word: &OsStr) -> String {
    let Some(word) = word.to_str() else {
        let byte = |&byte: &u8| match byte {
            b'\'' | b'\\' => format!("\\{}", char::from(byte)),
            b' '..=b'~' => char::from(byte).to_string(),
            _ => format!("\\x{byte:02x}"),
        };
        let bytes: String = word.as_encoded_bytes().iter().map(byte).collect();
        return format!("$'{bytes}'");
    };
    let plain = |c: char| c.is_alphanumeric() || "-_./:,=+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use halfgnn::backend::cpu::Instructions;

    #[test]
    fn a_command_can_be_typed_again() {
        let words = [
            "/usr/bin/halfgnn",
            "train",
            "--dataset",
            "my data.npz",
            "it's",
            "",
        ];
        assert_eq!(
            command_line(words.iter().map(OsString::from)),
            r"halfgnn train --dataset 'my data.npz' 'it'\''s' ''"
        );
    }

    #[test]
    #[cfg(unix)]
    fn a_command_that_is_no_unicode_can_be_typed_again() {
        use std::os::unix::ffi::OsStringExt;
        let words = [&b"halfgnn"[..], b"caf\xe9.npz", b"it's\\\xff\n"];
        let words = words.map(|word| OsString::from_vec(word.to_vec()));
        assert_eq!(
            command_line(words.into_iter()),
            r"halfgnn $'caf\xe9.npz' $'it\'s\\\xff\x0a'"
        );
    }

    #[test]
    fn variables_are_told_where_they_are_set() {
        let set = |name: &str| match name {
            "CUDA_VISIBLE_DEVICES" => Some(OsString::new()),
            "HALFGNN_PTX_DIR" => Some("target/ptx".into()),
            _ => None,
        };
        assert_eq!(
            environment(set),
            ["CUDA_VISIBLE_DEVICES=''", "HALFGNN_PTX_DIR=target/ptx"]
        );
    }

    #[test]
    fn a_card_is_told_with_its_driver() {
        let processor = Processor {
            architecture: "x86_64",
            system: "linux",
            model: None,
            instructions: vec![Instructions::Plain, Instructions::Avx2],
            threads: 2,
            memory: Some((1, 2)),
        };
        let card = DeviceInfo {
            name: "NVIDIA H200".into(),
            compute_capability: (9, 0),
            multiprocessors: 132,
            l2_bytes: 50 << 20,
            memory_bytes: 141 << 30,
            max_shared_bytes: 227 << 10,
            memory_bytes_per_second: Some(4_916_736_000_000),
            driver_version: Some((13, 0)),
        };
        let driver = CudaDriver {
            library: "libcuda.so.1".into(),
            release: Some("580.65.06".into()),
            cards: vec![card],
        };
        let machine = Machine::of(processor.clone(), Ok(driver));
        assert_eq!(machine.cpu_instructions, ["plain", "avx2"]);
        assert_eq!((machine.system, machine.architecture), ("linux", "x86_64"));
        assert_eq!(machine.cuda.as_deref(), Some("13.0"));
        assert_eq!(machine.gpus[0].compute_capability, "9.0");
        assert_eq!(machine.gpus[0].memory_tb_per_s, Some(4.916_736));
        assert_eq!(machine.no_gpu, None);

        let reason = DriverError::Unavailable("no driver".into());
        let machine = Machine::of(processor, Err(reason));
        assert!(machine.gpus.is_empty());
        assert!(machine.no_gpu.is_some_and(|why| why.contains("no driver")));
    }
}
