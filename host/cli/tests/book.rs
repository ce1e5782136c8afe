//! The tutorials of the book, typed into an empty folder.
//!
//! Every `sh` block of a page runs, in order, in one folder. The program is the one of this build.

#![cfg(unix)]

use std::path::{Path, PathBuf};
use std::process::Command;

/// The `sh` blocks of a page, as one script.
fn script(page: &str) -> String {
    let mut script = String::new();
    let mut in_block = false;
    for line in page.lines() {
        match (in_block, line) {
            (false, "```sh") => in_block = true,
            (true, "```") => in_block = false,
            (true, line) => {
                script.push_str(line);
                script.push('\n');
            }
            _ => {}
        }
    }
    assert!(!in_block && script.contains("halfgnn "), "{script}");
    script
}

/// Runs a page in an empty folder of its name, and returns the folder.
fn follow(name: &str, page: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_halfgnn")).parent().unwrap();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(
        [program.to_owned()]
            .into_iter()
            .chain(std::env::split_paths(&path)),
    );
    let output = Command::new("sh")
        .args(["-e", "-c", &script(page)])
        .current_dir(&folder)
        .env("PATH", path.unwrap())
        .env("RAYON_NUM_THREADS", "2")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {said}");
    folder
}

fn read(folder: &Path, file: &str) -> String {
    let text = std::fs::read_to_string(folder.join(file));
    text.unwrap_or_else(|error| panic!("{file}: {error}"))
}

#[test]
fn own_tables_become_predictions() {
    let page = include_str!("../../../docs/tutorials/own-tables.md");
    let folder = follow("own-tables", page);
    let classes = read(&folder, "classes.csv");
    assert_eq!(classes.lines().count(), 201);
    // As the page shows them, and the vertex whose label is missing.
    for line in ["id,class", "p0,red", "p1,red", "p9,red", "p199,blue"] {
        assert!(classes.lines().any(|of| of == line), "{line}");
    }
    assert!(read(&folder, "probabilities.csv").starts_with("id,probability_0,probability_1\n"));
    assert!(folder.join("embeddings.npy").exists());
}

#[test]
fn links_are_predicted() {
    let page = include_str!("../../../docs/tutorials/links.md");
    let scores = read(&follow("links", page), "scores.csv");
    let mut lines = scores.lines();
    assert_eq!(lines.next(), Some("source,target,score,probability"));
    let scores: Vec<f64> = lines
        .map(|line| line.split(',').nth(2).unwrap().parse().unwrap())
        .collect();
    // Two of a team, and two of different teams.
    assert!(scores.len() == 2 && scores[0] > scores[1], "{scores:?}");
}

#[test]
fn whole_graphs_are_classified() {
    let page = include_str!("../../../docs/tutorials/whole-graphs.md");
    let classes = read(&follow("whole-graphs", page), "graphs.csv");
    assert!(
        classes.starts_with("graph,class\n") && classes.lines().count() == 101,
        "{classes}"
    );
    let right = classes.lines().skip(1).enumerate().filter(|(graph, line)| {
        // The first graph, of number 1 in the files, is a star.
        line.ends_with(if graph % 2 == 0 { ",1" } else { ",0" })
    });
    assert!(right.count() >= 90, "{classes}");
}

#[test]
fn mini_batches_train_from_memory_and_from_disk() {
    let page = include_str!("../../../docs/tutorials/mini-batches.md");
    let folder = follow("mini-batches", page);
    assert!(
        folder.join("classes.npy").exists() && folder.join("blocks.parts/manifest.json").exists()
    );
}
