//! A person's own tables: trained on, predicted of under their own ids, carried to another framework and back.

mod common;

use common::{events, halfgnn, refused, text};
use std::path::Path;
use std::process::{Command, Output};

/// Forty people in two rings; their first feature is their team. Ids are names, one with a comma.
fn tables(folder: &Path, labels: bool) {
    let name = |v: usize| match v {
        0 => "\"Ann, first\"".to_owned(),
        v => format!("p{v}"),
    };
    let mut nodes = String::from(if labels {
        "id,f,g,label,split\n"
    } else {
        "id,f,g\n"
    });
    for v in 0..40 {
        let team = v / 20;
        let split = ["train", "val", "test", "test"][v % 4];
        let label = match labels {
            true => format!(",{},{split}", ["red", "blue"][team]),
            false => String::new(),
        };
        let (f, g) = ([-1, 1][team], v % 3);
        nodes += &format!("{},{f},0.{g}{label}\n", name(v));
    }
    let mut edges = String::from("source,target,years\n");
    for v in 0..40 {
        let next = v / 20 * 20 + (v + 1) % 20;
        edges += &format!("{},{},{v}\n", name(v), name(next));
    }
    std::fs::create_dir_all(folder).unwrap();
    std::fs::write(folder.join("nodes.csv"), nodes).unwrap();
    std::fs::write(folder.join("edges.csv"), edges).unwrap();
}

struct Place(tempfile::TempDir);

impl Place {
    /// A model that was trained on tables.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        tables(&folder.path().join("team"), true);
        tables(&folder.path().join("new"), false);
        let place = Self(folder);
        let trained = place.run(&[
            "train",
            "--device",
            "cpu",
            "--dataset",
            "team",
            "--undirected",
            "--epochs",
            "100",
            "--precision",
            "float",
            "--save",
            "model",
            "--json",
            "-",
        ]);
        let events = events(&trained.stdout);
        assert_eq!(events.last().unwrap()["test_accuracy"], 100.0);
        let shown = text(&trained.stderr);
        assert!(
            shown.contains("labels       2 names numbered by their alphabet: blue, red (file)"),
            "{shown}"
        );
        assert!(
            shown.contains("edge features 1 of each edge, which the model does not use"),
            "{shown}"
        );
        place
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = halfgnn(arguments);
        command.current_dir(self.0.path());
        command
    }

    fn output(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let output = self.output(arguments);
        assert!(output.status.success(), "{}", text(&output.stderr));
        output
    }

    fn predict(&self, dataset: &str, more: &[&str]) -> Output {
        let fixed = [
            "predict",
            "--device",
            "cpu",
            "--model",
            "model",
            "--undirected",
            "--dataset",
            dataset,
        ];
        self.run(&[&fixed[..], more].concat())
    }

    fn read(&self, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.0.path().join(name)).unwrap();
        text.lines().map(str::to_owned).collect()
    }
}

#[test]
fn predictions_stand_under_a_persons_own_ids() {
    let place = Place::new();
    let told = place.predict("team", &["--out", "o.csv"]);
    assert!(text(&told.stdout).contains("test accuracy 100.00 %"));
    let lines = place.read("o.csv");
    assert_eq!(lines.len(), 41);
    assert_eq!(lines[..3], ["id,class", "\"Ann, first\",red", "p1,red"]);
    assert_eq!(lines[40], "p39,blue");
    // A graph without labels, in another order of work, has the same.
    let told = place.predict("new", &["--out", "n.csv", "--reorder", "degree"]);
    assert!(
        !text(&told.stdout).contains("test accuracy"),
        "{}",
        text(&told.stdout)
    );
    assert!(
        text(&told.stdout).contains("no classes"),
        "{}",
        text(&told.stdout)
    );
    assert_eq!(place.read("n.csv"), lines);

    place.predict("new", &["--out", "p.csv", "--probabilities"]);
    let rows = place.read("p.csv");
    assert_eq!(rows[0], "id,probability_0,probability_1");
    for row in &rows[1..] {
        let numbers: Vec<f32> = row
            .rsplit(',')
            .take(2)
            .map(|cell| cell.parse().unwrap())
            .collect();
        assert!((numbers[0] + numbers[1] - 1.0).abs() < 1e-6, "{row}");
    }
    place.predict("new", &["--out", "e.csv", "--layer", "1"]);
    let header = place.read("e.csv").remove(0);
    assert!(
        header.starts_with("id,embedding_0,") && header.ends_with(",embedding_63"),
        "{header}"
    );
    // After the last layer there are the logits.
    place.predict("new", &["--out", "last.csv", "--layer", "2"]);
    place.predict("new", &["--out", "logits.csv", "--logits"]);
    assert_eq!(place.read("last.csv")[1..], place.read("logits.csv")[1..]);
    let none = place.output(&[
        "predict",
        "--device",
        "cpu",
        "--model",
        "model",
        "--dataset",
        "new",
        "--out",
        "x.csv",
        "--layer",
        "3",
    ]);
    refused(&none, 2, &["--layer 3: the model has 2 layers"]);
    let train = place.output(&["train", "--dataset", "new"]);
    refused(
        &train,
        2,
        &["new: it has no labels", "predict with a model"],
    );
    #[cfg(not(feature = "parquet"))]
    {
        let parquet = place.output(&[
            "predict",
            "--model",
            "model",
            "--dataset",
            "new",
            "--out",
            "x.parquet",
        ]);
        refused(&parquet, 2, &["this build writes no Parquet"]);
    }
    // Classes of another table have its own numbers, and are compared by name.
    let nodes = place.0.path().join("team/nodes.csv");
    let renamed = std::fs::read_to_string(&nodes)
        .unwrap()
        .replace("blue", "zebra");
    std::fs::write(&nodes, renamed).unwrap();
    let other = place.output(&[
        "predict",
        "--device",
        "cpu",
        "--model",
        "model",
        "--dataset",
        "team",
        "--out",
        "x.csv",
    ]);
    refused(&other, 2, &["its class 'zebra' is none", "blue, red"]);
}

