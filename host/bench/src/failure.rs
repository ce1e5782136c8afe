//! Why the program ends without having done what was asked.

use halfgnn::Error;
use halfgnn::data::DataError;
use halfgnn::driver::DriverError;
use halfgnn::graph::GraphError;
use halfgnn::message::escaped;
use halfgnn::train::CheckpointError;
use std::fmt;
use std::process::ExitCode;

/// One line for a person, and whose fault it is.
#[derive(Debug)]
pub enum Failure {
    /// Wrong usage or input: exit status 2, as for wrong flags.
    Input(String),
    /// The run failed: exit status 1.
    Run(String),
}

impl Failure {
    /// 2 for usage and input, 1 for a run.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Failure::Input(_) => ExitCode::from(2),
            Failure::Run(_) => ExitCode::from(1),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Failure::Input(text) | Failure::Run(text)) = self;
        // Whatever a driver or a file had to say, it stays one line without control characters.
        for (index, line) in text
            .lines()
            .filter(|line| !line.trim().is_empty())
            .enumerate()
        {
            write!(
                f,
                "{}{}",
                if index > 0 { "; " } else { "" },
                escaped(line.trim())
            )?;
        }
        Ok(())
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match &error {
            // A model or graph that does not fit is a matter of what was asked for.
            Error::Driver(DriverError::OutOfMemory { .. }) => Failure::Input(error.to_string()),
            Error::Driver(_)
            | Error::Contract(_)
            | Error::Communication(_)
            | Error::Features(_) => Failure::Run(error.to_string()),
            _ => Failure::Input(error.to_string()),
        }
    }
}

impl From<GraphError> for Failure {
    fn from(error: GraphError) -> Self {
        Error::from(error).into()
    }
}

impl From<DataError> for Failure {
    fn from(error: DataError) -> Self {
        Failure::Input(error.to_string())
    }
}

impl From<CheckpointError> for Failure {
    fn from(error: CheckpointError) -> Self {
        match &error {
            CheckpointError::Write { .. } => Failure::Run(error.to_string()),
            _ => Failure::Input(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_one_line_that_a_terminal_only_shows() {
        let failure = Failure::Run("cannot: \r\n\n  why\u{1b}[2J \u{7} \n".into());
        assert_eq!(failure.to_string(), r"cannot:; why\u{1b}[2J \u{7}");
    }
}
