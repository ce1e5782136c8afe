//! `halfgnn tune`: random search and successive halving over options of `train`.

mod halving;
mod log;
mod space;
mod trial;

use crate::args::{Cli, Command as Parsed};
use crate::failure::Failure;
use crate::json::JsonLines;
use crate::machine::{Machine, command_line};
use crate::outputs::Outputs;
use crate::report::{Data, Figure, Lines, Point, column_svg};
use crate::screen::Page;
use clap::{Args, CommandFactory, Parser};
use halfgnn::file;
use halfgnn::metrics::Metric;
use halfgnn::train::{TrainConfig, host_memory};
use halving::Halving;
use log::{Identity, TrialLog};
use serde::Serialize;
use space::{Choice, Space};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;
use trial::{Process, Said, Trial, TrialStatus};

pub const EXAMPLES: &str = "\
Examples:
  halfgnn tune space.toml -- --dataset cora.npz
  halfgnn tune space.toml --trials 200 --state cora.jsonl --plot cora.svg -- --dataset cora.npz --epochs 300
  halfgnn tune space.toml --halving 1 --jobs 4 --json - -- --dataset cora.npz --metric macro-f1

space.toml names options of `train`, without --, and what they may be; a table that has the name of a model holds options of its own:
  model = [\"gcn\", \"gat\"]
  hidden = [16, 32, 64]
  lr = { from = 1e-3, to = 1e-1, scale = \"log\" }
  layers = { from = 2, to = 4, step = 1 }
  dropout = { from = 0.1, to = 0.8 }
  residual = [true, false]
  [gat]
  heads = [1, 2, 4]

Trials are sampled from the seed alone. The best is that of the best validation; what is tested chooses nothing. With --state an
interrupted tuning goes on: type the same command again. A trial is a process of its own: one that fails takes nothing with it.
Comparing after few epochs depends on which trial comes first where several run at once; --halving 1 does not compare.";

/// Options of `train` that a tuning gives by itself, or that make no sense in many runs at once.
const NOT_TUNED: [&str; 13] = [
    "dataset",
    "save",
    "save-every",
    "resume",
    "seeds",
    "plot",
    "json",
    "csv",
    "tensorboard",
    "watch",
    "help",
    "verbose",
    "format",
];

/// Bytes that a process takes on a GPU in addition to its arrays: the driver's context and the kernels.
const CONTEXT_BYTES: u64 = 700 << 20;

/// How often Ctrl-C is looked for.
const LOOK: Duration = Duration::from_millis(100);

/// Rows of the table.
const SHOWN: usize = 10;

/// Options of `tune`.
#[derive(Args)]
pub struct TuneArgs {
    /// What is searched: a TOML file whose keys are options of `train`
    #[arg(value_name = "SPACE.toml")]
    pub space: PathBuf,
    /// Trials
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub trials: u32,
    /// Of the trials that came as far, one of ETA goes on; 1 lets all go on
    #[arg(long, value_name = "ETA", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub halving: u32,
    /// Epochs after which trials are first compared [default: the epochs over ETA²]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub min_epochs: Option<u32>,
    /// Trials at once [default: as many as cores and memory hold, by the first one]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub jobs: Option<u32>,
    /// Keep the trials in FILE, and go on with those that are there
    #[arg(long, value_name = "FILE")]
    pub state: Option<PathBuf>,
    /// Seed of what is tried; that of weights is an option of `train`
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Draw the best validation by trial, and that of each
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
    /// Write one JSON object a line to FILE, or to stdout for `-`
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
    /// Options of `train` for all trials, behind `--`
    #[arg(last = true, value_name = "OPTIONS OF TRAIN", required = true)]
    pub train: Vec<OsString>,
}

/// Searches, and reports what is best.
pub fn run(args: &TuneArgs, stop: &AtomicBool) -> Result<(), Failure> {
    let text = std::fs::read_to_string(&args.space).unwrap_or_default();
    let space = Space::read(&args.space, &is_option)?;
    let plans: Vec<Choice> = (0..args.trials)
        .map(|number| space.choice(args.seed, number))
        .collect();
    let mut epochs = 0;
    for (number, choice) in plans.iter().enumerate() {
        epochs = epochs.max(epochs_of(args, number, choice)?);
    }
    let first = (args.min_epochs).unwrap_or((epochs / args.halving.saturating_pow(2)).max(1));
    let identity = Identity {
        space: text,
        train: args
            .train
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect(),
        seed: args.seed,
    };
    let mut outputs = Outputs::new();
    outputs.reads("", &args.space);
    if let Some(path) = &args.state {
        outputs.file("--state", path)?;
    }
    if let Some(path) = &args.plot {
        outputs.file("--plot", path)?;
    }
    outputs.stream("--json", args.json.as_deref())?;
    let (state, known) = match &args.state {
        Some(path) => {
            let (log, trials) = TrialLog::open(path, &identity)?;
            (Some(log), trials)
        }
        None => (None, Vec::new()),
    };
    let json = JsonLines::open(args.json.as_deref())?;
    let mut tuning = Tuning {
        args,
        plans,
        halving: Halving::new(first, args.halving),
        page: Page::new(json.is_stdout()),
        json,
        state,
        done: BTreeMap::new(),
        memory: None,
        largest: 0,
    };
    for trial in known {
        if trial.number < args.trials {
            tuning.remember(trial);
        }
    }
    if !tuning.done.is_empty() {
        let line = format!("{} trials are known from before", tuning.done.len());
        tuning.page.line(&line);
    }
    tuning.search(stop)?;
    tuning.tell()
}

/// Whether `name` is an option of `train` that may be tried.
fn is_option(name: &str) -> bool {
    let program = Cli::command();
    let train = program.find_subcommand("train");
    let mut options = train.into_iter().flat_map(clap::Command::get_arguments);
    !NOT_TUNED.contains(&name) && options.any(|option| option.get_long() == Some(name))
}

/// The words of a trial's command, behind the program's name.
fn words(args: &TuneArgs, choice: &Choice) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec!["train".into()];
    words.extend(args.train.iter().cloned());
    for (name, value) in choice {
        words.push(match value {
            Some(value) => format!("--{name}={value}").into(),
            None => format!("--{name}").into(),
        });
    }
    words
}

/// The epochs of a trial, if its options are such as `train` takes.
fn epochs_of(args: &TuneArgs, number: usize, choice: &Choice) -> Result<u32, Failure> {
    let refuse = |reason: &str| {
        let tried = choice.iter().map(|(name, value)| match value {
            Some(value) => format!("--{name} {value}"),
            None => format!("--{name}"),
        });
        let tried = tried.collect::<Vec<_>>().join(" ");
        Failure::Input(format!("trial {number} ({tried}): {reason}"))
    };
    let words = std::iter::once("halfgnn".into()).chain(words(args, choice));
    let parsed = Cli::try_parse_from(words).map_err(|error| {
        let text = error.to_string();
        let line = text.lines().next().unwrap_or_default();
        refuse(line.trim_start_matches("error: "))
    })?;
    let Parsed::Train(train) = parsed.command else {
        return Err(refuse("this is no command that trains"));
    };
    let given = [
        ("--save", train.checkpoint.save.is_some()),
        ("--resume", train.checkpoint.resume.is_some()),
        ("--plot", train.plot.is_some()),
        ("--json", train.json.is_some()),
        ("--csv", train.watch.csv.is_some()),
        ("--tensorboard", train.watch.tensorboard.is_some()),
        ("--watch", train.watch.watch),
        ("--seeds", train.seeds > 1),
    ];
    if let Some((name, _)) = given.iter().find(|(_, given)| *given) {
        return Err(Failure::Input(format!(
            "{name} is of a single run, and a tuning has many; leave it out, and give it to `train` with what proves best"
        )));
    }
    let defaults = TrainConfig::new(train.precision.into());
    Ok(train.epochs.unwrap_or(defaults.epochs))
}

/// A trial that is under way.
struct Running {
    process: Process,
    /// Whether others run at the same time.
    shared: bool,
    /// What it was when others proved better.
    halved: Option<Box<Trial>>,
    /// Its scores where trials are compared.
    rungs: BTreeMap<u32, f64>,
}

struct Tuning<'a> {
    args: &'a TuneArgs,
    plans: Vec<Choice>,
    halving: Halving,
    page: Page,
    json: JsonLines,
    state: Option<TrialLog>,
    done: BTreeMap<u32, Trial>,
    /// Bytes that trials may take together, and each in addition to what it counts, once a trial has reported the
    /// device.
    memory: Option<(u64, u64)>,
    /// The most that a trial took.
    largest: u64,
}

