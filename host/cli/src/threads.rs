//! Threads of the CPU's operators.

use crate::failure::Failure;
use halfgnn::threads::{self, Asked};
use rayon::ThreadPoolBuilder;

/// Has the process compute on no more threads than are of use, and says so where more are asked for.
pub fn limit() -> Result<(), Failure> {
    let Asked::TooMany { asked, most } = threads::asked().map_err(Failure::Input)? else {
        return Ok(());
    };
    tracing::warn!(
        "{}={asked}: takes {most} threads, {} for each core",
        threads::VARIABLE,
        threads::MOST_PER_CORE
    );
    let pool = ThreadPoolBuilder::new().num_threads(most).build_global();
    pool.map_err(|error| Failure::Run(format!("no threads to compute on: {error}")))
}
