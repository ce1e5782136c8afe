//! Launches that are recorded once and made again all at once, which costs the host one call instead of one for each:
//! CUDA Driver API, "Stream Management" (capture) and "Graph Management".

use std::fmt;
use std::ptr;
use std::sync::Arc;

use cust::stream::{Stream, StreamFlags};
use cust::sys::{self, CUgraph, CUgraphExec, CUstream, CUstreamCaptureMode};

use super::context::Context;
use super::error::{check, check_cust};
use super::module::CudaFunction;
use super::nccl::NcclLink;
use super::stream::{FIRST, Mark, Queue};
use crate::DriverError;

/// A thread's recording while it is under way: a stream of its own, so that the work of other threads stays out of it.
#[derive(Debug)]
pub(super) struct Capture {
    stream: Stream,
    /// For what runs in parallel with the launches, once there is some.
    aside: Option<Stream>,
    /// Where the two have waited for one another.
    marks: Vec<Mark>,
    functions: Vec<CudaFunction>,
    links: Vec<NcclLink>,
}

// SAFETY: a stream's handle belongs to a context and not to a thread; `Captures` hands a capture only to the thread
// that began it, and moves it under a lock.
unsafe impl Send for Capture {}

impl Capture {
    /// The stream to launch `function` into; `function` lives as long as the recording.
    pub(super) fn stream_for(&mut self, function: &CudaFunction) -> CUstream {
        self.functions.push(function.clone());
        self.stream()
    }

    /// The stream for work that keeps nothing alive.
    pub(super) fn stream(&self) -> CUstream {
        self.stream.as_inner()
    }

    /// The stream for work of `link`, which lives as long as the recording.
    pub(super) fn stream_with(&mut self, link: &NcclLink) -> CUstream {
        self.keep(link);
        self.stream()
    }

    /// Has `link` live as long as the recording.
    fn keep(&mut self, link: &NcclLink) {
        self.links.push(link.clone());
    }

    /// The stream for work of `link` that waits for all that is recorded so far and not for what comes, until they are
    /// [joined](Capture::join). Its kernels go before others: at the same priority they would wait for multiprocessors
    /// until those were done. The context is current.
    pub(super) fn fork(&mut self, link: &NcclLink) -> Result<CUstream, DriverError> {
        self.keep(link);
        let aside = match &self.aside {
            Some(aside) => aside.as_inner(),
            None => {
                let made = Stream::new(StreamFlags::NON_BLOCKING, Some(FIRST));
                let made = check_cust("cuStreamCreateWithPriority", made)?;
                self.aside.insert(made).as_inner()
            }
        };
        let mark = Mark::record(self.stream.as_inner())?;
        mark.hold(aside)?;
        self.marks.push(mark);
        Ok(aside)
    }

    /// Has what is recorded from now on wait for what runs in parallel. The context is current.
    pub(super) fn join(&mut self) -> Result<(), DriverError> {
        let Some(aside) = &self.aside else {
            return Ok(());
        };
        let mark = Mark::record(aside.as_inner())?;
        mark.hold(self.stream.as_inner())?;
        self.marks.push(mark);
        Ok(())
    }
}

/// Launches that were recorded, instantiated for a GPU.
pub struct CudaGraph {
    executable: CUgraphExec,
    /// What it launches, so that their modules stay loaded.
    functions: Vec<CudaFunction>,
    /// Whose work it has: NCCL needs its graphs gone before a communicator.
    _links: Vec<NcclLink>,
    context: Arc<Context>,
}

// SAFETY: an executable graph belongs to a context and not to a thread. The driver does not serialise calls on one
// graph, so that it must not be used by two threads at a time: all that is done with it besides destroying it is
// launching it, and `CudaGraph::launch` does so under the lock of its context's launches.
unsafe impl Send for CudaGraph {}
// SAFETY: as above.
unsafe impl Sync for CudaGraph {}

