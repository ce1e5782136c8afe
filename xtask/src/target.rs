//! Other systems than this machine's: how programs for them are linked, run and packed here.
//!
//! Tests are linked by Debian's cross compilers, whose libraries the emulators of processors and systems need as well. What is packed is
//! linked by zig from PyPI, as the wheel of this machine is: one tool for every glibc, kept by its own project, where a cross compiler's
//! glibc is that of the distribution.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Failure, wheel, workspace};

/// What links for another glibc, with zig from PyPI: by the author of maturin, which has it inside.
const ZIGBUILD: &str = "cargo-zigbuild>=0.20,<0.24";

/// The glibc that packed programs need, as the wheel does.
const GLIBC: &str = "2.28";

/// Apple's processors: linted here.
pub const MACOS: &str = "aarch64-apple-darwin";

/// Windows with mingw's C library: linted and tested here.
pub const WINDOWS: &str = "x86_64-pc-windows-gnu";

/// Windows with Microsoft's C library: linted here.
pub const MSVC: &str = "x86_64-pc-windows-msvc";

/// Linux on ARM: tested here.
pub const ARM_LINUX: &str = "aarch64-unknown-linux-gnu";

/// A system that is not this machine's.
pub struct Target {
    /// As rustc calls it.
    pub triple: &'static str,
    /// What links tests.
    linker: &'static str,
    /// What runs them, with its arguments.
    runner: &'static [&'static str],
    /// Debian's packages that have both.
    pub packages: &'static [&'static str],
    /// Whether it is a Linux, for which zig links what is packed.
    is_linux: bool,
}

/// Those that can be built and run here.
const TARGETS: [Target; 2] = [
    Target {
        triple: ARM_LINUX,
        linker: "aarch64-linux-gnu-gcc",
        runner: &["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"],
        packages: &[
            "gcc-aarch64-linux-gnu",
            "libc6-dev-arm64-cross",
            "qemu-user",
        ],
        is_linux: true,
    },
    Target {
        triple: WINDOWS,
        linker: "x86_64-w64-mingw32-gcc",
        runner: &["wine"],
        packages: &["gcc-mingw-w64-x86-64", "wine64", "wine"],
        is_linux: false,
    },
];

/// The tests that run on another system where none are named: the CPU's, the emulator's smaller ones, what differs between systems, and the
/// program's that run on every system. Kernels and GPUs have no part in it.
const TESTS: [&str; 21] = [
    "--lib",
    "-p=halfgnn-platform",
    "-p=halfgnn-cuda-loader",
    "-p=halfgnn-graph",
    "-p=halfgnn-data",
    "-p=halfgnn-ops",
    "-p=ptx-syntax",
    "-p=ptx-emulator",
    "-p=halfgnn-tests",
    "-p=halfgnn-cli",
    "--test=systems",
    "--test=fake_driver",
    "--test=no_driver",
    "--test=not_a_driver",
    "--test=not_a_library",
    "--test=instructions",
    "--test=malformed",
    "--test=cpu",
    "--test=known_answers",
    "--test=accuracy",
    "--test=same_bits",
];

/// Set for tests that start a program: what runs it, by words, where the system does not by itself.
const TEST_RUNNER: &str = "HALFGNN_TEST_RUNNER";

/// As many of them as CI has the time for.
const FEW_TESTS: [&str; 4] = [
    "--lib",
    "-p=halfgnn-platform",
    "-p=halfgnn-cuda-loader",
    "--test=fake_driver",
];

/// And of another processor: its vectors. What trains there takes longer to compile than CI has the time for.
const OF_VECTORS: [&str; 3] = ["-p=halfgnn-ops", "--lib", "simd"];

