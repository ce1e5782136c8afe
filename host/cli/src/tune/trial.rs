//! A trial: `train` in a process of its own, whose lines are read while it goes on, so that one that fails takes
//! nothing with it.

use super::space::Choice;
use halfgnn::metrics::Metric;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Instant;

/// What came of a trial. Scores are of its best epoch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Which, from 0.
    pub number: u32,
    /// Its options, as they are typed.
    pub options: BTreeMap<String, Option<String>>,
    /// How it ended.
    pub status: TrialStatus,
    /// Epochs that were trained.
    pub epochs: u32,
    /// What scores are.
    pub metric: Metric,
    /// What the metric says of what was validated.
    pub score: Option<f64>,
    /// What it says of what was tested.
    pub test_score: Option<f64>,
    /// The best epoch.
    pub best_epoch: Option<u32>,
    /// The best score after the epochs at which trials are compared.
    pub rungs: BTreeMap<u32, f64>,
    /// The most memory, in bytes.
    pub peak_bytes: Option<u64>,
    /// How long it took.
    pub seconds: f64,
    /// What it said where it failed.
    pub message: Option<String>,
}

/// How a trial ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrialStatus {
    /// It trained all its epochs, or stopped early by itself.
    Finished,
    /// Others were better after as many epochs.
    Halved,
    /// It ended with a message.
    Failed,
}

/// What a trial that is under way says.
#[derive(Debug)]
pub enum Said {
    /// An epoch is done: the trial so far.
    Epoch(Box<Trial>),
    /// The process has closed its pipes.
    Over {
        trial: Box<Trial>,
        device: Option<String>,
    },
}

/// The process of a trial.
pub struct Process(Child);

impl Process {
    /// Starts `command`, and has what it says sent.
    pub fn start(
        mut command: Command,
        number: u32,
        choice: &Choice,
        said: &Sender<Said>,
    ) -> io::Result<Self> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        if let (Some(out), Some(err)) = (child.stdout.take(), child.stderr.take()) {
            let trial = Trial {
                number,
                options: choice.iter().cloned().collect(),
                status: TrialStatus::Failed,
                epochs: 0,
                metric: Metric::default(),
                score: None,
                test_score: None,
                best_epoch: None,
                rungs: BTreeMap::new(),
                peak_bytes: None,
                seconds: 0.0,
                message: None,
            };
            let said = said.clone();
            thread::spawn(move || trial.follow(out, err, &said));
        }
        Ok(Self(child))
    }

    /// Ends it.
    pub fn end(&mut self) {
        // One that has just ended by itself needs no end.
        let _ = self.0.kill();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
        let _ = self.0.wait();
    }
}

impl Trial {
    /// Reads what the process writes until it ends.
    fn follow(mut self, out: ChildStdout, mut err: ChildStderr, said: &Sender<Said>) {
        let began = Instant::now();
        // Drained at the same time as the other, so that neither pipe fills.
        let errors = thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = err.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        });
        let mut device = None;
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            let Ok(event) = serde_json::from_str::<Value>(&line) else {
                continue;
            };
            match event["event"].as_str() {
                Some("epoch") if self.add(&event) => {
                    // There is no receiver where the tuning has ended.
                    let _ = said.send(Said::Epoch(Box::new(self.clone())));
                }
                Some("summary") => {
                    device = event["device"].as_str().map(str::to_owned);
                    self.peak_bytes = event["peak_bytes"].as_u64();
                    if let Some("finished" | "early_stopped") = event["status"].as_str() {
                        self.status = TrialStatus::Finished;
                    }
                }
                _ => {}
            }
        }
        let errors = errors.join().unwrap_or_default();
        if self.status == TrialStatus::Failed {
            let last = errors.lines().rfind(|line| !line.trim().is_empty());
            let last = last.unwrap_or("it ended without a word");
            self.message = Some(last.trim_start_matches("halfgnn: ").to_owned());
        }
        self.seconds = began.elapsed().as_secs_f64();
        let _ = said.send(Said::Over {
            trial: Box::new(self),
            device,
        });
    }

    /// Takes note of an epoch's event, if it is one.
    fn add(&mut self, event: &Value) -> bool {
        let metric = event["metric"].as_str().and_then(|name| name.parse().ok());
        let epoch = event["epoch"]
            .as_u64()
            .and_then(|epoch| epoch.try_into().ok());
        let (Some(metric), Some(epoch)) = (metric, epoch) else {
            return false;
        };
        (self.metric, self.epochs) = (metric, epoch);
        let scores = &event["scores"][metric.to_string()];
        if let Some(score) = scores["validation"].as_f64()
            && metric.is_better(score, self.score.unwrap_or(f64::NAN))
        {
            self.score = Some(score);
            self.test_score = scores["test"].as_f64();
            self.best_epoch = Some(epoch);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// The score after each epoch, and what came of it all.
    type Course = (Vec<(u32, Option<f64>)>, Trial, Option<String>);

    fn over(script: &str) -> Course {
        let (said, hear) = mpsc::channel();
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let choice = vec![("lr".to_owned(), Some("0.1".to_owned()))];
        let _process = Process::start(command, 3, &choice, &said).unwrap();
        let mut epochs = Vec::new();
        loop {
            match hear.recv().unwrap() {
                Said::Epoch(trial) => epochs.push((trial.epochs, trial.score)),
                Said::Over { trial, device } => return (epochs, *trial, device),
            }
        }
    }

    #[test]
    fn the_best_validation_counts_and_not_the_best_test() {
        let epoch = |epoch: u32, validation: f64, test: f64| {
            format!(
                r#"echo '{{"event":"epoch","epoch":{epoch},"metric":"mae","scores":{{"mae":{{"validation":{validation},"test":{test}}}}}}}'; "#
            )
        };
        let script = [
            "echo '{\"event\":\"machine\"}'; echo no JSON; ".to_owned(),
            epoch(1, 0.9, 0.1),
            epoch(2, 0.5, 0.7),
            epoch(3, 0.6, 0.2),
            r#"echo '{"event":"summary","status":"finished","device":"CPU","peak_bytes":77}'"#
                .to_owned(),
        ]
        .concat();
        let (epochs, trial, device) = over(&script);
        assert_eq!(epochs, [(1, Some(0.9)), (2, Some(0.5)), (3, Some(0.5))]);
        assert_eq!(
            (trial.score, trial.test_score, trial.best_epoch),
            (Some(0.5), Some(0.7), Some(2))
        );
        assert_eq!(
            (trial.status, trial.epochs, trial.number),
            (TrialStatus::Finished, 3, 3)
        );
        assert_eq!(
            (trial.peak_bytes, device.as_deref()),
            (Some(77), Some("CPU"))
        );
        assert_eq!(trial.options["lr"].as_deref(), Some("0.1"));
    }

    #[test]
    fn a_failure_keeps_its_last_line() {
        let (epochs, trial, _) = over("echo warning >&2; echo 'halfgnn: no memory' >&2; exit 1");
        assert!(epochs.is_empty());
        assert_eq!(trial.status, TrialStatus::Failed);
        assert_eq!(trial.message.as_deref(), Some("no memory"));
    }
}
