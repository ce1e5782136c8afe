//! Who the ranks are, and who of them has which part of a graph: the options, and what is made of them.

use crate::dataset::source::{OpenArgs, SourceName};
use crate::failure::Failure;
use crate::launch::{Devices, devices};
use crate::processes::{Exchange, GatherName, Overlap, check_key, first_given, this_process};
use crate::screen::count;
use clap::Args;
use halfgnn::data::Dataset;
use halfgnn::data::parts::{Parted, VertexTable};
use halfgnn::distributed::{Balance, Fault, Gather, Partition, Rendezvous};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Who has which part of the graph.
#[derive(Args)]
pub struct RanksArgs {
    /// Partition the vertices, or with --sampler those of each batch, between N ranks: threads that train one model
    /// together on the device, as several devices would
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096), conflicts_with = "rendezvous")]
    pub ranks: Option<u32>,
    /// Partition them between processes that the program starts, one for each of these GPUs of this host; numbers count
    /// the GPUs that CUDA_VISIBLE_DEVICES shows
    #[arg(long, value_name = "0,1,…|all", value_parser = devices, conflicts_with_all = ["ranks", "rendezvous"])]
    pub devices: Option<Devices>,
    /// Partition them between processes that you start (torchrun, mpirun, srun, a shell), on one host or several, and
    /// where these meet: at a port of the first rank, by a file that all see and that is not there before (local:PATH
    /// where all are on this host), or by MPI, which then moves what else goes through the host. RANK and WORLD_SIZE
    /// say which one a process is, or what mpirun and srun have for that. Where a tcp address is not loopback, set
    /// HALFGNN_RENDEZVOUS_KEY to one secret for all
    #[arg(long, value_name = "tcp://HOST:PORT|file:PATH|local:PATH|mpi")]
    pub rendezvous: Option<Rendezvous>,
    /// How: the parts of a dataset that is in parts, each rank a range of them, which it alone reads [default there];
    /// degree, each rank has as many vertices and nearly as many edges; louvain, communities stay together; or a file
    /// with a part from 0 on in each line, one a vertex, as METIS and KaHIP write it [default: degree]
    #[arg(long, value_name = "degree|louvain|FILE")]
    pub partition: Option<PathBuf>,
    /// What moves rows and gradients between processes [default: auto]
    #[arg(long, value_enum)]
    pub exchange: Option<Exchange>,
    /// Whether devices compute while NCCL moves rows [default: off]
    #[arg(long, value_enum)]
    pub overlap: Option<Overlap>,
    /// Which rows of others a rank receives at each layer, of a partitioned graph [default: auto]
    #[arg(long, value_enum)]
    pub gather: Option<GatherName>,
    /// Seconds that a rank may stay away from an exchange at which another waits, before all end; where NCCL exchanges,
    /// that a step may take [default: 60]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    pub rank_timeout: Option<u32>,
    /// Have a rank die, hang, give the wrong count or be late at one of its exchanges, such as hang:1@7, to see what
    /// all do
    #[arg(long, value_name = "FAULT", requires = "ranks")]
    pub rank_fault: Vec<Fault>,
}

/// Several ranks that train one model.
#[derive(Clone, Debug)]
pub struct Ranks {
    /// How many there are.
    pub count: usize,
    /// How the graph is partitioned between them; in batches each has all of it, and a part of each batch.
    pub dealt: Option<Dealt>,
    pub(super) timeout: Duration,
    pub(super) faults: Vec<Fault>,
    pub(super) exchange: Exchange,
    pub(super) overlap: Option<Overlap>,
    pub(super) gather: Gather,
    /// Where the ranks meet, and which this process is, where they are processes.
    pub(super) process: Option<(Rendezvous, usize)>,
}

/// A graph that is partitioned.
#[derive(Clone, Debug)]
pub struct Dealt {
    /// To whom.
    pub partition: Partition,
    /// By which name.
    pub by: String,
    /// How evenly.
    pub balance: Balance,
    /// Where each rank reads what it has, where none reads all.
    pub(super) parts: Option<Arc<InParts>>,
}

/// A dataset of which each rank reads its own parts.
#[derive(Debug)]
pub struct InParts {
    /// The folder.
    pub parted: Parted,
    /// What there is one of a vertex.
    pub table: VertexTable,
    ranks: usize,
}

