//! The program `halfgnn` as a person runs it: what it prints, what it writes, and how it says no.

mod common;

use common::ring::{Place, Ring, VERTICES, place};
use common::{events, halfgnn, refused, text};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

#[test]
fn json_on_stdout_is_nothing_but_json() {
    let place = place(&Ring::new());
    let output = place
        .train(&[
            "--epochs", "30", "--seeds", "2", "--seed", "4", "--json", "-",
        ])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let events = events(&output.stdout);
    let of = |name: &str| {
        events
            .iter()
            .filter(|event| event["event"] == name)
            .collect::<Vec<_>>()
    };
    assert_eq!(events.len(), 2 + 2 * 30 + 2 + 1);
    assert_eq!(events[0]["event"], "start");
    // On a CPU what is counted beforehand is what is taken.
    assert_eq!(events[1]["event"], "memory");
    assert_eq!(events[1]["foretold_bytes"], of("summary")[0]["peak_bytes"]);
    assert!(events[1].get("batch_bytes").is_none());
    assert_eq!(
        (&events[0]["dataset"], &events[0]["vertices"]),
        (&"ring".into(), &40.into())
    );

    let epochs = of("epoch");
    for (index, epoch) in epochs.iter().enumerate() {
        assert_eq!(epoch["seed"], 4 + index / 30);
        assert_eq!(epoch["epoch"], 1 + index % 30);
        assert!(epoch["loss"].as_f64().unwrap() > 0.0);
        for field in ["train_accuracy", "validation_accuracy", "test_accuracy"] {
            assert!(
                (0.0..=100.0).contains(&epoch[field].as_f64().unwrap()),
                "{epoch}"
            );
        }
        assert!(epoch["ms"].as_f64().unwrap() > 0.0);
    }
    let runs = of("run");
    assert_eq!(runs.len(), 2);

    let summary = &events[events.len() - 1];
    assert_eq!(summary["event"], "summary");
    assert_eq!(
        (&summary["precision"], &summary["status"]),
        (&"half".into(), &"finished".into())
    );
    assert!(summary["device"].as_str().unwrap().contains("CPU"));
    let mean = |field: &str| {
        runs.iter()
            .map(|run| run[field].as_f64().unwrap())
            .sum::<f64>()
            / 2.0
    };
    for field in ["test_accuracy", "test_accuracy_last", "ms_per_epoch"] {
        assert!(
            (summary[field].as_f64().unwrap() - mean(field)).abs() < 1e-9,
            "{field} of {summary}"
        );
    }
    assert_eq!(
        mean("test_accuracy"),
        100.0,
        "two classes on a ring are easily told apart"
    );
    let kinds = ["graph", "features", "activations", "weights", "workspace"];
    let sum: u64 = kinds
        .iter()
        .map(|kind| summary["peak_bytes_by_kind"][kind].as_u64().unwrap())
        .sum();
    let peak = summary["peak_bytes"].as_u64().unwrap();
    assert!(peak > 0 && peak <= sum, "{summary}");
    // What is for people is on the other stream.
    assert!(text(&output.stderr).contains("test accuracy, best validation epoch"));
}

#[test]
fn a_number_that_cannot_be_is_told_by_what_it_must_be() {
    for (flag, value, wanted) in [
        ("--lr", "-1", "a number above 0"),
        ("--lr", "nan", "a number above 0"),
        ("--weight-decay", "-1e-3", "0 or a number above it"),
        ("--dropout", "-0.5", "at least 0 and below 1"),
        ("--dropout", "1", "at least 0 and below 1"),
    ] {
        let output = halfgnn(&["train", "--dataset", "x.npz", flag, value])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2));
        let shown = text(&output.stderr);
        assert!(shown.contains(flag) && shown.contains(wanted), "{shown}");
    }
}

