//! One operator on one graph: baselines first, then every policy that was asked for.

use super::args::{Common, PeerName, Stride};
use super::measure::Times;
use super::operator::Operator;
use super::peers::{PeerTime, Peers};
use super::table::{Choice, PRECISIONS, Row, Table};
use crate::failure::Failure;
use crate::reorder::{Gathering, Ordering as VertexOrder};
use halfgnn::Error;
use halfgnn::backend::{Adjacency, Backend, DeviceGraph};
use halfgnn::device::{Device, Task};
use halfgnn::graph::Graph;
use halfgnn::tensor::{Element, Precision, gathered_strides, padded};
use halfgnn::with_element;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// SpMMs of the run that an order is weighed against: two forward and two backward in each of 200 epochs.
const SUMS_OF_A_RUN: u64 = 800;

/// An operator to be timed on one graph.
pub struct Bench<'a, 'b, O: Operator> {
    pub common: &'a Common,
    pub policies: &'a [O::Policy],
    /// In what distances rows are gathered; none for as close as can be.
    pub strides: &'a [Stride],
    pub label: &'a str,
    pub graph: &'a Graph,
    pub table: &'a mut Table<'b>,
    pub stop: &'a AtomicBool,
}

/// What is known before anything of ours is timed.
struct Baselines {
    peers: Vec<PeerTime>,
    /// Bytes a second of a copy, read and written together.
    copy: Option<f64>,
}

impl<O: Operator> Task for Bench<'_, '_, O> {
    type Output = Result<(), Failure>;

    fn run<B: Backend>(self, device: &Device<B>) -> Self::Output {
        let backend = &device.backend;
        let peers = self.peers(backend);
        let copy = match &peers {
            Some(peers) if self.wants(PeerName::Gather) => Some(peers.copy_bandwidth()?),
            _ => None,
        };
        let mut reordered = None;
        let mut on_device = None;
        if let Some(order) = self.common.reorder {
            let ordering = VertexOrder {
                name: order,
                label: self.label,
                graph: self.graph,
                gathering: self.gathering(),
            };
            let (ordered, renamed) = ordering.apply(device)?;
            self.table.say(&ordered.line);
            (reordered, on_device) = (ordered.what, renamed);
        }
        let graph = reordered.as_ref().map_or(self.graph, |(graph, _)| graph);
        let mut bench = Bench::<O> {
            common: self.common,
            policies: self.policies,
            strides: self.strides,
            label: self.label,
            graph,
            table: &mut *self.table,
            stop: self.stop,
        };
        bench.every_combination(backend, on_device, peers.as_ref(), copy)
    }
}

impl<O: Operator> Bench<'_, '_, O> {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// What `--reorder auto` weighs an order against: the widest rows that are asked for.
    fn gathering(&self) -> Gathering {
        let widths = self.common.features.iter().copied();
        let precisions = self.common.precision.iter().map(|&name| {
            let precision: Precision = name.into();
            with_element!(precision, E => size_of::<E>() as u64)
        });
        let bytes = precisions.max().unwrap_or(0);
        Gathering {
            sums: SUMS_OF_A_RUN,
            row_bytes: u64::from(widths.max().unwrap_or(0)) * bytes,
        }
    }

    fn wants(&self, peer: PeerName) -> bool {
        self.common.against.contains(&peer)
    }