impl InParts {
    /// Each rank's parts, one behind the other.
    fn partition(&self) -> Result<Partition, Failure> {
        let mut ranks = vec![0; self.parted.parts()];
        for rank in 0..self.ranks {
            ranks[self.parted.range_of(rank, self.ranks)?].fill(rank as u32);
        }
        let owners = self.table.owners.iter();
        let owners = owners.map(|&part| ranks[part as usize]).collect();
        let refuse = |problem| Failure::Input(format!("{}: {problem}", self.parted.name()));
        Partition::from_parts(owners, self.ranks).map_err(refuse)
    }

    /// What is known of the balance without reading a part: nothing of the edges between ranks.
    fn balance(&self, partition: &Partition) -> Balance {
        let mut balance = Balance {
            vertices: vec![0; self.ranks],
            edges: vec![0; self.ranks],
            halo: Vec::new(),
            sent: Vec::new(),
        };
        for (&owner, &degree) in partition.owners().iter().zip(&self.table.in_degrees) {
            balance.vertices[owner as usize] += 1;
            balance.edges[owner as usize] += degree as usize;
        }
        balance
    }
}

impl RanksArgs {
    /// Which rank this process is, of how many, where ranks are processes.
    pub fn process(&self) -> Result<Option<(usize, usize)>, Failure> {
        match &self.rendezvous {
            None => Ok(None),
            Some(_) => this_process().map(Some),
        }
    }

    /// Refuses a place to meet that requires a key where none is set.
    pub fn check_key(&self) -> Result<(), Failure> {
        match (&self.rendezvous, self.process()?) {
            (Some(rendezvous), Some((_, ranks))) => check_key(rendezvous, ranks),
            _ => Ok(()),
        }
    }

    /// Whether another process shows and keeps what this one computes.
    pub fn follows(&self) -> Result<bool, Failure> {
        Ok(self.process()?.is_some_and(|(rank, _)| rank > 0))
    }

    /// How many ranks there are.
    pub fn count(&self) -> Result<usize, Failure> {
        let ranks = self.ranks.unwrap_or(1) as usize;
        Ok(self.process()?.map_or(ranks, |(_, ranks)| ranks))
    }

    /// The folder whose parts ranks read, where a dataset is one and there are several that take it as it was
    /// partitioned.
    pub fn in_parts(
        &self,
        source: &SourceName,
        open: &OpenArgs,
    ) -> Result<Option<Arc<InParts>>, Failure> {
        let ranks = self.count()?;
        if ranks <= 1 || self.partition.is_some() {
            return Ok(None);
        }
        let Some(parted) = open.parted(source)? else {
            return Ok(None);
        };
        // More ranks than parts are reported before anything is read.
        parted.range_of(0, ranks)?;
        let table = parted.table()?;
        Ok(Some(Arc::new(InParts {
            parted,
            table,
            ranks,
        })))
    }

    /// Partitions the graph of a dataset, where several ranks are asked for; one rank is a run as any other. What is
    /// `in_parts` is partitioned already, and where training is `in_batches` those are.
    pub fn deal(
        &self,
        dataset: &Dataset,
        in_parts: Option<Arc<InParts>>,
        in_batches: bool,
    ) -> Result<Option<Ranks>, Failure> {
        let (process, ranks) = (self.process()?, self.count()?);
        if ranks <= 1 {
            return match self.unused() {
                Some(option) => Err(Failure::Input(format!(
                    "{option} is of several ranks, and this is one; add --ranks N, --devices or --rendezvous, or leave it out"
                ))),
                None => Ok(None),
            };
        }
        if let (Some(_), Some(fault)) = (process, self.rank_fault.first()) {
            return Err(Failure::Input(format!(
                "--rank-fault {fault} is of ranks that are threads; take --ranks, or stop a process"
            )));
        }
        let exchange = self.exchange.unwrap_or_default();
        if exchange == Exchange::Nccl && process.is_none() {
            return Err(Failure::Input(
                "--exchange nccl is of processes with a GPU each; take --devices or --rendezvous instead of --ranks".into(),
            ));
        }
        if let (Some(_), None) = (self.overlap, &process) {
            return Err(Failure::Input(
                "--overlap is of processes with a GPU each; take --devices or --rendezvous instead of --ranks".into(),
            ));
        }
        if let Some(fault) = self.rank_fault.iter().find(|fault| fault.rank >= ranks) {
            return Err(Failure::Input(format!(
                "--rank-fault {fault}: there are {ranks} ranks, from 0 on"
            )));
        }
        let dealt = match in_batches {
            true => {
                self.expect_whole(dataset, in_parts.is_some())?;
                None
            }
            false => Some(self.dealt(dataset, in_parts, ranks)?),
        };
        Ok(Some(Ranks {
            count: ranks,
            dealt,
            timeout: Duration::from_secs(self.rank_timeout.unwrap_or(60).into()),
            faults: self.rank_fault.clone(),
            exchange,
            overlap: self.overlap,
            gather: self.gather.unwrap_or_default().into(),
            process: self.rendezvous.clone().zip(process.map(|(rank, _)| rank)),
        }))
    }

