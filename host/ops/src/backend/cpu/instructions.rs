//! Which instructions the operators use.

use super::simd::{Kernel, Lanes, platform};
use crate::error::Error;
use std::fmt;
use std::str::FromStr;

/// The instructions that the CPU's operators use, of those that the processor has.
///
/// Results do not depend on them, up to the dense products, which `gemm` computes with the widest vectors that there
/// are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Instructions {
    /// None but what the compiler makes of plain Rust: the formulas as they are written, which the others are compared
    /// with.
    Plain,
    /// NEON, on AArch64: vectors of 4 floats.
    Neon,
    /// AVX2 and F16C, on x86-64: vectors of 8 floats.
    Avx2,
    /// AVX-512 (F, BW, CD, DQ, VL), on x86-64: vectors of 16 floats.
    Avx512,
}

impl Instructions {
    /// All of them, narrower vectors first.
    const ALL: [Self; 4] = [Self::Plain, Self::Neon, Self::Avx2, Self::Avx512];

    /// Those that the processor has, narrower vectors first. The first is [`Instructions::Plain`].
    pub fn available() -> impl Iterator<Item = Self> {
        Self::ALL
            .into_iter()
            .filter(|instructions| instructions.are_available())
    }

    /// Those with the widest vectors that the processor has.
    pub fn widest() -> Self {
        Self::available().last().unwrap_or(Self::Plain)
    }

    /// Whether the processor has them.
    pub fn are_available(self) -> bool {
        platform::has(self)
    }

    /// Refuses those that the processor has not got.
    pub(super) fn expect_available(self) -> Result<Self, Error> {
        if self.are_available() {
            return Ok(self);
        }
        let available = names(Self::available());
        Err(unsupported(format!(
            "the processor has no {self}; it has {available}"
        )))
    }

    fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Neon => "neon",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
        }
    }

    /// Whether sums of halves are faster when those are [shrunk](Lanes::SHRINKS).
    pub(crate) fn shrinks(self) -> bool {
        struct Ask;
        impl Kernel for Ask {
            type Output = bool;

            fn plain(self) -> bool {
                false
            }

            #[inline(always)]
            fn vectors<L: Lanes>(self, _: L) -> bool {
                L::SHRINKS
            }
        }
        self.run(Ask)
    }

    /// Runs a kernel with these instructions, plain where the processor has not got them.
    #[inline]
    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        platform::run(self, kernel)
    }
}

impl fmt::Display for Instructions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Instructions {
    type Err = Error;

    /// Those that a person calls so, and that the processor has: `plain`, `neon`, `avx2` or `avx512`.
    fn from_str(name: &str) -> Result<Self, Error> {
        let found = Self::ALL.into_iter().find(|known| known.name() == name);
        let found = found.ok_or_else(|| {
            let known = names(Self::ALL.into_iter());
            unsupported(format!("there are none called `{name}`; there are {known}"))
        })?;
        found.expect_available()
    }
}

fn names(all: impl Iterator<Item = Instructions>) -> String {
    let names: Vec<&str> = all.map(Instructions::name).collect();
    names.join(", ")
}

fn unsupported(reason: String) -> Error {
    Error::Unsupported {
        operator: "instructions of the CPU",
        reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_others_refused() {
        for instructions in Instructions::available() {
            let read = instructions.to_string().parse::<Instructions>().unwrap();
            assert_eq!(read, instructions);
        }
        let refusal = |name: &str| name.parse::<Instructions>().unwrap_err().to_string();
        let error = refusal("mmx");
        assert_eq!(
            error,
            "instructions of the CPU: there are none called `mmx`; there are plain, neon, avx2, avx512"
        );
        let foreign = match std::env::consts::ARCH {
            "aarch64" => "avx2",
            _ => "neon",
        };
        let error = refusal(foreign);
        assert!(
            error.contains(&format!("the processor has no {foreign}; it has plain")),
            "{error}"
        );
    }
}
