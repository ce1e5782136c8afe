//! Where the features of batches lie, evaluations in pieces, and the memory that is estimated.

use super::common::ring::{Place, Ring, place};
use super::common::{events, halfgnn, refused, text};
use super::{of, told};
use halfgnn::train::Checkpoint;
use serde_json::Value;
use std::process::Output;

/// The program in the folder of a dataset.
fn run_in(place: &Place, arguments: &[&str]) -> Output {
    halfgnn(arguments)
        .current_dir(place.folder.path())
        .output()
        .unwrap()
}

/// A run that is evaluated in pieces, and what it predicts, are those of the whole graph; and the events say which it
/// was.
#[test]
fn a_graph_is_evaluated_in_pieces() {
    let place = place(&Ring::new());
    let run = |arguments: &[&str]| run_in(&place, arguments);
    let train = |more: &[&str]| {
        let shape = [
            "train",
            "--dataset",
            "ring.npz",
            "--layers",
            "2",
            "--epochs",
            "2",
            "--model",
            "sage",
        ];
        run(&[&shape[..], more].concat())
    };
    let batches = ["--sampler", "neighbor:2,1", "--batch", "4"];
    let kept = |pieces, file| {
        let output = train(&[&batches[..], &["--pieces", pieces, "--save", file]].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).to_owned()
    };
    let line = "evaluation: layer by layer in 3 pieces of the graph, each with all neighbours";
    assert!(kept("3", "three").contains(line));
    assert!(!kept("auto", "whole").contains("evaluation:"));
    let predict = |model, pieces, device| {
        let options = [
            "predict",
            "--dataset",
            "ring.npz",
            "--model",
            model,
            "--pieces",
            pieces,
            "--device",
            device,
            "--out",
            "classes.npy",
            "--json",
            "-",
        ];
        let output = run(&options);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let event = of(&events(&output.stdout), "prediction")[0].clone();
        let classes = std::fs::read(place.folder.path().join("classes.npy")).unwrap();
        (event.get("pieces").cloned(), classes)
    };
    let (told, expected) = predict("whole", "auto", "cpu");
    assert_eq!(told, None);
    for device in ["cpu", "emulator"] {
        let (told, classes) = predict("three", "7", device);
        assert_eq!(told, Some(7.into()));
        assert!(classes == expected, "{device}");
    }
    // Embeddings of a layer are kept of the pass.
    let embeddings = |pieces, out| {
        let options = [
            "predict",
            "--dataset",
            "ring.npz",
            "--model",
            "three",
            "--layer",
            "1",
            "--pieces",
            pieces,
            "--device",
            "cpu",
            "--out",
            out,
        ];
        let output = run(&options);
        assert!(output.status.success(), "{}", text(&output.stderr));
        std::fs::read(place.folder.path().join(out)).unwrap()
    };
    assert_eq!(
        embeddings("4", "a.npy").len(),
        embeddings("1", "b.npy").len()
    );
    for (arguments, why) in [
        (&["--pieces", "2"][..], "steps are on the whole graph"),
        (
            &["--pieces", "2", "--ranks", "2"],
            "--pieces is trained by one rank",
        ),
        (&["--pieces", "0"], "it must be auto, or a number from 1 on"),
    ] {
        let output = train(arguments);
        let told = text(&output.stderr);
        assert!(!output.status.success() && told.contains(why), "{told}");
    }
}

