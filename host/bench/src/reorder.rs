//! `--reorder`: vertices in an order in which neighbours lie close together.

use crate::failure::Failure;
use crate::screen::count;
use clap::ValueEnum;
use halfgnn::Error;
use halfgnn::backend::{Adjacency, Backend};
use halfgnn::data::{Origin, Preparation};
use halfgnn::device::{self, Cache, Device, Task};
use halfgnn::driver::DriverError;
use halfgnn::graph::Graph;
use halfgnn::graph::reorder::{Permutation, by_degree, cached_share, louvain};
use halfgnn::ops::{GraphRows, label_propagation_of, renaming_bytes};
use std::time::{Duration, Instant};

/// An order of the vertices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReorderName {
    /// That of label propagation where a sample of the edges says that it is paid back within the run, otherwise as
    /// they are
    Auto,
    /// Communities together, by label propagation on the device: within a second, of a hundred million edges on a GPU
    LabelPropagation,
    /// Communities together, and communities of them, by Louvain's method: a hundred times as long
    Louvain,
    /// Vertices of many edges first
    Degree,
}

/// Nanoseconds an edge, about, that an order by label propagation takes on a GPU, to be found there and for the graph
/// to be renamed by sixteen threads.
const NS_PER_EDGE_ON_CARD: f64 = 4.0;
/// Likewise on a CPU, of one thread.
const NS_PER_EDGE_OF_THREAD: f64 = 120.0;
/// How many times as fast a cache gives rows as the memory behind it: what is in the cache takes time too.
const CACHE_IS_FASTER: f64 = 2.0;

/// What an order is for: how much is gathered in a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gathering {
    /// Sums over all neighbours: SpMMs.
    pub sums: u64,
    /// Bytes of a row that each edge reads.
    pub row_bytes: u64,
}

/// What has its vertices in another order, if it has.
pub struct Reordered<T> {
    /// What it is, and where each vertex went; `None` where the order is as it was.
    pub what: Option<(T, Permutation)>,
    /// Which order, and how long it took.
    pub line: String,
}

/// Whose order is looked for, and for what.
#[derive(Clone, Copy)]
pub struct Ordering<'a> {
    /// Which order.
    pub name: ReorderName,
    /// What a person calls the graph.
    pub label: &'a str,
    /// The graph.
    pub graph: &'a Graph,
    /// What it is for.
    pub gathering: Gathering,
}

impl ReorderName {
    /// That a dataset was brought into this order.
    pub fn preparation(self) -> Preparation {
        let by = match self {
            ReorderName::Degree => "vertices renamed by degree, those of many edges first",
            ReorderName::Louvain => "vertices renamed by Louvain's communities",
            ReorderName::LabelPropagation | ReorderName::Auto => {
                "vertices renamed by the communities of label propagation"
            }
        };
        Preparation::new("order", by, Origin::Option)
    }
}

