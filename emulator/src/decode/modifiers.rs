//! An opcode taken apart at its dots. Whatever no rule takes is reported by name.

use crate::ir::{FloatType, IntType, Rounding, ScalarType};

/// A type as PTX writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    Bits(u8),
    Unsigned(u8),
    Signed(u8),
    F16,
    F16x2,
    Bf16,
    Bf16x2,
    F32,
    F64,
    Pred,
}

impl Type {
    fn parse(name: &str) -> Option<Type> {
        let width = |digits: &str| {
            digits
                .parse::<u8>()
                .ok()
                .filter(|w| matches!(w, 8 | 16 | 32 | 64))
        };
        Some(match name {
            "f16" => Type::F16,
            "f16x2" => Type::F16x2,
            "bf16" => Type::Bf16,
            "bf16x2" => Type::Bf16x2,
            "f32" => Type::F32,
            "f64" => Type::F64,
            "pred" => Type::Pred,
            _ => match name.split_at_checked(1)? {
                ("b", w) => Type::Bits(width(w)?),
                ("u", w) => Type::Unsigned(width(w)?),
                ("s", w) => Type::Signed(width(w)?),
                _ => return None,
            },
        })
    }

    pub(super) fn bits(self) -> u8 {
        match self {
            Type::Bits(w) | Type::Unsigned(w) | Type::Signed(w) => w,
            Type::F16 | Type::Bf16 => 16,
            Type::F16x2 | Type::Bf16x2 | Type::F32 => 32,
            Type::F64 => 64,
            Type::Pred => 1,
        }
    }

    /// As an integer type; bits count as unsigned.
    pub(super) fn int(self) -> Option<IntType> {
        Some(match self {
            Type::Bits(16) | Type::Unsigned(16) => IntType::U16,
            Type::Bits(32) | Type::Unsigned(32) => IntType::U32,
            Type::Bits(64) | Type::Unsigned(64) => IntType::U64,
            Type::Signed(16) => IntType::S16,
            Type::Signed(32) => IntType::S32,
            Type::Signed(64) => IntType::S64,
            _ => return None,
        })
    }

    pub(super) fn float(self) -> Option<FloatType> {
        Some(match self {
            Type::F16 => FloatType::F16,
            Type::F16x2 => FloatType::F16x2,
            Type::F32 => FloatType::F32,
            Type::F64 => FloatType::F64,
            _ => return None,
        })
    }

    pub(super) fn scalar(self) -> Option<ScalarType> {
        Some(match self {
            Type::Unsigned(8) => ScalarType::U8,
            Type::Signed(8) => ScalarType::S8,
            Type::Unsigned(16) => ScalarType::U16,
            Type::Signed(16) => ScalarType::S16,
            Type::Unsigned(32) => ScalarType::U32,
            Type::Signed(32) => ScalarType::S32,
            Type::Unsigned(64) => ScalarType::U64,
            Type::Signed(64) => ScalarType::S64,
            Type::F16 => ScalarType::F16,
            Type::Bf16 => ScalarType::Bf16,
            Type::F32 => ScalarType::F32,
            Type::F64 => ScalarType::F64,
            _ => return None,
        })
    }
}

pub(super) struct Modifiers<'a> {
    pub base: &'a str,
    rest: Vec<&'a str>,
}

impl<'a> Modifiers<'a> {
    pub(super) fn new(opcode: &'a str) -> Self {
        let mut parts = opcode.split('.');
        let base = parts.next().unwrap_or("");
        Self {
            base,
            rest: parts.collect(),
        }
    }

    /// Takes one modifier if it is there.
    pub(super) fn take(&mut self, name: &str) -> bool {
        let found = self.rest.iter().position(|m| *m == name);
        if let Some(i) = found {
            self.rest.remove(i);
        }
        found.is_some()
    }

    /// Takes the first of several modifiers that is there.
    pub(super) fn take_any<T: Copy>(&mut self, names: &[(&str, T)]) -> Option<T> {
        names
            .iter()
            .find(|(name, _)| self.take(name))
            .map(|(_, value)| *value)
    }

    /// Takes the first type.
    pub(super) fn take_type(&mut self) -> Option<Type> {
        let i = self.rest.iter().position(|m| Type::parse(m).is_some())?;
        Type::parse(self.rest.remove(i))
    }

    pub(super) fn take_rounding(&mut self) -> Option<(Rounding, bool)> {
        self.take_any(&[
            ("rn", (Rounding::Nearest, false)),
            ("rz", (Rounding::Zero, false)),
            ("rm", (Rounding::Down, false)),
            ("rp", (Rounding::Up, false)),
            ("rni", (Rounding::Nearest, true)),
            ("rzi", (Rounding::Zero, true)),
            ("rmi", (Rounding::Down, true)),
            ("rpi", (Rounding::Up, true)),
        ])
    }

    /// The last modifier that nothing has taken: where a type is missing, most likely one that is not known.
    pub(super) fn last(&self) -> Option<&'a str> {
        self.rest.last().copied()
    }

    /// A modifier that nothing has taken.
    pub(super) fn left(&self) -> Option<&'a str> {
        self.rest.first().copied()
    }
}
