//! The fuzzer: workers that mutate and feed, and a watch over them.

use crate::allocation::peak_of;
use crate::mutation::mutant;
use crate::{Answer, Target};
use fastrand::Rng;
use std::collections::HashSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Inputs with new answers that a worker keeps to mutate further.
const KEPT: usize = 512;

/// How long to fuzz, and with what.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// It ends after this time,
    pub time: Duration,
    /// or after this many inputs, whichever comes first.
    pub executions: u64,
    /// Decides the mutants. With one number of workers, one seed gives the same inputs.
    pub seed: u64,
    /// Threads.
    pub workers: usize,
}

/// What was done without a finding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Inputs that the target took.
    pub accepted: u64,
    /// Inputs that it refused.
    pub refused: u64,
    /// Different answers that it gave.
    pub answers: usize,
}

impl Report {
    /// Inputs in all.
    pub fn executions(&self) -> u64 {
        self.accepted + self.refused
    }
}

/// An input with which a target broke its promise.
#[derive(Clone, PartialEq, Eq)]
pub struct Finding {
    /// What it did.
    pub what: String,
    /// The input.
    pub input: Vec<u8>,
}

impl fmt::Debug for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, input) = (&self.what, String::from_utf8_lossy(&self.input));
        write!(f, "{what}; the input:\n{input}")
    }
}

/// Feeds one input. It does not watch the clock; [`fuzz`] does.
///
/// # Errors
/// What the target did instead of answering.
pub fn check(target: &Target, input: &[u8]) -> Result<Answer, String> {
    let (outcome, peak) = peak_of(|| catch_unwind(AssertUnwindSafe(|| (target.run)(input))));
    let answer = outcome.map_err(|payload| {
        let message = payload.downcast_ref::<String>().map(String::as_str);
        let message = message.or(payload.downcast_ref::<&str>().copied());
        format!("a panic: {}", message.unwrap_or("without words"))
    })?;
    if peak > target.memory {
        return Err(format!(
            "{peak} bytes were held at once, and {} are allowed",
            target.memory
        ));
    }
    Ok(answer)
}

/// Something was found, and the workers end.
struct Stopped;

/// What one worker does now.
#[derive(Default)]
struct Slot {
    input: Vec<u8>,
    since: Option<Instant>,
}

/// What the workers and the watch share.
struct Shared {
    seeds: Vec<Vec<u8>>,
    stop: AtomicBool,
    running: AtomicU64,
    accepted: AtomicU64,
    refused: AtomicU64,
    slots: Vec<Mutex<Slot>>,
    answers: Mutex<HashSet<Answer>>,
    finding: Mutex<Option<Finding>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Feeds one input for a worker: its answer, if it is new to that worker, or an error after a finding.
    fn feed(
        &self,
        target: &Target,
        slot: &Mutex<Slot>,
        input: &[u8],
        known: &mut HashSet<Answer>,
    ) -> Result<Option<Answer>, Stopped> {
        {
            let mut slot = lock(slot);
            slot.input.clear();
            slot.input.extend_from_slice(input);
            slot.since = Some(Instant::now());
        }
        let answer = check(target, input);
        lock(slot).since = None;
        match answer {
            Ok(answer) => {
                let count = match answer {
                    Answer::Accepted(_) => &self.accepted,
                    Answer::Refused(_) => &self.refused,
                };
                count.fetch_add(1, Relaxed);
                Ok(known.insert(answer.clone()).then_some(answer))
            }
            Err(what) => {
                let input = input.to_vec();
                lock(&self.finding).get_or_insert(Finding { what, input });
                self.stop.store(true, Relaxed);
                Err(Stopped)
            }
        }
    }

    /// One worker, from its share of the seeds to the end of the budget.
    fn work(&self, target: &Target, index: usize, budget: &Budget) {
        let mut known = HashSet::new();
        // An error ends the work early and is reported by the finding.
        let _: Result<(), Stopped> = self.work_until_stopped(target, index, budget, &mut known);
        lock(&self.answers).extend(known);
    }

    fn work_until_stopped(
        &self,
        target: &Target,
        index: usize,
        budget: &Budget,
        known: &mut HashSet<Answer>,
    ) -> Result<(), Stopped> {
        let slot = &self.slots[index];
        let mut accepted = Pool::new(self.seeds.clone());
        let mut refused = Pool::new(Vec::new());
        let mut rng = Rng::with_seed(budget.seed.wrapping_add(index as u64));
        for seed in accepted.0.iter().skip(index).step_by(budget.workers) {
            self.feed(target, slot, seed, known)?;
        }
        let workers = budget.workers as u64;
        let share =
            budget.executions / workers + u64::from((index as u64) < budget.executions % workers);
        for _ in 0..share {
            if self.stop.load(Relaxed) {
                break;
            }
            // What was refused is mostly refused again.
            let from = match refused.0.is_empty() || rng.u32(..8) > 0 {
                true => &accepted,
                false => &refused,
            };
            let input = mutant(target.grammar, &from.0, &accepted.0, &mut rng);
            match self.feed(target, slot, &input, known)? {
                Some(Answer::Accepted(_)) => accepted.keep(input, &mut rng),
                Some(Answer::Refused(_)) => refused.keep(input, &mut rng),
                None => {}
            }
        }
        Ok(())
    }
}