impl Ordering<'_> {
    /// Finds the order, on the device of `choice` where it is one that devices find, and gives what belongs to the
    /// vertices that order. It is the host that does so, where what is renamed is wanted: to copy it from a device
    /// takes as long.
    pub fn apply_on<T, E: Into<Failure>>(
        self,
        choice: device::Choice,
        apply: impl FnOnce(&Permutation) -> Result<T, E>,
    ) -> Result<Reordered<T>, Failure> {
        let found = match self.name {
            ReorderName::Degree | ReorderName::Louvain => self.find_on_host(),
            ReorderName::LabelPropagation | ReorderName::Auto => device::open(choice, self)??,
        };
        let told = found.told(self.label);
        let Some(order) = found.order else {
            return Ok(Reordered {
                what: None,
                line: told,
            });
        };
        let start = Instant::now();
        let renamed = apply(&order).map_err(Into::into)?;
        let line = format!(
            "{told} renamed after another {}",
            in_seconds(start.elapsed())
        );
        Ok(Reordered {
            what: Some((renamed, order)),
            line,
        })
    }

    /// Finds the order and renames the graph, on the device where that is one that does it and has the memory, and
    /// otherwise on the host. What a device has renamed is there too.
    pub fn apply<B: Backend>(
        self,
        device: &Device<B>,
    ) -> Result<(Reordered<Graph>, Option<Adjacency<B>>), Failure> {
        let (found, rows) = self.find(device)?;
        let told = found.told(self.label);
        let Some(order) = found.order else {
            let (what, line) = (None, told);
            return Ok((Reordered { what, line }, None));
        };
        if let Some(on_device) = self.rename_on(device, rows, &order)? {
            let line = format!(
                "{told} renamed on the device after another {}, copied to the host after another {}",
                in_seconds(on_device.renaming),
                in_seconds(on_device.copying)
            );
            let what = Some((on_device.graph, order));
            return Ok((Reordered { what, line }, Some(on_device.adjacency)));
        }
        let start = Instant::now();
        let graph = self.graph.permuted(order.new_of_old())?;
        let line = format!(
            "{told} renamed on the host after another {}",
            in_seconds(start.elapsed())
        );
        let what = Some((graph, order));
        Ok((Reordered { what, line }, None))
    }

    /// The graph renamed on the device, and on the host as well; `None` where the host has to do it: of a CPU, which
    /// keeps rows together and is faster so, and of a device without the memory.
    fn rename_on<B: Backend>(
        &self,
        device: &Device<B>,
        rows: Option<GraphRows<B>>,
        order: &Permutation,
    ) -> Result<Option<OnDevice<B>>, Failure> {
        let wanted = renaming_bytes(self.graph.vertices(), self.graph.edges());
        let has_room = device.memory.is_none_or(|(free, _)| wanted <= free);
        if device.multiprocessors.is_none() || !has_room {
            return Ok(None);
        }
        match self.rename(&device.backend, rows, order) {
            Ok(renamed) => Ok(Some(renamed)),
            // What was free when the device was opened may be taken by now.
            Err(Error::Driver(DriverError::OutOfMemory { .. })) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn rename<B: Backend>(
        &self,
        backend: &B,
        rows: Option<GraphRows<B>>,
        order: &Permutation,
    ) -> Result<OnDevice<B>, Error> {
        let start = Instant::now();
        let rows = match rows {
            Some(rows) => rows,
            None => GraphRows::new(backend, self.graph.csr())?,
        };
        // Waits for the device, which counts its rows.
        let adjacency = Adjacency::renamed(backend, &rows, order)?;
        let renaming = start.elapsed();
        let (offsets, columns) = adjacency.to_csr(backend)?;
        let graph = self.graph.permuted_as(offsets, columns)?;
        Ok(OnDevice {
            adjacency,
            graph,
            renaming,
            copying: start.elapsed() - renaming,
        })
    }

    /// The order, and the graph where the device has it then.
    fn find<B: Backend>(
        &self,
        device: &Device<B>,
    ) -> Result<(Found, Option<GraphRows<B>>), Failure> {
        match self.name {
            ReorderName::Degree | ReorderName::Louvain => Ok((self.find_on_host(), None)),
            ReorderName::LabelPropagation => {
                let (found, rows) = self.propagate(&device.backend)?;
                Ok((found, Some(rows)))
            }
            ReorderName::Auto => self.propagate_if_it_pays(device),
        }
    }

    fn find_on_host(&self) -> Found {
        let start = Instant::now();
        let (order, what) = match self.name {
            ReorderName::Degree => (by_degree(self.graph), "degree"),
            _ => (louvain(self.graph), "Louvain's communities"),
        };
        Found {
            order: Some(order),
            what: what.into(),
            took: start.elapsed(),
        }
    }

    fn propagate<B: Backend>(&self, backend: &B) -> Result<(Found, GraphRows<B>), Failure> {
        let start = Instant::now();
        let rows = GraphRows::new(backend, self.graph.csr())?;
        let communities = label_propagation_of(backend, self.graph, &rows)?;
        let order = communities.order(backend)?;
        let took = start.elapsed();
        let what = format!(
            "label propagation, {} communities and {} rounds,",
            count(communities.count(backend)?),
            communities.rounds
        );
        let order = Some(order);
        Ok((Found { order, what, took }, rows))
    }

    /// The order of label propagation, or none where a run would not get back the time that it takes.
    fn propagate_if_it_pays<B: Backend>(
        &self,
        device: &Device<B>,
    ) -> Result<(Found, Option<GraphRows<B>>), Failure> {
        let start = Instant::now();
        let as_it_is = |what: String, took| {
            let order = None;
            (Found { order, what, took }, None)
        };
        if self.gathering.sums == 0 {
            let why = "what batches gather is no SpMM of the whole graph; name an order to have it nevertheless";
            return Ok(as_it_is(why.into(), start.elapsed()));
        }
        let of = Payback {
            gathering: self.gathering,
            edges: self.graph.edges() as u64,
            cache: device.cache,
            seconds: seconds(self.graph.edges() as u64, device.multiprocessors.is_some()),
        };
        let share = |order: Option<&Permutation>| {
            let rows = of.cache.bytes / of.gathering.row_bytes.max(1);
            cached_share(self.graph, order, rows)
        };
        let before = share(None);
        // No order has more in the cache than all rows but the first time that each is read.
        let vertices = self.graph.vertices() as f64;
        let most = (1.0 - vertices / of.edges.max(1) as f64).max(before);
        if !of.pays(before, most) {
            let why = format!(
                "an order can save {} at most in {}; {}",
                duration(of.saved_by_all(before, most)),
                of.sums(),
                of.cost()
            );
            return Ok(as_it_is(why, start.elapsed()));
        }
        let (mut found, rows) = self.propagate(&device.backend)?;
        let after = share(found.order.as_ref());
        found.took = start.elapsed();
        let saving = format!(
            "by a sample {:.0} % of the rows that are gathered will be in the cache and not {:.0} %, which saves {} in {}",
            100.0 * after,
            100.0 * before,
            duration(of.saved_by_all(before, after)),
            of.sums()
        );
        if !of.pays(before, after) {
            return Ok(as_it_is(format!("{saving}; {}", of.cost()), found.took));
        }
        found.what = format!("{} {saving},", found.what);
        Ok((found, Some(rows)))
    }
}

impl Task for Ordering<'_> {
    type Output = Result<Found, Failure>;

    fn run<B: Backend>(self, device: &Device<B>) -> Self::Output {
        Ok(self.find(device)?.0)
    }
}

