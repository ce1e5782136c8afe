//! A dataset in parts, as a person cuts it and trains on it: `dataset partition`.

mod common;

use common::ring::{Place, Ring, VERTICES, place};
use common::{events, halfgnn, on_a_full_disk, refused, text};
use serde_json::Value;
use std::process::{Command, Output, Stdio};

fn run(mut command: Command) -> Vec<Value> {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    events(&output.stdout)
}

/// The program with these arguments, in the folder of a dataset.
fn there(place: &Place, arguments: &[&str]) -> Command {
    let mut command = halfgnn(arguments);
    command.current_dir(place.folder.path());
    command
}

fn partition(place: &Place, more: &[&str]) -> Output {
    let dataset = place.dataset.to_str().unwrap();
    let arguments = [
        &["dataset", "partition", dataset, "--out", "ring.parts"],
        more,
    ]
    .concat();
    there(place, &arguments).output().unwrap()
}

/// A dataset cut into parts as `more` says.
fn cut(ring: &Ring, more: &[&str]) -> Place {
    let place = place(ring);
    let output = partition(&place, more);
    assert!(output.status.success(), "{}", text(&output.stderr));
    place
}

/// The losses and scores of a run on the folder, to the bit.
fn course(place: &Place, more: &[&str]) -> (Vec<Value>, Vec<[u64; 2]>) {
    let common = [
        "train",
        "--device",
        "cpu",
        "--dataset",
        "ring.parts",
        "--epochs",
        "4",
        "--json",
        "-",
    ];
    let events = run(there(place, &[&common, more].concat()));
    let bits = bits(&events);
    (events, bits)
}

fn bits(events: &[Value]) -> Vec<[u64; 2]> {
    let epochs = events.iter().filter(|event| event["event"] == "epoch");
    let bits = epochs.map(|event| {
        ["loss", "validation_accuracy"].map(|name| event[name].as_f64().expect(name).to_bits())
    });
    bits.collect()
}

/// The rank of each vertex, where ranks have equal numbers of parts one behind the other: what a file of a partition
/// says.
fn ranks_file(place: &Place, ranks: usize) -> String {
    use halfgnn::data::parts::Parted;
    let parted = Parted::open(place.folder.path().join("ring.parts")).unwrap();
    let table = parted.table().unwrap();
    let of = |part: usize| {
        let mut all = (0..ranks).map(|rank| parted.range_of(rank, ranks).unwrap());
        all.position(|range| range.contains(&part)).unwrap()
    };
    let lines = table
        .owners
        .iter()
        .map(|&part| format!("{}\n", of(part as usize)));
    let name = format!("ranks.{ranks}");
    std::fs::write(place.folder.path().join(&name), lines.collect::<String>()).unwrap();
    name
}