/// Inputs to be mutated; the first ones stay.
struct Pool(Vec<Vec<u8>>, usize);

impl Pool {
    fn new(corpus: Vec<Vec<u8>>) -> Self {
        let first = corpus.len();
        Self(corpus, first)
    }

    fn keep(&mut self, input: Vec<u8>, rng: &mut Rng) {
        let Self(inputs, first) = self;
        if inputs.len() < *first + KEPT {
            inputs.push(input);
        } else {
            let at = rng.usize(*first..inputs.len());
            inputs[at] = input;
        }
    }
}

/// Counts a worker out, however it ends.
struct Leave(Arc<Shared>);

impl Drop for Leave {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Relaxed);
    }
}

/// Feeds the corpus and then mutants of it until the budget is spent.
///
/// # Errors
/// The first input with which the target panicked, held too much memory, or took too long. The thread of one that takes
/// too long is left behind.
///
/// # Panics
/// If the corpus cannot be read or a thread cannot be started.
pub fn fuzz(target: &'static Target, budget: Budget) -> Result<Report, Finding> {
    let corpus = target.corpus().into_iter().map(|(_, bytes)| bytes);
    fuzz_from(target, corpus.collect(), budget)
}

/// Feeds these inputs and no others.
///
/// # Errors
/// As [`fuzz`].
///
/// # Panics
/// If a thread cannot be started.
pub fn replay(target: &'static Target, inputs: Vec<Vec<u8>>) -> Result<Report, Finding> {
    let budget = Budget {
        time: Duration::MAX,
        executions: 0,
        seed: 0,
        workers: 1,
    };
    fuzz_from(target, inputs, budget)
}

fn fuzz_from(
    target: &'static Target,
    seeds: Vec<Vec<u8>>,
    budget: Budget,
) -> Result<Report, Finding> {
    let begin = Instant::now();
    let budget = Budget {
        workers: budget.workers.max(1),
        ..budget
    };
    let shared = Arc::new(Shared {
        seeds,
        stop: AtomicBool::new(false),
        running: AtomicU64::new(budget.workers as u64),
        accepted: AtomicU64::new(0),
        refused: AtomicU64::new(0),
        slots: (0..budget.workers).map(|_| Mutex::default()).collect(),
        answers: Mutex::default(),
        finding: Mutex::default(),
    });
    for index in 0..budget.workers {
        // In a pool of one thread, what a target does in parallel stays on the thread whose memory is counted.
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build();
        let pool = pool.expect("a thread");
        let leave = Leave(Arc::clone(&shared));
        pool.spawn(move || leave.0.work(target, index, &budget));
    }
    while shared.running.load(Relaxed) > 0 {
        std::thread::sleep(Duration::from_millis(10));
        if begin.elapsed() >= budget.time {
            shared.stop.store(true, Relaxed);
        }
        for slot in &shared.slots {
            let mut slot = lock(slot);
            let late = |since: Instant| since.elapsed() >= Duration::from_secs(Target::SECONDS);
            if slot.since.is_some_and(late) {
                let what = format!("no answer in {} seconds", Target::SECONDS);
                let input = std::mem::take(&mut slot.input);
                return Err(Finding { what, input });
            }
        }
    }
    if let Some(finding) = lock(&shared.finding).take() {
        return Err(finding);
    }
    let answers = lock(&shared.answers).len();
    Ok(Report {
        accepted: shared.accepted.load(Relaxed),
        refused: shared.refused.load(Relaxed),
        answers,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Grammar;

    fn target(run: fn(&[u8]) -> Answer) -> &'static Target {
        let target = Target {
            name: "test",
            about: "",
            grammar: Grammar::Bytes,
            corpus: &["tests/fuzz/src"],
            memory: 1 << 20,
            run,
        };
        Box::leak(Box::new(target))
    }

    fn finding(run: fn(&[u8]) -> Answer) -> Finding {
        let budget = Budget {
            time: Duration::from_secs(60),
            executions: 1000,
            seed: 1,
            workers: 2,
        };
        fuzz(target(run), budget).expect_err("a finding")
    }

    #[test]
    fn a_panic_is_found_with_its_input() {
        let found = finding(|bytes| {
            assert!(bytes.len() % 7 != 3, "a length of {}", bytes.len());
            Answer::Refused(String::new())
        });
        assert_eq!(found.input.len() % 7, 3);
        assert_eq!(
            found.what,
            format!("a panic: a length of {}", found.input.len())
        );
    }

    #[test]
    fn a_hang_is_found() {
        let found = finding(|_| {
            loop {
                std::thread::park();
            }
        });
        assert!(found.what.starts_with("no answer in"), "{}", found.what);
        assert!(!found.input.is_empty());
    }

    #[test]
    fn one_seed_gives_one_report() {
        let of = |seed| {
            let budget = Budget {
                time: Duration::from_secs(60),
                executions: 300,
                seed,
                workers: 2,
            };
            let parity = target(|bytes| match bytes.iter().fold(0u8, |sum, b| sum ^ b) % 2 {
                0 => Answer::Accepted("even".into()),
                _ => Answer::Refused(format!("odd, {} long", bytes.len() % 8)),
            });
            fuzz(parity, budget).expect("no finding")
        };
        assert_eq!(of(5), of(5));
        assert!(of(5).executions() > 300 && of(5).answers > 2);
        assert_ne!(of(5), of(6));
    }
}
