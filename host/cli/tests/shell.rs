//! The habits of a shell: help, version, completions, man pages, logs, colours, exit statuses, and what the machine
//! offers.

mod common;

use common::{documented, events, halfgnn, refused, text};
use std::process::Output;

fn run(arguments: &[&str]) -> Output {
    halfgnn(arguments).output().unwrap()
}

/// The names of all commands, as the program lists them.
fn commands() -> Vec<String> {
    let names = commands_of(&[]);
    assert!(names.len() >= 7, "{names:?}");
    names
}

/// The commands below a command; none of one that has none.
fn commands_of(command: &[&str]) -> Vec<String> {
    let help = run(&[command, &["--help"]].concat());
    text(&help.stdout)
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .map(|line| line.split_whitespace().next().unwrap().to_owned())
        .filter(|name| name != "help")
        .collect()
}

/// Forms of sums of bits are not passed over where no sum is of bits.
#[test]
fn forms_want_sums_of_bits() {
    let bench = ["bench", "bspmm", "--graph", "kron:6", "--device", "cpu"];
    let forms = ["--variant", "FBF", "--frdc", "one-count"];
    let output = halfgnn(&[&bench[..], &forms].concat()).output().unwrap();
    refused(&output, 2, &["--frdc is of sums of bits", "add BBB or BBF"]);
    let schedules = ["--variant", "FBF", "--schedule", "vertex"];
    let output = halfgnn(&[&bench[..], &schedules].concat())
        .output()
        .unwrap();
    refused(
        &output,
        2,
        &["--schedule is of sums of bits", "add BBB or BBF"],
    );
}

#[test]
fn help_teaches() {
    let help = run(&["--help"]);
    assert!(help.status.success());
    for word in [
        "Examples:",
        "Exit status:",
        "130",
        "CUDA_VISIBLE_DEVICES",
        "NO_COLOR",
        "RUST_LOG",
    ] {
        assert!(text(&help.stdout).contains(word), "{word}");
    }
    for name in commands() {
        let help = run(&[&name, "--help"]);
        assert!(help.status.success(), "{name}");
        assert!(text(&help.stdout).contains("Examples:"), "{name}");
    }
    // Without a command: the help, as an error.
    let nothing = run(&[]);
    assert_eq!(nothing.status.code(), Some(2));
    assert!(text(&nothing.stderr).contains("Usage: halfgnn"));
}

#[test]
fn the_version_is_that_of_the_package() {
    let version = concat!("halfgnn ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!(text(&run(&["--version"]).stdout), version);
    assert_eq!(text(&run(&["-V"]).stdout), version);
}

#[test]
fn every_shell_gets_completions_of_every_command() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = run(&["completions", shell]);
        assert!(script.status.success(), "{shell}");
        let script = text(&script.stdout);
        for name in commands() {
            assert!(script.contains(&name), "{shell} does not know {name}");
        }
        assert!(script.contains("weight-decay"), "{shell}");
    }
    let unknown = run(&["completions", "cmd.exe"]);
    assert_eq!(unknown.status.code(), Some(2));
}

#[test]
fn man_pages_are_written_one_or_all() {
    let page = run(&["man"]);
    let page = text(&page.stdout);
    assert!(page.contains(".TH halfgnn 1"), "{page}");
    assert!(page.contains("Exit status"), "{page}");
    let train = run(&["man", "train"]);
    assert!(text(&train.stdout).contains("weight"));
    refused(&run(&["man", "trian"]), 2, &["trian", "--help"]);

    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("new/man1");
    let all = run(&["man", "--dir", place.to_str().unwrap()]);
    assert!(all.status.success(), "{}", text(&all.stderr));
    for name in commands() {
        let page = std::fs::read_to_string(place.join(format!("halfgnn-{name}.1"))).unwrap();
        assert!(page.contains(&format!(".TH halfgnn-{name} 1")), "{page}");
    }
    assert!(place.join("halfgnn.1").exists());
}

#[test]
fn devices_are_tried_and_told() {
    let output = halfgnn(&["device", "--json", "-"])
        .env("CUDA_VISIBLE_DEVICES", "")
        .env("HALFGNN_PTX_DIR", "/nowhere")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let devices = events(&output.stdout);
    let named = |name: &str| {
        devices
            .iter()
            .find(|event| event["device"] == name)
            .unwrap_or_else(|| panic!("{name}"))
    };
    assert_eq!(devices.len(), 3);
    assert_eq!(named("cpu")["usable"], true);
    assert_eq!(named("cpu")["auto"], true);
    assert!(
        named("cpu")["name"].as_str().unwrap().contains("CPU"),
        "{devices:?}"
    );
    for name in ["cuda", "emulator"] {
        assert_eq!(named(name)["usable"], false, "{name}");
        assert_eq!(named(name)["auto"], false, "{name}");
    }
    assert!(named("cuda")["reason"].as_str().unwrap().contains("CUDA"));
    let reason = named("emulator")["reason"].as_str().unwrap();
    assert!(
        reason.contains("/nowhere") && reason.contains("build-ptx"),
        "{reason}"
    );
    // In words, on the other stream.
    let words = text(&output.stderr);
    for part in [
        "CUDA_VISIBLE_DEVICES=\"\"",
        "--device cpu       yes",
        "--device cuda      no: ",
        "takes --device cpu",
    ] {
        assert!(words.contains(part), "`{part}` is not in: {words}");
    }
}

