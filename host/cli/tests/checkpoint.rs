//! Runs that are put aside, killed, taken up again and asked what they have learnt, as a person does it.

mod common;

use common::ring::{Place, Ring, VERTICES, place};
use common::{events, halfgnn, refused, text};
use halfgnn::train::{Checkpoint, Tensors};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn run(mut command: Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    output
}

/// What a checkpoint of the place holds: the epoch, and all tensors but those of the best epoch, bit for bit.
fn state(place: &Place, file: &str) -> (u32, Vec<(String, Vec<u32>)>) {
    let checkpoint = Checkpoint::open(&place.folder.path().join(file)).unwrap();
    let bits = |tensors: Tensors| {
        let bits = tensors
            .into_iter()
            .map(|(name, tensor)| (name, tensor.values.into_iter().map(f32::to_bits).collect()));
        bits.collect()
    };
    (
        checkpoint.snapshot.progress.epoch,
        bits(checkpoint.snapshot.tensors),
    )
}

#[test]
fn a_resumed_run_has_the_bits_of_one_that_never_stopped() {
    for precision in ["half", "float"] {
        let place = place(&Ring::new());
        let arguments = ["--precision", precision, "--save"];
        run(place.train(&[&arguments[..], &["whole", "--epochs", "9"]].concat()));
        run(place.train(&[&arguments[..], &["part", "--epochs", "4"]].concat()));
        assert_eq!(state(&place, "part").0, 4);
        let resumed = run(place.train(&[
            "--resume", "part", "--save", "part", "--epochs", "9", "--json", "-",
        ]));
        assert_eq!(state(&place, "part"), state(&place, "whole"), "{precision}");
        let events = events(&resumed.stdout);
        let epochs: Vec<_> = events
            .iter()
            .filter(|event| event["event"] == "epoch")
            .collect();
        assert_eq!(epochs.len(), 5);
        assert_eq!(
            (&epochs[0]["epoch"], &epochs[4]["epoch"]),
            (&5.into(), &9.into())
        );
        let start = &events[0];
        assert_eq!(
            (&start["precision"], &start["epochs"]),
            (&precision.into(), &9.into())
        );
    }
}