#[test]
fn info_and_convert_tell_what_there_is() {
    let place = Place::new();
    let told = place.run(&["dataset", "info", "team", "--json", "-"]);
    let info = events(&told.stdout).remove(0);
    assert_eq!(info["edge_features"], 1);
    assert_eq!(info["ids"]["first"], "Ann, first");
    assert_eq!(info["labels"]["targets"], "a class of each vertex");
    assert_eq!(
        info["labels"]["class_names"],
        serde_json::json!(["blue", "red"])
    );
    assert_eq!(info["labels"]["file_splits"], 1);
    let shown = text(&told.stderr);
    for line in [
        "features of edges",
        "ids of vertices",
        "Ann, first",
        "blue, red",
    ] {
        assert!(shown.contains(line), "`{line}` is not in: {shown}");
    }
    let told = place.run(&["dataset", "convert", "team", "team.npz"]);
    let shown = text(&told.stdout);
    assert!(
        shown.contains(
            "without ids of vertices and names of classes, which the format has no place for"
        ),
        "{shown}"
    );
    assert!(shown.contains("an .npz of PyG's arrays"), "{shown}");
    let again = place.run(&["dataset", "info", "team.npz", "--json", "-"]);
    let again = events(&again.stdout).remove(0);
    assert_eq!(again["edge_features"], 1);
    assert_eq!(
        again["labels"]["class_sizes"],
        info["labels"]["class_sizes"]
    );
    assert_eq!(again["labels"]["train"], 10);
    let wrong = place.output(&["dataset", "info", "team.npz", "--id-column", "id"]);
    refused(&wrong, 2, &["which has no columns to name"]);
    let made = place.output(&["dataset", "info", "synthetic", "--split-number", "1"]);
    refused(&made, 2, &["has no split number 1"]);
}

#[test]
fn a_model_goes_to_another_framework_and_comes_back() {
    let place = Place::new();
    place.predict("team", &["--out", "own.csv", "--logits"]);
    for framework in ["pyg", "dgl"] {
        let told = place.run(&["export", "model", "--to", framework, "other.safetensors"]);
        assert!(text(&told.stdout).starts_with("GCN of 2 layers written to other.safetensors"));
        let told = place.run(&["import", "other.safetensors", "--from", framework, "back"]);
        assert!(
            text(&told.stdout).contains("2 features and 2 outputs"),
            "{}",
            text(&told.stdout)
        );
        place.run(&[
            "predict",
            "--device",
            "cpu",
            "--model",
            "back",
            "--undirected",
            "--dataset",
            "team",
            "--out",
            "back.csv",
            "--logits",
        ]);
        assert_eq!(place.read("back.csv"), place.read("own.csv"));
    }
    let swapped = place.output(&["import", "other.safetensors", "--from", "pyg", "x"]);
    refused(
        &swapped,
        2,
        &["other.safetensors: ", "`layers.0.weight` has no place"],
    );
    let none = place.output(&["export", "other.safetensors", "--to", "pyg", "x"]);
    refused(&none, 2, &["it is no checkpoint"]);
}

