//! A word to who waits.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// Does `work`, and calls `tell` meanwhile, once, where it takes longer than `patience`.
pub(super) fn told_if_slow<T>(
    patience: Duration,
    tell: impl FnOnce() + Send,
    work: impl FnOnce() -> T,
) -> T {
    thread::scope(|scope| {
        // Closed when the work is done, whatever ends it.
        let (_working, waits) = mpsc::channel::<()>();
        let watch = move || {
            if waits.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
                tell();
            }
        };
        // Where there is no thread for it, nothing is told.
        drop(thread::Builder::new().spawn_scoped(scope, watch));
        work()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_slow_is_told_while_it_is_done() {
        let (told, waits) = mpsc::channel();
        let tell = move || told.send("slow").expect("somebody waits");
        let done = told_if_slow(Duration::from_millis(1), tell, || waits.recv());
        assert_eq!(done, Ok("slow"));
    }

    #[test]
    fn what_is_done_at_once_is_not() {
        let tell = || panic!("nothing to tell");
        assert_eq!(told_if_slow(Duration::from_secs(3600), tell, || 7), 7);
    }
}
