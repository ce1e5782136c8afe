//! How an element of a matrix lies in memory, and the entries that there are one a format of.
//!
//! A family of kernels is generic over the format. Its entries stand in a list in the family's module: a line for a
//! family, which names an entry for each format, and below the entries that know no format. From the list the kernels
//! crate makes functions and the host a table, in which it looks an entry up by family and format ([`entry`]).

use crate::{EntrySpec, VECTOR_BYTES, entries};

/// The format of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// IEEE 754 binary16.
    F16,
    /// IEEE 754 binary32.
    F32,
    /// bfloat16: the upper half of binary32.
    BF16,
}

impl Format {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::F16, Self::F32, Self::BF16];

    /// As names of entries end in it.
    #[inline]
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::F32 => "f32",
            Self::BF16 => "bf16",
        }
    }

    /// Bytes of an element.
    #[inline]
    pub const fn bytes(self) -> u32 {
        match self {
            Self::F16 | Self::BF16 => 2,
            Self::F32 => 4,
        }
    }

    /// Elements of a 16-byte vector.
    #[inline]
    pub const fn per_vector(self) -> u32 {
        VECTOR_BYTES / self.bytes()
    }
}

/// The entry of `family` for `format`, if it is built.
#[inline]
pub fn entry(family: &str, format: Format) -> Option<&'static str> {
    entries()
        .find(|entry| entry.key == Some((family, format)))
        .map(|entry| entry.name)
}

/// From the list of a module, its entries: see [`crate::format`].
macro_rules! table {
    (
        formats { $(#[doc = $doc:literal] $family:ident($params:ident): $($format:ident = $entry:ident),+;)* }
        plain { $(#[doc = $plain_doc:literal] $plain:ident($plain_params:ident);)* }
    ) => {
        &[
            $($($crate::EntrySpec {
                name: stringify!($entry),
                param_bytes: size_of::<$params>(),
                key: Some((stringify!($family), $crate::Format::$format)),
            },)+)*
            $($crate::EntrySpec {
                name: stringify!($plain),
                param_bytes: size_of::<$plain_params>(),
                key: None,
            },)*
        ]
    };
}

pub(crate) use table;

impl EntrySpec {
    /// An entry that is looked up by its policies.
    #[inline]
    pub(crate) const fn new<P>(name: &'static str) -> Self {
        Self {
            name,
            param_bytes: size_of::<P>(),
            key: None,
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::collections::BTreeMap;
    use std::vec::Vec;

    #[test]
    fn every_family_has_every_format() {
        let mut families: BTreeMap<&str, Vec<Format>> = BTreeMap::new();
        for (family, format) in entries().filter_map(|entry| entry.key) {
            families.entry(family).or_default().push(format);
        }
        assert!(families.len() > 20);
        for (family, formats) in families {
            assert_eq!(formats.len(), Format::ALL.len(), "{family}");
            for format in Format::ALL {
                assert!(entry(family, format).is_some(), "{family} {format:?}");
            }
        }
        assert_eq!(entry("activate", Format::F16), Some("activate_f16"));
        assert_eq!(entry("activates", Format::F16), None);
    }

    #[test]
    fn a_name_says_its_format() {
        for (name, format) in entries().filter_map(|entry| Some((entry.name, entry.key?.1))) {
            let old = match format {
                Format::F16 => "half",
                Format::F32 => "float",
                Format::BF16 => "bfloat",
            };
            assert!(
                name.ends_with(format.suffix()) || name.ends_with(old),
                "{name}"
            );
        }
    }

    #[test]
    fn a_vector_is_sixteen_bytes() {
        for format in Format::ALL {
            assert_eq!(format.per_vector() * format.bytes(), VECTOR_BYTES);
        }
    }
}