/// Edges that stay in the host's memory are sampled as those of the device are, and reports say where they are; a
/// sampler that has none there is refused.
#[test]
fn edges_may_stay_on_the_host() {
    let place = place(&Ring::new());
    let train = |more: &[&str]| {
        let shape = [
            "train",
            "--dataset",
            "ring.npz",
            "--layers",
            "2",
            "--epochs",
            "2",
            "--device",
            "emulator",
            "--json",
            "-",
        ];
        run_in(&place, &[&shape[..], more].concat())
    };
    let batches = [
        "--sampler",
        "neighbor:2,1",
        "--batch",
        "4",
        "--model",
        "sage",
    ];
    let with = |structure: &str| {
        let output = train(&[&batches[..], &["--structure", structure]].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        events(&output.stdout)
    };
    let [on_host, on_device, auto] = ["host", "device", "auto"].map(with);
    assert_eq!(told(&on_host), told(&on_device));
    assert_eq!(told(&auto), told(&on_device));
    let edges = of_kind(&on_host, "start")["edges"]
        .as_u64()
        .expect("a number");
    let peak = |events: &[Value], kind: &str| {
        of(events, "summary")[0]["peak_bytes_by_kind"][kind].as_u64()
    };
    assert_eq!(peak(&on_host, "host_graph"), Some(4 * edges));
    for of_device in [&on_device, &auto] {
        assert_eq!(peak(of_device, "host_graph"), None);
        assert!(
            of_kind(of_device, "memory")
                .get("host_edge_bytes")
                .is_none()
        );
    }
    let memory = of_kind(&on_host, "memory");
    assert_eq!(memory["host_edge_bytes"].as_u64(), Some(4 * edges));
    assert_eq!(
        memory["foretold_bytes_by_kind"]["host_graph"].as_u64(),
        Some(4 * edges)
    );
    assert_eq!(
        peak(&on_device, "graph")
            .zip(peak(&on_host, "graph"))
            .map(|(all, left)| all - left),
        Some(4 * edges)
    );
    for (more, why) in [
        (
            &[][..],
            "a step on the whole graph sums over edges on the device",
        ),
        (
            &["--sampler", "cluster:4"],
            "--sampler cluster:4 takes edges on the device",
        ),
    ] {
        let output = train(&[more, &["--structure", "host"]].concat());
        let told = text(&output.stderr);
        assert!(!output.status.success() && told.contains(why), "{told}");
    }
}

/// Edges on disk, of a file and of a folder of parts, with features there and without, are learnt from and predict as
/// those in memory do; and what they are not for is refused.
#[test]
fn edges_may_lie_on_disk() {
    let place = place(&Ring::new());
    let run = |arguments: &[&str]| run_in(&place, arguments);
    let done = |arguments: &[&str]| {
        let output = run(arguments);
        assert!(output.status.success(), "{}", text(&output.stderr));
        output
    };
    done(&[
        "dataset",
        "partition",
        "ring.npz",
        "--out",
        "ring.parts",
        "--parts",
        "3",
    ]);
    let shape = [
        "--layers", "2", "--epochs", "2", "--pieces", "2", "--json", "-",
    ];
    let batches = ["--sampler", "neighbor:2,1", "--batch", "4"];
    let train = |dataset, model, more: &[&str]| {
        let of = ["train", "--dataset", dataset, "--model", model];
        run(&[&of[..], &shape, more].concat())
    };
    let learnt = |dataset, model, more: &[&str]| {
        let output = train(dataset, model, &[&batches[..], more].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        events(&output.stdout)
    };
    // A GCN needs self-loops.
    for model in ["sage", "gcn"] {
        let cpu =
            |dataset, more: &[&str]| learnt(dataset, model, &[&["--device", "cpu"], more].concat());
        let expected = cpu("ring.npz", &[]);
        assert!(
            of_kind(&expected, "memory")
                .get("host_draws_from")
                .is_none()
        );
        for (dataset, more) in [
            (
                "ring.npz",
                &["--structure", "disk", "--temp-folder", "."][..],
            ),
            ("ring.parts", &["--structure", "disk"]),
            ("ring.parts", &["--structure", "disk", "--features", "disk"]),
        ] {
            let found = cpu(dataset, more);
            assert_eq!(
                told(&found),
                told(&expected),
                "{model}, {dataset}, {more:?}"
            );
            assert_eq!(of_kind(&found, "memory")["host_draws_from"], "disk");
            // Where they are is reported with what was done to the dataset.
            let start = of_kind(&found, "start").to_string();
            assert!(start.contains("320 bytes on the disk of "), "{start}");
        }
    }
    let emulated = learnt(
        "ring.parts",
        "sage",
        &["--structure", "disk", "--device", "emulator"],
    );
    assert_eq!(told(&emulated).len(), 2);

    let save = ["--device", "cpu", "--save", "kept", "--structure", "disk"];
    learnt("ring.npz", "sage", &save);
    let predicted = |structure, pieces| {
        let output = done(&[
            "predict",
            "--dataset",
            "ring.parts",
            "--model",
            "kept",
            "--device",
            "cpu",
            "--structure",
            structure,
            "--pieces",
            pieces,
            "--logits",
            "--out",
            "logits.npy",
        ]);
        let told = text(&output.stdout).contains("320 bytes on the disk of ");
        assert_eq!(told, structure == "disk");
        std::fs::read(place.folder.path().join("logits.npy")).unwrap()
    };
    assert!(predicted("disk", "3") == predicted("host", "3"));
    assert!(predicted("disk", "auto") == predicted("auto", "1"));

    // Two ranks learn what one does, each of a file of its own.
    let ranks = |structure| {
        let more = ["--device", "cpu", "--ranks", "2", "--structure", structure];
        told(&learnt("ring.parts", "sage", &more))
    };
    assert_eq!(ranks("disk"), ranks("host"));

    let disk = ["--structure", "disk", "--device", "cpu"];
    for (model, more, why) in [
        (
            "sage",
            &[][..],
            "a step on the whole graph sums over edges on the device",
        ),
        (
            "sage",
            &["--sampler", "cluster:4"],
            "--structure disk: --sampler cluster:4 takes edges on the device",
        ),
        ("gin", &batches, "the batch normalisations of GIN"),
        (
            "sage",
            &["--sampler", "neighbor:2,1", "--temp-folder", "gone"],
            "--temp-folder gone: there is no such folder",
        ),
        (
            "sage",
            &["--sampler", "neighbor:2,1", "--inductive"],
            "--inductive makes a graph of the training vertices in memory",
        ),
        (
            "sage",
            &["--sampler", "neighbor:2,1", "--reorder", "degree"],
            "--reorder: an order is found of edges in memory",
        ),
    ] {
        let output = train("ring.npz", model, &[more, &disk].concat());
        let told = text(&output.stderr);
        assert!(!output.status.success() && told.contains(why), "{told}");
    }
    let output = train(
        "ring.npz",
        "sage",
        &[&batches[..], &["--temp-folder", "."]].concat(),
    );
    let told = text(&output.stderr);
    assert!(
        told.contains("add --structure disk or --features disk"),
        "{told}"
    );
    let names = std::fs::read_dir(place.folder.path()).unwrap();
    let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 4, "files that stay: {names:?}");
}

/// Features that stay in the host's memory train as those of the device do, and reports say where they are.
#[test]
fn features_may_stay_on_the_host() {
    let place = place(&Ring::new());
    let train = |device: &str, more: &[&str]| {
        let shape = [
            "train",
            "--dataset",
            "ring.npz",
            "--layers",
            "2",
            "--epochs",
            "2",
        ];
        let output = halfgnn(&[&shape[..], &["--device", device], more].concat())
            .current_dir(place.folder.path())
            .output()
            .unwrap();
        (output.status.success(), output)
    };
    let batches = [
        "--sampler",
        "neighbor:2,1",
        "--batch",
        "4",
        "--model",
        "sage",
    ];
    let with = |more: &[&str]| {
        let (done, output) = train("emulator", &[more, &["--json", "-"]].concat());
        assert!(done, "{}", text(&output.stderr));
        events(&output.stdout)
    };
    let peak = |events: &[Value]| of(events, "summary")[0]["peak_bytes_by_kind"].clone();
    for more in [&[][..], &batches] {
        let on_device = with(more);
        let host = [more, &["--features", "host"]].concat();
        let on_host = with(&[&host[..], &["--feature-cache", "none"]].concat());
        assert_eq!(told(&on_host), told(&on_device));
        // 40 vertices, 3 features in half that take a vector.
        assert_eq!(peak(&on_host)["host_features"], 40 * 8 * 2);
        assert!(peak(&on_device).get("host_features").is_none());
        let features = [&on_host, &on_device].map(|events| peak(events)["features"].as_u64());
        let [here, there] = features.map(|bytes| bytes.expect("a number"));
        // Of batches one more is on its way, over the bus: rows of 4 seeds and twice of at most all vertices, and four
        // words a seed.
        let of_batch = if more.is_empty() { 0 } else { 84 * 16 + 4 * 16 };
        assert_eq!(here + 40 * 8 * 2, there + of_batch);
        if more.is_empty() {
            continue;
        }
        // Copies of some features, or of all where they fit, take two words for each 32 vertices and 16 bytes a vertex.
        for (cache, vertices) in [("117B", 6), ("auto", 40)] {
            let copied = with(&[&host[..], &["--feature-cache", cache]].concat());
            assert_eq!(told(&copied), told(&on_host), "{cache}");
            let (memory, uncached) = (of_kind(&copied, "memory"), of_kind(&on_host, "memory"));
            assert_eq!(memory["cached_vertices"], vertices);
            assert_eq!(memory["cached_bytes"], 16 + 16 * vertices);
            let features = |of: &Value| of["foretold_bytes_by_kind"]["features"].as_u64();
            let added = features(memory).zip(features(uncached));
            assert_eq!(
                added.map(|(with, without)| with - without),
                Some(16 + 16 * vertices)
            );
            assert_eq!(peak(&copied)["features"], here + 16 + 16 * vertices);
        }
    }
    // What would have nothing to copy, or no memory for it, is refused; a line reports the others.
    let (done, output) = train(
        "emulator",
        &[
            &batches[..],
            &["--features", "host", "--feature-cache", "100B"],
        ]
        .concat(),
    );
    let copies = "96 B for copies of the features of 5 vertices";
    assert!(done && text(&output.stdout).contains(copies), "{output:?}");
    for (device, more) in [
        ("emulator", &["--features", "host"][..]),
        ("emulator", &batches),
        ("cpu", &[&batches[..], &["--features", "host"]].concat()),
    ] {
        let more = [more, &["--feature-cache", "1KiB"]].concat();
        refused(
            &train(device, &more).1,
            2,
            &["--feature-cache: copies are of"],
        );
    }
    let much = [
        &batches[..],
        &["--features", "host", "--feature-cache", "1PiB"],
    ]
    .concat();
    refused(
        &train("emulator", &much).1,
        2,
        &["--feature-cache 1024.0 TiB: the run takes"],
    );
    let little = [
        &batches[..],
        &["--features", "host", "--feature-cache", "9B"],
    ]
    .concat();
    let no_room = "--feature-cache 9 B: it has no room for the features of a vertex; take ";
    refused(&train("emulator", &little).1, 2, &[no_room]);
    let bench = "bench sampling --graph kron:6 --batches 1 --device emulator --features-in host --feature-cache 9B";
    let bench: Vec<&str> = bench.split(' ').collect();
    refused(&run_in(&place, &bench), 2, &[no_room]);
    let (done, output) = train("emulator", &["--features", "host", "--save", "kept"]);
    let line = "features: 640 B in the host's memory, from where the GPU reads them";
    assert!(done && text(&output.stdout).contains(line), "{output:?}");
    let (done, output) = train("cpu", &["--features", "host"]);
    let on_cpu = "features: in the host's memory, as all is on a CPU";
    assert!(done && text(&output.stdout).contains(on_cpu), "{output:?}");
    let (_, output) = train("cpu", &["--features", "host", "--ranks", "2"]);
    refused(&output, 2, &["--features host"]);

    let predicted = |features: &str, out: &str| {
        let model = ["predict", "--model", "kept", "--dataset", "ring.npz"];
        let more = ["--device", "emulator", "--features", features, "--out", out];
        let output = halfgnn(&[&model[..], &more].concat())
            .current_dir(place.folder.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let file = std::fs::read(place.folder.path().join(out)).unwrap();
        (text(&output.stdout).to_owned(), file)
    };
    let ((out, on_host), (other, on_device)) =
        (predicted("host", "a.npy"), predicted("auto", "b.npy"));
    assert!(out.contains(line) && !other.contains(line), "{out}{other}");
    assert_eq!(on_host, on_device);
}

/// A run of the ring in parts, whose features stay on disk, is that of features in memory, to the bit; so is what it
/// predicts. What cannot be read from disk is refused in a line that says what can.
#[test]
fn features_stay_on_disk() {
    fn train<'a>(dataset: &'a str, features: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        let shape = [
            "train",
            "--dataset",
            dataset,
            "--layers",
            "2",
            "--epochs",
            "3",
            "--device",
            "cpu",
            "--scale-features",
            "--features",
            features,
        ];
        [&shape[..], more].concat()
    }
    let mut ring = Ring::new();
    ring.values = (1..=40).map(|value| value as f32 * 37.0 / 3.0).collect();
    let place = place(&ring);
    let run = |arguments: &[&str]| run_in(&place, arguments);
    let done = |arguments: &[&str]| {
        let output = run(arguments);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).to_owned()
    };
    let cut = ["dataset", "partition", "ring.npz", "--out", "ring.parts"];
    done(&[&cut[..], &["--parts", "3", "--feature-precision", "float"]].concat());
    for of in [
        &[
            "--sampler",
            "neighbor:2,1",
            "--batch",
            "2",
            "--model",
            "sage",
        ][..],
        &[
            "--sampler",
            "neighbor:2,1",
            "--batch",
            "2",
            "--model",
            "gcn",
            "--precision",
            "bf16",
            "--inductive",
        ],
        &[
            "--sampler",
            "saint-rw:4,2",
            "--model",
            "gat",
            "--precision",
            "float",
        ],
        &[
            "--sampler",
            "cluster:5",
            "--batch",
            "2",
            "--reorder",
            "degree",
            "--model",
            "gcnii",
        ],
    ] {
        let kept = ["--pieces", "2", "--save"];
        let course = |features, file| {
            let json = ["--json", "-"];
            let arguments = train(
                "ring.parts",
                features,
                &[of, &kept, &[file], &json].concat(),
            );
            let output = run(&arguments);
            assert!(output.status.success(), "{of:?}: {}", text(&output.stderr));
            let weights = Checkpoint::open(&place.folder.path().join(file)).unwrap();
            (told(&events(&output.stdout)), weights.snapshot.tensors)
        };
        assert_eq!(
            course("disk", "disk.kept"),
            course("host", "host.kept"),
            "{of:?}"
        );
    }
    let neighbours = [
        "--sampler",
        "neighbor:2,1",
        "--batch",
        "2",
        "--model",
        "sage",
    ];
    let kept = [&neighbours[..], &["--save", "kept"]].concat();
    let lines = done(&train("ring.parts", "disk", &kept));
    assert!(
        lines.contains("features: 480 B on disk, from where rows are read that are wanted"),
        "{lines}"
    );
    assert!(!lines.contains("evaluation:"), "{lines}");
    // What layers give is on disk as well, and nothing of it stays there.
    let folder = place.folder.path().join("meanwhile");
    std::fs::create_dir(&folder).unwrap();
    let in_folder = ["--pieces", "3", "--temp-folder", "meanwhile"];
    let in_folder = [&neighbours[..], &in_folder].concat();
    let lines = done(&train("ring.parts", "disk", &in_folder));
    let line =
        "in 3 pieces of the graph, each with all neighbours; what layers give is on disk meanwhile";
    assert!(lines.contains(line), "{lines}");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
    let of_memory = "--temp-folder is for edges on disk, and for what layers give";
    let told = run(&train("ring.parts", "host", &in_folder));
    refused(&told, 2, &[of_memory]);
    std::fs::remove_dir(&folder).unwrap();
    let gone = "--temp-folder meanwhile: there is no such folder";
    let told = run(&train("ring.parts", "disk", &in_folder));
    refused(&told, 2, &[gone]);

    let predict = |features, dataset, device| {
        let arguments = [
            "predict",
            "--dataset",
            dataset,
            "--model",
            "kept",
            "--out",
            "logits.npy",
            "--logits",
            "--features",
            features,
            "--device",
            device,
        ];
        (run(&arguments), place.folder.path().join("logits.npy"))
    };
    let logits = |features, device| {
        let (output, file) = predict(features, "ring.parts", device);
        assert!(output.status.success(), "{}", text(&output.stderr));
        std::fs::read(file).unwrap()
    };
    for device in ["cpu", "emulator"] {
        assert_eq!(logits("disk", device), logits("host", device), "{device}");
    }

    let partition = "`halfgnn dataset partition ring.npz --out FOLDER`";
    refused(
        &run(&train("ring.npz", "disk", &neighbours)),
        2,
        &[partition],
    );
    refused(&predict("disk", "ring.npz", "cpu").0, 2, &[partition]);
    let recipe = "`halfgnn dataset partition kron:8 --out FOLDER`";
    refused(&run(&train("kron:8", "disk", &neighbours)), 2, &[recipe]);
    refused(
        &run(&train("ring.parts", "disk", &[])),
        2,
        &["--features disk: a step on the whole graph", "--sampler"],
    );
    let bn = [
        "--sampler",
        "neighbor:2,1",
        "--batch",
        "2",
        "--model",
        "gin",
    ];
    refused(
        &run(&train("ring.parts", "disk", &bn)),
        2,
        &["--features disk:", "--features host"],
    );
    let part = place.folder.path().join("ring.parts/part-00001.bin");
    let file = std::fs::OpenOptions::new().write(true).open(part).unwrap();
    file.set_len(400).unwrap();
    let before = place.files();
    let cut = [&neighbours[..], &["--save", "never"]].concat();
    refused(
        &run(&train("ring.parts", "disk", &cut)),
        2,
        &["part-00001.bin: length"],
    );
    assert_eq!(place.files(), before);
}