#[test]
fn the_demonstration_says_each_precision_once() {
    let output = halfgnn(&["demo", "--device", "cpu", "--epochs", "1"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    for run in ["discretized half", "float", "plain half"] {
        let line = format!("{run} epoch 1/1 loss");
        let shown = text(&output.stdout);
        assert!(
            shown.lines().any(|shown| shown.starts_with(&line)),
            "{shown}"
        );
    }
}

/// What a person copies from the documents has errors in words, and not as `Debug` has them.
#[test]
fn examples_of_the_documents_tell_errors_in_words() {
    let documents = concat!(
        include_str!("../../../README.md"),
        include_str!("../../../docs/embedding.md")
    );
    let blocks = documents
        .split("```")
        .filter(|block| block.starts_with("rust"));
    let mains: Vec<&str> = blocks.filter(|block| block.contains("fn main()")).collect();
    assert!(!mains.is_empty());
    for block in mains {
        assert!(block.contains("fn main() -> ExitCode"), "{block}");
        assert!(block.contains("eprintln!(\"{error}\")"), "{block}");
    }
}

#[cfg(unix)]
#[test]
fn a_command_that_is_no_unicode_is_told_as_it_can_be_typed() {
    use std::os::unix::ffi::OsStrExt;
    let place = place(&Ring::new());
    let mut command = place.train(&["--epochs", "1", "--json", "-", "--plot"]);
    command.arg(std::ffi::OsStr::from_bytes(b"caf\xe9.svg"));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let first = text(&output.stdout).lines().next().unwrap();
    let machine: Value = serde_json::from_str(first).unwrap();
    let command = machine["command"].as_str().unwrap();
    assert!(command.ends_with(r"--plot $'caf\xe9.svg'"), "{command}");
}

#[cfg(target_os = "linux")]
#[test]
fn lines_that_cannot_be_written_end_the_run_with_a_status() {
    let place = place(&Ring::new());
    let train = || place.train(&["--epochs", "1000000"]);
    let output = train().args(["--json", "/dev/full"]).output().unwrap();
    refused(&output, 1, &["--json /dev/full", "No space left"]);
    let full = || {
        std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .unwrap()
    };
    let output = train().stdout(full()).output().unwrap();
    refused(&output, 1, &["cannot write", "No space left"]);
}

/// However a run ends, what it has reported is there.
#[test]
fn a_killed_run_leaves_its_lines() {
    let place = place(&Ring::new());
    let mut child = place
        .train(&["--epochs", "4000000", "--json", "runs.jsonl"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let read = || std::fs::read(place.folder.path().join("runs.jsonl")).unwrap_or_default();
    let start = std::time::Instant::now();
    while read().iter().filter(|&&byte| byte == b'\n').count() < 6 && start.elapsed().as_secs() < 20
    {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let left = read();
    let end = left.iter().rposition(|&byte| byte == b'\n');
    let left = &left[..=end.expect("lines")];
    let events = events(left);
    assert_eq!(events[0]["event"], "start");
    assert_eq!(events[4]["epoch"], 3);
    assert_eq!(place.files(), ["ring.npz", "runs.jsonl"]);
}

/// Where there is little memory, what a file or a flag asks for too much of is refused, and nothing aborts.
#[cfg(target_os = "linux")]
#[test]
fn what_does_not_fit_in_memory_is_refused_in_one_line() {
    use std::io::Write;

    let folder = tempfile::tempdir().unwrap();
    let small = |arguments: &[&str]| {
        Command::new("sh")
            .args(["-c", "ulimit -v 600000 && exec \"$0\" \"$@\""])
            .arg(env!("CARGO_BIN_EXE_halfgnn"))
            .args(arguments)
            .current_dir(folder.path())
            .env("RAYON_NUM_THREADS", "2")
            .output()
            .unwrap()
    };
    let timed = [
        "--graph",
        "kron:12",
        "--features",
        "65536",
        "--device",
        "cpu",
    ];
    for operator in ["spmm", "sddmm", "train"] {
        let output = small(&[&["bench", operator], &timed[..]].concat());
        refused(&output, 2, &["4096 x 65536 floats", "--features"]);
    }
    let path = folder.path().join("wide.npz");
    let mut zip = zip::ZipWriter::new(std::fs::File::create(path).unwrap());
    let mut add = |name: &str, kind: &str, shape: &str, bytes: &[u8]| {
        let options = zip::write::SimpleFileOptions::default();
        zip.start_file(format!("{name}.npy"), options).unwrap();
        let header = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({shape}), }}");
        let header = format!("{header:<117}\n");
        zip.write_all(b"\x93NUMPY\x01\x00").unwrap();
        zip.write_all(&(header.len() as u16).to_le_bytes()).unwrap();
        zip.write_all(header.as_bytes()).unwrap();
        zip.write_all(bytes).unwrap();
    };
    add("adj_shape", "|u1", "2,", &[1, 1]);
    add("adj_indptr", "|u1", "2,", &[0, 0]);
    add("adj_indices", "|u1", "0,", &[]);
    add("labels", "|u1", "1,", &[0]);
    // A byte each in the file, four in memory.
    add("attr_matrix", "|u1", "1, 200000000", &vec![0; 200_000_000]);
    zip.finish().unwrap();
    let output = small(&["dataset", "info", "wide.npz"]);
    refused(
        &output,
        2,
        &[
            "wide.npz: attr_matrix",
            "200000000 elements take 800000000 bytes",
        ],
    );
}

#[test]
fn a_seed_repeats_and_precision_is_as_asked() {
    let place = place(&Ring::new());
    let losses = |seed: &str, precision: &str| {
        let output = place
            .train(&[
                "--epochs",
                "10",
                "--seed",
                seed,
                "--precision",
                precision,
                "--json",
                "-",
            ])
            .output()
            .unwrap();
        let events = events(&output.stdout);
        assert_eq!(events[events.len() - 1]["precision"], precision);
        events
            .iter()
            .filter(|e| e["event"] == "epoch")
            .map(|e| e["loss"].clone())
            .collect::<Vec<_>>()
    };
    let half = losses("1", "half");
    assert_eq!(half, losses("1", "half"));
    assert_ne!(half, losses("2", "half"));
    assert_ne!(half, losses("1", "float"));
}

#[test]
fn json_in_a_file_is_whole_and_alone() {
    let place = place(&Ring::new());
    std::fs::write(
        place.folder.path().join("runs.jsonl"),
        "what was there before\n",
    )
    .unwrap();
    let output = place
        .train(&["--epochs", "3", "--json", "runs.jsonl"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(place.files(), ["ring.npz", "runs.jsonl"]);
    let written = std::fs::read(place.folder.path().join("runs.jsonl")).unwrap();
    let events = events(&written);
    assert_eq!(events.len(), 2 + 3 + 1 + 1);
    assert_eq!(events[events.len() - 1]["event"], "summary");
    // Plain lines where there is no terminal, and a table.
    let shown = text(&output.stdout);
    assert!(shown.contains("gcn half epoch 3/3 loss"), "{shown}");
    assert!(
        shown.contains("in all, foretold")
            && shown.contains("peak memory")
            && shown.contains("weights and optimiser"),
        "{shown}"
    );
}

#[test]
fn a_place_that_cannot_be_written_is_found_out_before_training() {
    let place = place(&Ring::new());
    for (path, why) in [
        ("nowhere/runs.jsonl", "No such file"),
        (".", "it is a folder"),
    ] {
        let output = place
            .train(&["--epochs", "100000", "--json", path])
            .output()
            .unwrap();
        refused(&output, 2, &["--json", path, why]);
        assert!(output.stdout.is_empty());
    }
    assert_eq!(place.files(), ["ring.npz"]);
}

#[test]
fn a_run_that_fails_leaves_no_file() {
    let mut ring = Ring::new();
    ring.labels[3] = -5;
    let place = place(&ring);
    let output = place.train(&["--json", "runs.jsonl"]).output().unwrap();
    refused(&output, 2, &["ring.npz", "labels"]);
    assert_eq!(place.files(), ["ring.npz"]);
}

#[test]
fn bad_datasets_are_refused_with_file_and_field() {
    let missing = halfgnn(&["train", "--dataset", "/nowhere/cora.npz"])
        .output()
        .unwrap();
    refused(&missing, 2, &["/nowhere/cora.npz"]);

    let broken = place(&Ring::new());
    let whole = std::fs::read(&broken.dataset).unwrap();
    for content in [&b""[..], b"not a dataset", &whole[..whole.len() / 2]] {
        std::fs::write(&broken.dataset, content).unwrap();
        refused(&broken.train(&[]).output().unwrap(), 2, &["ring.npz"]);
    }

    let with = |change: fn(&mut Ring)| {
        let mut ring = Ring::new();
        change(&mut ring);
        place(&ring).train(&["--epochs", "1"]).output().unwrap()
    };
    refused(
        &with(|ring| ring.columns[7] = VERTICES),
        2,
        &["ring.npz", "indices", "40"],
    );
    refused(
        &with(|ring| ring.columns[7] = -1),
        2,
        &["ring.npz", "indices", "-1"],
    );
    refused(
        &with(|ring| ring.labels[2] = 1 << 40),
        2,
        &["ring.npz", "labels"],
    );
    refused(&with(|ring| ring.test[0] = ring.train[0]), 2, &["ring.npz"]);
    refused(&with(|ring| ring.test[0] = 99), 2, &["ring.npz", "99"]);
    refused(&with(|ring| ring.train.clear()), 2, &["training"]);
}

#[test]
fn a_model_wider_than_memory_is_refused_before_it_is_made() {
    let place = place(&Ring::new());
    for arguments in [
        ["--hidden", "4294967295", "--layers", "2"],
        ["--hidden", "3000000", "--layers", "4"],
    ] {
        let output = place.train(&arguments).output().unwrap();
        refused(&output, 2, &["memory", "bytes were asked for", "--hidden"]);
    }
}

#[test]
fn a_device_that_is_not_there_is_said_so() {
    let place = place(&Ring::new());
    // On a machine with a GPU this hides it.
    let mut cuda = halfgnn(&["train", "--epochs", "1", "--device", "cuda", "--dataset"]);
    let output = cuda
        .arg(&place.dataset)
        .env("CUDA_VISIBLE_DEVICES", "")
        .output()
        .unwrap();
    refused(&output, 1, &["CUDA"]);
}

#[test]
fn kernels_that_are_not_there_are_said_so() {
    let place = place(&Ring::new());
    let mut emulator = halfgnn(&[
        "train",
        "--epochs",
        "1",
        "--device",
        "emulator",
        "--dataset",
    ]);
    emulator
        .arg(&place.dataset)
        .env("HALFGNN_PTX_DIR", place.folder.path());
    let folder = place.folder.path().to_str().unwrap();
    refused(
        &emulator.output().unwrap(),
        1,
        &[folder, "cargo xtask build-ptx"],
    );
}

#[test]
fn wrong_flags_are_usage_errors() {
    for arguments in [
        &["train"][..],
        &["trian"],
        &["train", "--dataset", "x.npz", "--layers", "0"],
        &["train", "--dataset", "x.npz", "--dropout", "1"],
        &["train", "--dataset", "x.npz", "--dropout", "nan"],
        &["train", "--dataset", "x.npz", "--lr", "-1"],
        &["train", "--dataset", "x.npz", "--lr", "1e999"],
        &["train", "--dataset", "x.npz", "--epochs", "0"],
        &["train", "--dataset", "x.npz", "--seeds", "-1"],
        &["train", "--dataset", "x.npz", "--precision", "double"],
        &["train", "--dataset", "x.npz", "--device", "tpu"],
        &["train", "--dataset", "x.npz", "--model", "mlp"],
    ] {
        let output = halfgnn(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).starts_with("error: "), "{arguments:?}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
    let help = halfgnn(&["train", "--help"]).output().unwrap();
    assert!(help.status.success());
    for word in [
        "--dataset",
        "--weight-decay",
        "Examples:",
        "halfgnn train --dataset synthetic",
        "Exit status",
    ] {
        assert!(text(&help.stdout).contains(word), "{word}");
    }
}

/// Starts a run that would take very long, and waits until it is at its third epoch.
#[cfg(unix)]
fn long_run(
    place: &Place,
    arguments: &[&str],
) -> (std::process::Child, BufReader<std::process::ChildStdout>) {
    let mut child = place
        .train(&["--epochs", "4000000"])
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains(r#""epoch":3,"#) {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0, "the run ended");
    }
    (child, lines)
}

#[cfg(unix)]
#[test]
fn an_interrupt_ends_the_run_with_the_summary_so_far() {
    let place = place(&Ring::new());
    let (child, lines) = long_run(&place, &["--json", "-"]);
    let killed = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(killed.success());
    let rest: Vec<String> = lines.lines().map(Result::unwrap).collect();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let summary: Value = serde_json::from_str(&rest[rest.len() - 1]).unwrap();
    assert_eq!(
        (&summary["event"], &summary["status"]),
        (&"summary".into(), &"stopped".into())
    );
    assert!(
        text(&output.stderr).contains("stopped"),
        "{}",
        text(&output.stderr)
    );
}

#[cfg(unix)]
#[test]
fn a_reader_who_leaves_ends_the_run_quietly() {
    let place = place(&Ring::new());
    let (child, lines) = long_run(&place, &["--json", "-"]);
    drop(lines);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(
        !text(&output.stderr).contains("panicked"),
        "{}",
        text(&output.stderr)
    );
}

/// What cannot fit is reported at once, with the figure, and not after minutes of making a graph for it.
#[test]
fn what_fits_no_machine_is_refused_before_it_is_made() {
    for (dataset, options, words) in [
        ("reddit-like:20", &["--hidden", "60000"][..], "take"),
        (
            "blocks:800",
            &["--hidden", "2000000000"],
            "out of device memory",
        ),
        (
            "blocks:800",
            &["--model", "gcnii", "--hidden", "900000"],
            "out of device memory",
        ),
        (
            "blocks:800",
            &["--model", "gat", "--heads", "8", "--hidden", "80000000"],
            "out of device memory",
        ),
        ("kron:30", &[], "making kron:30 takes"),
    ] {
        let start = std::time::Instant::now();
        let base = ["train", "--device", "cpu", "--dataset", dataset];
        let output = halfgnn(&[&base[..], options].concat()).output().unwrap();
        refused(&output, 2, &[words]);
        assert!(
            start.elapsed().as_secs() < 10,
            "{dataset}: {:?}",
            start.elapsed()
        );
    }
}

#[test]
fn every_model_of_the_list_is_trained_and_explained() {
    let help = halfgnn(&["train", "--help"]).output().unwrap();
    let help = text(&help.stdout);
    for kind in halfgnn::nn::ConvolutionConfig::kinds() {
        assert!(help.contains(kind.title), "{} is not in: {help}", kind.name);
        for option in kind.options {
            assert!(help.contains(&format!("--{}", option.name)), "{help}");
        }
        let output = halfgnn(&[
            "train",
            "--device",
            "cpu",
            "--dataset",
            "blocks:64",
            "--epochs",
            "2",
            "--hidden",
            "16",
            "--layers",
            "2",
            "--model",
            kind.name,
        ])
        .output()
        .unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let name = kind.name.to_uppercase();
        assert!(
            text(&output.stdout).contains(&format!("{name} in half")),
            "{name}"
        );
    }
    assert!(
        help.contains("[default: 2; GAT 3, GATV2 3, GIN 5, GCNII 64, TRANSFORMER 3, GINE 5, CG 3]"),
        "{help}"
    );
}

/// Rows that are gathered lie in the distances that are asked for, and in none that there cannot be.
#[test]
fn rows_are_gathered_at_a_stride() {
    let spmm = |stride: &str| {
        let all = "bench spmm --graph kron:8 --features 40 --precision half --policy discretized-float --device cpu --runs 1 --stride";
        let words: Vec<&str> = all.split(' ').chain([stride]).collect();
        halfgnn(&words).output().expect("the program")
    };
    let told = spmm("auto");
    assert!(told.status.success(), "{}", text(&told.stderr));
    let told = text(&told.stdout);
    for policy in [
        "discretized-float  ",
        "discretized-float, rows 96 bytes apart",
        "discretized-float, rows 128 bytes apart",
    ] {
        assert_eq!(told.matches(policy).count(), 1, "{policy}: {told}");
    }
    let told = spmm("112,112");
    let told = text(&told.stdout);
    assert_eq!(told.matches("rows 112 bytes apart").count(), 1, "{told}");
    assert_eq!(told.matches("discretized-float").count(), 1, "{told}");
    let wrong = spmm("90");
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("a multiple of 16"));
    refused(&spmm("64"), 2, &["--stride 64", "in half are 80 bytes"]);
}

/// A loss that is not finite is reported once, with the operator that overflowed. The default mean of the neighbors
/// keeps it finite.
#[test]
fn a_loss_that_is_not_finite_is_said_once() {
    let train = |more: &[&str]| {
        let common = [
            "train",
            "--dataset",
            "synthetic",
            "--device",
            "cpu",
            "--epochs",
            "2",
        ];
        let output = halfgnn(&[&common, more].concat()).output().unwrap();
        assert!(output.status.success());
        [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap())
    };
    for model in ["graphconv", "resgated"] {
        let [lines, warnings] = train(&["--model", model]);
        assert!(!lines.contains("NaN") && warnings.is_empty(), "{warnings}");
    }
    let [lines, warnings] = train(&["--model", "graphconv", "--aggregate", "sum"]);
    assert!(lines.contains("loss NaN"), "{lines}");
    let said = "epoch 1: the loss is NaN, from an overflow in aggregate";
    assert_eq!(warnings.matches(said).count(), 1, "{warnings}");
    assert_eq!(warnings.lines().count(), 1, "{warnings}");
}

/// An option's value that another model has is refused of this one.
#[test]
fn an_aggregation_of_other_models_is_refused() {
    let run = |model: &str, aggregate: &str| {
        let common = [
            "train",
            "--dataset",
            "synthetic",
            "--device",
            "cpu",
            "--epochs",
            "1",
        ];
        let own = ["--model", model, "--aggregate", aggregate];
        let output = halfgnn(&[&common[..], &own].concat()).output().unwrap();
        (
            output.status.success(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let (passed, said) = run("gin", "max");
    assert!(
        !passed && said.contains("--aggregate max of gin: it must be mean or sum"),
        "{said}"
    );
    let (passed, said) = run("graphconv", "max");
    assert!(passed && said.is_empty(), "{said}");
}

/// Layers that are carried over one by one come back as the same model where they are named with their options.
#[test]
fn layers_that_are_named_are_exported_and_imported() {
    let place = place(&Ring::new());
    let run = |arguments: &[&str]| {
        let mut command = halfgnn(arguments);
        command.current_dir(place.folder.path()).output().unwrap()
    };
    let tag = ["--model", "tag", "--hops", "2"];
    let train = [&tag[..], &["--epochs", "2", "--save", "tag"]].concat();
    assert!(place.train(&train).output().unwrap().status.success());
    let exported = run(&["export", "tag", "--to", "pyg", "pyg.safetensors"]);
    assert!(text(&exported.stdout).contains("TAGConv(…, K=2)"));
    let import = ["import", "pyg.safetensors", "--from", "pyg", "back"];
    let imported = run(&[&import[..], &tag].concat());
    assert!(imported.status.success(), "{}", text(&imported.stderr));
    let other = [&import[..], &["--model", "tag", "--hops", "3"]].concat();
    refused(&run(&other), 2, &["no tensor for `layers.0.hops.3.weight`"]);
    refused(&run(&import), 2, &["name its layers, such as --model tag"]);
    let without = [&import[..], &["--hops", "2"]].concat();
    refused(&run(&without), 2, &["--model"]);
}

/// Models that were trained here predict the same behind PyG's names.
#[test]
fn trained_models_of_every_kind_come_back_from_pygs_names() {
    let mut ring = Ring::new();
    let weights = ring.weights.iter_mut().enumerate();
    weights.for_each(|(edge, weight)| *weight = (edge % 5) as f32 / 4.0 + 0.25);
    let place = place(&ring);
    let run = |arguments: &[&str]| {
        let mut command = halfgnn(arguments);
        command.current_dir(place.folder.path()).output().unwrap()
    };
    for (options, note) in [
        (
            "rgcn --bases 2",
            "RGCNConv(…, num_relations=1, num_bases=2)",
        ),
        ("rgcn --blocks 3", "num_blocks=3"),
        ("arma --stacks 2", "ARMAConv(…, num_stacks=2, num_layers=1"),
        ("mixhop --powers 0,1,3", "MixHopConv(…, powers=[0, 1, 3])"),
        ("gatedgraph --steps 3", "GatedGraphConv(…, num_layers=3)"),
        (
            "transformer --heads 3",
            "TransformerConv(…, heads=3, beta=False)",
        ),
        ("transformer --heads 2 --beta", "concat=False"),
        (
            "gine --learn-epsilon",
            "GINEConv(…, aggr='mean', edge_dim=1)",
        ),
        (
            "gine --aggregate sum --running-statistics --epsilon 0.5",
            "1,023 neighbours",
        ),
        (
            "gine --aggregate min",
            "GINEConv(…, aggr='min', edge_dim=1)",
        ),
        ("graphconv --aggregate max", "GraphConv(…, aggr='max')"),
        ("edge", "EdgeConv(…, aggr='max')"),
        ("gen --temperature 2", "aggr='softmax', t=2, expansion=2"),
        ("gen --aggregate std --running-statistics", "aggr='std'"),
        ("pna --log-degree 1.5", "edge_dim=1"),
        (
            "resgated --no-root-weight",
            "root_weight=False, aggr='mean', edge_dim=1",
        ),
        ("cg --aggregate sum", "CGConv(…, aggr='add', dim=1)"),
    ] {
        let model: Vec<&str> = ["--model"].into_iter().chain(options.split(' ')).collect();
        let weights: &[&str] = match options.split(' ').next() {
            Some("rgcn" | "transformer" | "graphconv" | "edge") => &["--ignore-edge-weights"],
            _ => &[],
        };
        let more = [
            "--hidden",
            "6",
            "--epochs",
            "3",
            "--precision",
            "float",
            "--save",
            "own",
        ];
        let trained = place
            .train(&[&model[..], weights, &more].concat())
            .output()
            .unwrap();
        assert!(
            trained.status.success(),
            "{options}: {}",
            text(&trained.stderr)
        );
        let exported = run(&["export", "own", "--to", "pyg", "pyg.safetensors"]);
        assert!(
            exported.status.success(),
            "{options}: {}",
            text(&exported.stderr)
        );
        assert!(
            text(&exported.stdout).contains(note),
            "{}",
            text(&exported.stdout)
        );
        let import = [
            "import",
            "pyg.safetensors",
            "--from",
            "pyg",
            "back",
            "--features",
            "3",
        ];
        let with_weights: &[&str] = match weights {
            [] => &["--edge-weights"],
            _ => &[],
        };
        let imported = run(&[&import[..], &model, with_weights].concat());
        assert!(
            imported.status.success(),
            "{options}: {}",
            text(&imported.stderr)
        );
        let [own, back] = ["own", "back"].map(|model| {
            let to = format!("{model}.npy");
            let predict = [
                "predict",
                "--model",
                model,
                "--dataset",
                "ring.npz",
                "--logits",
            ];
            let out = ["--out", &to, "--device", "cpu"];
            let told = run(&[&predict[..], &out, weights].concat());
            assert!(told.status.success(), "{options}: {}", text(&told.stderr));
            std::fs::read(place.folder.path().join(&to)).unwrap()
        });
        assert_eq!(own, back, "{options}");
        for file in ["own", "back", "own.npy", "back.npy", "pyg.safetensors"] {
            std::fs::remove_file(place.folder.path().join(file)).unwrap();
        }
    }
}
