//! Where processes meet: what they compare, who is let in, and how a meeting ends. All over loopback.

use super::common::ring::{Place, Ring, place};
use super::common::{events, refused, text};
use super::course;
use super::processes::outputs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const KEY: &str = "HALFGNN_RENDEZVOUS_KEY";

/// What ends at once may take, on a machine that does much else.
const SOON: Duration = Duration::from_secs(30);

/// An address of loopback that nothing listens at.
fn free() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

/// A process that is a rank.
fn rank(place: &Place, (rank, ranks): (usize, usize), rendezvous: &str, more: &[&str]) -> Command {
    let mut command = place.train(&[&["--rendezvous", rendezvous], more].concat());
    command
        .env("RANK", rank.to_string())
        .env("WORLD_SIZE", ranks.to_string())
        .env_remove(KEY)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// A connection to a process that has begun to listen.
fn connect(address: &str) -> TcpStream {
    let begin = Instant::now();
    loop {
        match TcpStream::connect(address) {
            Ok(stream) => return stream,
            Err(error) => assert!(begin.elapsed() < SOON, "{address}: {error}"),
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// What a process says that ends soon.
fn ended(mut child: Child) -> Output {
    let begin = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begin.elapsed() > SOON {
            child.kill().unwrap();
            panic!("it does not end");
        }
        thread::sleep(Duration::from_millis(20));
    }
    child.wait_with_output().unwrap()
}

/// Twelve kinds of stranger, all of which stay connected as long as the run goes on.
fn strangers(address: &str) -> Vec<TcpStream> {
    let old = |kind: u8, words: &str, length: u64| {
        let mut frame = b"halfgnn1".to_vec();
        frame.push(kind);
        for word in [1, words.len() as u64, length] {
            frame.extend(u64::to_le_bytes(word));
        }
        frame.extend(words.as_bytes());
        frame
    };
    let opening = [&b"halfgnn2"[..], &[7; 32]].concat();
    // What a rank might say, without a proof.
    let greeting =
        br#"{"version":"0.1.0","from":1,"to":0,"ranks":3,"name":"","port":1,"compared":[]}"#;
    let sealed = |length: u32| [&length.to_le_bytes()[..], greeting, &[0; 32]].concat();
    let said = [
        vec![],
        vec![0xa5; 5000],
        b"GET / HTTP/1.1\r\nHost: halfgnn\r\n\r\n".to_vec(),
        opening[..5].to_vec(),
        opening.clone(),
        [&opening[..], &u32::MAX.to_le_bytes()].concat(),
        [&opening[..], &sealed(greeting.len() as u32)].concat(),
        [&opening[..], &sealed(1 << 13)].concat(),
        old(0, "0.1.0", 8),
        old(0, "0.1.0", 1 << 62),
        old(1, "a stranger ends this", 0),
    ];
    let mut held: Vec<TcpStream> = said
        .iter()
        .map(|said| {
            let mut stream = connect(address);
            let _ = stream.write_all(said);
            stream
        })
        .collect();
    let closed = connect(address);
    let _ = closed.shutdown(Shutdown::Both);
    let mut dripping = connect(address);
    held.push(dripping.try_clone().unwrap());
    thread::spawn(move || {
        for byte in opening {
            if dripping.write_all(&[byte]).is_err() {
                return;
            }
            thread::sleep(Duration::from_millis(500));
        }
    });
    held
}

/// Strangers come to the port, and the ranks train to what threads train to, with and without a key.
#[test]
fn ranks_train_whichever_strangers_come() {
    let place = place(&Ring::new());
    let more = ["--model", "gin", "--epochs", "4", "--json", "-"];
    let threads = place
        .train(&[&more[..], &["--ranks", "3"]].concat())
        .output();
    let threads = course(&events(&threads.unwrap().stdout));
    for key in ["", "what all ranks share"] {
        let address = free();
        let rendezvous = format!("tcp://{address}");
        let start = |number: usize| {
            let mut command = rank(&place, (number, 3), &rendezvous, &more);
            command.env(KEY, key).spawn().unwrap()
        };
        let mut children = vec![start(0)];
        let held = strangers(&address);
        children.extend([start(1), start(2)]);
        let outputs = outputs(children);
        drop(held);
        for (number, output) in outputs.iter().enumerate() {
            let said = text(&output.stderr);
            assert!(output.status.success(), "{number}: {said}");
            assert!(!said.contains("stranger"), "{said}");
        }
        assert_eq!(course(&events(&outputs[0].stdout)), threads, "{key}");
    }
}

/// Each kind of data and option, changed for one rank. Rows of features are normalised as they are read, so a zero is
/// what differs.
#[test]
fn ranks_that_read_other_data_are_refused() {
    type Change = fn(&mut Ring);
    let nothing: Change = |_| {};
    let kinds: [(&str, Change, &[&str]); 7] = [
        ("labels", |ring| ring.labels[7] = 1, &[]),
        ("features", |ring| ring.values[7] = 0.0, &[]),
        ("edge weights", |ring| ring.weights[7] = 0.5, &[]),
        ("edges", |ring| ring.columns[7] = 20, &[]),
        ("training split", |ring| ring.train.truncate(5), &[]),
        ("validation split", |ring| ring.validation.truncate(3), &[]),
        ("training options", nothing, &["--lr", "0.02"]),
    ];
    let same = Ring {
        weights: (0..80).map(|at| 1.0 + at as f32).collect(),
        ..Ring::new()
    };
    let first = place(&same);
    for (what, change, more) in kinds {
        let mut other = Ring {
            weights: same.weights.clone(),
            ..Ring::new()
        };
        change(&mut other);
        let other = place(&other);
        let rendezvous = format!("file:{}", first.folder.path().join("meet").display());
        let common = ["--model", "gcn", "--epochs", "2"];
        let ranks = [0, 1, 2].map(|number| {
            let (place, more) = match number {
                1 => (&other, [&common[..], more].concat()),
                _ => (&first, common.to_vec()),
            };
            rank(place, (number, 3), &rendezvous, &more)
                .spawn()
                .unwrap()
        });
        let expected = format!(
            "halfgnn: rank 1 differs from ranks 0 and 2 in {what}; give all ranks the same data and options"
        );
        for output in outputs(ranks.into()) {
            assert_eq!(refused(&output, 1, &[]), expected);
        }
    }
}

/// Of a folder of parts each rank reads its own, and the manifest with the checksums of all is compared.
#[test]
fn ranks_that_read_parts_compare_their_manifests() {
    let folders = [
        Ring::new(),
        Ring {
            values: vec![0.0; 40],
            ..Ring::new()
        },
    ];
    let places = folders.map(|ring| {
        let place = place(&ring);
        let partition = [
            "dataset",
            "partition",
            "ring.npz",
            "--parts",
            "2",
            "--out",
            "ring.parts",
        ];
        let mut command = super::halfgnn(&partition);
        let output = command.current_dir(place.folder.path()).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        place
    });
    let rendezvous = format!("file:{}", places[0].folder.path().join("meet").display());
    let of = |of: [&Place; 2]| {
        let ranks = [0, 1].map(|number| {
            let parts = Place {
                folder: tempfile::tempdir().unwrap(),
                dataset: of[number].folder.path().join("ring.parts"),
            };
            rank(&parts, (number, 2), &rendezvous, &["--epochs", "1"])
                .spawn()
                .unwrap()
        });
        outputs(ranks.into())
    };
    for output in of([&places[0], &places[0]]) {
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    for output in of([&places[0], &places[1]]) {
        refused(
            &output,
            1,
            &["rank 1 differs from rank 0 in the manifest of the parts;"],
        );
    }
}

/// A rank that waits for others in vain ends in time, and says for whom it waited.
#[test]
fn ranks_that_do_not_come_are_named() {
    let place = place(&Ring::new());
    let address = free();
    let rendezvous = format!("tcp://{address}");
    let ranks = [0, 2].map(|number| {
        let more = ["--rank-timeout", "4"];
        rank(&place, (number, 4), &rendezvous, &more)
            .spawn()
            .unwrap()
    });
    // Bytes that come slowly do not make it longer.
    let mut dripping = connect(&address);
    let begin = Instant::now();
    thread::spawn(move || {
        while dripping.write_all(b"h").is_ok() {
            thread::sleep(Duration::from_millis(700));
        }
    });
    for child in ranks {
        let said = refused(&ended(child), 1, &[]);
        assert!(
            said.starts_with(&format!(
                "halfgnn: ranks 1 and 3 of 4 did not come to {rendezvous} within 4 s"
            )),
            "{said}"
        );
    }
    assert!(begin.elapsed() < SOON);
}

/// An address that other hosts reach requires a key, and one of this host is bound alone.
#[test]
fn a_port_is_as_open_as_its_address() {
    let place = place(&Ring::new());
    let address = free();
    let port = address.rsplit_once(':').unwrap().1;
    for number in [0, 1] {
        let open = format!("tcp://0.0.0.0:{port}");
        let output = rank(&place, (number, 2), &open, &[]).output().unwrap();
        refused(
            &output,
            2,
            &[
                "is no loopback address",
                "set HALFGNN_RENDEZVOUS_KEY to the same secret",
            ],
        );
    }
    let mut child = rank(&place, (0, 2), &format!("tcp://{address}"), &[])
        .spawn()
        .unwrap();
    let mut stream = connect(&address);
    // Of all addresses of loopback Linux answers at each.
    if cfg!(target_os = "linux") {
        assert!(TcpStream::connect(format!("127.0.0.2:{port}")).is_err());
        let listening = listening_at(port.parse().unwrap());
        assert_eq!(listening, ["0100007F"]);
    }
    stream.write_all(b"no rank").unwrap();
    assert!(matches!(stream.read(&mut [0]), Ok(0) | Err(_)));
    child.kill().unwrap();
    child.wait().unwrap();
}

/// The addresses, in hexadecimal, at which something listens with this port.
fn listening_at(port: u16) -> Vec<String> {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let mut addresses = Vec::new();
    for line in table.lines().skip(1) {
        let mut fields = line.split_whitespace().skip(1);
        let (local, state) = (fields.next().unwrap(), fields.nth(1).unwrap());
        let (address, its) = local.split_once(':').unwrap();
        if state == "0A" && u16::from_str_radix(its, 16) == Ok(port) {
            addresses.push(address.to_owned());
        }
    }
    addresses
}

/// Ctrl-C and SIGTERM end a rank that waits, whichever rank it is.
#[test]
fn an_interrupt_ends_a_meeting() {
    let place = place(&Ring::new());
    for signal in ["-INT", "-TERM"] {
        let address = free();
        let rendezvous = format!("tcp://{address}");
        let more = ["--rank-timeout", "600"];
        let first = rank(&place, (0, 2), &rendezvous, &more).spawn().unwrap();
        drop(connect(&address));
        interrupt(&first, signal);
        assert_eq!(ended(first).status.code(), Some(130), "{signal}");
        // Another waits for a first rank that says nothing.
        let listener = TcpListener::bind(&address).unwrap();
        let other = rank(&place, (1, 2), &rendezvous, &more).spawn().unwrap();
        let _silent = listener.accept().unwrap();
        interrupt(&other, signal);
        assert_eq!(ended(other).status.code(), Some(130), "{signal}");
    }
}

/// Processes that the program starts meet on loopback, by a secret of their own: nothing of it is left behind.
#[test]
fn devices_meet_without_a_key_of_the_user() {
    let place = place(&Ring::new());
    let folder = tempfile::tempdir().unwrap();
    let run = |key: Option<&str>| {
        let mut command = place.train(&["--devices", "0,1", "--epochs", "1"]);
        command.env_remove(KEY).env("TMPDIR", folder.path());
        command.envs(key.map(|key| (KEY, key)));
        command.output().unwrap()
    };
    for key in [None, Some("of the user")] {
        let output = run(key);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(is_empty(folder.path()));
    }
}

/// An interrupt that only the process reaches that started the others ends all of them, with what there is to keep.
#[test]
fn an_interrupt_of_the_first_process_ends_those_that_it_started() {
    let place = place(&Ring::new());
    let more = [
        "--devices",
        "0,1",
        "--epochs",
        "1000000",
        "--save",
        "kept",
        "--save-every",
        "1",
    ];
    let mut command = place.train(&more);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let begin = Instant::now();
    while !place.folder.path().join("kept").exists() {
        assert!(begin.elapsed() < Duration::from_secs(60));
        thread::sleep(Duration::from_millis(20));
    }
    interrupt(&child, "-TERM");
    let output = ended(child);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(super::weights(&place, "kept").0 > 0);
}

fn interrupt(child: &Child, signal: &str) {
    let id = child.id().to_string();
    let status = Command::new("kill").args([signal, &id]).status().unwrap();
    assert!(status.success());
}

fn is_empty(folder: &Path) -> bool {
    folder.read_dir().unwrap().next().is_none()
}
