//! What `--json` wrote, read back: timings and trainings, each with the machine and the command that it came from.
//!
//! Reading is tolerant, so that a report can be made of what another version wrote: events and fields that are not
//! known are passed over, and any event with a graph and a time is a timing.

use crate::failure::Failure;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

/// All that was read.
#[derive(Debug, Default)]
pub struct Records {
    /// Commands that figures came from, in the order they were read.
    pub sources: Vec<Source>,
    /// Timings of operators and of training steps.
    pub timings: Vec<Timing>,
    /// Trainings, with their curves.
    pub trainings: Vec<Training>,
    /// Events that were passed over.
    pub unknown: usize,
}

/// A command and its machine; what was not written is empty.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Source {
    /// The file that it was read from.
    pub file: String,
    /// Version of the program.
    pub version: Option<String>,
    /// The command.
    pub command: Option<String>,
    /// Variables that were set for it.
    pub environment: Vec<String>,
    /// The CPU.
    pub cpu: Option<String>,
    /// Its threads.
    pub threads: Option<u64>,
    /// Release of NVIDIA's driver.
    pub driver: Option<String>,
    /// CUDA version of the driver.
    pub cuda: Option<String>,
    /// The visible GPUs.
    pub gpus: Vec<Gpu>,
}

/// A GPU.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Gpu {
    /// Its name.
    pub name: String,
    /// The most that its memory delivers, in 10^12 bytes a second.
    pub memory_tb_per_s: Option<f64>,
}

/// How long something took on a graph.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Timing {
    /// Index into [`Records::sources`].
    #[serde(skip)]
    pub source: usize,
    /// What was timed: the event's name.
    #[serde(rename = "event")]
    pub operator: String,
    /// The graph.
    pub graph: String,
    /// The device.
    pub device: String,
    /// The model, of a training step.
    pub model: Option<String>,
    /// Vertices of the graph.
    pub vertices: Option<u64>,
    /// Edges of the graph.
    pub edges: Option<u64>,
    /// Feature length.
    pub features: Option<u32>,
    /// `half` or `float`.
    pub precision: Option<String>,
    /// How sums are taken, and the like.
    #[serde(alias = "accumulate")]
    pub policy: Option<String>,
    /// The median, in milliseconds.
    #[serde(alias = "ms_per_epoch")]
    pub ms: Option<f64>,
    /// The fastest.
    pub ms_fastest: Option<f64>,
    /// The slowest.
    pub ms_slowest: Option<f64>,
    /// Bytes of rows and indices over the time.
    pub gathered_tb_per_s: Option<f64>,
    /// Largest error over the sum of magnitudes.
    pub largest_error: Option<f64>,
    /// How many times faster than each peer.
    #[serde(deserialize_with = "tolerant")]
    pub speedup: BTreeMap<String, f64>,
    /// Milliseconds of each baseline, where they are by name.
    #[serde(deserialize_with = "tolerant")]
    pub peers: BTreeMap<String, f64>,
    /// How many times faster and smaller than each peer a training step is.
    #[serde(deserialize_with = "tolerant_list")]
    pub against: Vec<Against>,
    /// The most memory of a training step at any moment, in GiB.
    pub gib: Option<f64>,
}

/// A training step compared with a baseline's.
#[derive(Clone, Debug, Deserialize)]
pub struct Against {
    /// The peer.
    pub name: String,
    /// Its time over ours.
    pub faster: Option<f64>,
    /// Its memory over ours.
    pub smaller: Option<f64>,
}

/// A map of numbers; anything else counts as none.
fn tolerant<'de, D: serde::Deserializer<'de>>(from: D) -> Result<BTreeMap<String, f64>, D::Error> {
    let value = Value::deserialize(from)?;
    let numbers = value.as_object().into_iter().flatten();
    let numbers = numbers.filter_map(|(name, number)| Some((name.clone(), number.as_f64()?)));
    Ok(numbers.collect())
}