/// Under the names of PyG's `GATv2Conv`, of one map and of two.
#[test]
fn a_gatv2_goes_to_pyg_and_comes_back() {
    let place = Place::new();
    for share in [&[][..], &["--share-weights"]] {
        let train = [
            &[
                "train",
                "--device",
                "cpu",
                "--dataset",
                "team",
                "--undirected",
            ][..],
            &[
                "--model", "gatv2", "--heads", "2", "--hidden", "16", "--layers", "2",
            ],
            &["--epochs", "30", "--precision", "float", "--save", "model"],
            share,
        ];
        place.run(&train.concat());
        place.predict("team", &["--out", "own.csv", "--logits"]);
        let told = place.run(&["export", "model", "--to", "pyg", "other.safetensors"]);
        let word = if share.is_empty() { "False" } else { "True" };
        let note = format!("heads=2, negative_slope=0.2, share_weights={word}");
        assert!(text(&told.stdout).contains(&note), "{}", text(&told.stdout));
        place.run(&["import", "other.safetensors", "--from", "pyg", "model"]);
        place.predict("team", &["--out", "back.csv", "--logits"]);
        assert_eq!(place.read("back.csv"), place.read("own.csv"));
    }
    let dgl = place.output(&["export", "model", "--to", "dgl", "x"]);
    refused(&dgl, 2, &["GATv2 is written under PyG's names alone"]);
}

/// Three heads, whose hidden layers are 66 wide where nothing is said, and the outputs of all layers, under PyG's names
/// and back.
#[test]
fn jumping_knowledge_goes_to_pyg_and_comes_back() {
    let place = Place::new();
    let train = |more: &[&str]| {
        let arguments = [
            "train",
            "--device",
            "cpu",
            "--dataset",
            "team",
            "--undirected",
            "--json",
            "run.json",
        ];
        let how = ["--epochs", "20", "--precision", "float", "--save", "model"];
        place.output(&[&arguments[..], &how, more].concat())
    };
    for jumping in ["cat", "max"] {
        let told = train(&["--model", "gat", "--heads", "3", "--jumping", jumping]);
        assert!(told.status.success(), "{}", text(&told.stderr));
        assert!(text(&told.stdout).contains("go on to a last map"));
        let lines = place.read("run.json");
        let start = lines
            .iter()
            .find(|line| line.contains("\"start\""))
            .unwrap();
        assert!(
            start.contains(&format!("\"jumping\":\"{jumping}\"")),
            "{start}"
        );
        assert!(start.contains("\"hidden\":66"), "{start}");
        place.predict("team", &["--out", "own.csv", "--logits"]);
        let told = place.run(&["export", "model", "--to", "pyg", "other.safetensors"]);
        let note = format!("jk='{jumping}'");
        assert!(text(&told.stdout).contains(&note), "{}", text(&told.stdout));
        place.run(&["import", "other.safetensors", "--from", "pyg", "model"]);
        place.predict("team", &["--out", "back.csv", "--logits"]);
        assert_eq!(place.read("back.csv"), place.read("own.csv"));
    }
    let all = train(&["--model", "sage", "--jumping", "all"]);
    assert!(all.status.success(), "{}", text(&all.stderr));
    let told = place.output(&["export", "model", "--to", "pyg", "x"]);
    refused(
        &told,
        2,
        &["takes the features as well", "--jumping cat or max"],
    );
    for (asked, words) in [
        (
            &["--jumping", "cat", "--model", "gcnii"][..],
            &["gcnii has a way of its own", "leave jumping knowledge out"][..],
        ),
        (
            &["--jumping", "max", "--hidden", "16,8"],
            &["rows of one width", "take another jumping knowledge"],
        ),
        (
            &["--jumping", "cat", "--binary", "full"],
            &["leave --jumping out"],
        ),
        (
            &["--model", "gatv2", "--heads", "3", "--hidden", "64"],
            &["the hidden width is 64; take 66"],
        ),
    ] {
        refused(&train(asked), 2, words);
    }
}

/// What is timed knows no weights, and says so.
#[test]
fn bench_says_that_weights_are_left_out() {
    let place = Place::new();
    let timed = |graph: &str| {
        let arguments = [
            "bench",
            "spmm",
            "--device",
            "cpu",
            "--features",
            "8",
            "--graph",
            graph,
        ];
        text(&place.run(&arguments).stderr).to_owned()
    };
    assert!(timed("team").contains("weights and features of its edges are left out"));
    std::fs::write(place.0.path().join("x.txt"), "0 1\n").unwrap();
    assert!(!timed("x.txt").contains("left out"));
}

