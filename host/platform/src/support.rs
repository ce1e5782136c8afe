//! What a system lacks, refused in one line before anything else is tried.

use std::env::consts::{ARCH, OS};
use std::fmt;

/// What not every system has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// NVIDIA's driver.
    Cuda,
    /// NVIDIA's library between GPUs.
    Nccl,
    /// Open MPI.
    Mpi,
    /// NVIDIA's sparse library, which is timed as a baseline.
    Cusparse,
}

/// Systems and processors by the names of [`std::env::consts`].
type Systems = &'static [(&'static str, &'static [&'static str])];

const BOTH: &[&str] = &["x86_64", "aarch64"];

impl Feature {
    /// Its name, where it is, and what to do elsewhere.
    fn facts(self) -> (&'static str, Systems, &'static str) {
        match self {
            Self::Cuda => (
                "CUDA",
                &[("linux", BOTH), ("windows", &["x86_64"])],
                "take --device cpu",
            ),
            Self::Nccl => (
                "NCCL",
                &[("linux", BOTH)],
                "ranks exchange through the host instead (--exchange host)",
            ),
            Self::Mpi => (
                "MPI",
                &[("linux", BOTH), ("macos", BOTH)],
                "take --rendezvous tcp://HOST:PORT",
            ),
            Self::Cusparse => (
                "cuSPARSE as a baseline",
                &[("linux", BOTH)],
                "bench without it",
            ),
        }
    }

    /// Refuses it where this system lacks it.
    ///
    /// # Errors
    /// [`Unsupported`].
    pub fn expect(self) -> Result<(), Unsupported> {
        self.expect_on(OS, ARCH)
    }

    fn expect_on(self, os: &'static str, arch: &'static str) -> Result<(), Unsupported> {
        let (_, systems, _) = self.facts();
        let is_there = systems
            .iter()
            .any(|(system, processors)| *system == os && processors.contains(&arch));
        match is_there {
            true => Ok(()),
            false => Err(Unsupported {
                feature: self,
                os,
                arch,
            }),
        }
    }
}

/// What this system lacks, in one line with what to do instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsupported {
    feature: Feature,
    os: &'static str,
    arch: &'static str,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, systems, advice) = self.feature.facts();
        let systems: Vec<String> = systems
            .iter()
            .map(|(system, processors)| format!("{system} ({})", processors.join(", ")))
            .collect();
        let (os, arch) = (self.os, self.arch);
        write!(
            f,
            "{name} works on {}, and this program was built for {os} ({arch}); {advice}",
            systems.join(" and ")
        )
    }
}

impl std::error::Error for Unsupported {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_system_lacks_is_refused_in_one_line() {
        let all = [
            Feature::Cuda,
            Feature::Nccl,
            Feature::Mpi,
            Feature::Cusparse,
        ];
        for feature in all {
            assert_eq!(feature.expect_on("linux", "x86_64"), Ok(()));
            assert_eq!(feature.expect_on("linux", "aarch64"), Ok(()));
            let refusal = feature.expect_on("freebsd", "x86_64").unwrap_err();
            assert!(!refusal.to_string().contains('\n'));
        }
        assert_eq!(Feature::Cuda.expect_on("windows", "x86_64"), Ok(()));
        assert_eq!(Feature::Mpi.expect_on("macos", "aarch64"), Ok(()));
        let refusal = Feature::Mpi.expect_on("windows", "x86_64").unwrap_err();
        assert_eq!(
            refusal.to_string(),
            "MPI works on linux (x86_64, aarch64) and macos (x86_64, aarch64), and this program was built for windows (x86_64); take \
             --rendezvous tcp://HOST:PORT"
        );
        assert!(Feature::Nccl.expect_on("windows", "x86_64").is_err());
        assert!(Feature::Cuda.expect_on("macos", "aarch64").is_err());
    }
}
