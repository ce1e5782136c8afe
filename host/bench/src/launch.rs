//! The program, started again once for each GPU: `--devices`.

use crate::failure::Failure;
use crate::interrupt;
use halfgnn::device::cuda_driver;
use halfgnn::file::exit_discarding;
use halfgnn_platform::process;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// GPUs of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Devices {
    /// All that can be used.
    All,
    /// These, as numbers of those that are visible.
    These(Vec<usize>),
}

/// Reads `all`, or numbers with commas between them.
///
/// # Errors
/// What it must be.
pub fn devices(text: &str) -> Result<Devices, String> {
    if text == "all" {
        return Ok(Devices::All);
    }
    let numbers: Option<Vec<usize>> = text.split(',').map(|part| part.parse().ok()).collect();
    let Some(numbers) = numbers else {
        return Err(
            "it must be all, or numbers of GPUs with commas between them, such as 0,1".into(),
        );
    };
    match numbers
        .iter()
        .enumerate()
        .find(|(at, number)| numbers[..*at].contains(number))
    {
        Some((_, twice)) => Err(format!("GPU {twice} is there twice")),
        None => Ok(Devices::These(numbers)),
    }
}

/// Environment variable of the processes that are started: their stdin ends when they are to stop.
const STARTED: &str = "HALFGNN_STARTED_FOR_A_DEVICE";

/// Sets `stop` in a process that [`run`] started as soon as the one that started it asks for that, or has ended: an
/// interrupt may reach that one alone.
pub fn stop_with_parent(stop: &Arc<AtomicBool>) {
    if std::env::var_os(STARTED).is_none() {
        return;
    }
    let stop = Arc::clone(stop);
    thread::spawn(move || {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        stop.store(true, Ordering::Relaxed);
        if interrupt::came() {
            exit_discarding(interrupt::INTERRUPTED);
        }
    });
}

/// How long the others may take to end when the first rank has; those that are still there then have been stopped.
const OTHERS_GRACE: Duration = Duration::from_secs(2);

/// How often processes are looked at.
const POLL: Duration = Duration::from_millis(20);

/// How long the first rank may take to end when another has failed. It reports why better than the other can, and is
/// about to.
const FIRST_GRACE: Duration = Duration::from_secs(6);

/// Starts a process for each GPU, which is given it alone, and waits for all; `auto` where no device was named, which
/// is a GPU then. The output is that of the first, which also decides how the program ends; unless it hangs where
/// another rank has failed, which reports why then.
///
/// # Errors
/// Where a process cannot be started, and what ended the first, or another where the first does not end.
pub fn run(devices: &Devices, auto: bool) -> Result<(), Failure> {
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    let visible: Option<Vec<&str>> = visible.as_deref().map(|list| list.split(',').collect());
    let numbers = match devices {
        Devices::These(numbers) => numbers.clone(),
        Devices::All => {
            let driver = cuda_driver().map_err(|problem| Failure::Run(problem.to_string()))?;
            (0..driver.cards.len()).collect()
        }
    };
    let cards = numbers.iter().map(|&number| match &visible {
        None => Ok(number.to_string()),
        Some(list) => list
            .get(number)
            .map(|card| (*card).to_owned())
            .ok_or_else(|| {
                Failure::Input(format!(
                    "--devices: GPU {number}, and CUDA_VISIBLE_DEVICES shows {}, from 0 on",
                    list.len()
                ))
            }),
    });
    let cards = cards.collect::<Result<Vec<String>, Failure>>()?;
    let failed =
        |error: std::io::Error| Failure::Run(format!("--devices: a process for each GPU: {error}"));
    let program = std::env::current_exe().map_err(failed)?;
    let folder = tempfile::tempdir().map_err(failed)?;
    // On loopback, with a random key that stands in a folder which this user alone reads.
    let mut meet = OsString::from("local:");
    meet.push(folder.path().join("meet"));
    let arguments = without_devices(std::env::args_os().skip(1));
    let mut children = Vec::new();
    for (rank, card) in cards.iter().enumerate() {
        let mut command = Command::new(&program);
        command
            .args(&arguments)
            .arg("--rendezvous")
            .arg(&meet)
            .args(if auto { &["--device", "cuda"][..] } else { &[] })
            .env("RANK", rank.to_string())
            .env("WORLD_SIZE", cards.len().to_string())
            .env("CUDA_VISIBLE_DEVICES", card)
            .env(STARTED, "1")
            .stdin(Stdio::piped());
        if rank > 0 {
            // The first reports what ended any of them, as long as it can.
            let said = File::create(words(folder.path(), rank)).map_err(failed)?;
            command.stdout(Stdio::null()).stderr(said);
        }
        match command.spawn() {
            Ok(child) => children.push(child),
            Err(error) => {
                end(&mut children);
                return Err(failed(error));
            }
        }
    }
    if children.is_empty() {
        return Err(Failure::Run("--devices all: there is no GPU".into()));
    }
    match attend(&mut children, FIRST_GRACE).map_err(failed)? {
        Ended::First(status) => {
            let give_up = Instant::now() + OTHERS_GRACE;
            while Instant::now() < give_up && children[1..].iter_mut().any(runs) {
                thread::sleep(POLL);
            }
            end(&mut children);
            tell(status, cards.len())
        }
        Ended::Other(rank, status) => {
            end(&mut children);
            let said = fs::read_to_string(words(folder.path(), rank)).unwrap_or_default();
            Err(Failure::Run(for_the_first(
                rank,
                cards.len(),
                &said,
                status,
            )))
        }
    }
}