/// An order that was found, or why there is none.
pub struct Found {
    order: Option<Permutation>,
    what: String,
    took: Duration,
}

impl Found {
    /// What was found, where `label` was to have an order, and in what time.
    fn told(&self, label: &str) -> String {
        let (what, took) = (&self.what, in_seconds(self.took));
        match self.order {
            Some(_) => format!("{label}: in the order of {what} after {took},"),
            None => format!("{label}: left in its order after {took}: {what}"),
        }
    }
}

fn in_seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}

/// A graph that a device has renamed.
struct OnDevice<B: Backend> {
    adjacency: Adjacency<B>,
    graph: Graph,
    renaming: Duration,
    copying: Duration,
}

/// Seconds that an order by label propagation takes, about. They depend on nothing but the graph and the machine, so
/// that a run that is repeated decides as it did before.
fn seconds(edges: u64, on_card: bool) -> f64 {
    let ns = match on_card {
        true => NS_PER_EDGE_ON_CARD,
        false => NS_PER_EDGE_OF_THREAD / rayon::current_num_threads() as f64,
    };
    edges as f64 * ns * 1e-9
}

/// What is weighed: the time that rows in the cache save, and the time that an order takes.
struct Payback {
    gathering: Gathering,
    edges: u64,
    cache: Cache,
    seconds: f64,
}

impl Payback {
    /// Seconds that a sum takes with such a share of the rows in the cache.
    fn sum(&self, share: f64) -> f64 {
        let bytes = self.edges as f64 * self.gathering.row_bytes as f64;
        bytes / self.cache.bytes_per_second * (1.0 - share).max(1.0 / CACHE_IS_FASTER)
    }

    fn saved(&self, before: f64, after: f64) -> f64 {
        (self.sum(before) - self.sum(after)).max(0.0)
    }

    /// Seconds that all sums together are faster by.
    fn saved_by_all(&self, before: f64, after: f64) -> f64 {
        self.saved(before, after) * self.gathering.sums as f64
    }

    fn pays(&self, before: f64, after: f64) -> bool {
        self.saved_by_all(before, after) > self.seconds
    }

    /// The sums, for a person.
    fn sums(&self) -> String {
        let Gathering { sums, row_bytes } = self.gathering;
        format!(
            "{} SpMMs of {row_bytes} bytes an edge",
            count(sums as usize)
        )
    }

    /// What it takes, for a person.
    fn cost(&self) -> String {
        format!("one takes about {}", duration(self.seconds))
    }
}

