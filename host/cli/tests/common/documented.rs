//! The page of events, docs/events.md, read back.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Fields by event, as the page has them: a heading names events, and the first cells of its table fields.
pub fn events() -> BTreeMap<String, BTreeSet<String>> {
    let page = include_str!("../../../../docs/events.md");
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

/// That the page has an event and all its fields; `command` wrote it.
pub fn check(documented: &BTreeMap<String, BTreeSet<String>>, event: &Value, command: &str) {
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
}
