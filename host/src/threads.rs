//! How many threads a process computes on: as many as it has cores, or as `RAYON_NUM_THREADS` says, up to a limit.
//!
//! Threads that wait for one another at each step take turns on the cores. Beyond a few for each core the turns take longer than the
//! work, and a run with thousands of threads does not come to the end of an epoch.

use std::thread;

/// The variable that sets the number of threads.
pub const VARIABLE: &str = "RAYON_NUM_THREADS";

/// The most threads for each core.
pub const MOST_PER_CORE: usize = 4;

/// What [`VARIABLE`] asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Nothing, or 0: a thread for each core.
    Default,
    /// This number.
    Threads(usize),
    /// More than the machine has a use for.
    TooMany {
        /// The number that is asked for.
        asked: usize,
        /// The number to take instead.
        most: usize,
    },
}

/// The most threads on this machine.
pub fn most() -> usize {
    MOST_PER_CORE * thread::available_parallelism().map_or(1, usize::from)
}

/// What the environment asks for.
///
/// # Errors
/// What to do, where it is no number.
pub fn asked() -> Result<Asked, String> {
    match std::env::var(VARIABLE) {
        Ok(text) => read(&text, most()),
        Err(std::env::VarError::NotPresent) => Ok(Asked::Default),
        Err(std::env::VarError::NotUnicode(_)) => read("", most()),
    }
}

fn read(text: &str, most: usize) -> Result<Asked, String> {
    let number = text.trim();
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number {
        return Err(format!(
            "{VARIABLE}={text:?}: it should be a number of threads, at most {most} here; 0 is one for each core"
        ));
    }
    // A number that no integer holds is too many as well.
    Ok(match number.parse().unwrap_or(usize::MAX) {
        0 => Asked::Default,
        asked if asked > most => Asked::TooMany { asked, most },
        asked => Asked::Threads(asked),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_a_number_up_to_a_limit() {
        assert_eq!(read("0", 8), Ok(Asked::Default));
        assert_eq!(read(" 3 ", 8), Ok(Asked::Threads(3)));
        assert_eq!(read("8", 8), Ok(Asked::Threads(8)));
        let most = 8;
        let too_many = |asked| Ok(Asked::TooMany { asked, most });
        assert_eq!(read("9", 8), too_many(9));
        assert_eq!(read(&"9".repeat(99), 8), too_many(usize::MAX));
        for text in ["", "-1", "two", "1.5"] {
            assert!(read(text, 8).is_err(), "{text}");
        }
    }
}
