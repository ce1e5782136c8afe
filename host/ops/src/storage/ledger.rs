//! Who holds how much memory.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a buffer is for, as the memory table of a run shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemoryKind {
    /// Edges, offsets, degree norms.
    Graph,
    /// Input features and labels.
    Features,
    /// What layers keep and pass on, and its gradients.
    Activations,
    /// Weights, their gradients and the optimiser's moments.
    Weights,
    /// Staging buffers and partial sums.
    Workspace,
    /// Input features that stay in the host's memory, which kernels read from there: of a GPU over its bus. The same as
    /// [`Features`](MemoryKind::Features) on devices whose memory is the host's.
    HostFeatures,
    /// Edges that stay in the host's memory likewise, of which kernels read those that they draw. The same as
    /// [`Graph`](MemoryKind::Graph) on devices whose memory is the host's.
    HostGraph,
}

impl MemoryKind {
    /// Every kind, in the order of the table.
    pub const ALL: [MemoryKind; 7] = [
        MemoryKind::Graph,
        MemoryKind::Features,
        MemoryKind::Activations,
        MemoryKind::Weights,
        MemoryKind::Workspace,
        MemoryKind::HostFeatures,
        MemoryKind::HostGraph,
    ];

    /// Whether it is the host's memory and not the device's.
    pub const fn is_on_host(self) -> bool {
        matches!(self, MemoryKind::HostFeatures | MemoryKind::HostGraph)
    }
}

impl fmt::Display for MemoryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            MemoryKind::Graph => "graph",
            MemoryKind::Features => "features",
            MemoryKind::Activations => "activations",
            MemoryKind::Weights => "weights and optimiser",
            MemoryKind::Workspace => "workspace",
            MemoryKind::HostFeatures => "features in the host's memory",
            MemoryKind::HostGraph => "edges in the host's memory",
        })
    }
}

const KINDS: usize = MemoryKind::ALL.len();

/// Bytes in use and their peak, by kind, in the order of [`MemoryKind::ALL`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryReport {
    /// Bytes in use now.
    pub current: [u64; KINDS],
    /// The most of each kind; not all need have been reached at one moment.
    pub peak: [u64; KINDS],
    /// The most of all kinds on the device together.
    pub peak_total: u64,
}

#[derive(Debug, Default)]
struct Counters {
    current: [AtomicU64; KINDS],
    peak: [AtomicU64; KINDS],
    total: AtomicU64,
    peak_total: AtomicU64,
}

/// Counts the bytes of buffers that are alive.
#[derive(Clone, Debug, Default)]
pub struct Ledger(Arc<Counters>);

impl Ledger {
    /// Counts `bytes` until the result is dropped.
    pub fn track(&self, bytes: u64, kind: MemoryKind) -> Tracked {
        let counters = &*self.0;
        let i = kind as usize;
        let current = counters.current[i].fetch_add(bytes, Ordering::Relaxed) + bytes;
        counters.peak[i].fetch_max(current, Ordering::Relaxed);
        let on_device = if kind.is_on_host() { 0 } else { bytes };
        let total = counters.total.fetch_add(on_device, Ordering::Relaxed) + on_device;
        counters.peak_total.fetch_max(total, Ordering::Relaxed);
        Tracked {
            ledger: self.clone(),
            bytes,
            kind,
        }
    }

    /// The bytes in use and their peak.
    pub fn report(&self) -> MemoryReport {
        let read = |counters: &[AtomicU64; KINDS]| {
            std::array::from_fn(|i| counters[i].load(Ordering::Relaxed))
        };
        MemoryReport {
            current: read(&self.0.current),
            peak: read(&self.0.peak),
            peak_total: self.0.peak_total.load(Ordering::Relaxed),
        }
    }

    /// Makes the present use the peak.
    pub fn reset_peak(&self) {
        for (current, peak) in self.0.current.iter().zip(&self.0.peak) {
            peak.store(current.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.0
            .peak_total
            .store(self.0.total.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Bytes that are counted until this is dropped.
#[derive(Debug)]
pub struct Tracked {
    ledger: Ledger,
    bytes: u64,
    kind: MemoryKind,
}

impl Drop for Tracked {
    fn drop(&mut self) {
        self.ledger.0.current[self.kind as usize].fetch_sub(self.bytes, Ordering::Relaxed);
        if !self.kind.is_on_host() {
            self.ledger.0.total.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peaks_outlive_what_they_counted() {
        let ledger = Ledger::default();
        let graph = ledger.track(100, MemoryKind::Graph);
        drop(ledger.track(50, MemoryKind::Workspace));
        let report = ledger.report();
        assert_eq!(report.current, [100, 0, 0, 0, 0, 0, 0]);
        assert_eq!(report.peak, [100, 0, 0, 0, 50, 0, 0]);
        assert_eq!(report.peak_total, 150);
        drop(ledger.track(1000, MemoryKind::HostFeatures));
        let report = ledger.report();
        assert_eq!((report.peak[5], report.peak_total), (1000, 150));
        drop(graph);
        ledger.reset_peak();
        assert_eq!(ledger.report(), MemoryReport::default());
    }
}