/// A reader who has seen enough (`| head -1`) is no failure.
#[cfg(unix)]
#[test]
fn profile_ends_quietly_when_its_reader_leaves() {
    use std::io::Read;
    use std::process::Stdio;
    let mut command = halfgnn(&["profile", "spmm", "--graph", "kron:6", "--features", "8"]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut error = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut error)
        .unwrap();
    let status = child.wait().unwrap();
    assert!(!error.contains("panicked"), "{error}");
    assert!(status.success() || error.lines().count() == 1, "{error}");
}

/// A command that has nothing to sum up ends at the first Ctrl-C, and leaves no file that is half written.
#[cfg(unix)]
#[test]
fn ctrl_c_ends_a_conversion_and_leaves_nothing() {
    use std::process::Stdio;
    use std::time::{Duration, Instant};
    let folder = tempfile::tempdir().unwrap();
    let mut command = halfgnn(&["dataset", "generate", "kron:18", "x.txt.gz"]);
    command
        .current_dir(folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let files = || folder.path().read_dir().unwrap().count();
    let start = Instant::now();
    // The place is tried before the graph is made, and the file is there when it is written.
    let is_written = || {
        let mut files = folder.path().read_dir().unwrap().flatten();
        files.any(|file| file.metadata().is_ok_and(|file| file.len() > 0))
    };
    while !is_written() {
        assert!(child.try_wait().unwrap().is_none() && start.elapsed() < Duration::from_secs(120));
        std::thread::sleep(Duration::from_millis(5));
    }
    let sent = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    assert!(sent.unwrap().success());
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(130));
    assert_eq!(files(), 0);
}

/// A GAT reads the features of edges and says so; others, a sampler and an option leave them out and say that.
#[test]
fn features_of_edges_are_used_or_named() {
    let place = Place::new();
    let told = |more: &[&str]| {
        let given = [
            "train",
            "--dataset",
            "team",
            "--device",
            "cpu",
            "--epochs",
            "2",
            "--json",
            "-",
        ];
        let output = place.run(&[&given[..], more].concat());
        let start = events(&output.stdout)
            .into_iter()
            .find(|event| event["event"] == "start");
        start.unwrap()["preparation"].to_string()
    };
    let used = told(&["--model", "gat"]);
    assert!(
        used.contains("1 of each edge, which the scores of attention have a term of"),
        "{used}"
    );
    let batches = ["--sampler", "neighbor:2,2,2", "--batch", "4"];
    for more in [
        &["--model", "gcn"][..],
        &[&["--model", "gat"][..], &batches].concat(),
    ] {
        let left = told(more);
        assert!(
            left.contains("1 of each edge, which the model does not use"),
            "{left}"
        );
    }
    for model in ["gine", "resgated", "cg"] {
        let used = told(&["--model", model]);
        assert!(
            used.contains("1 of each edge, which messages have a term of"),
            "{used}"
        );
    }
    let ignored = told(&["--model", "gat", "--ignore-edge-features"]);
    assert!(ignored.contains("1 of each edge ignored"), "{ignored}");
    // And in a run that is kept and goes on, and in what it predicts.
    let keep = [
        "train",
        "--dataset",
        "team",
        "--device",
        "cpu",
        "--epochs",
        "2",
        "--model",
        "gat",
        "--save",
        "gat",
    ];
    place.run(&keep);
    let predict = [
        "predict",
        "--device",
        "cpu",
        "--model",
        "gat",
        "--dataset",
        "team",
        "--out",
        "x.csv",
    ];
    place.run(&predict);
    let without = place.output(&[&predict[..], &["--ignore-edge-features"]].concat());
    refused(
        &without,
        2,
        &["the model reads 1 numbers of each edge", "has 0"],
    );
}

/// Writes tables and trains on them.
fn train_on(nodes: &str, edges: &str, arguments: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("nodes.csv"), nodes).unwrap();
    std::fs::write(folder.path().join("edges.csv"), edges).unwrap();
    let fixed = [
        "train",
        "--device",
        "cpu",
        "--dataset",
        ".",
        "--epochs",
        "2",
        "--json",
        "-",
    ];
    let mut command = halfgnn(&[&fixed[..], arguments].concat());
    command.current_dir(folder.path()).output().unwrap()
}

fn ring(vertices: usize) -> String {
    let edge = |v: usize| format!("{v},{}\n", (v + 1) % vertices);
    "source,target\n".to_owned() + &(0..vertices).map(edge).collect::<String>()
}