#[test]
fn ranks_that_read_their_parts_compute_what_they_do_of_the_whole() {
    let mut weighted = Ring::new();
    for (edge, weight) in weighted.weights.iter_mut().enumerate() {
        *weight = 0.3 + (edge % 7) as f32 / 3.0;
    }
    for (ring, models) in [
        (Ring::new(), &["gcn", "gin", "gat", "sage"][..]),
        (weighted, &["gcn", "sage", "gat"]),
    ] {
        let place = cut(&ring, &["--parts", "7"]);
        for model in models {
            for how in [&["float"][..], &["half"], &["half", "--messages", "int8"]] {
                let more = [&["--model", model, "--precision"][..], how].concat();
                for ranks in [2, 3, 5] {
                    let (file, number) = (ranks_file(&place, ranks), ranks.to_string());
                    let of = [&more[..], &["--ranks", &number]].concat();
                    let (events, parts) = course(&place, &of);
                    let whole = [&of[..], &["--partition", &file]].concat();
                    let (_, whole) = course(&place, &whole);
                    assert_eq!(parts, whole, "{model}, {how:?}, {ranks} ranks");
                    let all_rows = ["--gather", "whole"];
                    let (given_all, parts) = course(&place, &[&of[..], &all_rows].concat());
                    let file = ["--partition", &file, all_rows[0], all_rows[1]];
                    let (_, whole) = course(&place, &[&of[..], &file].concat());
                    assert_eq!(parts, whole, "{model}, {how:?}, {ranks} ranks, all rows");
                    assert_eq!(given_all[1]["gather"], "whole");
                    let dealt = &events[0]["ranks"];
                    assert_eq!(dealt["partition"], "7 parts by degree", "{dealt}");
                    assert!(dealt.get("halo").is_none(), "{dealt}");
                    let edges = dealt["edges"].as_array().unwrap().iter();
                    assert_eq!(
                        edges.filter_map(Value::as_u64).sum::<u64>(),
                        2 * VERTICES as u64
                    );
                    assert_eq!(events[0]["edges"], 2 * VERTICES);
                }
                // One rank reads the whole, as the file that it was made of: features are 0 and 1, weights are kept in
                // float.
                let one = course(&place, &[&more[..], &["--ranks", "1"]].concat());
                let common = ["--epochs", "4", "--json", "-"];
                let file = run(place.train(&[&more[..], &common].concat()));
                assert_eq!(one.1, bits(&file), "{model}, {how:?}, the file");
            }
        }
    }
}

/// Of tables: weights, features of edges, ids, names of classes.
fn tables(place: &Place) -> String {
    let mut nodes = String::from("id,x,z,label,split\n");
    let mut edges = String::from("source,target,weight,since,kind\n");
    for v in 0..30 {
        let split = ["train", "val", "test"][v % 3];
        let label = ["cat", "dog"][v / 15];
        nodes += &format!("v{v},{},{},{label},{split}\n", v as f32 / 30.0, (v * 7) % 5);
        for other in [(v + 1) % 30, (v * v + 3) % 30] {
            edges += &format!(
                "v{v},v{other},{},{},{}\n",
                0.5 + (v % 4) as f32,
                v % 9,
                other % 2
            );
        }
    }
    std::fs::write(place.folder.path().join("nodes.csv"), nodes).unwrap();
    std::fs::write(place.folder.path().join("edges.csv"), edges).unwrap();
    "nodes.csv,edges.csv".into()
}

#[test]
fn features_of_edges_and_directed_graphs_are_the_same_in_parts() {
    let place = place(&Ring::new());
    let tables = tables(&place);
    let arguments = [
        "dataset",
        "partition",
        &tables,
        "--out",
        "ring.parts",
        "--parts",
        "9",
    ];
    run(there(
        &place,
        &[&arguments[..], &["--by", "louvain", "--json", "-"]].concat(),
    ));
    for more in [
        &["--model", "gat"][..],
        &["--model", "gcn", "--ignore-edge-features"],
        &[
            "--model",
            "gcn",
            "--ignore-edge-weights",
            "--scale-features",
        ],
        &[
            "--model",
            "gin",
            "--ignore-edge-weights",
            "--split",
            "fractions:0.5,0.2",
        ],
        // Quantized, as they are exchanged where edges go both ways: here they do not, which each has to find out.
        &[
            "--model",
            "sage",
            "--ignore-edge-weights",
            "--ignore-edge-features",
            "--messages",
            "int8",
        ],
    ] {
        let precision = match more.contains(&"--messages") {
            true => "half",
            false => "float",
        };
        let more = [more, &["--ranks", "4", "--precision", precision]].concat();
        let file = ranks_file(&place, 4);
        let (_, parts) = course(&place, &more);
        let (_, whole) = course(&place, &[&more[..], &["--partition", &file]].concat());
        assert_eq!(parts, whole, "{more:?}");
    }
    // As any dataset: what it says of itself, and what a model says of its vertices, by their ids.
    let info = run(there(
        &place,
        &["dataset", "info", "ring.parts", "--json", "-"],
    ));
    let whole = run(there(&place, &["dataset", "info", &tables, "--json", "-"]));
    for field in ["edges", "edge_weights", "edge_features", "labels"] {
        let of = |events: &[Value]| events[0].get(field).cloned();
        if field != "labels" {
            assert_eq!(of(&info), of(&whole), "{field}");
        }
    }
    course(
        &place,
        &["--model", "gcn", "--ranks", "3", "--save", "model"],
    );
    let predict = |dataset: &str, to: &str| {
        let arguments = [
            "predict",
            "--model",
            "model",
            "--dataset",
            dataset,
            "--out",
            to,
        ];
        let output = there(&place, &arguments).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        std::fs::read_to_string(place.folder.path().join(to)).unwrap()
    };
    let of_parts = predict("ring.parts", "parts.csv");
    assert_eq!(of_parts, predict(&tables, "whole.csv"));
    assert!(of_parts.contains("v29,"), "{of_parts}");
}

