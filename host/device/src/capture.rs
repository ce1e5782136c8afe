//! Which threads record their launches instead of making them.

use super::DriverError;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

/// What is being recorded, one recording a thread at most: other threads go on as if there were none.
#[derive(Debug)]
pub(super) struct Captures<R> {
    /// Their number, so that a launch where nothing is recorded costs no lock.
    under_way: AtomicUsize,
    by_thread: Mutex<HashMap<ThreadId, R>>,
}

impl<R> Default for Captures<R> {
    fn default() -> Self {
        Self {
            under_way: AtomicUsize::new(0),
            by_thread: Mutex::default(),
        }
    }
}

impl<R> Captures<R> {
    /// Has the calling thread's launches recorded in `recording` while `work` runs.
    ///
    /// # Errors
    /// [`DriverError::Recording`] where the thread records already, and those of `work`.
    pub(super) fn record<E: From<DriverError>>(
        &self,
        recording: R,
        work: impl FnOnce() -> Result<(), E>,
    ) -> Result<R, E> {
        /// Ends the recording also where `work` fails or panics.
        struct Ending<'a, R>(&'a Captures<R>);
        impl<R> Drop for Ending<'_, R> {
            fn drop(&mut self) {
                self.0.take();
            }
        }
        self.refuse("a recording")?;
        self.lock().insert(std::thread::current().id(), recording);
        self.under_way.fetch_add(1, Ordering::Relaxed);
        let ending = Ending(self);
        work()?;
        let recording = ending.0.take();
        Ok(recording.ok_or(DriverError::Recording {
            call: "the end of a recording",
        })?)
    }

    /// What `f` makes of the calling thread's recording, if it has one.
    pub(super) fn with<T>(&self, f: impl FnOnce(&mut R) -> T) -> Option<T> {
        // A thread sees its own stores, and only its own recording matters to it.
        if self.under_way.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.lock().get_mut(&std::thread::current().id()).map(f)
    }

    /// [`DriverError::Recording`] where the calling thread records: `call` is none that can be.
    pub(super) fn refuse(&self, call: &'static str) -> Result<(), DriverError> {
        match self.with(|_| ()) {
            Some(()) => Err(DriverError::Recording { call }),
            None => Ok(()),
        }
    }

    /// The calling thread's recording, which ends.
    fn take(&self) -> Option<R> {
        let recording = self.lock().remove(&std::thread::current().id());
        if recording.is_some() {
            self.under_way.fetch_sub(1, Ordering::Relaxed);
        }
        recording
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ThreadId, R>> {
        // Each change of the map is whole before anything can panic.
        self.by_thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    fn note(captures: &Captures<Vec<u32>>, value: u32) -> bool {
        captures.with(|all| all.push(value)).is_some()
    }

    #[test]
    fn only_the_thread_that_records_is_recorded() {
        let captures = Captures::<Vec<u32>>::default();
        let recorded = captures.record::<DriverError>(vec![1], || {
            assert!(note(&captures, 2));
            std::thread::scope(|scope| scope.spawn(|| assert!(!note(&captures, 3))).join())
                .expect("the other thread is not recorded");
            assert!(captures.refuse("alloc").is_err());
            Ok(())
        });
        assert_eq!(recorded.expect("nothing failed"), [1, 2]);
        assert!(!note(&captures, 4) && captures.refuse("alloc").is_ok());
    }

    #[test]
    fn a_recording_ends_however_the_work_does() {
        let captures = Captures::<Vec<u32>>::default();
        let nested = captures.record::<DriverError>(vec![], || {
            captures.record(vec![], || Ok(())).map(|_: Vec<u32>| ())
        });
        assert!(matches!(nested, Err(DriverError::Recording { .. })));
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            captures.record::<DriverError>(vec![], || panic!("as it should"))
        }));
        assert!(panicked.is_err());
        assert!(!note(&captures, 1), "nothing is recorded any more");
    }
}