/// A list of baselines; anything else is passed over.
fn tolerant_list<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<Against>, D::Error> {
    let value = Value::deserialize(from)?;
    let listed = value.as_array().into_iter().flatten();
    Ok(listed
        .filter_map(|peer| Against::deserialize(peer).ok())
        .collect())
}

impl Timing {
    /// How many times faster it is than each peer.
    pub fn ratios(&self) -> BTreeMap<String, f64> {
        let mut ratios = self.speedup.clone();
        let told = |peer: &Against| Some((peer.name.clone(), peer.faster?));
        ratios.extend(self.against.iter().filter_map(told));
        if let Some(ms) = self.ms.filter(|ms| *ms > 0.0) {
            for (peer, theirs) in &self.peers {
                ratios.entry(peer.clone()).or_insert(theirs / ms);
            }
        }
        ratios
    }

    /// How many times less memory it takes than each peer.
    pub fn memory_ratios(&self) -> BTreeMap<String, f64> {
        let told = |peer: &Against| Some((peer.name.clone(), peer.smaller?));
        self.against.iter().filter_map(told).collect()
    }
}

/// The runs of one plan: a model in a precision on a graph.
#[derive(Clone, Debug, Default)]
pub struct Training {
    /// Index into [`Records::sources`].
    pub source: usize,
    /// The graph's name, where it was given.
    pub dataset: Option<String>,
    /// The plan's label.
    pub model: String,
    /// `half` or `float`, where it was given.
    pub precision: Option<String>,
    /// What was made small, where it was given.
    pub loss: Option<String>,
    /// Epochs of each seed.
    pub runs: BTreeMap<u64, Vec<Epoch>>,
    /// Test accuracy at the best validation epoch, of each seed.
    pub accuracies: BTreeMap<u64, f64>,
    /// What came of it all.
    pub summary: Option<Summary>,
}

impl Training {
    /// What a legend calls it: the label, and the precision where the label does not say it.
    pub fn label(&self) -> String {
        match &self.precision {
            Some(precision) if !self.model.contains(precision.as_str()) => {
                format!("{} {precision}", self.model)
            }
            _ => self.model.clone(),
        }
    }
}

/// One epoch of a run; a number that was not finite is absent.
#[derive(Clone, Debug, Deserialize)]
pub struct Epoch {
    /// Which, from 1.
    pub epoch: u32,
    /// Mean loss of the training vertices.
    pub loss: Option<f64>,
    /// Accuracy of the test vertices, in percent.
    pub test_accuracy: Option<f64>,
}

/// The outcome of all runs of a plan.
#[derive(Clone, Debug, Deserialize)]
pub struct Summary {
    /// The device.
    pub device: Option<String>,
    /// How it ended.
    pub status: Option<String>,
    /// Number of runs.
    pub runs: Option<u64>,
    /// Mean test accuracy at the best validation epoch.
    pub test_accuracy: Option<f64>,
    /// Its standard deviation.
    pub test_accuracy_std: Option<f64>,
    /// Mean test accuracy at the last epoch.
    pub test_accuracy_last: Option<f64>,
    /// Milliseconds of a training step.
    pub ms_per_epoch: Option<f64>,
    /// The most memory at any moment.
    pub peak_bytes: Option<u64>,
    /// The most of each kind.
    #[serde(default, deserialize_with = "tolerant")]
    pub peak_bytes_by_kind: BTreeMap<String, f64>,
}

/// Fields of events that say which training they belong to.
#[derive(Deserialize)]
struct Of {
    model: String,
    #[serde(default)]
    seed: u64,
    precision: Option<String>,
    test_accuracy: Option<f64>,
}

/// Where reading stands in a file.
#[derive(Default)]
struct Place {
    /// The present source.
    source: usize,
    /// The first training after the last `start`.
    since: usize,
    /// What the last `start` said.
    dataset: Option<String>,
    precision: Option<String>,
    loss: Option<String>,
}

