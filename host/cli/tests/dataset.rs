//! `halfgnn dataset` as a person runs it.

mod common;

use common::{events, halfgnn, on_a_full_disk, refused, text};
use serde_json::Value;
use std::path::Path;
use std::process::Output;
use tempfile::TempDir;

/// Runs in a folder, with `HALFGNN_DATA` naming its folder `data`.
fn run(folder: &TempDir, arguments: &[&str]) -> Output {
    halfgnn(arguments)
        .current_dir(folder.path())
        .env("HALFGNN_DATA", folder.path().join("data"))
        .output()
        .unwrap()
}

fn succeeded(folder: &TempDir, arguments: &[&str]) -> Output {
    let output = run(folder, arguments);
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        text(&output.stderr)
    );
    output
}

/// The `dataset` event of `dataset info`.
fn info(folder: &TempDir, arguments: &[&str]) -> Value {
    let arguments = [&["dataset", "info", "--json", "-"], arguments].concat();
    let mut events = events(&succeeded(folder, &arguments).stdout);
    assert_eq!(
        (events.len(), &events[0]["event"]),
        (1, &Value::from("dataset"))
    );
    events.remove(0)
}

fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("data")).unwrap();
    folder
}

fn files(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_graph_goes_through_every_format_and_comes_back() {
    let folder = folder();
    let chain = [
        "a.csr", "b.txt.gz", "c.mtx", "d.npz", "e.txt", "f.mtx.gz", "g.csr",
    ];
    succeeded(
        &folder,
        &[
            "dataset",
            "generate",
            "kron:8",
            chain[0],
            "--data-seed",
            "5",
        ],
    );
    for pair in chain.windows(2) {
        let output = succeeded(
            &folder,
            &["dataset", "convert", pair[0], pair[1], "--json", "-"],
        );
        let written = &events(&output.stdout)[0];
        assert_eq!(
            (&written["vertices"], &written["edges"]),
            (&256.into(), &8192.into()),
            "{written}"
        );
        assert_eq!(written["labelled"], false);
    }
    let bytes = |name| std::fs::read(folder.path().join(name)).unwrap();
    assert_eq!(bytes("a.csr"), bytes("g.csr"));
    // Nothing but what was asked for is left.
    let mut expected = chain.to_vec();
    expected.push("data");
    expected.sort();
    assert_eq!(files(folder.path()), expected);
}

#[test]
fn tiles_of_bits_are_written_and_read_and_say_what_they_leave_out() {
    let folder = folder();
    // The second edge occurs again.
    let edges = "0 1\n0 2\n0 2\n2 0\n4 3\n";
    std::fs::write(folder.path().join("edges.txt"), edges).unwrap();
    for (source, left_out) in [
        ("edges.txt", &["edges that occur again"][..]),
        ("blocks:200", &[]),
        ("data/star.npz", &["features", "labels"]),
    ] {
        if source == "data/star.npz" {
            succeeded(&folder, &["dataset", "generate", "star:2x30", source]);
        }
        // By its name, and as what is said.
        for arguments in [&["x.frdc"][..], &["y", "--to", "frdc"]] {
            let conversion = ["dataset", "convert", source, "--json", "-"];
            let output = succeeded(&folder, &[&conversion, arguments].concat());
            let written = &events(&output.stdout)[0];
            assert_eq!(
                (&written["format"], &written["left_out"]),
                (&"frdc".into(), &left_out.into()),
                "{written}"
            );
            // What is in the file, so without those that occur again.
            let [whole, tiled] = [source, arguments[0]].map(|name| info(&folder, &[name]));
            assert_eq!(written["edges"], tiled["edges"]);
            let again = whole["duplicate_edges"].as_u64().unwrap();
            let edges = whole["edges"].as_u64().unwrap() - again;
            assert_eq!(tiled["edges"], edges);
            assert_eq!(
                (
                    &tiled["vertices"],
                    &tiled["duplicate_edges"],
                    &tiled["tiles"]
                ),
                (&whole["vertices"], &0.into(), &whole["tiles"])
            );
            assert!(tiled["labels"].is_null());
        }
    }
    let output = succeeded(&folder, &["dataset", "convert", "edges.txt", "x.frdc"]);
    let told =
        "5 vertices, 4 edges, without edges that occur again, which the format has no place for";
    assert!(text(&output.stdout).contains(told), "{output:?}");
    let page = succeeded(&folder, &["dataset", "info", "x.frdc"]);
    assert!(text(&page.stdout).contains("as FRDC, 4 x 4 tiles of bits"));
    // Wherever a graph is read.
    let bench = [
        "bench",
        "spmm",
        "--graph",
        "x.frdc",
        "--device",
        "cpu",
        "--features",
        "8",
    ];
    succeeded(&folder, &[&bench[..], &["--runs", "1"]].concat());
    refused(
        &run(&folder, &["train", "--dataset", "x.frdc"]),
        2,
        &["x.frdc: is FRDC", "a graph without features and labels"],
    );
    // And back again, whole or as a stream.
    succeeded(
        &folder,
        &[
            "dataset",
            "convert",
            "x.frdc",
            "back.frdc",
            "--memory",
            "1GiB",
        ],
    );
    let bytes = |name| std::fs::read(folder.path().join(name)).unwrap();
    assert_eq!(bytes("x.frdc"), bytes("back.frdc"));
    // A file that is cut, or is another's.
    let whole = bytes("x.frdc");
    let write = |bytes: &[u8]| std::fs::write(folder.path().join("cut.frdc"), bytes).unwrap();
    write(&whole[..whole.len() - 1]);
    for arguments in [
        &["dataset", "info", "cut.frdc"][..],
        &["dataset", "convert", "cut.frdc", "out.csr"],
        &["bench", "spmm", "--graph", "cut.frdc", "--device", "cpu"],
    ] {
        let words = [
            "cut.frdc: FRDC: the header promises ",
            "fetch or write the file again",
        ];
        refused(&run(&folder, arguments), 2, &words);
    }
    write(&whole[..20]);
    let info = ["dataset", "info", "cut.frdc"];
    refused(
        &run(&folder, &info),
        2,
        &["cut.frdc: as FRDC: it is 20 bytes"],
    );
    write(&[b"HGNNPART", &whole[8..]].concat());
    refused(
        &run(&folder, &info),
        2,
        &["cut.frdc: is in no format that is known"],
    );
    let forced = [&info[..], &["--format", "frdc"]].concat();
    refused(
        &run(&folder, &forced),
        2,
        &["cut.frdc: as FRDC: magic: it is not HGNNFRDC"],
    );
    let mut other = whole.clone();
    other[8] = 9;
    write(&other);
    refused(
        &run(&folder, &info),
        2,
        &["version: it is 9, and this build reads 1"],
    );
    assert_eq!(
        files(folder.path()),
        ["back.frdc", "cut.frdc", "data", "edges.txt", "x.frdc", "y"]
    );
}

#[test]
fn a_dataset_is_written_and_looked_at() {
    let folder = folder();
    succeeded(
        &folder,
        &["dataset", "generate", "star:2x3000", "data/star.npz"],
    );
    let told = info(&folder, &["star"]);
    assert_eq!(told["vertices"], 6003);
    assert_eq!(
        (
            &told["symmetric"],
            &told["self_loops"],
            &told["duplicate_edges"]
        ),
        (&true.into(), &0.into(), &0.into())
    );
    assert_eq!(told["degree_quantiles"][4]["degree"], 3001);
    let histogram: Vec<u64> = told["degree_histogram"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rows| rows.as_u64().unwrap())
        .collect();
    assert_eq!(
        (histogram.iter().sum::<u64>(), histogram[1], histogram[12]),
        (6003, 6000, 2)
    );
    assert_eq!(
        (&told["labels"]["features"], &told["labels"]["classes"]),
        (&64.into(), &2.into())
    );
    assert_eq!(told["labels"]["train"], 200);
    assert_eq!(
        (
            &told["half"]["rows_past_2048"],
            &told["half"]["largest_degree"]
        ),
        (&2.into(), &3001.into())
    );
    assert!(told["half"]["rows_at_risk"].as_u64().unwrap() >= 2);
    // The same from the recipe, and other splits and edges on request.
    let mut made = info(&folder, &["star:2x3000"]);
    made["name"] = "star".into();
    // A recipe makes its splits, and the file has them.
    assert_eq!(made["labels"]["file_splits"].take(), 0);
    made["labels"]["file_splits"] = 1.into();
    assert_eq!(made, told);
    let split = info(
        &folder,
        &["star", "--split", "fractions:0.5,0.25", "--self-loops"],
    );
    let train = split["labels"]["train"].as_u64().unwrap();
    assert_eq!((train, &split["self_loops"]), (3002, &6003.into()));
    let page = text(&succeeded(&folder, &["dataset", "info", "star"]).stdout).to_string();
    for words in [
        "vertices",
        "6,003",
        "in 2 rows of more than 2,048 edges",
        "degree 2048–4095",
    ] {
        assert!(page.contains(words), "`{words}` is not in: {page}");
    }
    // A graph of it leaves features out, and says so.
    let output = succeeded(&folder, &["dataset", "convert", "star", "star.txt"]);
    assert!(text(&output.stdout).contains("without features and labels"));
    assert!(info(&folder, &["star.txt"])["labels"].is_null());
}

#[test]
fn training_takes_what_info_takes() {
    let folder = folder();
    succeeded(
        &folder,
        &["dataset", "generate", "grid:60x60", "data/grid.npz"],
    );
    let train = ["train", "--device", "cpu", "--epochs", "2", "--json", "-"];
    for source in [
        &["--dataset", "grid"][..],
        &["--dataset", "grid:60x60"],
        &["--dataset", "data/grid.npz", "--split", "public:5,50,100"],
    ] {
        let output = succeeded(&folder, &[&train, source].concat());
        assert_eq!(events(&output.stdout)[0]["vertices"], 3600);
    }
    refused(
        &run(&folder, &["train", "--dataset", "reddit"]),
        2,
        &[
            "reddit: there is no such file",
            "dataset download reddit --print",
        ],
    );
    std::fs::write(folder.path().join("data/edges.txt"), "0 1\n").unwrap();
    refused(
        &run(&folder, &["train", "--dataset", "edges"]),
        2,
        &[
            "data/edges.txt",
            "without features and labels",
            "gnn-benchmark",
        ],
    );
}

#[test]
fn broken_input_is_told_in_one_line_and_leaves_nothing() {
    let folder = folder();
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
    write("edges.txt", b"0 1\n1 two\n");
    write(
        "matrix.mtx",
        b"%%MatrixMarket matrix array real general\n2 2\n1\n2\n3\n4\n",
    );
    write("empty.npz", b"");
    write("odd.bin", b"\x00\x01\x02");
    write("people.txt", b"alice bob\nbob\tcarol\n");
    write("people.csv", b"from,to\nalice,bob\n");
    for (file, words) in [
        (
            "edges.txt",
            "line 2: 'two' is no vertex id, a whole number from 0; if vertices have names, number them first",
        ),
        (
            "people.txt",
            "'alice' is none; ids of any kind go into tables",
        ),
        ("people.csv", "ids must be whole numbers from 0"),
        ("matrix.mtx", "line 1: the layout is 'array'"),
        ("empty.npz", "the file is empty"),
        ("odd.bin", "in no format that is known"),
        ("none.txt", "there is no such file"),
    ] {
        refused(&run(&folder, &["dataset", "info", file]), 2, &[file, words]);
        refused(
            &run(&folder, &["dataset", "convert", file, "out.csr"]),
            2,
            &[file, words],
        );
    }
    refused(
        &run(
            &folder,
            &["dataset", "info", "edges.txt", "--format", "raw-csr"],
        ),
        2,
        &["edges.txt"],
    );
    refused(
        &run(&folder, &["dataset", "convert", "edges.txt", "out.pdf"]),
        2,
        &["out.pdf", "--to"],
    );
    refused(
        &run(
            &folder,
            &["dataset", "convert", "edges.txt", "none/out.csr"],
        ),
        2,
        &["none/out.csr", "cannot be written"],
    );
    refused(
        &run(
            &folder,
            &["dataset", "convert", "edges.txt", "data", "--to", "raw-csr"],
        ),
        2,
        &["data", "it is a folder"],
    );
    refused(
        &run(&folder, &["dataset", "download", "karate", "--print"]),
        2,
        &["'karate' is not known", "cora"],
    );
    write("good.txt", b"0 1\n");
    refused(
        &run(
            &folder,
            &[
                "dataset",
                "convert",
                "good.txt",
                "out.npz",
                "--to",
                "gnn-benchmark",
            ],
        ),
        2,
        &["out.npz", "cannot hold a graph without features"],
    );
    assert_eq!(
        files(folder.path()),
        [
            "data",
            "edges.txt",
            "empty.npz",
            "good.txt",
            "matrix.mtx",
            "odd.bin",
            "people.csv",
            "people.txt"
        ]
    );
}

/// A graph of 8 M edges, which take 64 MiB where they are sorted at a time.
#[cfg(target_os = "linux")]
fn large(folder: &TempDir) {
    succeeded(folder, &["dataset", "generate", "kron:18", "large.csr"]);
}

/// Starts a conversion of it within 64 MiB, with a folder of its own to sort in.
#[cfg(target_os = "linux")]
fn conversion(folder: &TempDir, output: &str) -> std::process::Child {
    let arguments = ["dataset", "convert", "large.csr", output, "--json", "-"];
    let within = ["--memory", "64MiB", "--temp-folder", "data"];
    halfgnn(&[&arguments[..], &within].concat())
        .current_dir(folder.path())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
#[cfg(target_os = "linux")]
fn a_stream_keeps_to_the_memory_that_it_may_take() {
    let folder = folder();
    large(&folder);
    let mut child = conversion(&folder, "little.npz");
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    while child.try_wait().unwrap().is_none() {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes = line.map(|line| line.trim().trim_end_matches(" kB"));
        peak = kilobytes.map_or(peak, |number| number.parse().unwrap());
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert!((16 << 10..64 << 10).contains(&peak), "{peak} kB");
    let output = child.wait_with_output().unwrap();
    let written = &events(&output.stdout)[0];
    assert_eq!(
        (&written["streamed"], &written["memory_bytes"]),
        (&true.into(), &(64 << 20).into())
    );
    // In one piece, next to the output, it becomes the same.
    let arguments = ["dataset", "convert", "large.csr", "much.npz", "--memory"];
    let output = succeeded(&folder, &[&arguments[..], &["4GiB"]].concat());
    let told = "as a stream within 4.0 GiB of memory";
    assert!(text(&output.stdout).contains(told), "{output:?}");
    let bytes = |name| std::fs::read(folder.path().join(name)).unwrap();
    assert!(bytes("little.npz") == bytes("much.npz"));
    assert_eq!(
        files(folder.path()),
        ["data", "large.csr", "little.npz", "much.npz"]
    );
    assert!(files(&folder.path().join("data")).is_empty());
}

/// Ctrl-C leaves nothing, neither while edges are sorted nor while the output is written.
#[test]
#[cfg(target_os = "linux")]
fn a_stream_that_is_interrupted_leaves_nothing() {
    use std::process::Command;
    use std::time::{Duration, Instant};
    let folder = folder();
    large(&folder);
    let path = folder.path().canonicalize().unwrap();
    let sorts = path.join("data");
    for until_written in [false, true] {
        let mut child = conversion(&folder, "x.txt.gz");
        let open = format!("/proc/{}/fd", child.id());
        let start = Instant::now();
        // What is sorted is in files without names; what is written has one.
        let is_there = || match until_written {
            true => files(&path).len() > 2,
            false => std::fs::read_dir(&open).is_ok_and(|files| {
                let links = files.flatten().map(|file| std::fs::read_link(file.path()));
                let in_sorts = links.flatten().filter(|link| link.starts_with(&sorts));
                in_sorts.count() > 1
            }),
        };
        while !is_there() {
            assert!(
                child.try_wait().unwrap().is_none() && start.elapsed() < Duration::from_secs(120)
            );
            std::thread::sleep(Duration::from_millis(1));
        }
        let sent = Command::new("kill")
            .args(["-INT", &child.id().to_string()])
            .status();
        assert!(sent.unwrap().success());
        assert_eq!(child.wait().unwrap().code(), Some(130));
        assert_eq!(files(&path), ["data", "large.csr"], "{until_written}");
        assert!(files(&sorts).is_empty(), "{until_written}");
    }
}

#[test]
#[cfg(unix)]
fn a_stream_without_room_on_disk_is_told_in_one_line_and_leaves_nothing() {
    let folder = folder();
    let write = |edges: usize| {
        let lines = (0..edges).map(|edge| format!("{edge} {}\n", edge / 2));
        std::fs::write(folder.path().join("edges.txt"), lines.collect::<String>()).unwrap();
    };
    let conversion = ["dataset", "convert", "edges.txt", "out.npz"];
    let sorted_in = |place| [&conversion[..], &["--temp-folder", place]].concat();
    // Edges of 8 bytes do not fit; a few do, and the archive of them does not.
    for (edges, place) in [(400, "data"), (60, "out.npz")] {
        write(edges);
        let full = on_a_full_disk(folder.path(), &sorted_in("data"));
        let words = format!("halfgnn: {place}: cannot be written: ");
        refused(&full, 2, &[&words, "File too large"]);
        assert_eq!(files(folder.path()), ["data", "edges.txt"]);
        assert!(files(&folder.path().join("data")).is_empty());
    }
    let nowhere = run(&folder, &sorted_in("nowhere"));
    refused(&nowhere, 2, &["nowhere: cannot be written: No such file"]);
    let little = run(&folder, &[&conversion[..], &["--memory", "1MiB"]].concat());
    refused(
        &little,
        2,
        &["edges.txt: takes at least", "with 1 MiB allowed"],
    );
    let no_size = run(&folder, &[&conversion[..], &["--memory", "much"]].concat());
    assert_eq!(no_size.status.code(), Some(2));
    assert!(text(&no_size.stderr).contains("such as 256MiB"));
    let made = [
        "dataset", "convert", "star:2x8", "out.npz", "--memory", "1GiB",
    ];
    refused(
        &run(&folder, &made),
        2,
        &["read or made whole; leave them out"],
    );
    assert_eq!(files(folder.path()), ["data", "edges.txt"]);
    // With more space it is written.
    succeeded(&folder, &sorted_in("data"));
}

#[test]
fn the_known_datasets_are_printed() {
    let folder = folder();
    let output = succeeded(&folder, &["dataset", "download", "--print", "--json", "-"]);
    let events = events(&output.stdout);
    let names: Vec<_> = events
        .iter()
        .map(|event| event["name"].as_str().unwrap())
        .collect();
    for name in [
        "cora",
        "citeseer",
        "pubmed",
        "reddit",
        "ogbn-arxiv",
        "ogbn-products",
    ] {
        assert!(names.contains(&name), "{names:?}");
    }
    let place = events[0]["files"][0].as_str().unwrap();
    assert!(
        place.starts_with(folder.path().join("data").to_str().unwrap()),
        "{place}"
    );
    let page = succeeded(&folder, &["dataset", "download", "Cora", "--print"]);
    assert!(
        text(&page.stdout)
            .contains("https://github.com/kimiyoung/planetoid/raw/master/data/ind.cora.graph\n")
    );
}

#[test]
fn a_conversion_names_the_weights_and_columns_that_it_leaves_out() {
    let folder = folder();
    let mtx = |field: &str, value: &str| {
        format!("%%MatrixMarket matrix coordinate {field} general\n2 2 2\n1 2{value}\n2 1{value}\n")
    };
    for (name, content, left_out) in [
        ("w.mtx", mtx("real", " 0.5"), &["edge weights"][..]),
        ("ones.mtx", mtx("integer", " 1"), &[]),
        ("pattern.mtx", mtx("pattern", ""), &[]),
        (
            "w.txt",
            "0 1 0.5\n1 0 2\n".into(),
            &["the columns after the two ids"],
        ),
        ("plain.txt", "0 1\n1 0 # back\n".into(), &[]),
    ] {
        std::fs::write(folder.path().join(name), content).unwrap();
        let conversion = ["dataset", "convert", name, "out.npz", "--json", "-"];
        let output = succeeded(&folder, &conversion);
        let written = &events(&output.stdout)[0];
        assert_eq!(
            written["left_out"],
            serde_json::json!(left_out),
            "{name}: {written}"
        );
        assert_eq!(written["edges"], 2);
        for one in left_out {
            assert!(
                text(&output.stderr).contains(one),
                "{}",
                text(&output.stderr)
            );
        }
    }
}

#[test]
fn texts_of_other_machines_are_read_or_named() {
    let folder = folder();
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
    write("mac.txt", b"0 1\r1 2\r");
    write("bom.txt", b"\xef\xbb\xbf0 1\n1 2\n");
    write(
        "bom.mtx",
        b"\xef\xbb\xbf%%MatrixMarket matrix coordinate pattern general\n3 3 2\n1 2\n2 3\n",
    );
    for name in ["mac.txt", "bom.txt", "bom.mtx"] {
        let info = info(&folder, &[name]);
        assert_eq!(
            (&info["vertices"], &info["edges"]),
            (&3.into(), &2.into()),
            "{name}"
        );
    }
    for (name, bytes, words) in [
        (
            "x.txt.zst",
            &b"\x28\xb5\x2f\xfd0"[..],
            "packed by zstd, which is not read; unpack it first, by unzstd",
        ),
        (
            "x.txt.bz2",
            b"BZh91AY&SY",
            "packed by bzip2, which is not read; unpack it first, by bunzip2",
        ),
        (
            "x.txt",
            b"\xff\xfe0\x00 \x001\x00",
            "text in UTF-16, which is not read; save it as UTF-8",
        ),
    ] {
        write(name, bytes);
        refused(&run(&folder, &["dataset", "info", name]), 2, &[name, words]);
    }
}