    /// Refuses options of a partitioned graph, where ranks share batches.
    fn expect_whole(&self, dataset: &Dataset, in_parts: bool) -> Result<(), Failure> {
        if self.partition.is_some() {
            return Err(Failure::Input(
                "--partition deals a graph out, and in batches each rank has all of it; leave it out, or train without --sampler".into(),
            ));
        }
        if self.gather.is_some() {
            return Err(Failure::Input(
                "--gather is of a graph that is dealt out, and in batches each rank has all of it; leave it out, or train without --sampler".into(),
            ));
        }
        match in_parts {
            true => Err(Failure::Input(format!(
                "{}: the run learns in batches, for which each rank has the whole dataset, and several would read parts of it; go on with one rank, or on \
                 a dataset that is not in parts",
                dataset.name
            ))),
            false => Ok(()),
        }
    }

    fn dealt(
        &self,
        dataset: &Dataset,
        in_parts: Option<Arc<InParts>>,
        ranks: usize,
    ) -> Result<Dealt, Failure> {
        if let Some(graphs) = &dataset.graphs {
            return Err(Failure::Input(format!(
                "{}: it is {} graphs, and ranks deal the vertices of one out; learn in batches of them (--batch 32), or train with one rank",
                dataset.name,
                graphs.graphs()
            )));
        }
        let (partition, by, balance) = match &in_parts {
            Some(in_parts) => {
                let partition = in_parts.partition()?;
                let balance = in_parts.balance(&partition);
                let parted = &in_parts.parted;
                let by = format!("{} parts by {}", parted.parts(), parted.partition());
                (partition, by, balance)
            }
            None => {
                let graph = &dataset.graph;
                let name = self.partition.as_deref().unwrap_or(Path::new("degree"));
                let by = name.display().to_string();
                let refuse = |problem| Failure::Input(format!("--partition {by}: {problem}"));
                let partition = Partition::by_name(name, graph, ranks).map_err(refuse)?;
                let balance = partition.balance(graph).map_err(refuse)?;
                (partition, by, balance)
            }
        };
        Ok(Dealt {
            partition,
            by,
            balance,
            parts: in_parts,
        })
    }

    /// An option that says something about ranks, if one was given.
    fn unused(&self) -> Option<&'static str> {
        first_given(&[
            ("--partition", self.partition.is_some()),
            ("--exchange", self.exchange.is_some()),
            ("--overlap", self.overlap.is_some()),
            ("--gather", self.gather.is_some()),
            ("--rank-timeout", self.rank_timeout.is_some()),
            ("--rank-fault", !self.rank_fault.is_empty()),
        ])
    }

    /// Refuses with several ranks what they do not do: options, and whether they were given.
    pub fn check(&self, options: &[(&'static str, bool)]) -> Result<(), Failure> {
        if self.ranks.is_none_or(|ranks| ranks == 1) && self.rendezvous.is_none() {
            return Ok(());
        }
        match first_given(options) {
            Some(option) => Err(Failure::Input(format!(
                "{option} is trained by one rank; leave it out, or train with one"
            ))),
            None => Ok(()),
        }
    }
}

impl Ranks {
    /// Whether they are processes.
    pub fn are_processes(&self) -> bool {
        self.process.is_some()
    }

    /// One line on them.
    pub fn line(&self) -> String {
        match &self.dealt {
            Some(dealt) => dealt.line(),
            None => format!(
                "{} ranks, each with the whole graph, and one part in {} of each batch",
                self.count, self.count
            ),
        }
    }
}

impl Dealt {
    fn line(&self) -> String {
        let Balance { vertices, halo, .. } = &self.balance;
        let most = |of: &[usize]| of.iter().max().copied().unwrap_or(0);
        let hears = match self.parts {
            None => format!("which hear from {} of other ranks", count(most(halo))),
            Some(_) => "of which each rank reads its own".into(),
        };
        format!(
            "{} ranks, by {}: at most {} vertices, {hears}; the most edges are {:.3} of the mean",
            self.partition.ranks(),
            self.by,
            count(most(vertices)),
            self.balance.imbalance()
        )
    }
}