impl Records {
    /// Reads a file of JSON lines, or stdin for `-`.
    ///
    /// # Errors
    /// One line that names file and line.
    pub fn read(&mut self, path: &Path) -> Result<(), Failure> {
        if path.as_os_str() == "-" {
            return self.read_lines(io::stdin().lock(), "stdin");
        }
        let name = path.display().to_string();
        match File::open(path) {
            Ok(file) => self.read_lines(BufReader::new(file), &name),
            Err(error) => Err(Failure::Input(format!("{name}: {error}"))),
        }
    }

    fn read_lines(&mut self, lines: impl BufRead, name: &str) -> Result<(), Failure> {
        let input = |reason: String| Failure::Input(format!("{name}{reason}"));
        let mut place = self.begin(Source::default(), name);
        let mut events = 0;
        let mut lines = lines;
        let (mut line, mut index) = (Vec::new(), 0);
        loop {
            line.clear();
            let at = |reason: String| input(format!(", line {}: {reason}", index + 1));
            let read = lines.read_until(b'\n', &mut line);
            if read.map_err(|error| at(error.to_string()))? == 0 {
                break;
            }
            index += 1;
            let at = |reason: String| input(format!(", line {index}: {reason}"));
            let is_whole = line.ends_with(b"\n");
            if line.trim_ascii().is_empty() {
                continue;
            }
            let event: Value = match serde_json::from_slice(&line) {
                Ok(event) => event,
                // A command that was killed, or is still writing.
                Err(_) if !is_whole && events > 0 => {
                    tracing::warn!(
                        "{name}, line {index}: it is cut, and left out; the lines before are taken"
                    );
                    break;
                }
                Err(error) => return Err(at(format!("no JSON ({error}); give what --json wrote"))),
            };
            if !event.is_object() {
                return Err(at("no JSON object; give what --json wrote".into()));
            }
            self.take(event, &mut place, name)
                .map_err(|error| at(error.to_string()))?;
            events += 1;
        }
        if events == 0 {
            return Err(input(": it is empty; give what --json wrote".into()));
        }
        Ok(())
    }

    /// Starts a source; one of which nothing came is replaced.
    fn begin(&mut self, source: Source, file: &str) -> Place {
        let used = |index: usize| {
            self.timings.iter().any(|timing| timing.source == index)
                || self.trainings.iter().any(|run| run.source == index)
        };
        let replaced = self.sources.len().checked_sub(1).filter(|&last| {
            self.sources[last].command.is_none() && self.sources[last].file == file && !used(last)
        });
        if replaced.is_some() {
            self.sources.pop();
        }
        self.sources.push(Source {
            file: file.to_owned(),
            ..source
        });
        Place {
            source: self.sources.len() - 1,
            since: self.trainings.len(),
            ..Place::default()
        }
    }

    /// Takes an event in.
    fn take(&mut self, event: Value, place: &mut Place, file: &str) -> serde_json::Result<()> {
        let kind = event["event"].as_str().unwrap_or_default().to_owned();
        match kind.as_str() {
            "machine" => *place = self.begin(serde_json::from_value(event)?, file),
            "start" => {
                place.since = self.trainings.len();
                place.dataset = event["dataset"].as_str().map(str::to_owned);
                place.precision = event["precision"].as_str().map(str::to_owned);
                place.loss = event["loss"].as_str().map(str::to_owned);
            }
            "epoch" => {
                let of = Of::deserialize(&event)?;
                let epoch = Epoch::deserialize(&event)?;
                let training = self.training(&of, place);
                training.runs.entry(of.seed).or_default().push(epoch);
            }
            "run" => {
                let of = Of::deserialize(&event)?;
                if let Some(accuracy) = of.test_accuracy {
                    self.training(&of, place)
                        .accuracies
                        .insert(of.seed, accuracy);
                }
            }
            "summary" => {
                let of = Of::deserialize(&event)?;
                let training = self.training(&of, place);
                training.precision = of.precision.or(training.precision.take());
                training.summary = Some(serde_json::from_value(event)?);
            }
            _ if event["graph"].is_string()
                && (event["ms"].is_number() || event["ms_per_epoch"].is_number()) =>
            {
                let timing: Timing = serde_json::from_value(event)?;
                self.timings.push(Timing {
                    source: place.source,
                    ..timing
                });
            }
            // Figures are made of what was taken in the end.
            "memory" => {}
            _ => self.unknown += 1,
        }
        Ok(())
    }

