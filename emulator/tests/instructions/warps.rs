//! Exchanges between lanes.

use crate::harness::per_thread;

/// What CUDA's documentation says of a shuffle inside segments of `width` lanes: the lane that is read.
fn source(mode: &str, lane: u32, by: u32, width: u32) -> u32 {
    let (segment, place) = (lane / width * width, lane % width);
    let from = match mode {
        "up" => place.checked_sub(by).unwrap_or(place),
        "down" => {
            if place + by < width {
                place + by
            } else {
                place
            }
        }
        "bfly" => {
            if lane ^ by < segment + width {
                return lane ^ by;
            } else {
                place
            }
        }
        _ => by % width,
    };
    segment + from
}

#[test]
fn shuffles_in_segments() {
    for mode in ["up", "down", "bfly", "idx"] {
        for width in [32, 16, 8, 4, 2, 1u32] {
            for by in [0, 1, 2, 3, 7, 16, 31] {
                let clamp = (32 - width) << 8 | if mode == "up" { 0 } else { 31 };
                let body = format!(
                    "mul.lo.u32 %r2, tid, 10; shfl.sync.{mode}.b32 %r1, %r2, {by}, {clamp}, 0xffffffff;"
                );
                for (t, found) in per_thread("", &body, 64).into_iter().enumerate() {
                    let right = 10 * (t as u32 / 32 * 32 + source(mode, t as u32 % 32, by, width));
                    assert_eq!(
                        found, right,
                        "{mode} by {by} in segments of {width}, thread {t}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_shuffle_says_whether_its_source_was_inside() {
    for (mode, inside) in [
        ("up", (|l: u32| l % 8 >= 3) as fn(u32) -> bool),
        ("down", |l| l % 8 + 3 < 8),
        ("bfly", |l| (l ^ 3) < l / 8 * 8 + 8),
        ("idx", |_| true),
    ] {
        let clamp = (32 - 8) << 8 | if mode == "up" { 0 } else { 31 };
        let body =
            format!("shfl.sync.{mode}.b32 %r2|p, tid, 3, {clamp}, -1; selp.u32 %r1, 1, 0, p;");
        for (lane, found) in per_thread("", &body, 32).into_iter().enumerate() {
            assert_eq!(found, u32::from(inside(lane as u32)), "{mode}, lane {lane}");
        }
    }
}

/// Each lane may name a source of its own.
#[test]
fn a_permutation_by_index() {
    let body = "mul.lo.u32 %r2, lane, 5; add.u32 %r2, %r2, 3; and.b32 %r2, %r2, 31;
        mul.lo.u32 %r3, tid, tid;
        shfl.sync.idx.b32 %r1, %r3, %r2, 31, 0xffffffff;";
    for (t, found) in per_thread("", body, 64).into_iter().enumerate() {
        let from = t / 32 * 32 + (t % 32 * 5 + 3) % 32;
        assert_eq!(found as usize, from * from);
    }
}

#[test]
fn a_butterfly_adds_all_lanes() {
    let step =
        |by| format!("shfl.sync.bfly.b32 %r2, %r1, {by}, 31, 0xffffffff; add.u32 %r1, %r1, %r2;\n");
    let body = format!("mov.u32 %r1, tid;\n{}", [16, 8, 4, 2, 1].map(step).concat());
    let expected = [(0..32).sum::<u32>(), (32..64).sum()];
    for (t, found) in per_thread("", &body, 64).into_iter().enumerate() {
        assert_eq!(found, expected[t / 32]);
    }
}

#[test]
fn votes() {
    // Of each warp the lanes from its number of tens on.
    let votes = |body: &str| per_thread("", &format!("setp.ge.u32 p, tid, 40;\n{body}"), 96);
    let ballots = votes("vote.sync.ballot.b32 %r1, p, 0xffffffff;");
    assert_eq!(
        (ballots[0], ballots[33], ballots[95]),
        (0, 0xffff_ff00, 0xffff_ffff)
    );
    for (mode, expected) in [("all", [0, 0, 1]), ("any", [0, 1, 1]), ("uni", [1, 0, 1])] {
        let found = votes(&format!(
            "vote.sync.{mode}.pred q, p, 0xffffffff; selp.u32 %r1, 1, 0, q;"
        ));
        assert_eq!([found[5], found[37], found[70]], expected, "{mode}");
        let found = votes(&format!(
            "not.pred p, p; vote.sync.{mode}.pred q, !p, 0xffffffff; selp.u32 %r1, 1, 0, q;"
        ));
        assert_eq!(
            [found[5], found[37], found[70]],
            expected,
            "{mode} of a negated predicate"
        );
    }
}

#[test]
fn votes_of_some_lanes() {
    let body = "mov.u32 %r1, 7;
        setp.ge.u32 p, lane, 20;
        @p bra DONE;
        setp.ge.u32 q, lane, 10;
        vote.sync.ballot.b32 %r1, q, 0x000fffff;
        DONE:";
    for (lane, found) in per_thread("", body, 32).into_iter().enumerate() {
        assert_eq!(found, if lane < 20 { 0x000f_fc00 } else { 7 });
    }
}

#[test]
fn lanes_of_equal_value() {
    let found = per_thread(
        "",
        "and.b32 %r2, lane, 3; match.any.sync.b32 %r1, %r2, 0xffffffff;",
        32,
    );
    for (lane, found) in found.into_iter().enumerate() {
        assert_eq!(found, 0x1111_1111 << (lane % 4));
    }
    let all = |value: &str| {
        per_thread(
            "",
            &format!("{value} match.all.sync.b32 %r2|p, %r3, -1; selp.u32 %r1, %r2, 1, p;"),
            32,
        )
    };
    assert_eq!(all("mov.u32 %r3, 5;"), [0xffff_ffff; 32]);
    assert_eq!(all("mov.u32 %r3, tid;"), [1; 32]);
}

#[test]
fn reductions() {
    let value = |t: u32| t.wrapping_mul(0x9e37_79b9) ^ t << 3;
    let values = || (0..32).map(value);
    let expected: [(&str, u32); 8] = [
        ("add.u32", values().fold(0, u32::wrapping_add)),
        ("and.b32", values().fold(u32::MAX, |a, b| a & b)),
        ("or.b32", values().fold(0, |a, b| a | b)),
        ("xor.b32", values().fold(0, |a, b| a ^ b)),
        ("min.u32", values().min().unwrap()),
        ("max.u32", values().max().unwrap()),
        ("min.s32", values().map(|v| v as i32).min().unwrap() as u32),
        ("max.s32", values().map(|v| v as i32).max().unwrap() as u32),
    ];
    for (op, right) in expected {
        let body = format!(
            "mul.lo.u32 %r2, tid, 0x9e3779b9; shl.b32 %r3, tid, 3; xor.b32 %r2, %r2, %r3;
            redux.sync.{op} %r1, %r2, 0xffffffff;"
        );
        assert_eq!(per_thread("", &body, 32), [right; 32], "{op}");
    }
}

#[test]
fn barriers_that_count() {
    let of = |op: &str, limit: u32| {
        let body = match op {
            "popc" => "bar.red.popc.u32 %r1, 0, p;".to_owned(),
            _ => format!("bar.red.{op}.pred q, 0, p; selp.u32 %r1, 1, 0, q;"),
        };
        per_thread("", &format!("setp.lt.u32 p, tid, {limit};\n{body}"), 96)
    };
    assert_eq!(of("popc", 41), [41; 96]);
    assert_eq!((of("and", 95), of("and", 96)), (vec![0; 96], vec![1; 96]));
    assert_eq!((of("or", 0), of("or", 1)), (vec![0; 96], vec![1; 96]));
}

#[test]
fn the_lanes_that_are_here() {
    let body = "mov.u32 %r1, 0; setp.ge.u32 p, lane, 7; @p bra DONE; activemask.b32 %r1; DONE:";
    for (lane, found) in per_thread("", body, 32).into_iter().enumerate() {
        assert_eq!(found, if lane < 7 { 0x7f } else { 0 });
    }
}