impl CudaGraph {
    /// Records the launches of `work`, which have the priority of `queue`.
    pub(super) fn capture<E: From<DriverError>>(
        queue: &Queue,
        work: impl FnOnce() -> Result<(), E>,
    ) -> Result<Self, E> {
        let context = queue.context();
        let _entered = context.enter()?;
        let stream = Stream::new(StreamFlags::NON_BLOCKING, queue.priority());
        let stream = check_cust("cuStreamCreateWithPriority", stream)?;
        // Relaxed: other threads may allocate and wait meanwhile, and this one is kept from it by `Captures`.
        // SAFETY: the stream has just been made, and nothing is in it.
        check("cuStreamBeginCapture", unsafe {
            sys::cuStreamBeginCapture_v2(
                stream.as_inner(),
                CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED,
            )
        })?;
        let capture = Capture {
            stream,
            aside: None,
            marks: Vec::new(),
            functions: Vec::new(),
            links: Vec::new(),
        };
        // Where `work` fails, the stream is destroyed and its capture with it.
        // The stream aside lives until its work is in the graph.
        let Capture {
            stream,
            aside: _aside,
            marks: _marks,
            functions,
            links,
        } = context.captures().record(capture, work)?;
        // Whatever `work` left current.
        let _entered = context.enter()?;
        let mut graph = ptr::null_mut();
        // SAFETY: the stream is being captured, by this thread; the call writes one handle.
        check("cuStreamEndCapture", unsafe {
            sys::cuStreamEndCapture(stream.as_inner(), &mut graph)
        })?;
        let executable = instantiate(graph);
        // SAFETY: the driver has just given the graph, and an executable one does not need it.
        let destroyed = check("cuGraphDestroy", unsafe { sys::cuGraphDestroy(graph) });
        let graph = Self {
            executable: executable?,
            functions,
            _links: links,
            context: Arc::clone(context),
        };
        destroyed?;
        tracing::debug!(launches = graph.functions.len(), "recorded a CUDA graph");
        Ok(graph)
    }

    /// Makes the launches, behind all work before them in `queue`.
    ///
    /// # Safety
    /// What [`Driver::replay`](crate::Driver::replay) asks of its caller.
    pub(super) unsafe fn launch(&self, queue: &Queue) -> Result<(), DriverError> {
        let context = queue.context();
        context.captures().refuse("a replay")?;
        if !Arc::ptr_eq(context, &self.context) {
            return Err(DriverError::Device {
                call: "cuGraphLaunch",
                reason: "the graph was recorded by another driver".into(),
            });
        }
        let _entered = context.enter()?;
        let _alone = context.graph_launches();
        // Where the GPU has as much to do as it can note, this waits.
        context.wait(|| {
            // SAFETY: the graph is of this context and instantiated as long as `self` lives; what its kernels do is the
            // caller's promise.
            check("cuGraphLaunch", unsafe {
                sys::cuGraphLaunch(self.executable, queue.raw())
            })
        })
    }
}

/// An executable graph of the launches in `graph`.
fn instantiate(graph: CUgraph) -> Result<CUgraphExec, DriverError> {
    let mut executable = ptr::null_mut();
    // SAFETY: the graph is the driver's own; the call writes one handle.
    check("cuGraphInstantiate", unsafe {
        sys::cuGraphInstantiateWithFlags(&mut executable, graph, 0)
    })?;
    Ok(executable)
}

impl Drop for CudaGraph {
    fn drop(&mut self) {
        let destroyed = self.context.enter().and_then(|_entered| {
            // SAFETY: no one can launch it any more; where it is under way, the driver frees it when it is done.
            check("cuGraphExecDestroy", unsafe {
                sys::cuGraphExecDestroy(self.executable)
            })
        });
        if let Err(error) = destroyed {
            tracing::debug!(%error, "destroying a CUDA graph");
        }
    }
}

impl fmt::Debug for CudaGraph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaGraph")
            .field("launches", &self.functions.len())
            .finish_non_exhaustive()
    }
}
