//! Meetings to which strangers come and ranks do not, all over loopback.

use super::greeting::testing::{opened, opening, sealed};
use super::greeting::{Arrival, Greeting, Received};
use super::rendezvous::Key;
use super::{Compared, Digest, Group, Member, Rendezvous, Tcp};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// How long a test may wait for what comes at once, on a busy machine.
const SOON: Duration = Duration::from_secs(30);

/// A loopback port at which nothing listens, and a rendezvous there.
fn free() -> (String, Rendezvous) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (address.clone(), Rendezvous::Tcp(address))
}

fn key() -> Key {
    Key::new("what all ranks share")
}

fn member(rank: usize, ranks: usize, timeout: Duration) -> Member<'static> {
    Member {
        key: Some(key()),
        ..Member::new(rank, ranks, "CPU", timeout)
    }
}

/// Meets on a thread, and sums the numbers of the ranks.
fn start(rendezvous: &Rendezvous, member: Member<'static>) -> Receiver<Result<Vec<f32>, String>> {
    let (sender, result) = channel();
    let rendezvous = rendezvous.clone();
    thread::spawn(move || {
        let met = Tcp::meet(&rendezvous, &member);
        let sum = met.and_then(|tcp| Group::new(tcp).sum_numbers("ranks", &[member.rank as f32]));
        let _ = sender.send(sum.map_err(|error| error.to_string()));
    });
    result
}

fn result(of: &Receiver<Result<Vec<f32>, String>>) -> Result<Vec<f32>, String> {
    of.recv_timeout(SOON).expect("a meeting ends")
}

