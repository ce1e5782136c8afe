//! What a person sees: a progress bar on a terminal, plain lines elsewhere, a table at the end.

use crate::failure::Failure;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Plain lines of a run: about this many, and the last.
const LINES_PER_RUN: u32 = 20;

/// Where a person reads: stdout, or stderr where stdout carries JSON.
pub struct Screen {
    to_stderr: bool,
    bar: Option<ProgressBar>,
    epochs: u32,
    stop: Arc<AtomicBool>,
    silent: bool,
    /// Why a line was not written; then none is tried any more.
    failure: Option<io::Error>,
}

impl Screen {
    /// A screen for runs of `epochs` epochs; `stop` is set when the reader has left.
    pub fn new(to_stderr: bool, epochs: u32, stop: &Arc<AtomicBool>) -> Self {
        let terminal = if to_stderr {
            io::stderr().is_terminal()
        } else {
            io::stdout().is_terminal()
        };
        let bar = terminal.then(|| {
            let target = if to_stderr {
                ProgressDrawTarget::stderr()
            } else {
                ProgressDrawTarget::stdout()
            };
            let style =
                ProgressStyle::with_template("{prefix} {bar:30} {pos}/{len} {msg} {eta:>4} left");
            let bar = ProgressBar::with_draw_target(Some(epochs.into()), target);
            bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        Self {
            to_stderr,
            bar,
            epochs,
            stop: Arc::clone(stop),
            silent: false,
            failure: None,
        }
    }

    /// Shows nothing from now on: of a process while another shows the same.
    pub fn silence(&mut self) {
        self.bar = None;
        self.silent = true;
    }

    /// Makes space for messages of several lines, such as charts, which a terminal alone has.
    pub fn follow(&mut self) -> bool {
        let style =
            ProgressStyle::with_template("{prefix} {bar:30} {pos}/{len} {eta:>4} left\n{msg}");
        if let (Some(bar), Ok(style)) = (&self.bar, style) {
            bar.set_style(style);
        }
        self.bar.is_some()
    }

    /// Starts a run by the name of `label`.
    pub fn start(&mut self, label: &str) {
        if let Some(bar) = &self.bar {
            bar.reset();
            bar.set_prefix(label.to_owned());
        }
    }

    /// Shows that `epoch` of the run `label` is done.
    pub fn epoch(&mut self, label: &str, epoch: u32, message: &dyn Display) {
        let epochs = self.epochs;
        if let Some(bar) = &self.bar {
            bar.set_message(message.to_string());
            bar.set_position(epoch.into());
        } else if epoch.is_multiple_of(epochs.div_ceil(LINES_PER_RUN))
            || epoch == 1
            || epoch == epochs
        {
            self.line(&format_args!("{label} epoch {epoch}/{epochs} {message}"));
        }
    }

    /// Shows what goes on within an epoch, on a terminal.
    pub fn batch(&mut self, message: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(message.to_owned());
        }
    }

    /// Ends a run.
    pub fn end(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    /// Writes a line. Where that cannot be done, as when a reader has left (`| head`), the run ends like by Ctrl-C.
    pub fn line(&mut self, line: &dyn Display) {
        if self.failure.is_some() || self.silent {
            return;
        }
        let written = if self.to_stderr {
            writeln!(io::stderr(), "{line}")
        } else {
            writeln!(io::stdout(), "{line}")
        };
        if let Err(error) = written {
            self.failure = Some(error);
            self.stop();
        }
    }

    /// Ends the run like Ctrl-C.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// That all lines were written, or that their reader has left, which is no failure.
    ///
    /// # Errors
    /// What the system said otherwise.
    pub fn finish(self) -> io::Result<()> {
        match self.failure {
            Some(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
            _ => Ok(()),
        }
    }
}

/// Why a page could not be written, if one could not.
static UNWRITTEN: OnceLock<io::Error> = OnceLock::new();

/// That all pages of this process were written, but to a reader who has left: asked once, when a command has done what
/// it should.
pub fn check_pages() -> Result<(), Failure> {
    match UNWRITTEN.get() {
        Some(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::Run(format!("cannot write: {error}")))
        }
        _ => Ok(()),
    }
}

/// Plain text for a person, on stdout, or on stderr where stdout carries JSON.
pub struct Page {
    to_stderr: bool,
    /// Whether the reader has left (`| head`): what follows goes nowhere, which is no failure.
    left: bool,
}

impl Page {
    /// A page next to JSON that goes to stdout, or does not.
    pub fn new(to_stderr: bool) -> Self {
        Self {
            to_stderr,
            left: false,
        }
    }

    /// Writes a line.
    pub fn line(&mut self, line: &dyn Display) {
        if self.left {
            return;
        }
        let written = if self.to_stderr {
            writeln!(io::stderr(), "{line}")
        } else {
            writeln!(io::stdout(), "{line}")
        };
        if let Err(error) = written {
            self.left = true;
            let _ = UNWRITTEN.set(error);
        }
    }
}

/// Bytes as a person reads them.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{count} B")
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

/// Rates below this many terabytes a second, such as a CPU's, are reported in gigabytes.
pub const LEAST_TERABYTES: f64 = 0.1;

/// Terabytes a second as a person reads them.
pub fn rate(tb_per_s: f64) -> String {
    if tb_per_s < LEAST_TERABYTES {
        format!("{:.2} GB/s", tb_per_s * 1e3)
    } else {
        format!("{tb_per_s:.2} TB/s")
    }
}

/// A number with its thousands apart.
pub fn count(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_for_people() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(u64::MAX), "16777216.0 TiB");
        assert_eq!(
            (rate(0.00123), rate(3.0)),
            ("1.23 GB/s".into(), "3.00 TB/s".into())
        );
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_000), "1,000");
        assert_eq!(count(12_345_678), "12,345,678");
    }
}