    /// The training that an event belongs to, made if it is the first of it.
    fn training(&mut self, of: &Of, place: &Place) -> &mut Training {
        let found = self.trainings[place.since..]
            .iter()
            .position(|training| training.model == of.model)
            .map(|index| place.since + index);
        let index = found.unwrap_or_else(|| {
            self.trainings.push(Training {
                source: place.source,
                dataset: place.dataset.clone(),
                model: of.model.clone(),
                precision: of.precision.clone().or_else(|| place.precision.clone()),
                loss: place.loss.clone(),
                ..Training::default()
            });
            self.trainings.len() - 1
        });
        &mut self.trainings[index]
    }

    /// Leaves out sources of which nothing came.
    pub fn tidy(&mut self) {
        let mut places = Vec::new();
        let mut kept = Vec::new();
        for (index, source) in std::mem::take(&mut self.sources).into_iter().enumerate() {
            places.push(kept.len());
            let used = self.timings.iter().any(|timing| timing.source == index)
                || self.trainings.iter().any(|run| run.source == index);
            if used {
                kept.push(source);
            }
        }
        self.sources = kept;
        for timing in &mut self.timings {
            timing.source = places[timing.source];
        }
        for training in &mut self.trainings {
            training.source = places[training.source];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Records, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.jsonl");
        std::fs::write(&path, text).unwrap();
        let mut records = Records::default();
        records.read(&path).map_err(|failure| failure.to_string())?;
        records.tidy();
        Ok(records)
    }

    #[test]
    fn timings_belong_to_the_command_before_them() {
        let records = read(
            r#"{"event":"machine","command":"halfgnn bench a","gpus":[{"name":"H200","memory_tb_per_s":4.9,"new":1}]}
{"event":"spmm","graph":"a","features":64,"precision":"half","accumulate":"float","ms":2.0,"speedup":{"cusparse half":3.0},"peers":{"gather":1.0,"cusparse half":9.0}}
{"event":"machine","command":"halfgnn device"}
{"event":"machine","command":"halfgnn bench b"}

{"event":"sddmm","graph":"b","features":32,"ms":1.5,"peers":[{"peer":"cusparse"}],"what":"ever"}
{"event":"train","model":"gcn","graph":"b","ms":1.5,"gib":0.5,"against":[{"name":"pyg","faster":12.0,"smaller":2.0},{"name":7},3]}
{"event":"something new","ms":1}
"#,
        )
        .unwrap();
        let commands: Vec<_> = records
            .sources
            .iter()
            .map(|source| source.command.as_deref().unwrap())
            .collect();
        assert_eq!(commands, ["halfgnn bench a", "halfgnn bench b"]);
        assert_eq!(records.sources[0].gpus[0].memory_tb_per_s, Some(4.9));
        let [spmm, sddmm, train] = &records.timings[..] else {
            panic!("{:?}", records.timings)
        };
        assert_eq!((spmm.source, sddmm.source), (0, 1));
        assert_eq!(spmm.policy.as_deref(), Some("float"));
        // What the row says itself goes before what follows from the baseline's time.
        assert_eq!(spmm.ratios()["cusparse half"], 3.0);
        assert_eq!(spmm.ratios()["gather"], 0.5);
        assert!(sddmm.ratios().is_empty());
        assert_eq!(train.ratios()["pyg"], 12.0);
        assert_eq!(train.memory_ratios()["pyg"], 2.0);
        assert_eq!((train.against.len(), train.gib), (1, Some(0.5)));
        assert_eq!(records.unknown, 1);
    }

    #[test]
    fn a_last_line_that_is_cut_is_left_out() {
        let whole = "{\"event\":\"spmm\",\"graph\":\"a\",\"ms\":2.0}\n";
        let cut = format!("{whole}{}", &whole[..20]);
        assert_eq!(read(&cut).unwrap().timings.len(), 1);
        // Letters may be cut as well.
        let letter = [whole.as_bytes(), b"{\"event\":\"\xc3"].concat();
        let mut records = Records::default();
        records.read_lines(&letter[..], "x").unwrap();
        assert_eq!(records.timings.len(), 1);
        let inside = format!("{}\n{whole}", &whole[..20]);
        assert!(read(&inside).unwrap_err().contains("line 1: no JSON"));
        assert!(read(&whole[..20]).unwrap_err().contains("line 1: no JSON"));
    }

    #[test]
    fn trainings_are_told_apart_by_label_and_start() {
        let records = read(
            r#"{"event":"start","dataset":"cora","precision":"half","model":"gcn","loss":"squared error"}
{"event":"epoch","model":"gcn","seed":0,"epoch":1,"loss":1.9,"test_accuracy":20.0}
{"event":"epoch","model":"gcn","seed":1,"epoch":1,"loss":null,"test_accuracy":21.0}
{"event":"run","model":"gcn","seed":0,"test_accuracy":80.0}
{"event":"summary","model":"gcn","precision":"half","test_accuracy":80.0,"peak_bytes":5,"peak_bytes_by_kind":{"graph":3}}
{"event":"start","dataset":"cora","precision":"float","model":"gcn"}
{"event":"epoch","model":"gcn","seed":0,"epoch":1,"loss":1.8,"test_accuracy":22.0}
{"event":"summary","model":"plain half","precision":"half"}
"#,
        )
        .unwrap();
        let labels: Vec<_> = records.trainings.iter().map(Training::label).collect();
        assert_eq!(labels, ["gcn half", "gcn float", "plain half"]);
        let losses = records.trainings.iter().map(|run| run.loss.as_deref());
        assert_eq!(
            losses.collect::<Vec<_>>(),
            [Some("squared error"), None, None]
        );
        let first = &records.trainings[0];
        assert_eq!(first.runs.len(), 2);
        assert_eq!(first.runs[&1][0].loss, None);
        assert_eq!(first.accuracies[&0], 80.0);
        let summary = first.summary.as_ref().unwrap();
        assert_eq!(summary.peak_bytes_by_kind["graph"], 3.0);
        assert_eq!(records.sources.len(), 1);
    }

    #[test]
    fn what_is_no_json_is_told_with_its_line() {
        for (text, words) in [
            ("", &["x.jsonl", "empty"][..]),
            ("\n\n", &["x.jsonl", "empty"]),
            (
                "{\"event\":\"spmm\"}\n{\"ev\n",
                &["x.jsonl", "line 2", "--json"],
            ),
            ("[1, 2]\n", &["line 1", "object"]),
            ("graph,ms\n", &["line 1", "no JSON"]),
            ("{\"event\":\"epoch\",\"epoch\":1}\n", &["line 1", "model"]),
            (
                "{\"event\":\"spmm\",\"graph\":\"a\",\"ms\":1,\"features\":-3}\n",
                &["line 1", "-3"],
            ),
        ] {
            let error = read(text).unwrap_err();
            for word in words {
                assert!(error.contains(word), "`{word}` is not in: {error}");
            }
        }
        // A number, a string and nothing at all are no timings.
        assert_eq!(
            read("{\"event\":3}\n{\"graph\":\"a\"}\n").unwrap().unknown,
            2
        );
    }
}
