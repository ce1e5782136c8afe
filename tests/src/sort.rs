//! A stable sort by keys, and prefix sums, compared with the standard library's by `==`.

use crate::Scale;
use crate::input::{KIND, Random, words};
use halfgnn::backend::Backend;
use halfgnn::ops::{self, GroupRoom};
use halfgnn::tensor::Array;
use halfgnn_contract::scan::{ITEMS_PER_CTA, MOST_ADDED, THREADS_PER_CTA};
use halfgnn_contract::sort::{FEW_PAIRS, MOST_GROUPED_PAIRS, pairs_per_cta};

/// What nobody has written.
fn unwritten<B: Backend>(backend: &B, len: usize) -> Array<B, u32> {
    words(backend, &vec![0xdead_beef; len])
}

/// Keys and values in order, as a backend has them.
pub fn sorted<B: Backend>(
    backend: &B,
    keys: &[u32],
    values: Option<&[u32]>,
    bits: u32,
) -> (Vec<u32>, Vec<u32>) {
    let given = words(backend, keys);
    let values = values.map(|values| words(backend, values));
    let (mut first, mut second) = (
        unwritten(backend, keys.len()),
        unwritten(backend, keys.len()),
    );
    ops::sort_pairs(
        backend,
        &given,
        values.as_ref(),
        bits,
        &mut first,
        &mut second,
    )
    .expect("legal");
    assert_eq!(given.to_vec(backend).expect("no failure before"), keys);
    let read = |array: Array<B, u32>| array.to_vec(backend).expect("no failure before");
    (read(first), read(second))
}

/// The first pair of each group, and keys and values in the order of groups, as a backend has them: twice, by counts of the same room.
pub fn grouped<B: Backend>(
    backend: &B,
    groups: usize,
    keys: &[u32],
    values: &[u32],
) -> (Vec<u64>, Vec<u32>, Vec<u32>) {
    let given = [words(backend, keys), words(backend, values)];
    let mut room = GroupRoom::new(backend, keys.len(), groups).expect("room");
    let [once, again] = [(); 2].map(|()| {
        let firsts = Array::from_slice(backend, &vec![7_u64; groups + 1], KIND);
        let mut firsts = firsts.expect("room");
        let [mut first, mut second] = [(); 2].map(|()| unwritten(backend, keys.len()));
        let sorted = [&mut first, &mut second];
        ops::group_pairs(backend, given.each_ref(), &mut room, &mut firsts, sorted).expect("legal");
        let read = |array: &Array<B, u32>| array.to_vec(backend).expect("no failure before");
        let firsts = firsts.to_vec(backend).expect("no failure before");
        (firsts, read(&first), read(&second))
    });
    assert!(once == again, "{} pairs in {groups} groups", keys.len());
    once
}

fn check<B: Backend>(backend: &B, keys: &[u32], values: Option<&[u32]>, bits: u32) {
    let masked = |key: u32| (u64::from(key) & ((1 << bits) - 1)) as u32;
    let mut pairs: Vec<(u32, u32)> = (0..)
        .zip(keys)
        .map(|(at, &key)| (key, values.map_or(at, |values| values[at as usize])))
        .collect();
    pairs.sort_by_key(|&(key, _)| masked(key));
    let (keys, values) = sorted(backend, keys, values, bits);
    let actual: Vec<(u32, u32)> = keys.into_iter().zip(values).collect();
    assert!(actual == pairs, "{} pairs by {bits} bits", pairs.len());
}

/// Every number of pairs about the ends of warps and CTAs, and every number of passes: even and odd ones write the result.
pub fn every_length<B: Backend>(backend: &B, scale: Scale) {
    let tile = pairs_per_cta(1) as usize;
    for len in [0, 1, 2, 31, 32, 33, 511, 513, tile - 1, tile, tile + 1] {
        let keys = Random(7).below(300, len);
        check(backend, &keys, None, 9);
    }
    let keys: Vec<u32> = (0..700).map(|at| Random(8).bits(at)).collect();
    let values: Vec<u32> = (0..700).map(|at| Random(9).bits(at)).collect();
    for bits in [0, 1, 7, 8, 9, 16, 17, 24, 25, 31, 32] {
        check(backend, &keys, Some(&values), bits);
    }
    let len = scale.pick(3 * tile + 77, 1_000_003);
    check(backend, &Random(10).below(1 << 21, len), None, 21);
    // So many that a lane takes more.
    let many = Random(12).below(5, FEW_PAIRS as usize + 4099);
    check(backend, &many, None, 3);
}

/// Pairs of one key, of two, and in order already or the other way: all keep their order where keys are equal.
pub fn order_of_equal_keys_stays<B: Backend>(backend: &B, _: Scale) {
    let len = 2 * pairs_per_cta(1) + 300;
    check(backend, &vec![5; len as usize], None, 3);
    let two: Vec<u32> = (0..len).map(|at| at / 3 % 2 * 200).collect();
    check(backend, &two, None, 8);
    let falling: Vec<u32> = (0..len).rev().map(|at| at / 2).collect();
    check(backend, &falling, None, 13);
    let rising: Vec<u32> = (0..len).map(|at| at / 2).collect();
    check(backend, &rising, Some(&falling), 13);
}

