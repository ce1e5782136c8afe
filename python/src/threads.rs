//! The threads that operators of the CPU run on.
//!
//! A forked process has the memory of a pool and none of its threads: work that is given to it waits for ever, as that
//! of `DataLoader`'s workers would. So there is a pool of our own, made anew in each process that asks for one.

use halfgnn::threads::{Asked, MOST_PER_CORE, VARIABLE, asked, most};
use pyo3::exceptions::{PyRuntimeError, PyUserWarning};
use pyo3::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::cell::Cell;
use std::ffi::CString;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// A pool, and whose.
struct Pool {
    process: u32,
    threads: usize,
    pool: ThreadPool,
}

/// The present pool. A process may fork at any time, so there is no lock that a child could find taken. Pools that are
/// replaced are not freed: another thread may still be in them, and they are replaced once a fork or a change of the
/// number.
static POOL: AtomicPtr<Pool> = AtomicPtr::new(ptr::null_mut());

/// Threads that were asked for, at most [`most`]; 0 for as many as there are processors, or as `RAYON_NUM_THREADS`
/// says.
static WANTED: AtomicUsize = AtomicUsize::new(0);

/// Runs `work` with this process's pool around it.
pub fn install<R: Send>(work: impl FnOnce() -> R + Send) -> PyResult<R> {
    Ok(pool()?.pool.install(work))
}

thread_local! {
    /// Whether this thread is a pool of its own.
    static ALONE: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work` on this thread, which becomes a pool of one for as long as it lives: waking another takes longer than
/// what is small. A process that is forked here has the thread, and with it the whole pool.
pub fn here<R: Send>(work: impl FnOnce() -> R + Send) -> PyResult<R> {
    if rayon::current_thread_index().is_none() {
        // It cannot be ended before the thread is, so nothing is kept.
        let pool = ThreadPoolBuilder::new().num_threads(1).use_current_thread();
        pool.build().map_err(none)?;
        ALONE.set(true);
    }
    Ok(work())
}

/// Runs `work`, which is mostly a GPU's, wherever rayon has it: not on a thread that is a pool of its own.
pub fn around<R: Send>(work: impl FnOnce() -> R + Send) -> PyResult<R> {
    match ALONE.get() {
        false => Ok(work()),
        true => install(work),
    }
}

fn none(error: rayon::ThreadPoolBuildError) -> PyErr {
    PyRuntimeError::new_err(format!("no threads to compute on: {error}"))
}

fn pool() -> PyResult<&'static Pool> {
    let (process, threads) = (std::process::id(), WANTED.load(Ordering::Relaxed));
    loop {
        let present = POOL.load(Ordering::Acquire);
        // SAFETY: a pool that was stored is never freed.
        if let Some(pool) = unsafe { present.as_ref() }
            && (pool.process, pool.threads) == (process, threads)
        {
            return Ok(pool);
        }
        let number = match (threads, asked()) {
            (0, Ok(Asked::TooMany { most, .. })) => most,
            _ => threads,
        };
        let pool = ThreadPoolBuilder::new()
            .num_threads(number)
            .thread_name(|number| format!("halfgnn-{number}"))
            .build()
            .map_err(none)?;
        let new = Box::into_raw(Box::new(Pool {
            process,
            threads,
            pool,
        }));
        let stored = POOL.compare_exchange(present, new, Ordering::AcqRel, Ordering::Acquire);
        if stored.is_err() {
            // SAFETY: it came out of a box, and there is no other reference to it.
            drop(unsafe { Box::from_raw(new) });
        }
    }
}

/// Has operators of the CPU run on this number of threads, but on no more than [`most`]; 0 for as many as there are
/// processors.
#[pyfunction]
pub fn set_threads(py: Python<'_>, threads: usize) -> PyResult<()> {
    let most = most();
    WANTED.store(threads.min(most), Ordering::Relaxed);
    match threads > most {
        true => warn_of_too_many(py, &format!("{threads} threads"), most, 2),
        false => Ok(()),
    }
}

/// Warns of what `RAYON_NUM_THREADS` asks for in vain, once, when the module is loaded.
pub fn check_environment(py: Python<'_>) -> PyResult<()> {
    match asked() {
        Ok(Asked::TooMany { asked, most }) => {
            warn_of_too_many(py, &format!("{VARIABLE}={asked}"), most, 1)
        }
        Ok(_) => Ok(()),
        Err(reason) => warn(py, reason, 1),
    }
}

fn warn_of_too_many(py: Python<'_>, asked: &str, most: usize, level: i32) -> PyResult<()> {
    warn(
        py,
        format!("{asked}: takes {most} threads, {MOST_PER_CORE} for each core"),
        level,
    )
}

fn warn(py: Python<'_>, message: String, level: i32) -> PyResult<()> {
    let message = CString::new(message).unwrap_or_default();
    PyErr::warn(py, &py.get_type::<PyUserWarning>(), &message, level)
}

/// Threads that operators of the CPU run on.
#[pyfunction]
pub fn threads() -> PyResult<usize> {
    Ok(pool()?.pool.current_num_threads())
}
