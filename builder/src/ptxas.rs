//! `ptxas`, NVIDIA's assembler: finds it, runs it, reads what it says of registers, spills and shared memory.
//!
//! The driver assembles PTX again on the user's machine; ptxas reports earlier, and without a GPU, whether
//! it will, and at what occupancy. It is part of the CUDA toolkit and of the Python wheel `nvidia-cuda-nvcc`.

use std::collections::BTreeMap;
use std::env;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::BuildError;

/// The architectures that `cargo xtask verify-ptx` assembles for: A100, RTX 30,
/// L4 and RTX 40, H100 and H200, B200, RTX 50.
pub const ARCHS: [&str; 6] = ["sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"];

/// Names a ptxas by its path, and overrides the search.
pub const PTXAS_VARIABLE: &str = "HALFGNN_PTXAS";

/// A ptxas that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ptxas {
    /// Where it is.
    pub path: PathBuf,
    /// Its CUDA release, e.g. (13, 0).
    pub release: (u32, u32),
}

impl fmt::Display for Ptxas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.release;
        write!(f, "ptxas {major}.{minor} ({})", self.path.display())
    }
}

/// What an entry takes of a multiprocessor, on one architecture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// 32-bit registers of a thread.
    pub registers: u32,
    /// Bytes that a thread writes to local memory for want of registers.
    pub spill_stores: u32,
    /// Bytes that it reads back.
    pub spill_loads: u32,
    /// Bytes of a thread's stack.
    pub stack: u32,
    /// Bytes of a CTA's static shared memory.
    pub shared: u32,
    /// Named barriers.
    pub barriers: u32,
}

/// Looks for ptxas: `HALFGNN_PTXAS` alone if it is set; else the folders in `first`, `PATH`, `CUDA_HOME` and
/// `CUDA_PATH`, `/usr/local/cuda`, and the Python wheels that `python3` sees.
///
/// # Errors
/// The places that were looked at, each with what was wrong with it.
pub fn find(first: &[PathBuf]) -> Result<Ptxas, Vec<String>> {
    let mut rejected = Vec::new();
    let variable = |name: &str| {
        env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    if let Some(path) = variable(PTXAS_VARIABLE) {
        return Ptxas::at(&path).map_err(|reason| vec![format!("{PTXAS_VARIABLE}: {reason}")]);
    }
    let mut folders: Vec<PathBuf> = first.to_vec();
    folders.extend(env::var_os("PATH").iter().flat_map(env::split_paths));
    for name in ["CUDA_HOME", "CUDA_PATH"] {
        folders.extend(variable(name).map(|home| home.join("bin")));
    }
    folders.push(PathBuf::from("/usr/local/cuda/bin"));
    let mut look = |folders: Vec<PathBuf>| {
        folders
            .into_iter()
            .map(|folder| folder.join("ptxas"))
            .filter(|path| path.is_file())
            .find_map(|path| {
                Ptxas::at(&path)
                    .map_err(|reason| rejected.push(reason))
                    .ok()
            })
    };
    let found = look(folders).or_else(|| look(wheel_folders()));
    found.ok_or_else(|| {
        rejected.push(format!(
            "no ptxas in {PTXAS_VARIABLE}, PATH, CUDA_HOME, CUDA_PATH, /usr/local/cuda/bin, or a wheel of python3's \
             (nvidia-cuda-nvcc)"
        ));
        rejected
    })
}

/// Where the wheels `nvidia-cuda-nvcc` (CUDA 13) and `nvidia-cuda-nvcc-cu12` put their programs.
fn wheel_folders() -> Vec<PathBuf> {
    let output = Command::new("python3")
        .args([
            "-c",
            "import sys; print('\\n'.join(p for p in sys.path if p))",
        ])
        .stdin(Stdio::null())
        .output();
    let Ok(output) = output else {
        return Vec::new();
    };
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .flat_map(|site| {
            ["nvidia/cu13/bin", "nvidia/cuda_nvcc/bin"].map(|folder| Path::new(site).join(folder))
        })
        .collect()
}

impl Ptxas {
    /// Takes the ptxas at `path`.
    ///
    /// # Errors
    /// A line that says why it cannot be used.
    pub fn at(path: &Path) -> Result<Self, String> {
        let output = Command::new(path)
            .arg("--version")
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("cannot run {}: {error}", path.display()))?;
        let answer = String::from_utf8_lossy(&output.stdout);
        let release = release(&answer)
            .ok_or_else(|| format!("{} does not tell its release", path.display()))?;
        if release < (12, 0) {
            let (major, minor) = release;
            return Err(format!(
                "{} is of CUDA {major}.{minor}; PTX 8.0 needs 12.0",
                path.display()
            ));
        }
        Ok(Self {
            path: path.to_path_buf(),
            release,
        })
    }

    /// Whether this release assembles for the architecture: sm_100 and newer came with CUDA 12.8.
    pub fn knows(&self, arch: &str) -> bool {
        let number: u32 = arch.trim_start_matches("sm_").parse().unwrap_or(u32::MAX);
        number < 100 || self.release >= (12, 8)
    }

    /// Assembles a PTX file for an architecture, and returns what each entry takes. The machine code goes to `cubin`.
    ///
    /// # Errors
    /// [`BuildError::Ptxas`] with ptxas's own words if it rejects the file, or with entry and bytes if one spills.
    pub fn assemble(
        &self,
        ptx: &Path,
        arch: &str,
        cubin: &Path,
    ) -> Result<BTreeMap<String, Usage>, BuildError> {
        self.assemble_allowing(|_| 0, ptx, arch, cubin)
    }

    /// [`Ptxas::assemble`] of entries that may spill the given number of bytes each.
    pub(crate) fn assemble_allowing(
        &self,
        spills: impl Fn(&str) -> u32,
        ptx: &Path,
        arch: &str,
        cubin: &Path,
    ) -> Result<BTreeMap<String, Usage>, BuildError> {
        let failed = |reason: String| BuildError::Ptxas {
            path: ptx.to_path_buf(),
            reason,
        };
        let output = Command::new(&self.path)
            .arg("--verbose")
            .arg(format!("--gpu-name={arch}"))
            .arg(ptx)
            .arg("--output-file")
            .arg(cubin)
            .stdin(Stdio::null())
            .output()
            .map_err(BuildError::io(&self.path))?;
        let said = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        if !output.status.success() {
            let errors: Vec<&str> = said
                .lines()
                .filter(|line| !line.contains("info "))
                .collect();
            return Err(failed(format!("{arch}: {}", errors.join("\n  "))));
        }
        let usages = read_usages(&said);
        if usages.is_empty() {
            return Err(failed(format!(
                "{arch}: ptxas names no entry; it said: {}",
                said.trim()
            )));
        }
        let spills: Vec<String> = usages
            .iter()
            .filter(|(entry, usage)| usage.spill_stores.max(usage.spill_loads) > spills(entry))
            .map(|(entry, usage)| {
                format!(
                    "{entry} on {arch}: spills {} bytes to local memory and reads {} back, at {} registers; hold less at a \
                     time, or relax its launch bounds",
                    usage.spill_stores, usage.spill_loads, usage.registers
                )
            })
            .collect();
        if !spills.is_empty() {
            return Err(failed(spills.join("\n  ")));
        }
        Ok(usages)
    }
}

