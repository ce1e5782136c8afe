//! `--format`: what it forces of files and of folders, and what is there where it fits nothing.

mod common;

use common::{events, halfgnn, refused, text};
use serde_json::Value;
use std::path::Path;
use std::process::Output;

/// Three people, of two teams.
fn tables(folder: &Path) {
    std::fs::write(
        folder.join("nodes.csv"),
        "id,f,label\na,1,x\nb,2,y\nc,3,x\n",
    )
    .unwrap();
    std::fs::write(folder.join("edges.csv"), "source,target\na,b\nb,c\n").unwrap();
}

/// Two graphs of two vertices, as TU's site has them.
fn collection(folder: &Path) {
    for (part, text) in [
        ("A", "1, 2\n2, 1\n3, 4\n4, 3\n"),
        ("graph_indicator", "1\n1\n2\n2\n"),
        ("graph_labels", "0\n1\n"),
        ("node_labels", "0\n1\n0\n1\n"),
    ] {
        std::fs::write(folder.join(format!("PAIRS_{part}.txt")), text).unwrap();
    }
}

/// Names of Planetoid's files, whose contents are nothing.
fn citations(folder: &Path) {
    for part in ["graph", "allx", "ally", "tx", "ty", "x", "y", "test.index"] {
        std::fs::write(folder.join(format!("ind.papers.{part}")), "").unwrap();
    }
}

fn info(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = halfgnn(&["dataset", "info"]);
    command.args(arguments).args(["--json", "-"]);
    command.current_dir(folder).output().unwrap()
}

/// The event of a dataset that was read.
fn read(folder: &Path, arguments: &[&str]) -> Value {
    let output = info(folder, arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    events(&output.stdout).swap_remove(0)
}

#[test]
fn a_folder_in_two_formats_is_refused_with_both() {
    let folder = tempfile::tempdir().unwrap();
    tables(folder.path());
    assert_eq!(read(folder.path(), &["."])["vertices"], 3);
    collection(folder.path());
    let line = refused(
        &info(folder.path(), &["."]),
        2,
        &["tables nodes.csv,edges.csv", "many graphs of TU's"],
    );
    assert!(line.contains("--format csv or --format tu"), "{line}");
    assert_eq!(
        read(folder.path(), &[".", "--format", "csv"])["vertices"],
        3
    );
    let graphs = read(folder.path(), &[".", "--format", "tu"]);
    assert_eq!(
        (&graphs["vertices"], &graphs["name"]),
        (&4.into(), &"PAIRS".into())
    );
    // A file of one of them says which is meant.
    assert_eq!(
        read(folder.path(), &["PAIRS_graph_indicator.txt"])["vertices"],
        4
    );
    assert_eq!(read(folder.path(), &["nodes.csv,edges.csv"])["vertices"], 3);
}

#[test]
fn what_is_forced_is_read_and_nothing_else_of_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    for (name, fill) in [
        ("tables", tables as fn(&Path)),
        ("graphs", collection),
        ("papers", citations),
    ] {
        let path = folder.path().join(name);
        std::fs::create_dir(&path).unwrap();
        fill(&path);
    }
    let own = [("tables", "csv"), ("graphs", "tu"), ("papers", "planetoid")];
    let all = ["csv", "parquet", "planetoid", "ogb", "tu", "dgl-reddit"];
    for (name, format) in own {
        for forced in all.into_iter().filter(|forced| *forced != format) {
            let output = info(folder.path(), &[name, "--format", forced]);
            let line = refused(&output, 2, &[]);
            let known = line.contains(&format!("which --format {forced} does not read"));
            // The feature is not in every build.
            let unbuilt = forced == "parquet" && line.contains("the feature `parquet`");
            assert!(known || unbuilt, "{line}");
        }
    }
    assert_eq!(
        read(folder.path(), &["tables", "--format", "csv"])["vertices"],
        3
    );
    assert_eq!(
        read(folder.path(), &["graphs", "--format", "tu"])["vertices"],
        4
    );
    // Read as what it is: the first of its files is empty.
    let line = refused(
        &info(folder.path(), &["papers", "--format", "planetoid"]),
        2,
        &["ind.papers."],
    );
    assert!(!line.contains("does not read"), "{line}");
    refused(
        &info(folder.path(), &["tables", "--format", "parts"]),
        2,
        &["manifest.json"],
    );
    let empty = folder.path().join("empty");
    std::fs::create_dir(empty).unwrap();
    refused(
        &info(folder.path(), &["empty", "--format", "tu"]),
        2,
        &["is in no format that is known", "many graphs of TU's"],
    );
}

#[test]
fn one_file_of_a_format_of_several_is_not_enough() {
    let folder = tempfile::tempdir().unwrap();
    tables(folder.path());
    for format in ["csv", "ogb", "planetoid", "parts"] {
        let output = info(folder.path(), &["nodes.csv", "--format", format]);
        refused(&output, 2, &["several files; open their folder"]);
    }
}

#[test]
fn two_tables_with_a_format_that_has_none_say_so() {
    let folder = tempfile::tempdir().unwrap();
    tables(folder.path());
    for format in ["tu", "planetoid", "edge-list"] {
        let output = info(folder.path(), &["nodes.csv,edges.csv", "--format", format]);
        refused(
            &output,
            2,
            &[
                "is tables nodes.csv,edges.csv",
                &format!("--format {format} does not read"),
            ],
        );
    }
}

#[test]
fn a_folder_without_a_name_of_its_own_has_its_real_one() {
    let folder = tempfile::tempdir().unwrap();
    let people = folder.path().join("people");
    std::fs::create_dir_all(people.join("below")).unwrap();
    tables(&people);
    assert_eq!(read(&people, &["."])["name"], "people");
    assert_eq!(read(&people.join("below"), &[".."])["name"], "people");
    let output = halfgnn(&["dataset", "info", "."])
        .current_dir(&people)
        .output()
        .unwrap();
    assert_eq!(text(&output.stdout).lines().next(), Some("people"));
}