/// Pairs in groups, as a stable sort has them, of lengths about the ends of warps: groups of none, of one, of as many as a warp has lanes and
/// more, of more long groups than CTAs take at once, and what is no pair at the end.
pub fn pairs_are_grouped<B: Backend>(backend: &B, scale: Scale) {
    let check = |groups: usize, keys: &[u32]| {
        let values: Vec<u32> = (0..keys.len() as u32).map(|at| at ^ 0x55).collect();
        let mut expected: Vec<(u32, u32)> = keys.iter().copied().zip(values.clone()).collect();
        expected.sort_by_key(|&(key, _)| key);
        let is_pair = |&(key, _): &(u32, u32)| (key as usize) < groups;
        for nothing in expected.iter_mut().filter(|it| !is_pair(it)) {
            *nothing = (u32::MAX, u32::MAX);
        }
        let first_of = |group| expected.partition_point(|&(key, _)| (key as usize) < group) as u64;
        let firsts: Vec<u64> = (0..=groups).map(first_of).collect();
        let (offsets, first, second) = grouped(backend, groups, keys, &values);
        let actual: Vec<(u32, u32)> = first.into_iter().zip(second).collect();
        let what = format!("{} pairs in {groups} groups", keys.len());
        assert!(actual == expected && offsets == firsts, "{what}");
    };
    for (groups, pairs) in [
        (0, 0),
        (1, 0),
        (1, 1),
        (1, 32),
        (1, 33),
        (3, 300),
        (700, 700),
    ] {
        check(groups, &Random(13).below(groups.max(1) as u32, pairs));
    }
    // Of 70 groups one has 0 pairs, one 1, and so on; every second number is of them.
    let rising: Vec<u32> = (0..70)
        .flat_map(|group| vec![2 * group; group as usize])
        .collect();
    let turns = (0..rising.len()).map(|at| rising[at * 1009 % rising.len()]);
    let mut keys: Vec<u32> = turns.collect();
    check(140, &keys);
    keys.extend([u32::MAX; 45]);
    check(140, &keys);
    // What is no pair stands between those that are, and has other numbers too.
    let keys: Vec<u32> = (0..500)
        .map(|at| [at % 40, u32::MAX, 40, at % 7][at as usize % 4])
        .collect();
    check(40, &keys);
    // As many long groups as take turns, and some.
    let many = scale.pick(80, 300);
    let keys: Vec<u32> = (0..40 * many).map(|at| at * 7 % many).collect();
    check(many as usize, &keys);
    // So many that they are sorted.
    if scale == Scale::Full {
        check(
            90_000,
            &Random(14).below(90_000, MOST_GROUPED_PAIRS as usize),
        );
        check(
            90_000,
            &Random(14).below(90_000, MOST_GROUPED_PAIRS as usize + 1),
        );
    }
}

/// Prefix sums of every length about the ends of CTAs: of one, of as many as add up what is before them, and of more than the second launch
/// takes at once; they wrap around.
pub fn exclusive_sums<B: Backend>(backend: &B, _: Scale) {
    let tile = ITEMS_PER_CTA as usize;
    let most = tile * MOST_ADDED as usize;
    let many = most.max(tile * THREADS_PER_CTA as usize) + tile + 5;
    for len in [0, 1, 31, 33, tile - 1, tile, tile + 1, 3 * tile, most, many] {
        let given: Vec<u32> = (0..len).map(|at| Random(11).bits(at)).collect();
        let mut sums = unwritten(backend, len);
        ops::exclusive_sum(backend, &words(backend, &given), &mut sums).expect("legal");
        let mut before = 0_u32;
        let expected: Vec<u32> = (given.iter())
            .map(|&word| {
                let sum = before;
                before = before.wrapping_add(word);
                sum
            })
            .collect();
        let sums = sums.to_vec(backend).expect("no failure before");
        assert!(sums == expected, "{len} words");
    }
}

/// What does not fit is refused, with the operand's name.
pub fn misfits_are_refused<B: Backend>(backend: &B, _: Scale) {
    let (three, four) = (words(backend, &[3, 1, 2]), words(backend, &[0; 4]));
    let (mut first, mut second) = (unwritten(backend, 3), unwritten(backend, 3));
    let mut run = |values, bits| {
        ops::sort_pairs(backend, &three, values, bits, &mut first, &mut second)
            .map_err(|error| error.to_string())
    };
    let error = run(Some(&four), 2).expect_err("a value too many");
    assert_eq!(error, "sort_pairs: values should be 3, is 4");
    let error = run(None, 33).expect_err("no such bit");
    assert_eq!(error, "sort_pairs: 33 bits; a key has 32");
    run(None, 2).expect("legal");
    let mut short = unwritten(backend, 2);
    let error = ops::sort_pairs(backend, &three, None, 2, &mut short, &mut second)
        .expect_err("too short")
        .to_string();
    assert_eq!(error, "sort_pairs: sorted keys should be 3, is 2");
    let mut firsts = Array::from_slice(backend, &[0_u64; 5], KIND).expect("room");
    let mut group = |pairs, groups| {
        let mut room = GroupRoom::new(backend, pairs, groups).expect("room");
        let sorted = [&mut first, &mut second];
        let done = ops::group_pairs(backend, [&three, &three], &mut room, &mut firsts, sorted);
        done.map_err(|error| error.to_string())
    };
    let error = group(3, 3).expect_err("a group too few");
    assert_eq!(error, "group_pairs: words of the tally should be 5, is 4");
    let error = group(2, 4).expect_err("a slot too few");
    assert_eq!(error, "group_pairs: slots should be 3, is 2");
    let error = ops::exclusive_sum(backend, &three, &mut short)
        .expect_err("too short")
        .to_string();
    assert_eq!(error, "exclusive_sum: sums should be 3, is 2");
    let empty = Array::from_slice(backend, &[], KIND).expect("nothing fits");
    ops::exclusive_sum(backend, &empty, &mut unwritten(backend, 0)).expect("nothing to do");
}
