//! Streams of every protocol, whole and broken.

use proptest::prelude::*;

use super::*;

fn ints(pickle: &Pickle<'_>, value: Value) -> Vec<u64> {
    pickle
        .items(value)
        .unwrap()
        .iter()
        .map(|&item| pickle.whole(item).unwrap())
        .collect()
}

/// `pickle.dumps(collections.defaultdict(list, {0: [1], 1: [0, 300], 70000: []}), protocol)`.
const DICTIONARIES: [&[u8]; 3] = [
    b"ccollections\ndefaultdict\np0\n(c__builtin__\nlist\np1\ntp2\nRp3\nI0\n(lp4\nI1\nasI1\n(lp5\nI0\naL300L\nasI70000\n(lp6\ns.",
    b"\x80\x02ccollections\ndefaultdict\nq\x00c__builtin__\nlist\nq\x01\x85q\x02Rq\x03(K\x00]q\x04K\x01aK\x01]q\x05(K\x00M,\x01eJp\x11\x01\x00]q\x06u.",
    b"\x80\x04\x95R\x00\x00\x00\x00\x00\x00\x00\x8c\x0bcollections\x94\x8c\x0bdefaultdict\x94\x93\x94\x8c\x08builtins\x94\x8c\x04list\x94\x93\x94\x85\x94R\x94(K\x00]\x94K\x01aK\x01]\x94(K\x00M,\x01eJp\x11\x01\x00]\x94u.",
];

#[test]
fn dictionaries_of_lists_in_every_protocol() {
    for bytes in DICTIONARIES {
        let pickle = Pickle::read(bytes).unwrap();
        let pairs = pickle.pairs(pickle.root()).unwrap();
        let keys: Vec<_> = pairs
            .iter()
            .map(|&(key, _)| pickle.whole(key).unwrap())
            .collect();
        assert_eq!(keys, [0, 1, 70_000]);
        let lists: Vec<_> = pairs.iter().map(|&(_, list)| ints(&pickle, list)).collect();
        assert_eq!(lists, [vec![1], vec![0, 300], vec![]]);
    }
}

#[test]
fn numbers_of_every_kind() {
    let root = |bytes: &[u8]| Pickle::read(bytes).unwrap().root();
    assert_eq!(root(b"I-7\n."), Value::Int(-7));
    assert_eq!(root(b"I01\n."), Value::Bool(true));
    assert_eq!(root(b"F0.5\n."), Value::Float(0.5));
    assert_eq!(root(b"G\x3f\xe0\0\0\0\0\0\0."), Value::Float(0.5));
    assert_eq!(root(b"\x8a\x00."), Value::Int(0));
    assert_eq!(root(b"\x8a\x02\x00\xff."), Value::Int(-256));
    assert_eq!(root(b"J\xff\xff\xff\xff."), Value::Int(-1));
    assert_eq!(root(b"N."), Value::None);
}

#[test]
fn strings_of_protocol_0() {
    assert_eq!(unquoted(r"'a\n\x00\xfF\'\\'").unwrap(), b"a\n\x00\xff'\\");
    assert_eq!(unquoted("\"it's\"").unwrap(), b"it's");
    for broken in ["'", "a", r"'\'", r"'\x1'", r"'\q'"] {
        assert!(unquoted(broken).is_err(), "{broken}");
    }
}

#[test]
fn streams_that_are_refused() {
    for (bytes, reason) in [
        (&b""[..], "it ends in the middle"),
        (b"K", "it ends in the middle (at byte 0)"),
        (b".", "a value is missing"),
        (b"(.", "a value is missing"),
        (b"K\x01(0.", "a value is missing (at byte 3)"),
        (b"t.", "a mark is missing (at byte 0)"),
        (
            b"T\xff\xff\xff\xffabc.",
            "it ends in the middle (at byte 0)",
        ),
        (
            b"\x8e\xff\xff\xff\xff\xff\xff\xff\xffabc.",
            "it ends in the middle (at byte 0)",
        ),
        (b"h\x07.", "value 7 was never put aside (at byte 0)"),
        (
            b"K\x01K\x02a.",
            "something is appended to what is no list (at byte 4)",
        ),
        (b"}(K\x01u.", "a key has no value (at byte 4)"),
        (b"]}b.", "a state is given to what is no object (at byte 2)"),
        (
            b"\x8a\x09123456789.",
            "a number has 9 bytes, more than 8 (at byte 0)",
        ),
        (
            b"cos\nsystem\nP1\n.",
            "opcode 0x50 stands for more than arrays, lists and dictionaries (at byte 11)",
        ),
        (b"Iseven\n.", "'seven' is no number (at byte 0)"),
    ] {
        assert_eq!(Pickle::read(bytes).unwrap_err(), reason, "{bytes:?}");
    }
    // A call is remembered, and not made.
    let pickle = Pickle::read(b"cos\nsystem\nU\x04true\x85R.").unwrap();
    assert!(
        pickle
            .array(pickle.root())
            .unwrap_err()
            .starts_with("it is no array")
    );
    assert!(pickle.pairs(pickle.root()).is_none() && pickle.items(pickle.root()).is_none());
}

#[test]
fn lists_in_themselves_and_in_each_other_are_no_trouble() {
    let mut bytes = b"]q\x00h\x00a".to_vec();
    bytes.extend(b"(h\x00h\x00lq\x00".repeat(1000));
    bytes.push(b'.');
    assert!(Pickle::read(&bytes).is_ok());
    let nested = [b"]".repeat(100_000), b"a".repeat(99_999), b".".to_vec()].concat();
    assert!(Pickle::read(&nested).is_ok());
}

proptest! {
    #[test]
    fn a_stream_cut_or_changed_never_panics(which in 0..3_usize, at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = DICTIONARIES[which].to_vec();
        let at = at.index(bytes.len());
        prop_assert!(Pickle::read(&bytes[..at]).is_err());
        bytes[at] = byte;
        if let Ok(pickle) = Pickle::read(&bytes) {
            let _ = (pickle.pairs(pickle.root()), pickle.array(pickle.root()));
        }
    }
}
