//! How long something took: by the clock, and in processor time, which other programs of the machine hardly change.

use std::fmt;
use std::time::{Duration, Instant};

/// Begun with something, and read at its end.
pub struct Stopwatch {
    start: Instant,
    processor: Option<Duration>,
}

impl Stopwatch {
    pub fn begin() -> Self {
        Self {
            start: Instant::now(),
            processor: processor_time(),
        }
    }
}

/// As `12 s, 20 s of processor time`. What runs alongside counts when it was waited for.
impl fmt::Display for Stopwatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} s", self.start.elapsed().as_secs())?;
        match (self.processor, processor_time()) {
            (Some(before), Some(now)) => {
                let seconds = now.saturating_sub(before).as_secs();
                write!(f, ", {seconds} s of processor time")
            }
            _ => Ok(()),
        }
    }
}

/// User and system time of this process and of the processes that it waited for, and theirs.
#[cfg(unix)]
fn processor_time() -> Option<Duration> {
    use nix::sys::resource::{UsageWho, getrusage};
    use nix::sys::time::TimeValLike;
    let mut sum = Duration::ZERO;
    for who in [UsageWho::RUSAGE_SELF, UsageWho::RUSAGE_CHILDREN] {
        let usage = getrusage(who).ok()?;
        for time in [usage.user_time(), usage.system_time()] {
            sum += Duration::from_micros(u64::try_from(time.num_microseconds()).ok()?);
        }
    }
    Some(sum)
}

/// Not asked for on this system.
#[cfg(not(unix))]
fn processor_time() -> Option<Duration> {
    None
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_child_that_was_waited_for_counts() {
        let before = processor_time().unwrap();
        let mut count = Command::new("sh");
        count.args(["-c", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"]);
        assert!(count.status().unwrap().success());
        let child = processor_time().unwrap() - before;
        assert!(child > Duration::from_millis(5), "{child:?}");
    }
}
