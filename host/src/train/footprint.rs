//! How much memory a run will take, before any of it is asked for.

use crate::backend::MemoryKind;
use crate::backend::cpu::Cpu;
use crate::backend::gpu::schedule::Rows;
use crate::backend::gpu::{matmul, spmm};
use crate::driver::DriverError;
use crate::error::Error;
use crate::graph::{Csr, Graph, Starts};
use crate::nn::{AggregationShape, ConvolutionConfig, ModelConfig, Network, Norm, matrix_bytes};
use crate::tensor::Element;

/// Bytes by kind, in the order of [`MemoryKind::ALL`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    bytes: [u64; MemoryKind::ALL.len()],
}

impl Footprint {
    /// The graph, with the degree norm `norm`, and features, labels and splits of its vertices. What a model adds is
    /// its own to say.
    pub fn of_task<E: Element>(graph: &Graph, norm: Norm, features: usize) -> Self {
        let vertices = graph.vertices() as u64;
        let order = |csr: &Csr| {
            let empty = csr.empty_rows().len();
            let arrays = 4 * csr.edges() as u64 + 8 * csr.offsets().len() as u64;
            arrays + 4 * empty as u64 + Starts::bytes(csr.edges(), csr.vertices() - empty)
        };
        let transposed = if graph.is_symmetric() {
            0
        } else {
            order(graph.transposed())
        };
        let norms = match norm {
            Norm::None => 0,
            Norm::Both if graph.is_symmetric() => 1,
            Norm::Left => 1,
            // Those of rows and of columns, or those of rows and their reciprocals.
            Norm::Both | Norm::Right => 2,
        };
        let mut footprint = Self::default();
        footprint.add(
            MemoryKind::Graph,
            order(graph.csr()) + transposed + norms * 4 * vertices,
        );
        footprint.add(
            MemoryKind::Features,
            matrix_bytes::<E>(graph.vertices(), features),
        );
        // Labels, splits and targets.
        footprint.add(MemoryKind::Features, 3 * 4 * vertices);
        footprint
    }

    /// All that training a model of `config` takes, on `graph` as [`ModelConfig::prepare`] makes it: the task, the activations,
    /// the parameters, and on a card of so many multiprocessors the workspace that operators share: the longest staging
    /// buffer of an SpMM, or the partial sums of a product that is split, which are the larger part on a small graph. `None` is the
    /// CPU, which has no such workspace. A model that [`Network::new`] refuses adds nothing to the task.
    pub fn of_training<E: Element>(
        graph: &Graph,
        config: &ModelConfig,
        multiprocessors: Option<u32>,
    ) -> Self {
        let mut footprint = Self::of_task::<E>(graph, config.norm(), config.features);
        // The same for every backend.
        let Ok(model) = Network::<Cpu, E>::memory(graph.vertices(), config) else {
            return footprint;
        };
        footprint.add(MemoryKind::Activations, model.activations);
        footprint.add(MemoryKind::Weights, model.parameters);
        if let Some(multiprocessors) = multiprocessors {
            // On a card attention asks for the row of each edge, in both orders.
            if matches!(config.convolution, ConvolutionConfig::Gat { .. }) {
                let orders = if graph.is_symmetric() { 1 } else { 2 };
                footprint.add(MemoryKind::Graph, orders * 4 * graph.edges() as u64);
            }
            let vertices = narrow(graph.vertices());
            let products = model.maps.iter().map(|&(inputs, outputs)| {
                let map = (narrow(inputs), narrow(outputs));
                matmul::borrowed_floats::<E>(vertices, map, multiprocessors)
            });
            let sums = &model.aggregations;
            let spmm = Self::borrowed_by_spmm::<E>(graph, config, sums, multiprocessors);
            let floats = products.fold(spmm, u64::max);
            let bytes = floats.saturating_mul(size_of::<f32>() as u64);
            footprint.add(MemoryKind::Workspace, bytes);
        }
        footprint
    }

