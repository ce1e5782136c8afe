//! Faults of ranks that tests inject.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A fault of one rank at one of its exchanges, to test that all ranks end and what they report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The rank.
    pub rank: usize,
    /// The number of its exchange, from 0 on.
    pub exchange: u64,
    /// The kind of fault.
    pub kind: FaultKind,
}

/// What a rank does instead of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// It fails.
    Die,
    /// It no longer answers.
    Hang,
    /// It answers late.
    Delay(Duration),
    /// It sends a byte less than expected.
    WrongCount,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            FaultKind::Die => write!(f, "die")?,
            FaultKind::Hang => write!(f, "hang")?,
            FaultKind::Delay(by) => write!(f, "delay({} ms)", by.as_millis())?,
            FaultKind::WrongCount => write!(f, "count")?,
        }
        write!(f, ":{}@{}", self.rank, self.exchange)
    }
}

impl FromStr for Fault {
    type Err = String;

    /// `die`, `hang`, `count` or `delay(MS ms)`, then `:RANK@EXCHANGE`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is no fault; it is die, hang, count or delay(MS ms), the rank and its exchange, such as hang:1@7"
            )
        };
        let (kind, place) = text.rsplit_once(':').ok_or_else(wrong)?;
        let (rank, exchange) = place.split_once('@').ok_or_else(wrong)?;
        let delay = || {
            let number = kind.strip_prefix("delay(")?.strip_suffix(" ms)")?;
            number.parse().ok().map(Duration::from_millis)
        };
        Ok(Self {
            rank: rank.parse().map_err(|_| wrong())?,
            exchange: exchange.parse().map_err(|_| wrong())?,
            kind: match kind {
                "die" => FaultKind::Die,
                "hang" => FaultKind::Hang,
                "count" => FaultKind::WrongCount,
                _ => FaultKind::Delay(delay().ok_or_else(wrong)?),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read_as_they_are_written() {
        for text in ["die:0@0", "hang:1@7", "count:2@3", "delay(20 ms):1@2"] {
            let fault: Fault = text.parse().unwrap();
            assert_eq!(fault.to_string(), text);
        }
        for wrong in ["", "die", "die:1", "die:x@1", "rest:1@2", "delay(x ms):1@2"] {
            assert!(wrong.parse::<Fault>().is_err(), "{wrong}");
        }
    }
}
