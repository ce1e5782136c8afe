//! Operands of bits and of elements, under BitGNN's names.

use halfgnn::ops::BitVariant;
use std::str::FromStr;

/// One variant, or all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variants(pub Vec<BitVariant>);

impl FromStr for Variants {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.eq_ignore_ascii_case("all") {
            return Ok(Self(BitVariant::ALL.to_vec()));
        }
        let is_named = |variant: &BitVariant| variant.name().eq_ignore_ascii_case(text);
        match BitVariant::ALL.into_iter().find(is_named) {
            Some(variant) => Ok(Self(vec![variant])),
            None => Err(format!(
                "`{text}` is no variant; say three letters of F and B, as BBF, or all"
            )),
        }
    }
}

/// Each that was named, once.
pub fn named(variants: &[Variants]) -> Vec<BitVariant> {
    let mut named: Vec<BitVariant> = Vec::new();
    for &variant in variants.iter().flat_map(|some| &some.0) {
        if !named.contains(&variant) {
            named.push(variant);
        }
    }
    named
}

/// Bytes of a row of the given number of columns, of bits in whole words or of half.
pub fn row_bytes(is_bits: bool, columns: u32) -> f64 {
    match is_bits {
        true => f64::from(columns.div_ceil(64)) * 8.0,
        false => f64::from(columns) * 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_paper() {
        let of = |text: &str| text.parse::<Variants>();
        for variant in BitVariant::ALL {
            assert_eq!(of(variant.name()), Ok(Variants(vec![variant])));
        }
        let [bbf, all] = ["bbf", "all"].map(|text| of(text).expect("a variant"));
        assert_eq!((bbf.0[0].name(), all.0.len()), ("BBF", 8));
        let told = of("BBX").expect_err("there is none");
        assert!(told.starts_with("`BBX` is no variant"), "{told}");
        assert_eq!(named(&[bbf, all.clone(), all]).len(), 8);
    }
}