/// What a run in batches takes is reported before its first step, and is about what it takes.
#[test]
fn the_memory_of_batches_is_foretold() {
    let place = place(&Ring::new());
    for of in [
        &[
            "--sampler",
            "neighbor:2,1",
            "--batch",
            "2",
            "--model",
            "sage",
        ][..],
        &[
            "--sampler",
            "neighbor:2,1",
            "--batch",
            "2",
            "--model",
            "gcn",
        ],
        &["--sampler", "saint-rw:4,2", "--model", "gcn"],
        &[
            "--sampler",
            "saint-rw:4,2",
            "--model",
            "gcn",
            "--binary",
            "full",
        ],
        &[
            "--sampler",
            "saint-node:30",
            "--model",
            "sage",
            "--binary",
            "bin",
        ],
        &[
            "--sampler",
            "cluster:5",
            "--batch",
            "2",
            "--model",
            "sage",
            "--precision",
            "float",
        ],
    ] {
        for device in ["cpu", "emulator"] {
            let more = [
                "--layers", "2", "--epochs", "2", "--hidden", "256", "--device", device,
            ];
            let output = halfgnn(&["train", "--dataset", "ring.npz", "--json", "-"])
                .args([of, &more].concat())
                .current_dir(place.folder.path())
                .output()
                .unwrap();
            assert!(output.status.success(), "{}", text(&output.stderr));
            let events = events(&output.stdout);
            let kinds: Vec<_> = events.iter().map(|event| &event["event"]).collect();
            let told = kinds.iter().position(|kind| *kind == "memory").unwrap();
            assert!(told < kinds.iter().position(|kind| *kind == "epoch").unwrap());
            let (told, summary) = (&events[told], of_kind(&events, "summary"));
            let [told_bytes, peak] = [&told["foretold_bytes"], &summary["peak_bytes"]]
                .map(|bytes| bytes.as_u64().unwrap());
            // Two clusters that are sampled are smaller than the two largest, which are counted.
            assert!(
                told_bytes >= peak && told_bytes <= peak * 5 / 3,
                "{of:?} on {device}: {told} {summary}"
            );
            assert!(told["batch_bytes"].as_u64().unwrap() > 0);
            let vertices = told["batch_vertices"].as_u64().unwrap();
            assert!((2..=180).contains(&vertices), "{told}");
        }
    }
}

fn of_kind<'a>(events: &'a [Value], kind: &str) -> &'a Value {
    of(events, kind)[0]
}
