//! Operands: every corner of a type first, then random values that lean towards ties, cancellation and the corners.

use half::{bf16, f16};

/// SplitMix64 (Steele, Lea and Flood, 2014). Stored results belong to these very numbers, so the generator is written
/// out here and never changes.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A stream of its own for each name.
    pub fn named(name: &str) -> Self {
        Self(fnv(name.as_bytes()))
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    /// Uniform in `0..n`.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(n)) >> 64) as u64
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Uniform in `[0, 1)`.
    fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn pick(&mut self, list: &[u64]) -> u64 {
        list[self.below(list.len() as u64) as usize]
    }
}

/// The 64-bit hash of Fowler, Noll and Vo (1a).
pub fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3)
    })
}

/// What an operand's values are drawn from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Values {
    /// Halves, the whole range.
    Half,
    /// Two halves in one register, drawn apart.
    HalfPair,
    /// Floats, the whole range.
    Single,
    /// Doubles, the whole range.
    Double,
    /// Halves about the limits of integer types and about ties.
    HalfNearInteger,
    /// Floats about the limits of integer types and about ties.
    SingleNearInteger,
    /// Doubles about the limits of integer types and about ties.
    DoubleNearInteger,
    /// Floats, uniform between two numbers, and zeros, infinities, NaN and subnormals.
    Between(f32, f32),
    /// Floats whose magnitude lies between two powers of two; no corners.
    Magnitude(i32, i32),
    /// Two halves in one register, integers from −8 to 8: sums of their products are exact in any order.
    SmallIntegers,
    /// Two halves in one register of magnitudes from 2⁻⁶ to 2⁶.
    Moderate,
    /// As [`Values::Moderate`], one in 64 a NaN, an infinity, a subnormal or a zero.
    Spoilt,
    /// The numbers of two halves, as two bfloats in one register.
    BFloats(&'static Values),
    /// Floats, integers from −1024 to 1024.
    SingleInteger,
    /// Integers of so many bits, 8 to 64.
    Integer(u8),
    /// Integers of 32 bits below a number.
    Below(u32),
    /// One of some integers of 32 bits.
    AnyOf(&'static [u32]),
    /// Shift amounts and bit positions: mostly up to 70, some anywhere in 32 bits.
    Amount,
}

impl Values {
    /// Width of the register that holds one value, in bytes. Integers of 8 bits stand in registers of 16.
    pub fn bytes(self) -> u8 {
        match self {
            Values::Half | Values::HalfNearInteger | Values::Integer(8 | 16) => 2,
            Values::Double | Values::DoubleNearInteger | Values::Integer(64) => 8,
            _ => 4,
        }
    }

    /// The values that a case must not miss.
    fn corners(self) -> Vec<u64> {
        match self {
            Values::Half | Values::HalfPair => HALF_CORNERS.map(u64::from).to_vec(),
            Values::Single => SINGLE_CORNERS.map(u64::from).to_vec(),
            Values::Double => DOUBLE_CORNERS.to_vec(),
            Values::HalfNearInteger => near_integers(|x| f16::from_f64(x).to_bits().into(), 15),
            Values::SingleNearInteger => near_integers(|x| (x as f32).to_bits().into(), 31),
            Values::DoubleNearInteger => near_integers(f64::to_bits, 63),
            Values::Between(..) => SINGLE_CORNERS[..12].iter().map(|&v| v.into()).collect(),
            Values::Integer(bits) => integer_corners(bits),
            Values::Amount => [
                0,
                1,
                7,
                8,
                15,
                16,
                17,
                31,
                32,
                33,
                63,
                64,
                65,
                255,
                256,
                0x8000_0000,
                0xFFFF_FFFF,
            ]
            .to_vec(),
            Values::AnyOf(list) => list.iter().map(|&v| v.into()).collect(),
            Values::Magnitude(..)
            | Values::SmallIntegers
            | Values::Moderate
            | Values::Spoilt
            | Values::BFloats(_)
            | Values::SingleInteger
            | Values::Below(_) => Vec::new(),
        }
    }

    /// One value, as the low bits.
    fn random(self, random: &mut Random, corners: &[u64]) -> u64 {
        if !corners.is_empty() && random.one_in(8) {
            return self.doubled(random.pick(corners), random, corners);
        }
        match self {
            Values::Half => float(random, 10, 5, 9),
            Values::HalfPair => float(random, 10, 5, 9) | float(random, 10, 5, 9) << 16,
            Values::Single => float(random, 23, 8, 14),
            Values::Double => float(random, 52, 11, 30),
            Values::HalfNearInteger => f16::from_f64(about_integer(random, 17)).to_bits().into(),
            Values::SingleNearInteger => (about_integer(random, 66) as f32).to_bits().into(),
            Values::DoubleNearInteger => about_integer(random, 66).to_bits(),
            Values::Between(low, high) => (low + (f64::from(high - low) * random.unit()) as f32)
                .to_bits()
                .into(),
            Values::Magnitude(low, high) => magnitude(random, low, high).to_bits().into(),
            Values::SmallIntegers => pair(|| random.below(17) as f32 - 8.0),
            Values::Moderate => pair(|| magnitude(random, -6, 6)),
            Values::Spoilt => {
                let word = pair(|| magnitude(random, -6, 6));
                if random.one_in(64) {
                    word & 0xFFFF | u64::from(HALF_CORNERS[random.below(12) as usize]) << 16
                } else {
                    word
                }
            }
            Values::BFloats(halves) => {
                let word = halves.random(random, &halves.corners());
                let bfloat = |half: u64| bf16::from_f32(f16::from_bits(half as u16).to_f32());
                u64::from(bfloat(word).to_bits()) | u64::from(bfloat(word >> 16).to_bits()) << 16
            }
            Values::SingleInteger => (random.below(2049) as f32 - 1024.0).to_bits().into(),
            Values::Integer(bits) => {
                // All widths of numbers, since few products of full width have anything in common.
                let shift = if random.one_in(2) {
                    random.below(bits.into())
                } else {
                    0
                };
                let v = random.bits() >> (64 - bits) >> shift;
                let v = if random.one_in(4) {
                    v.wrapping_neg()
                } else {
                    v
                };
                v & u64::MAX >> (64 - bits)
            }
            Values::Below(n) => random.below(n.into()),
            Values::AnyOf(list) => u64::from(list[random.below(list.len() as u64) as usize]),
            Values::Amount => {
                if random.one_in(8) {
                    random.bits() >> 32
                } else {
                    random.below(70)
                }
            }
        }
    }

    /// A corner made a pair with another half, for the types that are pairs.
    fn doubled(self, corner: u64, random: &mut Random, corners: &[u64]) -> u64 {
        if self != Values::HalfPair {
            return corner;
        }
        let other = if random.one_in(2) {
            random.pick(corners)
        } else {
            float(random, 10, 5, 9)
        };
        if random.one_in(2) {
            corner | other << 16
        } else {
            other | corner << 16
        }
    }
}

/// The operands of all lanes, lane by lane: in the first half of the lanes the first two operands go through all pairs
/// of their corners, as far as the lanes reach; the rest is random.
pub fn operands(operands: &[Values], lanes: usize, random: &mut Random) -> Vec<u64> {
    let corners: Vec<Vec<u64>> = operands.iter().map(|o| o.corners()).collect();
    let first = corners.first().map_or(1, |c| c.len().max(1));
    let mut out = Vec::with_capacity(operands.len() * lanes);
    for lane in 0..lanes {
        for (i, (values, corners)) in operands.iter().zip(&corners).enumerate() {
            let systematic = lane < lanes / 2 && !corners.is_empty();
            out.push(match i {
                0 if systematic => values.doubled(corners[lane % corners.len()], random, corners),
                1 if systematic => {
                    values.doubled(corners[lane / first % corners.len()], random, corners)
                }
                _ if systematic && random.one_in(2) => {
                    let corner = random.pick(corners);
                    values.doubled(corner, random, corners)
                }
                _ => values.random(random, corners),
            });
        }
    }
    out
}

/// Zeros, infinities, NaN with and without payload, signalling and negative, subnormals, limits, neighbours of one.
const HALF_CORNERS: [u16; 22] = [
    0x0000, 0x8000, 0x7C00, 0xFC00, 0x7FFF, 0x7E00, 0x7C01, 0xFE55, 0x0001, 0x8001, 0x03FF, 0x83FF,
    0x0400, 0x8400, 0x7BFF, 0xFBFF, 0x3C00, 0xBC00, 0x3C01, 0x3BFF, 0x6800, 0x4200,
];

/// As [`HALF_CORNERS`].
const SINGLE_CORNERS: [u32; 22] = [
    0x0000_0000,
    0x8000_0000,
    0x7F80_0000,
    0xFF80_0000,
    0x7FFF_FFFF,
    0x7FC0_0000,
    0x7F80_0001,
    0xFFC1_2345,
    0x0000_0001,
    0x8000_0001,
    0x007F_FFFF,
    0x807F_FFFF,
    0x0080_0000,
    0x8080_0000,
    0x7F7F_FFFF,
    0xFF7F_FFFF,
    0x3F80_0000,
    0xBF80_0000,
    0x3F80_0001,
    0x3F7F_FFFF,
    0x4B80_0000,
    0x4040_0000,
];

/// As [`HALF_CORNERS`].
const DOUBLE_CORNERS: [u64; 22] = [
    0,
    1 << 63,
    0x7FF << 52,
    0xFFF << 52,
    u64::MAX >> 1,
    0x7FF8 << 48,
    0x7FF0_0000_0000_0001,
    0xFFF8_1234_5678_9ABC,
    1,
    1 << 63 | 1,
    0x000F_FFFF_FFFF_FFFF,
    0x800F_FFFF_FFFF_FFFF,
    0x0010_0000_0000_0000,
    0x8010_0000_0000_0000,
    0x7FEF_FFFF_FFFF_FFFF,
    0xFFEF_FFFF_FFFF_FFFF,
    0x3FF0_0000_0000_0000,
    0xBFF0_0000_0000_0000,
    0x3FF0_0000_0000_0001,
    0x3FEF_FFFF_FFFF_FFFF,
    0x4340_0000_0000_0000,
    0x4008_0000_0000_0000,
];

/// Limits of the width and of those below it, in both readings, and small numbers of both signs.
fn integer_corners(bits: u8) -> Vec<u64> {
    let mask = u64::MAX >> (64 - bits);
    let mut corners: Vec<u64> = [0, 1, 2, 3, 10].into();
    for width in [8u8, 16, 32, 64].into_iter().filter(|w| *w <= bits) {
        let top = 1u64 << (width - 1);
        corners.extend([top - 1, top, top + 1, top.wrapping_mul(2).wrapping_sub(1)]);
    }
    corners.extend([2, 0x55, 0x80].map(u64::wrapping_neg));
    corners.iter_mut().for_each(|v| *v &= mask);
    corners.sort_unstable();
    corners.dedup();
    corners
}

/// Powers of two at the limits of integer types, their neighbours and ties; then what is no number.
fn near_integers(bits: impl Fn(f64) -> u64, sign_bit: u32) -> Vec<u64> {
    let sign = 1 << sign_bit;
    let mut corners = Vec::new();
    for power in [7, 8, 15, 16, 31, 32, 63, 64] {
        let limit = bits(2f64.powi(power));
        corners.extend([limit - 1, limit, limit + 1]);
        if power < 32 {
            corners.extend([-0.5, -1.0, -1.5, 0.5].map(|d| bits(2f64.powi(power) + d)));
        }
    }
    corners.extend(
        [
            0.0,
            0.25,
            0.5,
            0.75,
            1.0,
            1.5,
            2.5,
            3.5,
            100.5,
            f64::INFINITY,
            f64::MAX,
        ]
        .map(&bits),
    );
    // The least subnormal, and a NaN.
    corners.extend([1, bits(f64::INFINITY) + 1]);
    let negative: Vec<u64> = corners.iter().map(|v| v | sign).collect();
    corners.extend(negative);
    corners
}

/// A float of `fraction` and `exponent` bits. Mostly within `spread` of one's exponent, so that sums meet; a third has
/// few significant bits, so that results tie.
fn float(random: &mut Random, fraction: u32, exponent: u32, spread: u64) -> u64 {
    let bits = random.bits();
    let bias = (1 << (exponent - 1)) - 1;
    let e = if random.one_in(4) {
        random.below(1 << exponent)
    } else {
        (bias - spread + random.below(2 * spread + 1)).min((1 << exponent) - 1)
    };
    let mut f = bits & ((1 << fraction) - 1);
    if random.one_in(3) {
        f &= u64::MAX << (fraction - random.below(u64::from(fraction)) as u32);
        f &= (1 << fraction) - 1;
    }
    (bits >> 63) << (fraction + exponent) | e << fraction | f
}

/// An integer of up to `bits` bits, or one and a fraction.
fn about_integer(random: &mut Random, bits: u64) -> f64 {
    let magnitude = 2f64.powf(random.unit() * bits as f64);
    let x = match random.below(4) {
        0 => magnitude.floor() + 0.5,
        1 => magnitude.floor(),
        _ => magnitude - 1.0,
    };
    if random.one_in(2) { -x } else { x }
}

/// Either sign, exponent uniform.
fn magnitude(random: &mut Random, low: i32, high: i32) -> f32 {
    let e = low + random.below((high - low) as u64) as i32;
    let x = ((1.0 + random.unit()) * 2f64.powi(e)) as f32;
    if random.one_in(2) { -x } else { x }
}

fn pair(mut half: impl FnMut() -> f32) -> u64 {
    let mut next = || u64::from(f16::from_f32(half()).to_bits());
    next() | next() << 16
}