/// `release 13.0` in the answer to `--version`.
fn release(answer: &str) -> Option<(u32, u32)> {
    let (_, rest) = answer.split_once("release ")?;
    let (major, rest) = rest.split_once('.')?;
    let minor: String = rest.chars().take_while(char::is_ascii_digit).collect();
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Reads ptxas's `--verbose` lines.
fn read_usages(said: &str) -> BTreeMap<String, Usage> {
    let mut usages: BTreeMap<String, Usage> = BTreeMap::new();
    let mut entry: Option<String> = None;
    for line in said.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            let name = rest.split('\'').next().unwrap_or_default().to_owned();
            usages.entry(name.clone()).or_default();
            entry = Some(name);
            continue;
        }
        if let Some((_, rest)) = line.split_once("Function properties for ") {
            // Device functions that were not inlined have properties too.
            entry = Some(rest.trim().to_owned()).filter(|name| usages.contains_key(name));
            continue;
        }
        let Some(usage) = entry.as_ref().and_then(|name| usages.get_mut(name)) else {
            continue;
        };
        let before = |words: &str| -> Option<u32> {
            let (head, _) = line.split_once(words)?;
            head.trim_end().rsplit([' ', ',']).next()?.parse().ok()
        };
        if line.contains("bytes stack frame") {
            usage.stack = before("bytes stack frame").unwrap_or(0);
            usage.spill_stores = before("bytes spill stores").unwrap_or(0);
            usage.spill_loads = before("bytes spill loads").unwrap_or(0);
        } else if let Some(registers) = before("registers") {
            usage.registers = registers;
            usage.shared = before("bytes smem").unwrap_or(0);
            usage.barriers = before("barriers").unwrap_or(0);
        }
    }
    usages
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "\
ptxas info    : 8 bytes gmem
ptxas info    : Compiling entry function 'sum_warp' for 'sm_90'
ptxas info    : Function properties for sum_warp
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 1 barriers, 4096 bytes smem, 352 bytes cmem[0]
ptxas info    : Compile time = 2.166 ms
ptxas info    : Function properties for helper
    16 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
ptxas info    : Compiling entry function 'wide' for 'sm_90'
ptxas info    : Function properties for wide
    24 bytes stack frame, 20 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 255 registers, 24 bytes cumulative stack size
";

    #[test]
    fn usages_are_read_by_entry() {
        let usages = read_usages(SAID);
        let expected = BTreeMap::from([
            (
                "sum_warp".to_owned(),
                Usage {
                    registers: 10,
                    shared: 4096,
                    barriers: 1,
                    ..Usage::default()
                },
            ),
            (
                "wide".to_owned(),
                Usage {
                    registers: 255,
                    spill_stores: 20,
                    spill_loads: 12,
                    stack: 24,
                    ..Usage::default()
                },
            ),
        ]);
        assert_eq!(usages, expected);
    }

    #[test]
    fn the_release_is_read_and_decides_what_is_known() {
        let answer = "ptxas: NVIDIA (R) Ptx optimizing assembler\nCuda compilation tools, release 12.6, V12.6.85\n";
        assert_eq!(release(answer), Some((12, 6)));
        assert_eq!(release("nonsense"), None);
        let ptxas = |release| Ptxas {
            path: PathBuf::new(),
            release,
        };
        assert!(ptxas((12, 6)).knows("sm_90") && !ptxas((12, 6)).knows("sm_120"));
        assert!(ptxas((13, 0)).knows("sm_120"));
    }
}