/// Seconds, or less, for a person.
fn duration(seconds: f64) -> String {
    if seconds >= 0.1 || seconds == 0.0 {
        format!("{seconds:.1} s")
    } else {
        format!("{:.2} ms", 1e3 * seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use halfgnn::backend::cpu::Cpu;

    const CARD: Cache = Cache {
        bytes: 25 << 20,
        bytes_per_second: 4e12,
    };

    fn payback(sums: u64) -> Payback {
        Payback {
            gathering: Gathering {
                sums,
                row_bytes: 128,
            },
            edges: 120_000_000,
            cache: CARD,
            seconds: seconds(120_000_000, true),
        }
    }

    #[test]
    fn an_order_is_paid_back_by_enough_sums() {
        // 15.4 GB a sum: 3.5 ms of memory alone, and no less than half of 3.84 ms.
        let saved = payback(1).saved(0.1, 0.9);
        assert!((saved - 1.54e-3).abs() < 2e-5, "{saved}");
        assert!((payback(1).seconds - 0.48).abs() < 1e-9);
        assert!(!payback(300).pays(0.1, 0.9));
        assert!(payback(330).pays(0.1, 0.9));
        assert!(
            !payback(1_000_000).pays(0.6, 0.9),
            "the cache is the bound already"
        );
        assert!(
            !payback(1_000_000).pays(0.4, 0.3),
            "what is worse never pays"
        );
        assert!(!payback(0).pays(0.0, 1.0));
    }

    fn communities() -> Graph {
        let model = halfgnn::graph::generate::BlockModel {
            vertices: 6_000,
            classes: 30,
            mean_degree: 30.0,
            within: 0.9,
            hubs: 0,
            hub_degree: 0,
        };
        model.generate(3).expect("a graph").0
    }

    /// The operators of a CPU, as if it were a GPU with the given free memory and cache.
    fn card(cache: u64, free: Option<u64>) -> Device<Cpu> {
        Device {
            backend: Cpu::new(),
            memory: free.map(|free| (free, free)),
            multiprocessors: Some(132),
            cache: Cache {
                bytes: cache,
                ..CARD
            },
        }
    }

    fn apply(
        ordering: Ordering<'_>,
        device: &Device<Cpu>,
    ) -> (Reordered<Graph>, Option<Adjacency<Cpu>>) {
        let ordered = ordering.apply(device);
        ordered.unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// What `auto` makes of a graph of communities on a device with a cache of the given number of bytes.
    fn auto(cache: u64, sums: u64) -> Reordered<Graph> {
        let ordering = Ordering {
            name: ReorderName::Auto,
            label: "blocks",
            graph: &communities(),
            gathering: Gathering {
                sums,
                row_bytes: 128,
            },
        };
        apply(ordering, &card(cache, None)).0
    }

    #[test]
    fn a_device_renames_where_it_has_room() {
        let graph = communities();
        let wanted = renaming_bytes(graph.vertices(), graph.edges());
        let names = [
            ReorderName::Degree,
            ReorderName::Louvain,
            ReorderName::LabelPropagation,
        ];
        for name in names {
            let ordering = Ordering {
                name,
                label: "blocks",
                graph: &graph,
                gathering: payback(1).gathering,
            };
            let no_card = Device {
                multiprocessors: None,
                ..card(0, None)
            };
            let (here, there) = (" renamed on the host after", " renamed on the device after");
            let cases = [
                (card(0, Some(wanted)), there),
                (card(0, Some(wanted - 1)), here),
                (no_card, here),
            ];
            for (device, place) in cases {
                let (ordered, adjacency) = apply(ordering, &device);
                assert!(ordered.line.contains(place), "{}", ordered.line);
                assert_eq!(adjacency.is_some(), place == there);
                let (renamed, order) = ordered.what.expect("another order");
                let host = graph.permuted(order.new_of_old()).expect("names");
                assert_eq!(renamed.csr(), host.csr());
            }
        }
    }

    #[test]
    fn auto_takes_an_order_where_it_pays() {
        let taken = auto(600 * 128, 10_000);
        let (renamed, order) = taken.what.expect("another order");
        assert_eq!(renamed.vertices(), order.new_of_old().len());
        let share = cached_share(&renamed, None, 600);
        assert!(share > 0.75, "{share}");
        let told = format!("{:.0} % of the rows that are gathered", 100.0 * share);
        assert!(taken.line.contains(&told), "{} for {}", taken.line, told);
        assert!(
            taken
                .line
                .starts_with("blocks: in the order of label propagation, ")
        );

        let few = auto(600 * 128, 3);
        assert!(few.what.is_none());
        assert!(
            few.line.starts_with("blocks: left in its order"),
            "{}",
            few.line
        );
        let none = auto(600 * 128, 0);
        assert!(none.what.is_none());
        assert!(none.line.contains("what batches gather"), "{}", none.line);
        let fits = auto(6_000 * 128, 1_000_000);
        assert!(fits.what.is_none());
        assert!(
            fits.line.contains("an order can save 0.0 s at most"),
            "{}",
            fits.line
        );
    }

    #[test]
    fn savings_are_told() {
        let of = payback(800);
        assert_eq!(duration(of.saved_by_all(0.1, 0.9)), "1.2 s");
        assert_eq!(of.sums(), "800 SpMMs of 128 bytes an edge");
        assert_eq!(payback(800).cost(), "one takes about 0.5 s");
        assert_eq!(duration(0.012), "12.00 ms");
    }
}