/// Every command that reports something reports it as JSON lines as well, on stdout with nothing else there, and
/// docs/events.md has each event and field.
#[test]
fn every_command_has_json_for_programs() {
    const ON_CPU: [&str; 2] = ["--device", "cpu"];
    let folder = tempfile::tempdir().unwrap();
    let commands: [(&[&str], &[&str], &str); 30] = [
        (
            &["train"],
            &[
                "--dataset",
                "blocks:200",
                "--epochs",
                "1",
                "--layers",
                "3",
                "--hidden",
                "4,6",
                "--save",
                "model",
            ],
            "summary",
        ),
        (
            &["tune"],
            &[
                "space.toml",
                "--trials",
                "2",
                "--",
                "--dataset",
                "blocks:200",
                "--epochs",
                "2",
            ],
            "tuned",
        ),
        (
            &["train"],
            &[
                "--dataset",
                "blocks:200",
                "--epochs",
                "1",
                "--binary",
                "full,bin",
                "--save",
                "bits",
            ],
            "summary",
        ),
        (
            &["tune-binary"],
            &[
                "--dataset",
                "blocks:200",
                "--split",
                "fractions:0.6,0.2",
                "--model",
                "bits",
                "--runs",
                "1",
            ],
            "chosen",
        ),
        (
            &["predict"],
            &[
                "--dataset",
                "blocks:200",
                "--model",
                "model",
                "--out",
                "classes.npy",
            ],
            "prediction",
        ),
        (
            &["export"],
            &["model", "--to", "pyg", "pyg.safetensors"],
            "exported",
        ),
        (
            &["import"],
            &["pyg.safetensors", "--from", "pyg", "back"],
            "imported",
        ),
        (&["demo"], &["--epochs", "1"], "summary"),
        (
            &["bench", "spmm"],
            &["--graph", "kron:6", "--features", "8", "--runs", "1"],
            "spmm",
        ),
        (
            &["bench", "sddmm"],
            &["--graph", "kron:6", "--features", "8", "--runs", "1"],
            "sddmm",
        ),
        (
            &["bench", "spmv"],
            &[
                "--graph",
                "kron:6",
                "--precision",
                "half,bf16,float",
                "--runs",
                "1",
            ],
            "spmv",
        ),
        (
            &["bench", "bspmm"],
            &[
                "--graph",
                "kron:6",
                "--features",
                "8,70",
                "--runs",
                "1",
                "--variant",
                "all",
                "--frdc",
                "if-else,two-counts,one-count",
                "--schedule",
                "edge,vertex",
            ],
            "bspmm",
        ),
        (
            &["bench", "bmm"],
            &[
                "--rows",
                "70",
                "--inner",
                "9,130",
                "--columns",
                "7,70",
                "--variant",
                "all",
                "--runs",
                "1",
            ],
            "bmm",
        ),
        (
            &["bench", "quantized"],
            &["--graph", "kron:6", "--features", "8,70", "--runs", "1"],
            "quantized",
        ),
        (
            &["bench", "construct"],
            &["--graph", "kron:6", "--runs", "1"],
            "construct",
        ),
        (
            &["bench", "sampled"],
            &[
                "--graph",
                "kron:8",
                "--subgraphs",
                "3",
                "--vertices",
                "20,60",
                "--features",
                "6",
                "--runs",
                "1",
            ],
            "sampled_summary",
        ),
        (
            &["bench", "sampling"],
            &[
                "--graph",
                "kron:6",
                "--sampler",
                "neighbor:3,2",
                "--batch",
                "9",
                "--batches",
                "3",
            ],
            "sampling",
        ),
        (
            &["bench", "scale"],
            &["--graph", "kron:6", "--ranks", "1,3,100"],
            "scale",
        ),
        (
            &["bench", "comm"],
            &["--devices", "0,1", "--sizes", "4,8", "--runs", "1"],
            "fit",
        ),
        (
            &["bench", "ablations"],
            &["--graph", "kron:6", "--features", "8", "--runs", "1"],
            "accuracy",
        ),
        (
            &["bench", "ablations"],
            &[
                "--paper",
                "gnnone",
                "--graph",
                "kron:6",
                "--features",
                "16",
                "--runs",
                "1",
            ],
            "accuracy",
        ),
        (
            &["bench", "train"],
            &[
                "--graph",
                "kron:6",
                "--features",
                "8",
                "--epochs",
                "1",
                "--hidden",
                "4",
            ],
            "train",
        ),
        (
            &["profile", "step"],
            &["--dataset", "blocks:40", "--runs", "2"],
            "step",
        ),
        (
            &["report"],
            &["train.jsonl", "--output", "page.html"],
            "report",
        ),
        (&["dataset", "info"], &["kron:6"], "dataset"),
        (&["dataset", "convert"], &["kron:6", "graph.mtx"], "written"),
        (
            &["dataset", "partition"],
            &["blocks:40", "--out", "blocks.parts", "--parts", "3"],
            "partitioned",
        ),
        (
            &["dataset", "generate"],
            &["kron:6", "graph.csr"],
            "written",
        ),
        (&["dataset", "download"], &["--print"], "published"),
        (&["device"], &[], "device"),
    ];
    std::fs::write(folder.path().join("space.toml"), "hidden = [4, 6]\n").unwrap();
    let documented = documented::events();
    for (command, arguments, last) in commands {
        let on_cpu = !matches!(
            command,
            ["report" | "dataset" | "device" | "export" | "import", ..] | ["bench", "scale"]
        );
        let device: &[&str] = if on_cpu { &ON_CPU } else { &[] };
        let output = halfgnn(&[command, &["--json", "-"], arguments, device].concat())
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{command:?}: {}",
            text(&output.stderr)
        );
        let events = events(&output.stdout);
        assert_eq!(events.last().unwrap()["event"], last, "{command:?}");
        for event in &events {
            documented::check(&documented, event, &command.join(" "));
        }
        // The report reads that of train.
        std::fs::write(
            folder.path().join(format!("{}.jsonl", command.join("-"))),
            output.stdout,
        )
        .unwrap();
    }

    // None is left out but what writes what other programs read, and what needs kernels: the next test.
    let named: Vec<String> = commands
        .iter()
        .map(|(command, _, _)| command.join(" "))
        .collect();
    for name in commands_of(&[]) {
        let below = commands_of(&[&name]);
        let whole = match below.is_empty() {
            true => vec![name],
            false => below.iter().map(|part| format!("{name} {part}")).collect(),
        };
        for command in whole {
            let elsewhere = ["profile spmm", "completions", "man"].contains(&command.as_str());
            assert!(
                elsewhere || named.contains(&command),
                "{command} is not tried"
            );
        }
    }
}

