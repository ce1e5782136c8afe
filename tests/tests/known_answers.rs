//! What both sides share is compared with what is known: random numbers with the vectors published for them and with those of
//! a Philox of another hand, and the functions that host and kernels compile from one source at the points where a mistake
//! would show on both sides alike.

use halfgnn_contract::attention::{Softmax, leaky_relu, leaky_relu_derivative};
use halfgnn_contract::rng;

const SEED: u64 = 0x0123_4567_89ab_cdef;

/// Random123's `kat_vectors` for Philox4x32-10.
#[test]
fn philox_has_the_published_answers() {
    for (key, counter, expected) in [
        (
            [0; 2],
            [0; 4],
            [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8],
        ),
        (
            [!0; 2],
            [!0; 4],
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd],
        ),
        (
            [0xa409_3822, 0x299f_31d0],
            [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
        ),
    ] {
        assert_eq!(rng::philox(key, counter), expected);
    }
}

#[test]
fn seeds_and_streams_become_known_keys() {
    assert_eq!(rng::key(SEED, 0), [0x89ab_cdef, 0x0123_4567]);
    assert_eq!(rng::key(SEED, 3), [0x1868_92ae, 0x493b_4ff8]);
    let numbers = [0, 1, 2, 3, 4, 1 << 34, (1 << 34) + 7]
        .map(|index| rng::uniform_u32(rng::key(SEED, 3), index));
    assert_eq!(
        numbers,
        [
            0xe9f7_a00b,
            0x4462_b3a7,
            0xa048_a204,
            0x5a3e_95de,
            0xc753_d908,
            0xb1c2_9c54,
            0x1877_6123
        ]
    );
}

/// The place of a number in a mask: rows past 2³² too, heads, and which end of an edge is which.
#[test]
fn masks_are_drawn_at_known_places() {
    let key = rng::key(SEED, 3);
    assert_eq!(
        rng::dropout_bits(key, 17, 5, 2),
        [0xf7af_a2da, 0x6793_a71d, 0x5e1b_d11d, 0x0027_b8e7]
    );
    assert_eq!(
        rng::dropout_bits(key, 17, (1 << 32) + 9, 1),
        [0xc4f3_d665, 0x181e_5490, 0x1767_741c, 0x03f0_dbc2]
    );
    assert_eq!(
        rng::philox(key, rng::edge_dropout_counter(17, 2, 7, 11)),
        [0x551f_5670, 0x8d72_6129, 0x010a_c2f8, 0x9187_c33f]
    );
    assert_eq!(rng::threshold(0.4), 1_717_986_944);
    assert_eq!(rng::threshold(1.0 / 4_294_967_296.0), 1);
    assert_eq!(rng::unit_f32(0x8000_00ff), 0.5);
}

/// At zero a LeakyReLU has the slope of its negative side, as PyTorch's has, and a score of zero is none above zero.
#[test]
fn a_leaky_relu_is_known_at_zero() {
    for zero in [0.0, -0.0] {
        assert_eq!(leaky_relu_derivative(zero, 0.2), 0.2);
        assert_eq!(leaky_relu(zero, 0.2), 0.0);
        assert_eq!(Softmax::of(zero, 0.2).positive, 0.0);
    }
    let least = f32::from_bits(1);
    assert_eq!(leaky_relu_derivative(least, 0.2), 1.0);
    assert_eq!(leaky_relu(least, 0.2), least);
    assert_eq!(leaky_relu(-1.0, 0.25), -0.25);
    assert_eq!(leaky_relu_derivative(-least, 0.2), 0.2);
    assert_eq!(Softmax::of(least, 0.2).positive, 1.0);
    assert!(leaky_relu(f32::NAN, 0.2).is_nan());
}
