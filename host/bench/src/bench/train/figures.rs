//! Figures of others, from JSON lines, and ours compared with them.

use crate::failure::Failure;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// A figure of another program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Peer {
    name: String,
    model: String,
    graph: String,
    ms: f64,
    gib: f64,
}

impl Peer {
    /// How a step of `model` on `graph` compares with this figure, of `ms` milliseconds and `gib` GiB at the peak;
    /// nothing where the figure is of something else.
    pub fn ratio(&self, model: &str, graph: &str, (ms, gib): (f64, f64)) -> Option<Ratio<'_>> {
        (self.model == model && self.graph == graph).then(|| Ratio {
            name: &self.name,
            faster: self.ms / ms,
            smaller: self.gib / gib,
        })
    }
}

/// How many times as fast as a peer, and how many times smaller.
#[derive(Clone, Debug, Serialize)]
pub struct Ratio<'a> {
    /// The baseline's name.
    pub name: &'a str,
    /// Its time over ours.
    pub faster: f64,
    /// Its memory over ours.
    pub smaller: f64,
}

/// The lines of a file of baselines.
///
/// # Errors
/// A line that is no figure, by its number.
pub fn read_peers(path: &Path) -> Result<Vec<Peer>, Failure> {
    let refuse = |reason: String| Failure::Input(format!("--against {}: {reason}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| refuse(error.to_string()))?;
    text.lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(index, line)| match serde_json::from_str::<Peer>(line) {
            Ok(Peer { name, .. }) if name.contains(char::is_control) => Err(refuse(format!(
                "line {}: the name has control characters, which cannot be shown",
                index + 1
            ))),
            Ok(peer) if peer.ms > 0.0 && peer.gib > 0.0 => Ok(peer),
            Ok(_) => Err(refuse(format!("line {}: ms and gib must be above 0", index + 1))),
            Err(error) => Err(refuse(format!(
                "line {}: {error}; a line is such as {{\"name\": \"PyG\", \"model\": \"gcn\", \"graph\": \"kron21\", \"ms\": 62.0, \"gib\": 10.2}}",
                index + 1
            ))),
        })
        .collect()
}

/// Of each baseline's figures for a model on a graph the one with the least time.
pub fn fastest(peers: Vec<Peer>) -> Vec<Peer> {
    let mut best: Vec<Peer> = Vec::new();
    for peer in peers {
        let same = |other: &&mut Peer| {
            (&other.name, &other.model, &other.graph) == (&peer.name, &peer.model, &peer.graph)
        };
        match best.iter_mut().find(same) {
            Some(other) if peer.ms < other.ms => *other = peer,
            Some(_) => {}
            None => best.push(peer),
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(name: &str, graph: &str, ms: f64) -> Peer {
        Peer {
            name: name.into(),
            model: "gcn".into(),
            graph: graph.into(),
            ms,
            gib: 1.0 + ms,
        }
    }

    #[test]
    fn the_fastest_of_a_peer_counts() {
        let all = vec![
            peer("a", "g", 3.0),
            peer("a", "g", 2.0),
            peer("b", "g", 9.0),
            peer("a", "h", 5.0),
            peer("a", "g", 4.0),
        ];
        let best = [
            peer("a", "g", 2.0),
            peer("b", "g", 9.0),
            peer("a", "h", 5.0),
        ];
        assert_eq!(fastest(all), best);
    }

    #[test]
    fn a_line_that_is_no_figure_is_told_by_its_number() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("peers");
        let line = serde_json::to_string(&peer("a", "g", 1.0)).expect("JSON");
        let read = |text: String| {
            std::fs::write(&path, text).expect("room");
            read_peers(&path).map_err(|failure| failure.to_string())
        };
        assert_eq!(
            read(format!("{line}\n\n{line}\n")).expect("figures").len(),
            2
        );
        let error = read(format!("{line}\n{{\"name\": 1}}\n")).expect_err("no figure");
        assert!(
            error.contains("line 2") && error.contains("peers"),
            "{error}"
        );
        let nothing = serde_json::to_string(&peer("a", "g", 0.0)).expect("JSON");
        assert!(read(nothing).expect_err("no time").contains("line 1"));
    }
}