#[test]
fn processes_read_their_parts_and_a_run_goes_on_with_another_number() {
    let place = cut(&Ring::new(), &["--parts", "7"]);
    let common = [
        "train",
        "--device",
        "cpu",
        "--dataset",
        "ring.parts",
        "--model",
        "gcn",
        "--epochs",
        "4",
    ];
    let start = |rank: usize| {
        let more = [
            "--rendezvous",
            "file:meet",
            "--save",
            "model",
            "--json",
            "-",
        ];
        let mut command = there(&place, &[&common[..], &more].concat());
        command
            .env("RANK", rank.to_string())
            .env("WORLD_SIZE", "3")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let all: Vec<_> = (0..3).map(start).collect();
    let outputs = all
        .into_iter()
        .map(|process| process.wait_with_output().unwrap());
    let outputs: Vec<_> = outputs.collect();
    for output in &outputs {
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    let losses = |events: &[Value]| -> Vec<Value> {
        let epochs = events.iter().filter(|event| event["event"] == "epoch");
        epochs.map(|event| event["loss"].clone()).collect()
    };
    let of_processes = losses(&events(&outputs[0].stdout));
    let (of_threads, _) = course(&place, &["--model", "gcn", "--ranks", "3"]);
    assert_eq!(of_processes, losses(&of_threads));
    // Two go on in parts, one on the whole.
    for ranks in ["2", "1"] {
        let more = [
            "--resume", "model", "--epochs", "6", "--ranks", ranks, "--json", "-",
        ];
        let arguments = [
            &["train", "--device", "cpu", "--dataset", "ring.parts"][..],
            &more,
        ]
        .concat();
        assert_eq!(losses(&run(there(&place, &arguments))).len(), 2);
    }
}

#[test]
fn ranks_read_no_parts_but_their_own() {
    let place = cut(&Ring::new(), &["--parts", "6"]);
    // Of two ranks the second has parts 3, 4 and 5: without one of them all end for its reason.
    let folder = place.folder.path().join("ring.parts");
    std::fs::remove_file(folder.join("part-00004.bin")).unwrap();
    let train = [
        "train",
        "--device",
        "cpu",
        "--dataset",
        "ring.parts",
        "--epochs",
        "2",
        "--ranks",
        "2",
    ];
    let output = there(&place, &train).output().unwrap();
    refused(&output, 2, &["ring.parts: has no file part-00004.bin"]);
    // The first opens none of the other's.
    use halfgnn::data::parts::Parted;
    let parted = Parted::open(&folder).unwrap();
    let table = parted.table().unwrap();
    let rows = parted.rows(&table, parted.range_of(0, 2).unwrap()).unwrap();
    assert!(!rows.vertices.is_empty());
}

#[test]
fn what_cannot_be_is_told_in_a_line() {
    let place = cut(&Ring::new(), &["--parts", "6"]);
    let train = |more: &[&str]| {
        let common = [
            "train",
            "--device",
            "cpu",
            "--dataset",
            "ring.parts",
            "--epochs",
            "1",
        ];
        there(&place, &[&common[..], more].concat())
            .output()
            .unwrap()
    };
    for (more, words) in [
        (
            &["--ranks", "7"][..],
            &["manifest.json: parts: there are 6, and 7 ranks"][..],
        ),
        (
            &["--ranks", "2", "--undirected"],
            &["--undirected", "train with one rank"],
        ),
        (
            &["--ranks", "2", "--self-loops"],
            &["self-loops are made of a whole dataset"],
        ),
        (
            &["--ranks", "2", "--reorder", "degree"],
            &["another order is one of a whole dataset"],
        ),
        (
            &["--ranks", "2", "--task", "link"],
            &["--task link is trained by one rank"],
        ),
        (
            &["--ranks", "2", "--id-column", "name"],
            &["has no columns to name"],
        ),
    ] {
        refused(&train(more), 2, words);
    }
    let folder = place.folder.path().join("ring.parts");
    let part = folder.join("part-00003.bin");
    let whole = std::fs::read(&part).unwrap();
    for (bytes, words) in [
        (&whole[..50], "part-00003.bin: length: it is 50 bytes"),
        (
            &[whole.clone(), vec![0; 8]].concat(),
            "part-00003.bin: length",
        ),
        (
            &std::fs::read(folder.join("part-00002.bin")).unwrap(),
            "part-00003.bin: part: it is 2, where 3",
        ),
    ] {
        std::fs::write(&part, bytes).unwrap();
        refused(&train(&["--ranks", "2"]), 2, &[words]);
        refused(&train(&[]), 2, &[words]);
    }

    // A folder that is there, a partition of another graph, no parts, more than vertices.
    refused(
        &partition(&place, &[]),
        2,
        &["ring.parts: is there already"],
    );
    std::fs::remove_dir_all(&folder).unwrap();
    std::fs::write(place.folder.path().join("short"), "0\n1\n").unwrap();
    for (more, words) in [
        (
            &["--parts", "2", "--by", "short"][..],
            "the partition is of 2 vertices, and there are 40",
        ),
        (
            &["--parts", "1", "--by", "short"],
            "vertex 1 is in part 1, and there are 1",
        ),
        (&["--parts", "41"], "--parts 41: there are 40 vertices"),
        (&["--by", "none"], "--by none: none: No such file"),
    ] {
        refused(&partition(&place, more), 2, &[words]);
        assert!(!folder.exists());
    }
    let none = partition(&place, &["--parts", "0"]);
    assert_eq!(none.status.code(), Some(2), "{}", text(&none.stderr));
    let left = std::fs::read_dir(place.folder.path()).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    assert!(
        left.iter()
            .all(|name| !name.to_string_lossy().starts_with(".halfgnn-")),
        "{left:?}"
    );
}

#[test]
fn an_archive_of_pyg_is_cut_as_a_stream_to_the_same_bytes() {
    let place = place(&Ring::new());
    let dataset = place.dataset.to_str().unwrap();
    let convert = ["dataset", "convert", dataset, "ring.npz2", "--to", "pyg"];
    assert!(there(&place, &convert).output().unwrap().status.success());
    let cut = |out: &str, more: &[&str]| {
        let common = [
            "dataset",
            "partition",
            "ring.npz2",
            "--out",
            out,
            "--json",
            "-",
        ];
        run(there(&place, &[&common, more].concat())).remove(0)
    };
    let streamed = cut("one", &[]);
    assert_eq!(
        (&streamed["streamed"], &streamed["parts"]),
        (&true.into(), &40.into())
    );
    // The same partitioned by a file, read whole since communities are asked for first.
    let whole = cut("two", &["--by", "louvain", "--parts", "3"]);
    assert_eq!(whole["streamed"], false);
    let info = |folder: &str| {
        let mut all = run(there(&place, &["dataset", "info", folder, "--json", "-"])).remove(0);
        all["name"] = Value::Null;
        all["source"] = Value::Null;
        all["preparation"] = Value::Null;
        all["seconds"] = Value::Null;
        all
    };
    assert_eq!(info("one"), info("two"));
}

#[test]
#[cfg(unix)]
fn a_folder_that_has_no_room_is_not_there() {
    let place = place(&Ring::new());
    let dataset = place.dataset.to_str().unwrap();
    let cut = ["dataset", "partition", dataset, "--out", "ring.parts"];
    let how = ["--parts", "1", "--feature-precision", "float"];
    let output = on_a_full_disk(place.folder.path(), &[&cut[..], &how].concat());
    refused(
        &output,
        2,
        &["ring.parts: cannot be written: File too large"],
    );
    assert_eq!(place.files(), ["ring.npz"]);
}

/// A disk that is full, and a folder that is not whole, end a conversion in one line with the name of the file, and
/// leave nothing behind.
#[cfg(unix)]
#[test]
fn a_conversion_that_fails_leaves_nothing() {
    let place = cut(&Ring::new(), &["--parts", "3"]);
    let before = place.files();
    for (conversion, output) in [
        (
            &["dataset", "convert", "ring.npz", "again.npz"][..],
            "again.npz",
        ),
        (
            &[
                "dataset",
                "convert",
                "ring.parts",
                "again.npz",
                "--to",
                "pyg",
            ],
            "again.npz",
        ),
    ] {
        let failed = on_a_full_disk(place.folder.path(), conversion);
        refused(&failed, 2, &[output, "cannot be written"]);
        assert_eq!(place.files(), before, "{conversion:?}");
        // With more space it is written.
        let done = there(&place, conversion).output().unwrap();
        assert!(done.status.success(), "{}", text(&done.stderr));
        let made = place.folder.path().join(output);
        std::fs::remove_file(made).unwrap();
    }
    let part = place.folder.path().join("ring.parts/part-00001.bin");
    let length = part.metadata().unwrap().len();
    let file = std::fs::OpenOptions::new().write(true).open(&part).unwrap();
    file.set_len(length - 8).unwrap();
    for conversion in [
        &["dataset", "convert", "ring.parts", "again.npz"][..],
        &["dataset", "partition", "ring.parts", "--out", "again.parts"],
    ] {
        let failed = there(&place, conversion).output().unwrap();
        refused(&failed, 2, &["part-00001.bin: length: it is"]);
        assert_eq!(place.files(), before);
    }
}

#[test]
fn a_rank_may_have_no_vertex() {
    let place = place(&Ring::new());
    let sides = (0..VERTICES).map(|vertex| format!("{}\n", vertex / 20 * 2));
    std::fs::write(place.folder.path().join("sides"), sides.collect::<String>()).unwrap();
    let output = partition(&place, &["--parts", "3", "--by", "sides"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for model in ["gcn", "gat"] {
        let more = ["--model", model, "--ranks", "3"];
        let (events, parts) = course(&place, &more);
        assert_eq!(
            events[0]["ranks"]["vertices"],
            serde_json::json!([20, 0, 20])
        );
        let (_, whole) = course(&place, &[&more[..], &["--partition", "sides"]].concat());
        assert_eq!(parts, whole, "{model}");
    }
}

#[test]
fn ranges_of_parts_are_even_whoever_has_the_hubs() {
    use halfgnn::distributed::Partition;
    let degrees: Vec<u32> = (0..1008).map(|v| if v < 8 { 1000 } else { 10 }).collect();
    let dealt = Partition::of_degrees(&degrees, 64).unwrap();
    let most = |partition: &Partition, ranks: usize| {
        let mut edges = vec![0; ranks];
        for (&part, degree) in partition.owners().iter().zip(&degrees) {
            edges[part as usize * ranks / 64] += degree;
        }
        let all: u32 = edges.iter().sum();
        f64::from(edges.into_iter().max().unwrap()) * ranks as f64 / f64::from(all)
    };
    let spread = dealt.clone().spread(&degrees);
    for ranks in [2, 4, 8] {
        let (before, after) = (most(&dealt, ranks), most(&spread, ranks));
        assert!(
            before > 1.3 && after < 1.02,
            "{ranks}: {before} and {after}"
        );
    }
}