/// Where a rank's stderr goes, which is not shown unless the first rank hangs.
fn words(folder: &Path, rank: usize) -> PathBuf {
    folder.join(format!("rank-{rank}.txt"))
}

/// Who ended first of those that count.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    /// The first rank, by itself.
    First(ExitStatus),
    /// Another has failed, and the first rank goes on as if nothing were.
    Other(usize, ExitStatus),
}

/// Waits for the first of the processes; where another fails, for so long at most.
fn attend(children: &mut [Child], grace: Duration) -> io::Result<Ended> {
    let mut failed: Option<(usize, ExitStatus, Instant)> = None;
    loop {
        if interrupt::has_come() {
            // Those that the interrupt has reached stop already.
            children
                .iter_mut()
                .for_each(|child| drop(child.stdin.take()));
        }
        for (rank, child) in children.iter_mut().enumerate() {
            match (rank, child.try_wait()?) {
                (0, Some(status)) => return Ok(Ended::First(status)),
                (_, Some(status)) if failed.is_none() && !status.success() => {
                    failed = Some((rank, status, Instant::now()));
                }
                _ => {}
            }
        }
        match failed {
            Some((rank, status, since)) if since.elapsed() >= grace => {
                return Ok(Ended::Other(rank, status));
            }
            _ => thread::sleep(POLL),
        }
    }
}

/// Why all ended, in the words of a rank that the first could not pass on.
fn for_the_first(rank: usize, ranks: usize, said: &str, status: ExitStatus) -> String {
    let last = said.lines().rfind(|line| !line.trim().is_empty());
    let why = last.map_or_else(
        || status.to_string(),
        |line| line.strip_prefix("halfgnn: ").unwrap_or(line).to_owned(),
    );
    format!("rank 0 of {ranks} hangs, and rank {rank} ended: {why}")
}

/// The arguments but for `--devices` and its value.
fn without_devices(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut kept = Vec::new();
    let mut arguments = arguments;
    while let Some(argument) = arguments.next() {
        if argument == "--devices" {
            arguments.next();
        } else if !starts_with(&argument, "--devices=") {
            kept.push(argument);
        }
    }
    kept
}

fn starts_with(argument: &OsStr, start: &str) -> bool {
    argument.as_encoded_bytes().starts_with(start.as_bytes())
}

fn runs(child: &mut Child) -> bool {
    matches!(child.try_wait(), Ok(None))
}

/// Ends those that run still; a process that was stopped would never end by itself.
fn end(children: &mut [Child]) {
    for child in children {
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Ends as the first process did, which has reported why.
fn tell(status: ExitStatus, ranks: usize) -> Result<(), Failure> {
    match (status.code(), process::signal(status)) {
        (Some(0), _) => Ok(()),
        (Some(code), _) => std::process::exit(code),
        (None, signal) => Err(Failure::Run(format!(
            "rank 0 of {ranks}: it was ended by signal {}; what --save kept last stands",
            signal.unwrap_or_default()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_are_numbers_and_the_option_is_taken_out() {
        assert_eq!(devices("all"), Ok(Devices::All));
        assert_eq!(devices("2,0"), Ok(Devices::These(vec![2, 0])));
        for wrong in ["", "0,", "-1", "0,0", "every"] {
            assert!(devices(wrong).is_err(), "{wrong}");
        }
        let given =
            ["train", "--devices", "0,1", "--seed", "3", "--devices=all"].map(OsString::from);
        assert_eq!(without_devices(given.into_iter()), ["train", "--seed", "3"]);
    }

    fn shell(script: &str) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command.spawn().expect("a shell")
    }

    #[test]
    fn a_first_rank_that_hangs_is_not_waited_for_when_another_has_failed() {
        let grace = Duration::from_millis(100);
        let mut children = [shell("exec sleep 20"), shell("exit 0"), shell("exit 3")];
        let ended = attend(&mut children, grace).expect("all are children");
        let Ended::Other(2, status) = ended else {
            panic!("{ended:?}");
        };
        end(&mut children);
        assert_eq!(status.code(), Some(3));
        let said = "on a GPU\nhalfgnn: rank 0 of 3 (host a, GPU 0): no answer for 60 s\n\n";
        assert_eq!(
            for_the_first(2, 3, said, status),
            "rank 0 of 3 hangs, and rank 2 ended: rank 0 of 3 (host a, GPU 0): no answer for 60 s"
        );
        assert!(for_the_first(2, 3, "", status).contains("exit status: 3"));
    }

    #[test]
    fn a_first_rank_that_ends_in_time_tells_why_itself() {
        let mut children = [shell("sleep 0.3; exit 7"), shell("exit 3")];
        let ended = attend(&mut children, Duration::from_secs(600)).expect("all are children");
        assert!(matches!(ended, Ended::First(status) if status.code() == Some(7)));
        end(&mut children);
    }
}