#[test]
fn links_without_enough_pairs_to_compare_with_are_refused() {
    // Six vertices, each with an edge to each.
    let nodes = "id,f\n0,1\n1,2\n2,3\n3,4\n4,5\n5,6\n";
    let pairs = (0..6).flat_map(|a| (0..6).filter(move |&b| b != a).map(move |b| (a, b)));
    let edges: String = pairs.map(|(a, b)| format!("{a},{b}\n")).collect();
    let edges = format!("source,target\n{edges}");
    let output = train_on(nodes, &edges, &["--task", "link", "--held-out", "0.2,0.2"]);
    refused(
        &output,
        2,
        &["0 of 15 pairs have no edge, too few to compare 6 held-out links with"],
    );
}

#[test]
fn labels_that_are_partly_unknown_are_learnt_from_and_counted() {
    let missing = ["", "NA", "nan", "-1"];
    let row = |v: usize| match v % 4 {
        0 => format!("{v},{},1,0\n", v % 2),
        1 => format!("{v},{},0,1\n", v % 2),
        2 => format!("{v},{},1,{}\n", v % 2, missing[v / 4 % 4]),
        // Nothing is known.
        _ => format!("{v},{},,\n", v % 2),
    };
    let nodes = "id,f,a,b\n".to_owned() + &(0..40).map(row).collect::<String>();
    let arguments = [
        "--label-columns",
        "a,b",
        "--undirected",
        "--metrics",
        "roc-auc",
        "--pos-weight",
        "balanced",
        "--split",
        "fractions:0.5,0.2",
    ];
    let output = train_on(&nodes, &ring(40), &arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let events = events(&output.stdout);
    let last = events.iter().rev().find(|event| event["event"] == "epoch");
    assert!(last.unwrap()["loss"].is_f64(), "{last:?}");
    let shown = text(&output.stderr);
    assert!(shown.contains("30 of 80 are unknown"), "{shown}");
    // 30 vertices have a label.
    assert!(shown.contains("15"), "{shown}");
}

#[test]
fn a_regression_on_classes_names_what_it_leaves_out_and_refuses_names() {
    let nodes = |label: &dyn Fn(usize) -> String| {
        let rows = (0..40).map(|v| format!("{v},{},{}\n", v % 2, label(v)));
        "id,f,y\n".to_owned() + &rows.collect::<String>()
    };
    let arguments = ["--task", "regression", "--split", "fractions:0.5,0.2"];
    let whole = nodes(&|v| (v as i32 % 4 - 1).to_string());
    let output = train_on(&whole, &ring(40), &arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let shown = text(&output.stderr);
    assert!(
        shown.contains("taken as numbers of each vertex; 10 of them are unknown"),
        "{shown}"
    );
    // Of numbers with a fraction -1 is a value.
    let output = train_on(
        &nodes(&|v| (v as f32 % 4.0 - 1.0 + 0.5 * (v % 2) as f32).to_string()),
        &ring(40),
        &arguments,
    );
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(
        !text(&output.stderr).contains("unknown"),
        "{}",
        text(&output.stderr)
    );
    let named = nodes(&|v| ["low", "high"][v % 2].to_owned());
    let output = train_on(&named, &ring(40), &arguments);
    refused(&output, 2, &["--task regression learns numbers", "'high'"]);
}

#[test]
fn a_table_of_vertices_without_names_is_refused() {
    let output = train_on("0,0.5,1\n1,0.25,0\n2,1,1\n", &ring(3), &[]);
    refused(&output, 2, &["nodes.csv: line 1: the names are numbers"]);
    let output = train_on("id,f,y\n0,1,0\n1,2,1\n", "source,target\n0,1\n1,7\n", &[]);
    refused(&output, 2, &["edges.csv: line 3: '7' is no"]);
}

#[test]
fn an_imported_model_with_one_number_an_edge_predicts_with_weights() {
    let place = Place::new();
    let model = [
        "--model",
        "gat",
        "--epochs",
        "3",
        "--precision",
        "float",
        "--save",
        "gat",
    ];
    let train = ["train", "--dataset", "team", "--device", "cpu"];
    place.run(&[&train[..], &model].concat());
    place.run(&["export", "gat", "--to", "pyg", "gat.safetensors"]);
    place.run(&["import", "gat.safetensors", "--from", "pyg", "again"]);
    // The same number, under the name of a weight.
    let edges = place.0.path().join("team/edges.csv");
    let text = std::fs::read_to_string(&edges).unwrap();
    let predict = |model, out| {
        place.run(&[
            "predict",
            "--device",
            "cpu",
            "--model",
            model,
            "--dataset",
            "team",
            "--logits",
            "--out",
            out,
        ]);
        place.read(out)
    };
    let expected = predict("gat", "features.csv");
    std::fs::write(&edges, text.replace("years", "weight")).unwrap();
    assert_eq!(predict("again", "weights.csv"), expected);
}