/// However a run is killed, what is there is whole, and can be gone on with to the same bits.
#[test]
fn a_killed_run_leaves_the_last_whole_checkpoint() {
    let place = place(&Ring::new());
    let save = ["--save", "kept", "--save-every", "1"];
    for kill in 0..3 {
        let file = place.folder.path().join("kept");
        let before = Checkpoint::open(&file).map_or(0, |kept| kept.snapshot.progress.epoch);
        let more = if kill == 0 {
            vec![]
        } else {
            vec!["--resume", "kept"]
        };
        let mut child = place
            .train(&[&save[..], &["--epochs", "1000000"], &more].concat())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        // Killed as soon as it has written something, which is in the middle of writing the next.
        while Checkpoint::open(&file).map_or(0, |kept| kept.snapshot.progress.epoch)
            <= before + kill
        {
            assert!(Instant::now() < deadline, "nothing was kept");
            assert!(
                child.try_wait().unwrap().is_none(),
                "the run ended by itself"
            );
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let (epoch, _) = state(&place, "kept");
    let epochs = (epoch + 3).to_string();
    run(place.train(&["--resume", "kept", "--save", "kept", "--epochs", &epochs]));
    run(place.train(&["--save", "whole", "--epochs", &epochs]));
    let tensors = |file| {
        let (epoch, tensors) = state(&place, file);
        // The run that was killed had other numbers of epochs to come, which do not matter.
        (epoch, tensors)
    };
    assert_eq!(tensors("kept"), tensors("whole"));
}

#[cfg(unix)]
#[test]
fn ctrl_c_keeps_the_run() {
    let place = place(&Ring::new());
    let child = place
        .train(&[
            "--epochs",
            "100000",
            "--save",
            "kept",
            "--save-every",
            "100000",
            "--json",
            "runs.jsonl",
        ])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let id = child.id().to_string();
    std::thread::sleep(Duration::from_millis(300));
    assert!(
        Command::new("kill")
            .args(["-INT", &id])
            .status()
            .unwrap()
            .success()
    );
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let told = std::fs::read(place.folder.path().join("runs.jsonl")).unwrap();
    let events = events(&told);
    let last = events
        .iter()
        .rfind(|event| event["event"] == "epoch")
        .unwrap();
    assert_eq!(last["epoch"], state(&place, "kept").0);
}

#[test]
fn a_model_predicts_what_it_was_said_to() {
    let place = place(&Ring::new());
    let trained = run(place.train(&["--epochs", "30", "--save", "model", "--json", "-"]));
    let summary = events(&trained.stdout).pop().unwrap();
    let predict = |more: &[&str]| {
        let mut command = halfgnn(&[
            "predict",
            "--device",
            "cpu",
            "--model",
            "model",
            "--dataset",
        ]);
        command
            .arg(&place.dataset)
            .args(more)
            .current_dir(place.folder.path());
        command
    };
    let told = run(predict(&["--out", "classes.npy"]));
    let accuracy = format!(
        "test accuracy {:.2} %",
        summary["test_accuracy"].as_f64().unwrap()
    );
    assert!(
        text(&told.stdout).contains(&accuracy),
        "{}",
        text(&told.stdout)
    );

    let array = |name: &str, kind: &str| {
        let bytes = std::fs::read(place.folder.path().join(name)).unwrap();
        let header = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
        assert!(text(&bytes[10..header]).contains(kind));
        bytes[header..]
            .chunks(4)
            .map(|word| <[u8; 4]>::try_from(word).unwrap())
            .collect::<Vec<_>>()
    };
    let classes: Vec<u32> = array("classes.npy", "'<u4'")
        .into_iter()
        .map(u32::from_le_bytes)
        .collect();
    assert_eq!(classes.len(), VERTICES as usize);
    // To a program, the same; stdout has nothing else.
    let told = run(predict(&["--out", "logits.npy", "--logits", "--json", "-"]));
    let [event] = &events(&told.stdout)[..] else {
        panic!("{}", text(&told.stdout))
    };
    assert_eq!(event["event"], "prediction");
    assert_eq!(event["test_accuracy"], summary["test_accuracy"]);
    assert_eq!(
        (&event["output"], &event["logits"]),
        (&"logits.npy".into(), &true.into())
    );
    let ones = classes.iter().filter(|&&class| class == 1).count();
    assert_eq!(
        event["vertices_by_class"],
        serde_json::json!([classes.len() - ones, ones])
    );
    assert!(text(&told.stderr).contains(&accuracy));
    let logits: Vec<f32> = array("logits.npy", "'<f4'")
        .into_iter()
        .map(f32::from_le_bytes)
        .collect();
    for (row, &class) in logits.chunks(2).zip(&classes) {
        assert_eq!(u32::from(row[1] > row[0]), class);
    }

    // In whatever order vertices are worked on, what is written is in the dataset's.
    let largest = logits.iter().fold(0.0_f32, |most, z| most.max(z.abs()));
    for order in ["degree", "louvain", "label-propagation"] {
        let told = run(predict(&[
            "--out",
            "again.npy",
            "--logits",
            "--reorder",
            order,
        ]));
        assert!(text(&told.stdout).contains("in the order of"));
        assert!(text(&told.stdout).contains(&accuracy));
        let again = array("again.npy", "'<f4'").into_iter();
        for (again, logit) in again.map(f32::from_le_bytes).zip(&logits) {
            // Neighbours are summed up in another order, which may turn a rounding to half, twice a layer.
            assert!((again - logit).abs() <= largest / 512.0);
        }
    }

    // One pass over a ring pays for no other order, and so has the same bits.
    let told = run(predict(&[
        "--out",
        "again.npy",
        "--logits",
        "--reorder",
        "auto",
    ]));
    let told = text(&told.stdout);
    assert!(told.contains("left in its order"), "{told}");
    assert!(
        told.contains("an order can save 0.0 s at most in"),
        "{told}"
    );
    assert_eq!(
        array("again.npy", "'<f4'"),
        array("logits.npy", "'<f4'"),
        "nothing was renamed"
    );

    let mut wider = Ring::new();
    wider.features = 4;
    let other = common::ring::place(&wider);
    let mut command = halfgnn(&["predict", "--device", "cpu", "--out", "x.npy", "--model"]);
    command
        .arg(place.folder.path().join("model"))
        .arg("--dataset")
        .arg(&other.dataset)
        .current_dir(other.folder.path());
    refused(
        &command.output().unwrap(),
        2,
        &["model", "3 features", "has 4"],
    );
    assert_eq!(other.files(), ["ring.npz"], "nothing was written");
}

#[test]
fn predictions_are_written_as_the_name_says() {
    let place = place(&Ring::new());
    run(place.train(&["--epochs", "30", "--save", "model"]));
    let predict = |more: &[&str]| {
        let base = [
            "predict",
            "--device",
            "cpu",
            "--model",
            "model",
            "--dataset",
        ];
        let mut command = halfgnn(&base);
        command
            .arg(&place.dataset)
            .args(more)
            .current_dir(place.folder.path());
        command
    };
    let lines = |name: &str| {
        let written = std::fs::read_to_string(place.folder.path().join(name)).unwrap();
        written.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    run(predict(&["--out", "o.csv"]));
    run(predict(&["--out", "logits.CSV", "--logits"]));
    let (classes, logits) = (lines("o.csv"), lines("logits.CSV"));
    assert_eq!((&classes[0][..], classes.len()), ("vertex,class", 41));
    assert_eq!(
        (&logits[0][..], logits.len()),
        ("vertex,logit_0,logit_1", 41)
    );
    for (vertex, (class, logit)) in classes.iter().zip(&logits).skip(1).enumerate() {
        let logit: Vec<f32> = logit.split(',').map(|word| word.parse().unwrap()).collect();
        assert_eq!(logit[0], vertex as f32);
        let largest = u32::from(logit[2] > logit[1]);
        assert_eq!(*class, format!("{vertex},{largest}"));
    }
    let before = place.files();
    for name in ["o.parquet", "o"] {
        let output = predict(&["--out", name]).output().unwrap();
        refused(&output, 2, &[&format!("--out {name}"), ".npy", ".csv"]);
    }
    assert_eq!(place.files(), before);
}

#[test]
fn each_seed_is_kept_in_a_file_of_its_own() {
    let place = place(&Ring::new());
    let seeds = ["--seed", "3", "--seeds", "2", "--epochs", "4"];
    let output =
        run(place.train(&[&seeds[..], &["--save", "run.safetensors", "--json", "-"]].concat()));
    let names = ["run.seed-3.safetensors", "run.seed-4.safetensors"];
    assert_eq!(place.files(), ["ring.npz", names[0], names[1]]);
    let start = events(&output.stdout).remove(0);
    assert_eq!(start["checkpoints"], serde_json::json!(names));
    for name in names {
        assert!(
            text(&output.stderr).contains(name),
            "{}",
            text(&output.stderr)
        );
    }
    // Each goes on with its own seed.
    run(place.train(&["--resume", names[1], "--save", "on", "--epochs", "7"]));
    run(place.train(&["--seed", "4", "--save", "whole", "--epochs", "7"]));
    assert_eq!(state(&place, "on"), state(&place, "whole"));
    let output = place
        .train(&[&seeds[..], &["--save", "none/kept"]].concat())
        .output()
        .unwrap();
    refused(
        &output,
        2,
        &["--save none/kept.seed-3", "cannot be written"],
    );
    let output = place
        .train(&["--seeds", "4294967295", "--save", "all"])
        .output()
        .unwrap();
    refused(&output, 2, &["4294967295 seeds", "at most 10000"]);
}

#[test]
fn early_stopping_ends_a_run_that_gets_no_better() {
    let place = place(&Ring::new());
    let output = run(place.train(&["--epochs", "5000", "--early-stopping", "5", "--json", "-"]));
    let events = events(&output.stdout);
    let run = events.iter().find(|event| event["event"] == "run").unwrap();
    assert_eq!(run["status"], "early_stopped");
    let (epochs, best) = (
        run["epochs"].as_u64().unwrap(),
        run["best_epoch"].as_u64().unwrap(),
    );
    assert_eq!(epochs, best + 5);
}

#[test]
fn curves_are_drawn() {
    let place = place(&Ring::new());
    run(place.train(&["--epochs", "12", "--seeds", "2", "--plot", "curves.svg"]));
    let svg = std::fs::read_to_string(place.folder.path().join("curves.svg")).unwrap();
    for words in [
        "<svg",
        "Loss, GCN in half on ring",
        "Accuracy, GCN in half on ring",
        "validation",
        "epoch",
    ] {
        assert!(svg.contains(words), "no `{words}`");
    }
    let output = place.train(&["--plot", "curves.png"]).output().unwrap();
    refused(&output, 2, &["--plot curves.png", ".svg"]);
}

#[test]
fn what_does_not_fit_is_refused_in_one_line() {
    let place = place(&Ring::new());
    run(place.train(&["--epochs", "2", "--save", "kept"]));
    let resume = |arguments: &[&str]| {
        place
            .train(&[&["--resume"], arguments].concat())
            .output()
            .unwrap()
    };

    refused(&resume(&["none"]), 2, &["none", "cannot be read"]);
    refused(
        &resume(&["ring.npz"]),
        2,
        &["ring.npz", "no checkpoint", "--save"],
    );
    let whole = std::fs::read(place.folder.path().join("kept")).unwrap();
    std::fs::write(place.folder.path().join("cut"), &whole[..whole.len() - 1]).unwrap();
    refused(&resume(&["cut"]), 2, &["cut", "no checkpoint"]);
    let mut changed = whole;
    *changed.last_mut().unwrap() ^= 0xff;
    std::fs::write(place.folder.path().join("cut"), &changed).unwrap();
    refused(&resume(&["cut"]), 2, &["cut", "tensor `", "damaged"]);

    let mut relabelled = Ring::new();
    relabelled.labels[0] = 1;
    relabelled.write(place.folder.path());
    refused(&resume(&["kept"]), 2, &["kept", "other labels"]);
    refused(
        &resume(&["kept", "--reorder", "auto"]),
        2,
        &["--reorder auto would decide anew"],
    );

    for flag in [["--hidden", "8"], ["--seed", "1"], ["--precision", "float"]] {
        let output = resume(&["kept", flag[0], flag[1]]);
        assert_eq!(output.status.code(), Some(2));
        assert!(
            text(&output.stderr).contains(flag[0]),
            "{}",
            text(&output.stderr)
        );
    }
    let output = place
        .train(&["--epochs", "1", "--save", "no/folder/kept"])
        .output()
        .unwrap();
    refused(&output, 2, &["--save no/folder/kept", "cannot be written"]);
    assert_eq!(place.files(), ["cut", "kept", "ring.npz"]);
}

/// Files that version 0.1.0 wrote before there were checksums: they are read, written again with the same content, and
/// gone on with.
#[test]
fn checkpoints_of_before_are_read_and_gone_on_with() {
    for model in ["gcn", "gat", "gin", "sage"] {
        let file = format!(
            "{}/tests/data/checkpoints/{model}.safetensors",
            env!("CARGO_MANIFEST_DIR")
        );
        let before = Checkpoint::open(file.as_ref()).expect(model);
        let folder = tempfile::tempdir().unwrap();
        let again = folder.path().join("again");
        before.save(&again).unwrap();
        assert_eq!(Checkpoint::open(&again).expect(model), before, "{model}");
        let output = folder.path().join("after");
        let output = output.to_str().unwrap();
        run(halfgnn(&[
            "train",
            "--device",
            "cpu",
            "--dataset",
            "blocks:64",
            "--resume",
            &file,
            "--epochs",
            "5",
            "--save",
            output,
        ]));
        let after = Checkpoint::open(output.as_ref()).unwrap();
        assert_eq!(after.snapshot.progress.epoch, 5);
        let names = |checkpoint: &Checkpoint| -> Vec<String> {
            checkpoint.snapshot.tensors.keys().cloned().collect()
        };
        assert_eq!(names(&before), names(&after), "{model}");
    }
}
