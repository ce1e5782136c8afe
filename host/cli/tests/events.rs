//! docs/events.md has every event and field that the program writes.

mod common;

use common::{halfgnn, text};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Fields by event, as the page has them: a heading names events, and the first cells of its table fields.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let page = include_str!("../../../docs/events.md");
    let names = |text: &str| -> Vec<String> {
        text.split('`')
            .skip(1)
            .step_by(2)
            .map(str::to_owned)
            .collect()
    };
    let mut events: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut current = Vec::new();
    for line in page.lines() {
        if let Some(heading) = line.strip_prefix("### ") {
            current = names(heading);
            for event in &current {
                assert!(
                    events.insert(event.clone(), BTreeSet::new()).is_none(),
                    "{event} stands twice"
                );
            }
        } else if let Some(row) = line.strip_prefix("| ") {
            let cell = row.split(" | ").next().unwrap();
            for event in &current {
                events.get_mut(event).unwrap().extend(names(cell));
            }
        }
    }
    events
}

/// Runs a command with `--json -`, and gives what it wrote.
fn written(folder: &Path, arguments: &str) -> Vec<Value> {
    let words: Vec<&str> = arguments.split(' ').collect();
    let output = halfgnn(&words)
        .args(["--json", "-"])
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{arguments}: {}",
        text(&output.stderr)
    );
    text(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).expect(line))
        .collect()
}

#[test]
fn every_event_and_field_is_documented() {
    let documented = documented();
    let folder = tempfile::tempdir().unwrap();
    let mut seen = BTreeSet::new();
    for command in [
        "dataset generate reddit-like:0.002 small.npz",
        "train --dataset small.npz --device cpu --epochs 1 --layers 3 --hidden 16,8 --save model.safetensors",
        "predict --model model.safetensors --dataset small.npz --device cpu --out classes.csv",
        "export --to pyg model.safetensors pyg.safetensors",
        "import --from pyg pyg.safetensors back.safetensors",
        "dataset info small.npz",
        "dataset convert small.npz small.pyg.npz --to pyg",
        "dataset download --print",
        "device",
        "bench spmm --graph kron:5 --graph kron:6 --features 16 --device cpu --policy discretized-float",
        "bench sddmm --graph kron:5 --features 16 --device cpu",
        "bench bspmm --graph kron:5 --features 64 --device cpu",
        "bench construct --graph kron:5 --device cpu",
        "bench ablations --graph kron:5 --device cpu",
        "bench train --graph kron:5 --device cpu",
        "report timings.jsonl --svg figures",
    ] {
        let lines = written(folder.path(), command);
        if command.starts_with("bench spmm") {
            let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
            std::fs::write(folder.path().join("timings.jsonl"), text).unwrap();
        }
        for event in lines {
            let event = event.as_object().unwrap();
            let name = event["event"].as_str().unwrap();
            let fields = documented
                .get(name)
                .unwrap_or_else(|| panic!("docs/events.md has no `{name}`, of `{command}`"));
            for field in event.keys().filter(|field| *field != "event") {
                assert!(
                    fields.contains(field),
                    "docs/events.md has no `{field}` of `{name}`, of `{command}`"
                );
            }
            seen.insert(name.to_owned());
        }
    }
    // Those of cards and of the emulator: `ablation`, its summary, `choice`, `speedup`, `profile`.
    assert!(seen.len() >= 17, "{seen:?}");
}