    /// The baselines of the backend; what is missing is said.
    fn peers<'p, B: Backend>(&self, backend: &'p B) -> Option<Peers<'p>> {
        if self.common.against.is_empty() {
            return None;
        }
        let peers = Peers::of(backend)
            .map_err(|reason| self.table.say(&format!("no peers: {reason}")))
            .ok()?;
        match peers.cusparse() {
            Err(reason) if self.wants(PeerName::Cusparse) => {
                self.table.say(&format!("no cuSPARSE: {reason}"));
            }
            _ => {}
        }
        Some(peers)
    }

    fn every_combination<B: Backend>(
        &mut self,
        backend: &B,
        on_device: Option<Adjacency<B>>,
        peers: Option<&Peers<'_>>,
        copy: Option<f64>,
    ) -> Result<(), Failure> {
        let graph = match on_device {
            Some(forward) => DeviceGraph::of_renamed(backend, self.graph, forward)?,
            None => DeviceGraph::new(backend, self.graph)?,
        };
        for &features in &self.common.features {
            let mut baselines = Baselines {
                peers: Vec::new(),
                copy,
            };
            if let Some(peers) = peers {
                let asked = self.common.precision.iter().map(|&name| name.into());
                let others = asked.filter(|precision| !PRECISIONS.contains(precision));
                for precision in PRECISIONS.into_iter().chain(others) {
                    let timed = with_element!(precision, E => {
                        self.peer::<B, E>(backend, features, peers)
                    })?;
                    baselines.peers.extend(timed);
                }
            }
            for &precision in &self.common.precision {
                let precision: Precision = precision.into();
                let mut policies: Vec<O::Policy> = Vec::new();
                for &policy in self.policies {
                    let policy = match precision {
                        Precision::Half => policy,
                        // As float they are added up in float.
                        Precision::Float | Precision::BFloat16 => O::in_float(policy),
                    };
                    if !policies.contains(&policy) {
                        policies.push(policy);
                    }
                }
                let read = with_element!(precision, E => padded::<E>(features as usize));
                if read > features as usize {
                    self.table.say(&format!(
                        "{}: rows of {features} features in {precision} are padded to {read}, and read and written so",
                        self.label
                    ));
                }
                let strides = with_element!(precision, E => self.strides::<E>(features))?;
                for stride in strides {
                    let mut timed = Vec::new();
                    for &policy in &policies {
                        let times = with_element!(precision, E => {
                            self.time::<B, E>(backend, &graph, (features, stride), policy, &baselines)
                        })?;
                        timed.extend(times.map(|times| (policy, times.ms)));
                    }
                    self.judge(features, precision, &timed)?;
                }
            }
        }
        Ok(())
    }

    /// The name of a policy, and of a distance that is not the least.
    fn name_at<E: Element>(policy: O::Policy, features: u32, stride: usize) -> String {
        let name = O::name(policy);
        match stride == padded::<E>(features as usize) {
            true => name,
            false => format!("{name}, rows {} bytes apart", stride * size_of::<E>()),
        }
    }

    /// In what distances rows are gathered, in elements.
    fn strides<E: Element>(&self, features: u32) -> Result<Vec<usize>, Failure> {
        let (columns, width) = (features as usize, size_of::<E>());
        let least = padded::<E>(columns);
        if self.strides.is_empty() {
            return Ok(vec![least]);
        }
        let mut strides = Vec::new();
        for stride in self.strides {
            match *stride {
                Stride::Auto => strides.extend(gathered_strides::<E>(columns)),
                Stride::Bytes(bytes) => {
                    let bytes = bytes as usize;
                    if bytes < least * width {
                        return Err(Failure::Input(format!(
                            "--stride {bytes}: rows of {features} features in {} are {} bytes; take a multiple of 16 from there on",
                            E::PRECISION,
                            least * width
                        )));
                    }
                    strides.push(bytes / width);
                }
            }
        }
        strides.sort_unstable();
        strides.dedup();
        Ok(strides)
    }

    /// Times the baselines in one precision.
    fn peer<B: Backend, E: Element>(
        &self,
        backend: &B,
        features: u32,
        peers: &Peers<'_>,
    ) -> Result<Vec<PeerTime>, Failure> {
        let mut timed = Vec::new();
        if self.stopped() {
            return Ok(timed);
        }
        let runs = self.common.runs;
        let columns = features as usize;
        let operands = |stride| O::operands::<B, E>(backend, self.graph, columns, stride);
        let strides = gathered_strides::<E>(columns);
        let mut close = operands(strides[0])?;
        if self.wants(PeerName::Cusparse) && peers.cusparse().is_ok() {
            match O::cusparse(peers, self.graph.csr(), &mut close, runs) {
                Ok(peer) => timed.push(peer),
                Err(reason) => self.table.say(&format!(
                    "{}: no cuSPARSE in {}: {reason}",
                    self.label,
                    E::PRECISION
                )),
            }
        }
        if self.wants(PeerName::Dgl) {
            match O::dgl(peers, self.graph.csr(), &mut close, runs) {
                Ok(peer) => timed.extend(peer),
                Err(reason) => self.table.say(&format!("{}: no dgl: {reason}", self.label)),
            }
        }
        if self.wants(PeerName::Gather) {
            let csr = self.graph.csr();
            let mut best = peers.gather(csr, O::gathered(&close), runs)?;
            drop(close);
            // As close as can be is not always fastest.
            for &stride in &strides[1..] {
                let peer = peers.gather(csr, O::gathered(&operands(stride)?), runs)?;
                if peer.times.ms < best.times.ms {
                    best = PeerTime {
                        algorithm: Some(match (stride * size_of::<E>()).is_multiple_of(128) {
                            true => "rows at whole lines",
                            false => "rows at whole sectors",
                        }),
                        ..peer
                    };
                }
            }
            timed.push(best);
        }
        for peer in &timed {
            self.table.peer(self.label, features, peer);
        }
        Ok(timed)
    }

    fn time<B: Backend, E: Element>(
        &mut self,
        backend: &B,
        graph: &DeviceGraph<B>,
        (features, stride): (u32, usize),
        policy: O::Policy,
        baselines: &Baselines,
    ) -> Result<Option<Times>, Failure> {
        if self.stopped() {
            return Ok(None);
        }
        let columns = features as usize;
        let mut operands = O::operands::<B, E>(backend, self.graph, columns, stride)?;
        if let Err(error) = O::call(backend, graph.forward(), policy, &mut operands) {
            let refused = matches!(error, Error::Unsupported { .. });
            if refused && self.policies.len() > 1 {
                self.table.say(&format!(
                    "{}, F = {features}: no {}: {error}",
                    self.label,
                    O::name(policy)
                ));
                return Ok(None);
            }
            return Err(error.into());
        }
        let largest_error = O::check(backend, self.graph.csr(), &operands).map_err(|wrong| {
            Failure::Run(format!("{}: {wrong}; {} is not timed", self.label, O::NAME))
        })?;
        let times = Times::of(backend, self.common.runs, || {
            O::call(backend, graph.forward(), policy, &mut operands)
        })?;
        let (vertices, edges) = (self.graph.vertices(), self.graph.edges());
        let gathered = edges as f64 * (columns * size_of::<E>() + 4) as f64;
        let written = O::results(vertices, edges, columns) * size_of::<E>();
        let gather = baselines
            .peers
            .iter()
            .find(|peer| peer.is_gather(E::PRECISION));
        let bound = gather
            .zip(baselines.copy)
            .map(|(gather, copy)| gather.times.ms + written as f64 / copy * 1e3);
        self.table.push(Row {
            event: O::NAME,
            graph: self.label.into(),
            device: backend.name(),
            vertices,
            edges,
            features,
            precision: E::PRECISION.to_string(),
            policy: Self::name_at::<E>(policy, features, stride),
            times,
            gathered_tb_per_s: gathered / times.ms / 1e9,
            largest_error,
            peers: baselines.peers.clone(),
            speedup: BTreeMap::new(),
            over_bound: bound.map(|bound| times.ms / bound),
        })?;
        Ok(Some(times))
    }

    /// Shows how what was chosen compares with the best of what was forced.
    fn judge(
        &mut self,
        features: u32,
        precision: Precision,
        timed: &[(O::Policy, f64)],
    ) -> Result<(), Failure> {
        for &(policy, ms) in timed {
            let forced =
                |&&(other, _): &&(O::Policy, f64)| other != policy && O::chosen(other) == policy;
            let best = timed
                .iter()
                .filter(forced)
                .min_by(|a, b| a.1.total_cmp(&b.1));
            if let Some(&(forced, forced_ms)) = best {
                self.table.choice(&Choice {
                    event: "choice",
                    operator: O::NAME,
                    graph: self.label,
                    features,
                    precision: precision.to_string(),
                    policy: O::name(policy),
                    best_forced: O::name(forced),
                    over_best: ms / forced_ms,
                })?;
            }
        }
        Ok(())
    }
}
