//! The program, started again once for each card: `--devices`.

use crate::failure::Failure;
use halfgnn::device::cuda_driver;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Cards of this host.
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
            "it must be all, or numbers of cards with commas between them, such as 0,1".into(),
        );
    };
    match numbers
        .iter()
        .enumerate()
        .find(|(at, number)| numbers[..*at].contains(number))
    {
        Some((_, twice)) => Err(format!("card {twice} is there twice")),
        None => Ok(Devices::These(numbers)),
    }
}

/// How long the others may take to end when the first has.
const GRACE: Duration = Duration::from_secs(5);

/// Starts a process for each card, which is given it alone, and waits for all; `auto` where no device was named, which is a card then.
/// The output is that of the first, which also decides how the
/// program ends.
///
/// # Errors
/// Where a process cannot be started, and what ended the first.
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
                    "--devices: card {number}, and CUDA_VISIBLE_DEVICES shows {}, from 0 on",
                    list.len()
                ))
            }),
    });
    let cards = cards.collect::<Result<Vec<String>, Failure>>()?;
    let failed = |error: std::io::Error| {
        Failure::Run(format!("--devices: a process for each card: {error}"))
    };
    let program = std::env::current_exe().map_err(failed)?;
    let folder = tempfile::tempdir().map_err(failed)?;
    let mut meet = OsString::from("file:");
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
            .env("CUDA_VISIBLE_DEVICES", card);
        if rank > 0 {
            // The first tells what ended any of them.
            command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
        }
        match command.spawn() {
            Ok(child) => children.push(child),
            Err(error) => {
                end(&mut children);
                return Err(failed(error));
            }
        }
    }
    let Some((first, others)) = children.split_first_mut() else {
        return Err(Failure::Run("--devices all: there is no card".into()));
    };
    let status = first.wait().map_err(failed)?;
    let give_up = Instant::now() + GRACE;
    while Instant::now() < give_up && others.iter_mut().any(runs) {
        std::thread::sleep(Duration::from_millis(20));
    }
    end(others);
    tell(status, cards.len())
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

/// Ends as the first process did, which has told why.
fn tell(status: ExitStatus, ranks: usize) -> Result<(), Failure> {
    match (status.code(), status.signal()) {
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
}