impl Tuning<'_> {
    /// Runs the trials that are not known.
    fn search(&mut self, stop: &AtomicBool) -> Result<(), Failure> {
        let program = std::env::current_exe()
            .map_err(|error| Failure::Run(format!("cannot start trials: {error}")))?;
        let (said, hear) = mpsc::channel();
        let mut waiting: Vec<u32> = (0..self.args.trials)
            .rev()
            .filter(|number| !self.done.contains_key(number))
            .collect();
        let mut alone: Vec<u32> = Vec::new();
        let mut running: BTreeMap<u32, Running> = BTreeMap::new();
        loop {
            while !stop.load(Ordering::Relaxed) && running.len() < self.at_once() {
                let retry = waiting.is_empty() && running.is_empty();
                let next = if retry { alone.pop() } else { waiting.pop() };
                let Some(number) = next else { break };
                let choice = &self.plans[number as usize];
                let mut command = Command::new(&program);
                command.args(words(self.args, choice)).args(["--json", "-"]);
                if self.at_once() > 1 && std::env::var_os("RAYON_NUM_THREADS").is_none() {
                    let cores = std::thread::available_parallelism().map_or(1, usize::from);
                    let threads = (cores / self.at_once()).max(1);
                    command.env("RAYON_NUM_THREADS", threads.to_string());
                }
                let process = Process::start(command, number, choice, &said)
                    .map_err(|error| Failure::Run(format!("cannot start a trial: {error}")))?;
                let started = Running {
                    process,
                    shared: !retry && self.at_once() > 1,
                    halved: None,
                    rungs: BTreeMap::new(),
                };
                running.insert(number, started);
            }
            if running.is_empty() {
                return Ok(());
            }
            match hear.recv_timeout(LOOK) {
                Ok(Said::Epoch(trial)) => {
                    let epoch = trial.epochs;
                    if let Some(ran) = running.get_mut(&trial.number)
                        && ran.halved.is_none()
                        && self.halving.is_rung(epoch)
                    {
                        ran.rungs.extend(trial.score.map(|score| (epoch, score)));
                        if !self.halving.goes_on(epoch, trial.metric, trial.score) {
                            ran.halved = Some(trial);
                            ran.process.end();
                        }
                    }
                }
                Ok(Said::Over { mut trial, device }) => {
                    let Some(ran) = running.remove(&trial.number) else {
                        continue;
                    };
                    if stop.load(Ordering::Relaxed) {
                        continue;
                    }
                    // It may have gone on for a while, or to its end, before it was stopped.
                    if let Some(halved) = ran.halved {
                        *trial = Trial {
                            status: TrialStatus::Halved,
                            peak_bytes: trial.peak_bytes,
                            seconds: trial.seconds,
                            ..*halved
                        };
                    }
                    // It may have run out of memory because of the others.
                    if trial.status == TrialStatus::Failed && ran.shared {
                        alone.push(trial.number);
                        continue;
                    }
                    trial.rungs = ran.rungs;
                    self.learn(&trial, device.as_deref());
                    self.keep(*trial)?;
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
            if stop.load(Ordering::Relaxed) {
                running.clear();
            }
        }
    }

    /// How many trials may run at once.
    fn at_once(&self) -> usize {
        if let Some(jobs) = self.args.jobs {
            return jobs as usize;
        }
        // The first one determines what the others may take.
        let Some((room, beside)) = self.memory else {
            return 1;
        };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let each = self.largest.saturating_mul(5) / 4 + beside;
        usize::try_from(room / each.max(1)).map_or(cores, |hold| hold.clamp(1, cores))
    }

    fn learn(&mut self, trial: &Trial, device: Option<&str>) {
        self.largest = self.largest.max(trial.peak_bytes.unwrap_or(0));
        let Some(device) = device else { return };
        if self.memory.is_none() {
            let card = Machine::survey()
                .gpus
                .into_iter()
                .find(|card| device.contains(&card.name));
            self.memory = Some(match card {
                Some(card) => (card.memory_bytes / 10 * 9, CONTEXT_BYTES),
                None => (host_memory().map_or(0, |(free, _)| free / 10 * 9), 64 << 20),
            });
        }
    }

    /// Takes note of a trial of an earlier run.
    fn remember(&mut self, trial: Trial) {
        self.largest = self.largest.max(trial.peak_bytes.unwrap_or(0));
        for (&epoch, &score) in &trial.rungs {
            self.halving.add(epoch, score);
        }
        self.done.insert(trial.number, trial);
    }

    fn keep(&mut self, trial: Trial) -> Result<(), Failure> {
        let ending = match (trial.status, &trial.message) {
            (TrialStatus::Finished, _) => String::new(),
            (TrialStatus::Halved, _) => ", others were better".into(),
            (TrialStatus::Failed, message) => {
                format!(", failed: {}", message.as_deref().unwrap_or_default())
            }
        };
        let score = trial.score.map_or("no score".into(), |score| {
            format!("validation {} {}", trial.metric, trial.metric.shown(score))
        });
        self.page.line(&format_args!(
            "trial {:>4} of {}: {score} after {} epochs{ending}   {}",
            self.done.len() + 1,
            self.args.trials,
            trial.epochs,
            typed(&trial)
        ));
        if let Some(state) = &mut self.state {
            state.write(&trial)?;
        }
        #[derive(Serialize)]
        struct Event<'a> {
            event: &'static str,
            #[serde(flatten)]
            trial: &'a Trial,
        }
        self.json.write(&Event {
            event: "trial",
            trial: &trial,
        })?;
        self.done.insert(trial.number, trial);
        Ok(())
    }

    /// The table, the plot, and the command that trains what is best.
    fn tell(mut self) -> Result<(), Failure> {
        let has_score = self.done.values().any(|trial| trial.score.is_some());
        let counts = |trial: &&Trial| match has_score {
            true => trial.score.is_some(),
            false => trial.status == TrialStatus::Finished,
        };
        let mut ranked: Vec<&Trial> = self.done.values().filter(counts).collect();
        if !has_score && !ranked.is_empty() {
            self.page.line(
                &"no trial has a validation score, so none is better than another, and the first is named; split otherwise, such as by \
                  --split fractions:0.6,0.2",
            );
        }
        let metric = ranked
            .first()
            .map_or(Metric::default(), |trial| trial.metric);
        ranked.sort_by(|a, b| match (a.score, b.score) {
            (Some(a), Some(b)) if metric.is_better(a, b) => std::cmp::Ordering::Less,
            (Some(a), Some(b)) if metric.is_better(b, a) => std::cmp::Ordering::Greater,
            _ => a.number.cmp(&b.number),
        });
        let Some(&best) = ranked.first() else {
            let message = self
                .done
                .values()
                .find_map(|trial| trial.message.as_deref());
            return Err(Failure::Run(format!(
                "no trial has a score{}",
                message.map_or(String::new(), |message| format!(
                    "; the first failed: {message}"
                ))
            )));
        };
        let shown = |score: Option<f64>| score.map_or("-".into(), |score| metric.shown(score));
        self.page.line(&format_args!(
            "\n{:>6} {:>12} {:>12} {:>7} {:>9}  options",
            "trial", "validation", "test", "epochs", "seconds"
        ));
        for trial in ranked.iter().take(SHOWN) {
            self.page.line(&format_args!(
                "{:>6} {:>12} {:>12} {:>7} {:>9.1}  {}",
                trial.number,
                shown(trial.score),
                shown(trial.test_score),
                trial.epochs,
                trial.seconds,
                typed(trial)
            ));
        }
        let choice = &self.plans[best.number as usize];
        let program = std::iter::once(OsString::from("halfgnn"));
        let command = command_line(program.chain(words(self.args, choice)));
        self.page.line(&format_args!("\n{command}"));
        let count = |status| {
            self.done
                .values()
                .filter(|trial| trial.status == status)
                .count()
        };
        #[derive(Serialize)]
        struct Event {
            event: &'static str,
            trials: usize,
            finished: usize,
            halved: usize,
            failed: usize,
            best: u32,
            metric: Metric,
            score: Option<f64>,
            test_score: Option<f64>,
            command: String,
        }
        self.json.write(&Event {
            event: "tuned",
            trials: self.done.len(),
            finished: count(TrialStatus::Finished),
            halved: count(TrialStatus::Halved),
            failed: count(TrialStatus::Failed),
            best: best.number,
            metric,
            score: best.score,
            test_score: best.test_score,
            command,
        })?;
        if let Some(path) = &self.args.plot {
            file::write(
                path,
                column_svg(&[figure(self.done.values(), metric)])?.as_bytes(),
            )
            .map_err(|error| Failure::Run(format!("--plot {}: {error}", path.display())))?;
        }
        self.json.finish()
    }
}

/// The options of a trial, as they are typed.
fn typed(trial: &Trial) -> String {
    let options = trial.options.iter().map(|(name, value)| match value {
        Some(value) => format!("--{name} {value}"),
        None => format!("--{name}"),
    });
    options.collect::<Vec<_>>().join(" ")
}

/// The score of each trial, and the best so far.
fn figure<'a>(trials: impl Iterator<Item = &'a Trial>, metric: Metric) -> Figure {
    let (mut each, mut best) = (Vec::new(), Vec::new());
    let mut so_far = f64::NAN;
    for (number, score) in trials.filter_map(|trial| Some((trial.number, trial.score?))) {
        if metric.is_better(score, so_far) {
            so_far = score;
        }
        each.extend(Point::of(number.into(), &[score]));
        best.extend(Point::of(number.into(), &[so_far]));
    }
    let unit = if metric.is_percent() { " (%)" } else { "" };
    Figure {
        name: String::new(),
        title: "Best validation by trial".into(),
        caption: String::new(),
        data: Data::Lines(Lines {
            x: "trial".into(),
            y: format!("validation {metric}{unit}"),
            series: vec![("best so far".into(), best), ("each trial".into(), each)],
            ..Lines::default()
        }),
    }
}