impl Target {
    /// The one of this name.
    ///
    /// # Errors
    /// Which there are.
    pub fn named(triple: &str) -> Result<&'static Self, Failure> {
        let found = TARGETS.iter().find(|target| target.triple == triple);
        found.ok_or_else(|| {
            let known: Vec<&str> = TARGETS.iter().map(|target| target.triple).collect();
            format!(
                "--target {triple}: nothing here links and runs that; there are {}",
                known.join(" and ")
            )
            .into()
        })
    }

    /// That tests can be linked and run, without installing what needs root.
    ///
    /// # Errors
    /// Which packages to install, in one line.
    pub fn expect_tools(&self) -> Result<(), Failure> {
        let missing: Vec<&str> = [self.linker, self.runner[0]]
            .into_iter()
            .filter(|program| !is_on_path(program))
            .collect();
        match missing.is_empty() {
            true => Ok(()),
            false => Err(format!(
                "{} not found, and tests of {} need them: `sudo apt-get install {}` on Debian",
                missing.join(" and "),
                self.triple,
                self.packages.join(" ")
            )
            .into()),
        }
    }

    /// Runs tests; those of [`TESTS`] where none are named.
    pub fn test(&self, arguments: &[String]) -> Result<(), Failure> {
        self.expect_tools()?;
        install_library(self.triple)?;
        // A test opens it, and cargo builds no library of an example for the tests that are named.
        let mut library = self.cargo("build")?;
        library.args([
            "--package",
            "halfgnn-cuda-loader",
            "--example",
            "fake_driver",
        ]);
        workspace::run(&mut library)?;
        let mut test = self.cargo("test")?;
        match arguments.is_empty() {
            true => test.args(TESTS).arg("--no-fail-fast"),
            false => test.args(arguments),
        };
        workspace::run(&mut test)
    }

    /// cargo with a linker and something that runs what it builds.
    fn cargo(&self, command: &str) -> Result<Command, Failure> {
        let mut cargo = workspace::cargo();
        cargo.args([command, "--locked", "--target", self.triple]);
        cargo.env(self.variable("LINKER"), self.linker);
        cargo.env(self.variable("RUNNER"), self.runner.join(" "));
        if self.is_linux {
            // Wine starts programs of Windows; qemu leaves it to the system, which cannot.
            cargo.env(TEST_RUNNER, self.runner.join(" "));
        } else {
            // Wine warns of screens and fonts that no test needs.
            cargo.env("WINEDEBUG", "-all");
            cargo.env("WINEPATH", self.libraries()?);
        }
        Ok(cargo)
    }

    /// cargo's variable of this target.
    fn variable(&self, what: &str) -> String {
        let name = self.triple.to_uppercase().replace('-', "_");
        format!("CARGO_TARGET_{name}_{what}")
    }

    /// Runs the tests that CI has the time for.
    pub fn test_few(&self) -> Result<(), Failure> {
        let of = |arguments: &[&str]| -> Vec<String> {
            arguments
                .iter()
                .map(|argument| (*argument).to_owned())
                .collect()
        };
        self.test(&of(&FEW_TESTS))?;
        match self.arch_and_os().0 == std::env::consts::ARCH {
            true => Ok(()),
            false => self.test(&of(&OF_VECTORS)),
        }
    }

    /// A folder with a library that Wine has from its version 9 on and Rust's programs need: random numbers, by another of the
    /// system's functions.
    fn libraries(&self) -> Result<PathBuf, Failure> {
        const SOURCE: &str = "#include <windows.h>\n#include <ntsecapi.h>\n\
            __declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE bytes, SIZE_T count) {\n\
            \x20   return RtlGenRandom(bytes, (ULONG)count);\n}\n";
        let folder = workspace::target_dir().join("wine");
        let library = folder.join("bcryptprimitives.dll");
        if !library.is_file() {
            std::fs::create_dir_all(&folder)?;
            let source = folder.join("bcryptprimitives.c");
            std::fs::write(&source, SOURCE)?;
            let mut compile = Command::new(self.linker);
            compile.arg("-shared").arg("-o").arg(&library).arg(&source);
            workspace::run(compile.arg("-ladvapi32"))?;
        }
        Ok(folder)
    }

    /// What builds a program to be packed: a cargo and its arguments, up to those of the build. zig comes from PyPI.
    pub fn build(&self) -> Result<Command, Failure> {
        install_library(self.triple)?;
        if !self.is_linux {
            if !is_on_path(self.linker) {
                self.expect_tools()?;
            }
            let mut cargo = workspace::cargo();
            cargo.env(self.variable("LINKER"), self.linker);
            cargo.args(["build", "--target", self.triple]);
            return Ok(cargo);
        }
        let place = wheel::linking(&[ZIGBUILD], "cargo-zigbuild")?;
        let mut cargo = Command::new(place.join("cargo-zigbuild"));
        cargo.current_dir(workspace::root());
        cargo.env("PATH", workspace::path_with(&place)?);
        cargo.args(["zigbuild", "--target"]);
        cargo.arg(format!("{}.{GLIBC}", self.triple));
        Ok(cargo)
    }

    /// The name of a program.
    pub fn program(&self, name: &str) -> String {
        let end = if self.is_linux { "" } else { ".exe" };
        format!("{name}{end}")
    }

    /// Architecture and system, as archives are called.
    pub fn arch_and_os(&self) -> (&'static str, &'static str) {
        let arch = self.triple.split('-').next().unwrap_or(self.triple);
        (arch, if self.is_linux { "linux" } else { "windows" })
    }
}

/// Has rustup install the standard library for a system, where it is missing; nothing of that needs root.
pub fn install_library(triple: &str) -> Result<(), Failure> {
    let mut print = Command::new("rustc");
    let found = print
        .args(["--print", "target-libdir", "--target", triple])
        .output()?;
    let folder = String::from_utf8_lossy(&found.stdout).trim().to_owned();
    if found.status.success() && Path::new(&folder).is_dir() {
        return Ok(());
    }
    workspace::run(Command::new("rustup").args(["target", "add", triple]))
}

fn is_on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_that_nothing_runs_is_refused_with_those_that_there_are() {
        let refusal = Target::named("sparc64-unknown-linux-gnu").err();
        let refusal = refusal.expect("there is none").to_string();
        assert!(
            refusal.contains("aarch64-unknown-linux-gnu and x86_64-pc-windows-gnu"),
            "{refusal}"
        );
        for target in &TARGETS {
            assert!(Target::named(target.triple).is_ok());
        }
        let arm = Target::named("aarch64-unknown-linux-gnu").expect("it is there");
        assert_eq!(arm.arch_and_os(), ("aarch64", "linux"));
        assert_eq!(arm.program("halfgnn"), "halfgnn");
        let windows = Target::named("x86_64-pc-windows-gnu").expect("it is there");
        assert_eq!(windows.program("halfgnn"), "halfgnn.exe");
    }

    #[test]
    fn dependencies_are_checked_for_every_system() {
        let text = std::fs::read_to_string(workspace::root().join("deny.toml")).unwrap();
        let (graph, _) = text.split_once("[licenses]").unwrap();
        for triple in ["x86_64-unknown-linux-gnu", ARM_LINUX, MACOS, WINDOWS, MSVC] {
            assert!(graph.contains(&format!("\"{triple}\"")), "{triple}");
        }
    }

    #[test]
    fn missing_tools_are_named_with_their_packages() {
        let target = Target {
            triple: "none",
            linker: "no-such-linker",
            runner: &["no-such-runner", "-x"],
            packages: &["some", "packages"],
            is_linux: true,
        };
        let refusal = target.expect_tools().unwrap_err().to_string();
        assert_eq!(
            refusal,
            "no-such-linker and no-such-runner not found, and tests of none need them: `sudo apt-get install some packages` on Debian"
        );
    }
}