    /// Floats that the SpMM of any layer borrows at most, along either order of the edges.
    fn borrowed_by_spmm<E: Element>(
        graph: &Graph,
        config: &ModelConfig,
        aggregations: &[AggregationShape],
        multiprocessors: u32,
    ) -> u64 {
        let mut orders = vec![Rows::of(graph.csr())];
        if !graph.is_symmetric() {
            orders.push(Rows::of(graph.transposed()));
        }
        let borrowed = |rows| {
            let of = |shape: &AggregationShape| {
                let shape = (narrow(shape.columns), shape.heads.map(narrow));
                spmm::borrowed_floats::<E>(rows, shape, &config.policy, multiprocessors)
            };
            aggregations.iter().map(of).max().unwrap_or(0)
        };
        orders.into_iter().map(borrowed).max().unwrap_or(0)
    }

    /// Adds to a kind.
    pub fn add(&mut self, kind: MemoryKind, bytes: u64) {
        let place = &mut self.bytes[kind as usize];
        *place = place.saturating_add(bytes);
    }

    /// Bytes of a kind.
    pub fn of(&self, kind: MemoryKind) -> u64 {
        self.bytes[kind as usize]
    }

    /// Bytes of all kinds.
    pub fn total(&self) -> u64 {
        self.bytes
            .iter()
            .fold(0, |sum, &bytes| sum.saturating_add(bytes))
    }

    /// That it fits where `free` of `total` bytes are free; `None` where nobody knows.
    ///
    /// # Errors
    /// [`DriverError::OutOfMemory`].
    pub fn check(&self, memory: Option<(u64, u64)>) -> Result<(), Error> {
        match memory {
            Some((free, total)) if self.total() > free => Err(DriverError::OutOfMemory {
                asked: self.total(),
                free,
                total,
            }
            .into()),
            _ => Ok(()),
        }
    }
}

/// A width or a number of vertices as kernels have them, or one that is as far beyond any memory and leaves room for rounding.
fn narrow(number: usize) -> u32 {
    const MOST: u32 = u32::MAX / 4;
    u32::try_from(number).map_or(MOST, |number| number.min(MOST))
}

/// Free and total bytes of the machine's memory, or of this process's control group where that has less; `None` where
/// the system does not say.
pub fn host_memory() -> Option<(u64, u64)> {
    let machine = std::fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| meminfo(&text));
    let read = |file: &str| {
        let text = std::fs::read_to_string(format!("/sys/fs/cgroup/{file}")).ok()?;
        text.trim().parse::<u64>().ok()
    };
    let group = read("memory.max").zip(read("memory.current"));
    let group = group.map(|(most, used)| (most.saturating_sub(used), most));
    [machine, group].into_iter().flatten().min()
}

/// Free and total bytes, from the text of `/proc/meminfo`.
fn meminfo(text: &str) -> Option<(u64, u64)> {
    let bytes = |field: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(field))?;
        let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        kilobytes.checked_mul(1024)
    };
    Some((bytes("MemAvailable:")?, bytes("MemTotal:")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_as_linux_tells_it() {
        let text = "MemTotal:       16 kB\nMemFree:         4 kB\nMemAvailable:    8 kB\n";
        assert_eq!(meminfo(text), Some((8 * 1024, 16 * 1024)));
        assert_eq!(meminfo("MemTotal: 16 kB\n"), None);
        assert_eq!(meminfo(""), None);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut footprint = Footprint::default();
        footprint.add(MemoryKind::Weights, 100);
        footprint.add(MemoryKind::Activations, 50);
        assert!(footprint.check(None).is_ok());
        assert!(footprint.check(Some((150, 150))).is_ok());
        let refused = footprint.check(Some((149, 200))).unwrap_err().to_string();
        assert!(
            refused.contains("150 bytes") && refused.contains("149 of 200"),
            "{refused}"
        );
        footprint.add(MemoryKind::Weights, u64::MAX);
        assert_eq!(footprint.total(), u64::MAX);
    }
}