#[test]
fn padding_is_told_by_benches() {
    let output = run(&[
        "bench",
        "spmm",
        "--graph",
        "kron:5",
        "--features",
        "6,16",
        "--policy",
        "hp,discretized-half-hp",
        "--runs",
        "1",
        "--device",
        "cpu",
    ]);
    let told = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(
        told.contains("rows of 6 features in half are padded to 8"),
        "{told}"
    );
    assert!(!told.contains("rows of 16 features"), "{told}");
    assert!(
        told.contains(" hp ") && told.contains(" discretized-half-hp "),
        "{told}"
    );
}

#[test]
fn a_profile_is_told_as_json() {
    let output = run(&[
        "profile",
        "spmm",
        "--graph",
        "kron:5",
        "--features",
        "8",
        "--json",
        "-",
    ]);
    if !output.status.success() && std::env::var_os("HALFGNN_REQUIRE_PTX").is_none() {
        // Nothing else may be wrong.
        let error = refused(&output, 1, &["cargo xtask build-ptx"]);
        return println!("not profiled: {error}");
    }
    let events = events(&output.stdout);
    assert!(!events.is_empty(), "{}", text(&output.stderr));
    for event in &events {
        assert_eq!(event["event"], "profile");
        assert_eq!(event["graph"], "kron5");
        assert!(event["warp_instructions"].as_u64().unwrap() > 0, "{event}");
        assert_eq!(event["atomics"], 0, "{event}");
    }
}

#[test]
fn logs_are_as_loud_as_asked_and_have_no_colour_in_a_file() {
    let train = |arguments: &[&str], variables: &[(&str, &str)]| {
        let mut command = halfgnn(&["train", "--dataset", "synthetic", "--epochs", "1"]);
        command
            .args(["--device", "auto", "--hidden", "8"])
            .args(arguments)
            .env("CUDA_VISIBLE_DEVICES", "")
            .envs(variables.iter().copied());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stderr).to_owned()
    };
    assert_eq!(train(&[], &[]), "");
    for log in [
        train(&["-v"], &[]),
        train(&[], &[("RUST_LOG", "halfgnn=info")]),
        train(&["-v"], &[("NO_COLOR", "1")]),
    ] {
        assert!(log.contains("on the CPU"), "{log}");
        assert!(!log.contains('\u{1b}'), "{log}");
    }
    assert_eq!(train(&["-v"], &[("RUST_LOG", "off")]), "");

    for filter in ["halfgnn=loud", "halfgnn[training]=debug"] {
        let wrong = halfgnn(&["device"])
            .env("RUST_LOG", filter)
            .output()
            .unwrap();
        refused(&wrong, 2, &["RUST_LOG", filter]);
    }
}