/// A connection to a rank that has begun to listen.
fn connect(address: &str) -> TcpStream {
    let begin = Instant::now();
    loop {
        match TcpStream::connect(address) {
            Ok(stream) => {
                stream.set_read_timeout(Some(SOON)).unwrap();
                return stream;
            }
            Err(error) => assert!(begin.elapsed() < SOON, "{address}: {error}"),
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until the other side ends the connection.
fn expect_end(stream: &mut TcpStream, kind: &str) {
    let mut rest = Vec::new();
    // A connection that is reset has ended as well.
    let ended = stream.read_to_end(&mut rest);
    let waits = ended.is_err_and(|error| {
        use std::io::ErrorKind::{TimedOut, WouldBlock};
        matches!(error.kind(), TimedOut | WouldBlock)
    });
    assert!(!waits, "{kind} is not dropped");
}

/// The greeting of a process that is rank `from` of three.
fn greeting(from: usize) -> Greeting {
    Greeting {
        version: env!("CARGO_PKG_VERSION").into(),
        from,
        to: 0,
        ranks: 3,
        name: "a stranger".into(),
        port: 1,
        compared: Vec::new(),
    }
}

/// The frame with which version 1 of the protocol greeted or aborted, with a given length.
fn old_frame(kind: u8, words: &str, length: u64) -> Vec<u8> {
    let mut frame = b"halfgnn1".to_vec();
    frame.push(kind);
    for word in [1, words.len() as u64, length] {
        frame.extend(u64::to_le_bytes(word));
    }
    frame.extend(words.as_bytes());
    frame
}

/// The name of each stranger, and whether it is dropped at once. The others stay connected as long as they are held.
const STRANGERS: [(&str, bool); 16] = [
    ("garbage", true),
    ("HTTP", true),
    ("connect and close", true),
    ("silence", false),
    ("half a magic", false),
    ("half an opening, then the end", true),
    ("half a greeting", false),
    ("another version", true),
    ("another number of ranks", true),
    ("a rank that there is not", true),
    ("a replayed greeting", true),
    ("another key", true),
    ("a length that is too long", true),
    ("a slow drip", false),
    ("an abort in words", true),
    ("a hello of the old protocol", true),
];

/// Greets like a process with this key.
fn greet(stream: &mut TcpStream, key: &Key, greeting: &Greeting) {
    if let Ok(listener) = opened(stream) {
        let _ = stream.write_all(&sealed(key, listener, greeting));
    }
}

/// Acts like a stranger of this kind; returns the connection.
fn come(kind: &str, address: &str) -> TcpStream {
    let mut stream = connect(address);
    // The write may fail, because a stranger may be dropped while it writes.
    let say = |mut stream: &TcpStream, bytes: &[u8]| drop(stream.write_all(bytes));
    match kind {
        "garbage" => say(&stream, &[0xa5; 5000]),
        "HTTP" => say(&stream, b"GET / HTTP/1.1\r\nHost: halfgnn\r\n\r\n"),
        "connect and close" => drop(stream.shutdown(std::net::Shutdown::Both)),
        "silence" => {}
        "half a magic" => say(&stream, &opening()[..5]),
        "half an opening, then the end" => {
            say(&stream, &opening()[..20]);
            let _ = stream.shutdown(std::net::Shutdown::Write);
        }
        "half a greeting" => {
            if let Ok(listener) = opened(&mut stream) {
                let all = sealed(&key(), listener, &greeting(2));
                let _ = stream.write_all(&all[..all.len() / 2]);
            }
        }
        "another version" => {
            let version = "0.0.7".into();
            let greeting = Greeting {
                version,
                ..greeting(2)
            };
            greet(&mut stream, &key(), &greeting);
        }
        "another number of ranks" => {
            let greeting = Greeting {
                ranks: 4,
                ..greeting(2)
            };
            greet(&mut stream, &key(), &greeting);
        }
        "a rank that there is not" => greet(&mut stream, &key(), &greeting(usize::MAX)),
        "a replayed greeting" => {
            // It is sealed for another connection.
            let _ = opened(&mut stream);
            let _ = stream.write_all(&sealed(&key(), [3; 32], &greeting(2)));
        }
        "another key" => greet(&mut stream, &Key::new("a guess"), &greeting(2)),
        "a length that is too long" => {
            let _ = opened(&mut stream);
            let _ = stream.write_all(&u32::MAX.to_le_bytes());
        }
        "a slow drip" => {
            let mut dripping = stream.try_clone().unwrap();
            thread::spawn(move || {
                for byte in opening() {
                    if dripping.write_all(&[byte]).is_err() {
                        return;
                    }
                    thread::sleep(Duration::from_millis(300));
                }
            });
        }
        "an abort in words" => say(&stream, &old_frame(1, "a stranger ends this", 0)),
        "a hello of the old protocol" => say(&stream, &old_frame(0, "0.1.0", 1 << 62)),
        _ => unreachable!("{kind}"),
    }
    stream
}

/// Strangers come before ranks 1 and 2. All three ranks meet, and nothing that a stranger sent reaches them. Of two
/// processes that are rank 1 the second is a stranger as well.
fn meets_in_spite_of(kinds: &[(&str, bool)]) {
    let (address, rendezvous) = free();
    let zero = start(&rendezvous, member(0, 3, SOON));
    let mut held = Vec::new();
    for (kind, is_dropped) in kinds {
        let mut stream = come(kind, &address);
        if *is_dropped {
            expect_end(&mut stream, kind);
        }
        held.push(stream);
    }
    let ones = [0, 1].map(|_| start(&rendezvous, member(1, 3, SOON)));
    let begin = Instant::now();
    let refused = loop {
        assert!(begin.elapsed() < SOON, "{kinds:?}");
        if let Some(at) = ones
            .iter()
            .position(|one| one.try_recv().is_ok_and(is_second))
        {
            break at;
        }
        thread::sleep(Duration::from_millis(5));
    };
    let two = start(&rendezvous, member(2, 3, SOON));
    for rank in [&zero, &ones[1 - refused], &two] {
        assert_eq!(result(rank), Ok(vec![3.0]), "{kinds:?}");
    }
}

fn is_second(result: Result<Vec<f32>, String>) -> bool {
    assert_eq!(
        result,
        Err(
            "rank 1 of 3: another process is rank 1 already; give each process a rank of its own"
                .into()
        )
    );
    true
}

#[test]
fn ranks_meet_whichever_stranger_comes() {
    for kind in STRANGERS {
        meets_in_spite_of(&[kind]);
    }
}

#[test]
fn ranks_meet_though_all_strangers_come_at_once() {
    let silent = [("silence", false); 300];
    meets_in_spite_of(&[&STRANGERS[..], &silent].concat());
}

/// One deadline covers the whole greeting, however many bytes come and however slowly.
#[test]
fn a_greeting_has_one_deadline_and_a_bound() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let connected = |by| {
        let caller = TcpStream::connect(address).unwrap();
        caller.set_read_timeout(Some(SOON)).unwrap();
        let (stream, from) = listener.accept().unwrap();
        let by = Instant::now() + by;
        (caller, Arrival::new(stream, from, by).unwrap())
    };
    let (mut caller, mut arrival) = connected(Duration::from_millis(400));
    let begin = Instant::now();
    let mut bytes = opening().into_iter();
    let why = loop {
        caller.write_all(&[bytes.next().unwrap()]).unwrap();
        thread::sleep(Duration::from_millis(50));
        arrival = match arrival.receive(&key()) {
            Received::Incomplete(arrival) => arrival,
            Received::Dropped(why) => break why,
            Received::Greeting(..) => unreachable!("it never greets"),
        };
    };
    assert_eq!(why, "it did not greet in time");
    assert!(begin.elapsed() >= Duration::from_millis(400));
    // The length is refused before anything after it is read.
    let (mut caller, mut arrival) = connected(SOON);
    let receive = |arrival: Arrival| match arrival.receive(&key()) {
        Received::Incomplete(arrival) => Ok(arrival),
        Received::Dropped(why) => Err(why),
        Received::Greeting(..) => unreachable!("it never greets"),
    };
    caller.write_all(&opening()).unwrap();
    let begin = Instant::now();
    caller.set_nonblocking(true).unwrap();
    while caller.peek(&mut [0]).is_err() {
        assert!(begin.elapsed() < SOON);
        arrival = receive(arrival).unwrap();
    }
    caller.set_nonblocking(false).unwrap();
    caller.write_all(&(1_u32 << 20).to_le_bytes()).unwrap();
    let why = loop {
        assert!(begin.elapsed() < SOON);
        match receive(arrival) {
            Ok(more) => arrival = more,
            Err(why) => break why,
        }
    };
    assert_eq!(why, "its greeting is too long");
}

/// What answers is not the first rank: it is silent, drips, sends garbage or too large a length, or does not listen.
#[test]
fn a_rank_ends_in_time_whatever_answers() {
    let timeout = Duration::from_millis(1500);
    for (kind, said) in [
        ("nothing", "rank 0 could not be reached at tcp://127.0.0.1:"),
        ("silence", "did not greet as rank 0 of halfgnn"),
        ("drip", "did not greet as rank 0 of halfgnn"),
        ("garbage", "did not greet as rank 0 of halfgnn"),
        ("length", "give all ranks the same HALFGNN_RENDEZVOUS_KEY"),
    ] {
        let (address, rendezvous) = free();
        let listener = (kind != "nothing").then(|| TcpListener::bind(&address).unwrap());
        thread::spawn(move || {
            let listener = listener?;
            let mut held = Vec::new();
            for stream in listener.incoming() {
                let mut stream = stream.ok()?;
                held.push(stream.try_clone().ok()?);
                thread::spawn(move || {
                    match kind {
                        "drip" => {
                            for byte in opening() {
                                stream.write_all(&[byte]).ok()?;
                                thread::sleep(Duration::from_millis(200));
                            }
                        }
                        "garbage" => stream.write_all(&[1; 100]).ok()?,
                        "length" => {
                            stream.write_all(&opening()).ok()?;
                            stream.write_all(&u32::MAX.to_le_bytes()).ok()?;
                        }
                        _ => {}
                    }
                    Some(())
                });
            }
            Some(())
        });
        let begin = Instant::now();
        let reason = result(&start(&rendezvous, member(1, 2, timeout))).unwrap_err();
        assert!(
            reason.starts_with("rank 1 of 2: ")
                && reason.contains(said)
                && !reason.contains("os error 11)"),
            "{kind}: {reason}"
        );
        assert!(
            begin.elapsed() < timeout + Duration::from_secs(10),
            "{kind}"
        );
    }
}

/// All ranks that came name those that did not, and what came instead.
#[test]
fn ranks_that_are_missing_are_named() {
    let timeout = Duration::from_millis(1200);
    let (address, rendezvous) = free();
    let zero = start(&rendezvous, member(0, 4, timeout));
    let one = start(&rendezvous, member(1, 4, timeout));
    let stranger = thread::spawn(move || come("another key", &address));
    let reasons = [&zero, &one].map(|rank| result(rank).unwrap_err());
    assert_eq!(reasons[0], reasons[1]);
    let begin = format!("ranks 2 and 3 of 4 did not come to {rendezvous} within 1.2 s");
    assert!(
        reasons[0].starts_with(&begin)
            && reasons[0].contains("another HALFGNN_RENDEZVOUS_KEY")
            && reasons[0].contains("start all ranks"),
        "{}",
        reasons[0]
    );
    stranger.join().unwrap();
    // A rank that came and ended is missing.
    let (address, rendezvous) = free();
    let zero = start(&rendezvous, member(0, 3, timeout));
    drop(connect(&address));
    let mut left = connect(&address);
    let listener = opened(&mut left).unwrap();
    left.write_all(&sealed(&key(), listener, &greeting(2)))
        .unwrap();
    left.read_exact(&mut [0; 4]).unwrap();
    drop(left);
    let reason = result(&zero).unwrap_err();
    assert!(
        reason.starts_with("ranks 1 and 2 of 3 did not come")
            && reason.contains("rank 2 came and left"),
        "{reason}"
    );
    // Rank 0 gives up where no other rank comes.
    let (_, rendezvous) = free();
    let alone = result(&start(
        &rendezvous,
        member(0, 2, Duration::from_millis(200)),
    ))
    .unwrap_err();
    assert!(
        alone.starts_with("rank 1 of 2 did not come to tcp://127.0.0.1:"),
        "{alone}"
    );
}

/// Ranks with different keys do not meet, and both sides report it.
#[test]
fn ranks_of_another_key_do_not_meet() {
    let timeout = Duration::from_millis(1500);
    for theirs in [Some(Key::new("another")), None] {
        let (_, rendezvous) = free();
        let zero = start(&rendezvous, member(0, 2, 2 * timeout));
        let other = Member {
            key: theirs,
            ..member(1, 2, timeout)
        };
        let one = start(&rendezvous, other);
        let reason = result(&one).unwrap_err();
        assert!(
            reason.contains("did not accept the greeting within 1.5 s; give all ranks the same HALFGNN_RENDEZVOUS_KEY"),
            "{reason}"
        );
        let reason = result(&zero).unwrap_err();
        assert!(
            reason.starts_with("rank 1 of 2 did not come")
                && reason.contains("from 127.0.0.1: it has another HALFGNN_RENDEZVOUS_KEY"),
            "{reason}"
        );
    }
    // A refusal that proves the key counts at once.
    let (_, rendezvous) = free();
    let zero = start(&rendezvous, member(0, 2, Duration::from_secs(4)));
    let begin = Instant::now();
    let reason = result(&start(&rendezvous, member(1, 3, SOON))).unwrap_err();
    assert_eq!(
        reason,
        "rank 1 of 3: rank 1 was started as one of 3 ranks, and rank 0 as one of 2; give all the same number"
    );
    assert!(begin.elapsed() < SOON / 2);
    assert!(result(&zero).unwrap_err().contains("one of 3 ranks"));
    // Loopback requires no key.
    let (_, rendezvous) = free();
    let bare = |rank| Member {
        key: None,
        ..member(rank, 2, SOON)
    };
    let ranks = [0, 1].map(|rank| start(&rendezvous, bare(rank)));
    assert_eq!(
        ranks.map(|rank| result(&rank)),
        [Ok(vec![1.0]), Ok(vec![1.0])]
    );
}

/// Ranks compare inputs before anything is exchanged, and all report the same differences.
#[test]
fn ranks_that_work_on_other_things_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let rendezvous = Rendezvous::Local(folder.path().join("meet"));
    let ranks = [0, 1, 2, 3].map(|rank| {
        let values: [u8; 2] = [u8::from(rank == 2), u8::from(rank >= 2)];
        let of = |what, value: u8| Compared::new(what, Digest::of(&[value]));
        let compared = vec![of("features", values[0]), of("labels", values[1])];
        start(&rendezvous, member(rank, 4, SOON).comparing(compared))
    });
    for rank in &ranks {
        assert_eq!(
            result(rank).unwrap_err(),
            "rank 2 differs from ranks 0, 1 and 3 in features, ranks 2 and 3 differ from ranks 0 and 1 in labels; give all ranks the same \
             data and options"
        );
    }
}
