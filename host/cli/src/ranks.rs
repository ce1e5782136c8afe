//! Training by several ranks, of a graph that is dealt out or of batches that are: `--ranks`.

use crate::checkpoint::Run;
use crate::dataset::source::{OpenArgs, SourceName};
use crate::failure::Failure;
use crate::launch::{Devices, devices};
use crate::processes::{Exchange, Overlap, device_name, moved_by, this_process};
use crate::screen::count;
use crate::session::{Observer, Outcome, Placed, Plan, Trained, edge_data};
use crate::task::Goal;
use clap::Args;
use halfgnn::backend::{Backend, MemoryKind};
use halfgnn::data::Dataset;
use halfgnn::data::parts::{Parted, RowFeatures, VertexTable};
use halfgnn::device::Device;
use halfgnn::distributed::{Balance, Fault, Group, Partition, Rendezvous, Shard, Tcp, in_process};
use halfgnn::nn::{EdgeData, Network, PreparedGraph, PreparedRows, Propagation};
use halfgnn::tensor::{Element, Matrix};
use halfgnn::train::{self, Footprint, Objective, TrainConfig, Trainer};
use halfgnn_bench::rank_memory::{self, RankMemory};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Who has which part of the graph.
#[derive(Args)]
pub struct RanksArgs {
    /// Deal the vertices out, or with --sampler those of each batch, to N ranks, threads that train one model together on the device: what
    /// several devices would compute
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096), conflicts_with = "rendezvous")]
    pub ranks: Option<u32>,
    /// Deal them out to processes, one for each of these cards of this host, which the program starts; numbers count the cards that
    /// CUDA_VISIBLE_DEVICES shows
    #[arg(long, value_name = "0,1,…|all", value_parser = devices, conflicts_with_all = ["ranks", "rendezvous"])]
    pub devices: Option<Devices>,
    /// Deal them out to processes that somebody starts (torchrun, mpirun, srun, a shell), on one host or several, and where these meet: at a
    /// port of the first rank, or by a file that all see and that is not there before. RANK and WORLD_SIZE say which one a process is, or what
    /// mpirun and srun have for that
    #[arg(long, value_name = "tcp://HOST:PORT|file:PATH")]
    pub rendezvous: Option<Rendezvous>,
    /// How: the parts of a dataset that is in parts, each rank a range of them, which it alone reads [default there]; degree, each rank has as many vertices and nearly as many edges; louvain, communities stay together; or a file with a part
    /// from 0 on in each line, one a vertex, as METIS and KaHIP write it [default: degree]
    #[arg(long, value_name = "degree|louvain|FILE")]
    pub partition: Option<PathBuf>,
    /// What moves rows and gradients between processes [default: auto]
    #[arg(long, value_enum)]
    pub exchange: Option<Exchange>,
    /// Whether devices compute while NCCL moves rows [default: on]
    #[arg(long, value_enum)]
    pub overlap: Option<Overlap>,
    /// Seconds that a rank may stay away from an exchange at which another waits, before all end; where NCCL exchanges, that a step may
    /// take [default: 60]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    pub rank_timeout: Option<u32>,
    /// Have a rank die, hang, give the wrong count or be late at one of its exchanges, such as hang:1@7, to see what all do
    #[arg(long, value_name = "FAULT", requires = "ranks")]
    pub rank_fault: Vec<Fault>,
}

/// Several ranks that train one model.
#[derive(Clone, Debug)]
pub struct Ranks {
    /// How many there are.
    pub count: usize,
    /// How the graph is dealt out to them; in batches each has all of it, and a part of each batch.
    pub dealt: Option<Dealt>,
    timeout: Duration,
    faults: Vec<Fault>,
    exchange: Exchange,
    overlap: Option<Overlap>,
    /// Where the ranks meet, and which this process is, where they are processes.
    process: Option<(Rendezvous, usize)>,
}

/// A graph that is dealt out.
#[derive(Clone, Debug)]
pub struct Dealt {
    /// To whom.
    pub partition: Partition,
    /// By which name.
    pub by: String,
    /// How evenly.
    pub balance: Balance,
    /// Where each rank reads what it has, where nobody reads all.
    parts: Option<Arc<InParts>>,
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

    /// What is known of the balance without reading a part: nothing of who hears whom.
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

    /// Whether another process shows and keeps what this one computes.
    pub fn follows(&self) -> Result<bool, Failure> {
        Ok(self.process()?.is_some_and(|(rank, _)| rank > 0))
    }

    /// How many ranks there are.
    pub fn count(&self) -> Result<usize, Failure> {
        let ranks = self.ranks.unwrap_or(1) as usize;
        Ok(self.process()?.map_or(ranks, |(_, ranks)| ranks))
    }

    /// The folder whose parts ranks read, where a dataset is one and there are several that take it as it was dealt out.
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
        // More ranks than parts are told before anything is read.
        parted.range_of(0, ranks)?;
        let table = parted.table()?;
        Ok(Some(Arc::new(InParts {
            parted,
            table,
            ranks,
        })))
    }

    /// Deals the graph of a dataset out, where several ranks are asked for; one rank is a run as any other. What is `in_parts` is dealt out
    /// already, and where training is `in_batches` those are.
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
                "--exchange nccl is of processes with a card each; take --devices or --rendezvous instead of --ranks".into(),
            ));
        }
        if let (Some(_), None) = (self.overlap, &process) {
            return Err(Failure::Input(
                "--overlap is of processes with a card each; take --devices or --rendezvous instead of --ranks".into(),
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
            process: self.rendezvous.clone().zip(process.map(|(rank, _)| rank)),
        }))
    }

    /// Refuses what deals the graph out, where batches are.
    fn expect_whole(&self, dataset: &Dataset, in_parts: bool) -> Result<(), Failure> {
        if self.partition.is_some() {
            return Err(Failure::Input(
                "--partition deals a graph out, and in batches each rank has all of it; leave it out, or train without --sampler".into(),
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
        let given = [
            ("--partition", self.partition.is_some()),
            ("--exchange", self.exchange.is_some()),
            ("--overlap", self.overlap.is_some()),
            ("--rank-timeout", self.rank_timeout.is_some()),
            ("--rank-fault", !self.rank_fault.is_empty()),
        ];
        let given = given.into_iter().find(|(_, given)| *given);
        given.map(|(option, _)| option)
    }

    /// Refuses with several ranks what they do not do: options, and whether they were given.
    pub fn check(&self, options: &[(&'static str, bool)]) -> Result<(), Failure> {
        if self.ranks.is_none_or(|ranks| ranks == 1) && self.rendezvous.is_none() {
            return Ok(());
        }
        match options.iter().find(|(_, given)| *given) {
            Some((option, _)) => Err(Failure::Input(format!(
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

/// What all ranks of a run have in common.
struct Common<'a, B: Backend> {
    device: &'a Device<B>,
    dataset: &'a Dataset,
    plan: &'a Plan,
    ranks: &'a Ranks,
    /// The whole graph, where it is here and dealt out.
    graph: Option<&'a PreparedGraph<'a>>,
    train: TrainConfig,
    /// Whether what ranks take is still to be told.
    tells_memory: bool,
}

impl<B: Backend> Common<'_, B> {
    /// Has all ranks say what they take of their devices, of which this one takes `own`, and compares it with what those have.
    fn agree_on_memory(
        &self,
        group: &Group,
        own: &Footprint,
        observer: &mut Option<&mut dyn Observer>,
    ) -> Result<(), Failure> {
        let devices = match self.ranks.are_processes() {
            true => rank_memory::Devices::Own,
            false => rank_memory::Devices::Shared,
        };
        let all = RankMemory::agree(group, own, self.device.memory, devices)?;
        if let Some(observer) = observer {
            observer.ranks_take(&all);
        }
        Ok(())
    }
}

/// Carries a plan out on ranks: processes, or threads that share a device. The first reports.
pub fn carry_out<B: Backend, E: Element>(
    device: &Device<B>,
    dataset: &Dataset,
    (plan, ranks): (&Plan, &Ranks),
    observer: &mut dyn Observer,
) -> Result<Outcome, Failure> {
    let backend = &device.backend;
    let config = &plan.model;
    let parts = ranks.dealt.as_ref().and_then(|dealt| dealt.parts.as_ref());
    let graph = match (&ranks.dealt, parts) {
        (Some(_), None) => Some(config.prepare_edges(&dataset.graph, edge_data(config, dataset))?),
        _ => None,
    };
    backend.reset_peak();
    let own = device_name(&backend.name());
    let name = format!("{own}, {} ranks", ranks.count);
    let group = match &ranks.process {
        Some((rendezvous, rank)) => {
            let place = (*rank, ranks.count);
            let group = Group::new(Tcp::meet(rendezvous, place, &own, ranks.timeout)?);
            let identity = parts.map_or(0, |parts| parts.parted.identity());
            let words = [&dataset_words(dataset)[..], &identity.to_le_bytes()];
            group.expect_same("dataset", fingerprint(&words))?;
            let options = format!(
                "{:?} {:?} {:?} {:?} {:?} {:?} {:?}",
                plan.model,
                plan.train,
                plan.precision,
                plan.sampling,
                ranks.exchange,
                ranks.overlap,
                plan.placement.features
            );
            let owners = ranks
                .dealt
                .iter()
                .flat_map(|dealt| dealt.partition.owners());
            let partition: Vec<u8> = owners.flat_map(|owner| owner.to_le_bytes()).collect();
            let seeds = plan.seeds.to_le_bytes();
            group.expect_same(
                "model, options or partition",
                fingerprint(&[options.as_bytes(), &partition, &seeds]),
            )?;
            Some(Overlap::of(
                ranks.overlap,
                ranks.exchange.link(group, backend)?,
            )?)
        }
        None => None,
    };
    let name = match &group {
        Some(group) => match group.library() {
            Some(library) if group.overlaps() => {
                format!("{name}, exchanges by {library} beside computation")
            }
            _ => format!("{name}, exchanges by {}", moved_by(group)),
        },
        None => name,
    };
    let mut runs = Vec::new();
    let mut saturated = None;
    for seed in (0..plan.seeds).map(|run| plan.train.seed.wrapping_add(run.into())) {
        observer.run_starts(plan, &name, seed);
        let common = Common {
            device,
            dataset,
            plan,
            ranks,
            graph: graph.as_ref(),
            train: TrainConfig { seed, ..plan.train },
            // It is the same for each seed.
            tells_memory: seed == plan.train.seed,
        };
        let run = match &group {
            Some(group) => of_rank::<B, E>(&common, group.clone(), Some(observer))?,
            None => run::<B, E>(&common, observer)?,
        };
        if let Some(more) = run.saturated {
            *saturated.get_or_insert(0) += more;
        }
        observer.run_ends(plan, seed, &run.summary);
        runs.push((seed, run.summary));
        if run.stopped {
            break;
        }
    }
    Ok(Outcome {
        device: name,
        memory: backend.memory(),
        saturated,
        runs,
    })
}

/// A number that tells what is given from anything else.
fn fingerprint(parts: &[&[u8]]) -> u64 {
    let mut hasher = DefaultHasher::new();
    parts.iter().for_each(|part| part.hash(&mut hasher));
    hasher.finish()
}

/// What ranks must have the same of a dataset.
fn dataset_words(dataset: &Dataset) -> Vec<u8> {
    let graph = &dataset.graph;
    let mut words: Vec<u64> = vec![
        graph.vertices() as u64,
        dataset.edges() as u64,
        halfgnn::graph::generate::fingerprint(graph),
        dataset.feature_len() as u64,
        dataset.outputs as u64,
    ];
    for split in [&dataset.train, &dataset.val, &dataset.test] {
        words.push(split.len() as u64);
        words.extend(split.iter().map(|&vertex| u64::from(vertex)));
    }
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// One run.
fn run<B: Backend, E: Element>(
    common: &Common<'_, B>,
    observer: &mut dyn Observer,
) -> Result<Trained, Failure> {
    let Ranks {
        count,
        timeout,
        faults,
        ..
    } = common.ranks;
    let ranks = in_process(*count, &common.device.backend.name(), *timeout, faults);
    std::thread::scope(|scope| {
        let mut ranks = ranks.into_iter();
        // This thread's, which the observer is.
        let first = ranks.next();
        let others: Vec<_> = ranks
            .map(|rank| scope.spawn(move || of_rank::<B, E>(common, Group::new(rank), None)))
            .collect();
        let Some(first) = first else {
            unreachable!("there are two ranks at least");
        };
        let result = of_rank::<B, E>(common, Group::new(first), Some(observer));
        let others = others.into_iter().map(|other| {
            let panicked = |_| Err(Failure::Run("a rank panicked".into()));
            other.join().unwrap_or_else(panicked)
        });
        let mut failures = others.filter_map(Result::err);
        // All tell the same reason, but for whose it is, which knows whether it was asked for too much.
        match (
            failures.find(|failure| matches!(failure, Failure::Input(_))),
            result,
        ) {
            (Some(failure), Err(_)) => Err(failure),
            (_, result) => result,
        }
    })
}

/// A rank's part of a run; it ends the others' where it fails.
fn of_rank<B: Backend, E: Element>(
    common: &Common<'_, B>,
    group: Group,
    observer: Option<&mut dyn Observer>,
) -> Result<Trained, Failure> {
    let result = match &common.ranks.dealt {
        Some(dealt) => train_shard::<B, E>(common, dealt, &group, observer),
        None => train_batches::<B, E>(common, &group, observer),
    };
    if let Err(failure) = &result {
        // The first reason that is given stays the one that all tell.
        group.abort(&failure.to_string());
    }
    result
}

/// A run in batches, of each of which this rank has a part; it has the whole graph.
fn train_batches<B: Backend, E: Element>(
    common: &Common<'_, B>,
    group: &Group,
    mut observer: Option<&mut dyn Observer>,
) -> Result<Trained, Failure> {
    let Common {
        device,
        dataset,
        plan,
        train,
        ..
    } = common;
    let placed = Placed::<E>::of_rank(device, (dataset, plan), group)?;
    if common.tells_memory {
        if let Some(observer) = &mut observer {
            observer.placed(placed.placement);
        }
        common.agree_on_memory(group, &placed.placement.footprint, &mut observer)?;
    }
    let backend = &device.backend;
    let tasks = placed.tasks(backend, Some(group))?;
    let run = placed.train(device, &tasks, (train.seed, Some(group)), observer)?;
    // None ends the program before the others have seen their last exchange.
    group.any("end of the run", false)?;
    Ok(run)
}

/// A run on what this rank has of a graph that is dealt out.
fn train_shard<B: Backend, E: Element>(
    common: &Common<'_, B>,
    dealt: &Dealt,
    group: &Group,
    mut observer: Option<&mut dyn Observer>,
) -> Result<Trained, Failure> {
    let Common {
        device,
        dataset,
        plan,
        graph,
        train,
        ..
    } = common;
    let backend = &device.backend;
    let Goal::Vertices { loss, .. } = &plan.goal else {
        return Err(Failure::Input(
            "links are told by one rank; leave --ranks out".into(),
        ));
    };
    let config = &plan.model;
    let rows = match (graph, &dealt.parts) {
        (_, Some(parts)) => Rows::<E>::read((common, dealt), parts, group)?,
        (Some(graph), None) => {
            let shard = Shard::new(&graph.graph, &dealt.partition, group.rank())?;
            Rows::Dealt(graph, shard)
        }
        (None, None) => unreachable!("the graph is here, or in parts"),
    };
    if common.tells_memory {
        let of = (rows.shard(), rows.of_edges());
        let own = Footprint::of_shard::<E>(of, (config, train), device.multiprocessors)?;
        common.agree_on_memory(group, &own, &mut observer)?;
    }
    let model = Network::<B, E>::new(backend, config, train.seed)?;
    let (shard, features, part) = rows.upload(backend, common, model.first_hears(), group)?;
    let goal = train::Goal {
        targets: &dataset.targets,
        outputs: dataset.outputs,
        loss,
        splits: [&dataset.train, &dataset.val, &dataset.test],
    };
    let objective = Objective::of_shard(backend, part, features, &goal, &shard)?;
    let mut trainer = Trainer::new(backend, &objective, model, *train)?;
    if let Some(checkpoint) = &plan.resume {
        trainer.restore(&checkpoint.snapshot)?;
    }
    // Weights are every rank's, and the first keeps them.
    let keep = |trainer: &Trainer<B, E, Network<B, E>>| match &plan.saving {
        Some(saving) if group.rank() == 0 => {
            let run = Run {
                dataset,
                model: config,
                feature_divisors: plan.feature_divisors.as_deref(),
                goal: &plan.goal,
                sampling: None,
                precision: plan.precision,
                train,
            };
            saving.keep(run, trainer)
        }
        _ => Ok(()),
    };
    let mut kept = None;
    let stopped = loop {
        let Some(report) = trainer.next_epoch()? else {
            break false;
        };
        let due = plan.saving.as_ref();
        if due.is_some_and(|saving| saving.is_due(trainer.progress())) {
            keep(&trainer)?;
            kept = Some(report.epoch);
        }
        let stop = match &mut observer {
            Some(observer) => observer.epoch(plan, train.seed, &report).is_break(),
            None => false,
        };
        if trainer.any_rank(stop)? {
            break true;
        }
    };
    if kept != Some(trainer.progress().epoch) {
        keep(&trainer)?;
    }
    // Each counts what its own vertices send. None ends the program before the others have seen their last exchange.
    let saturated = trainer.model().saturated_messages(backend)?;
    let all = group.gather("end of the run", &[saturated.unwrap_or(0)])?;
    Ok(Trained {
        summary: trainer.summary(),
        stopped,
        saturated: saturated.map(|_| all.iter().map(|of_rank| of_rank[0]).sum()),
    })
}

/// What a rank has of a graph: the shard, features and the graph on the device.
type OfRank<B, E> = (Shard, Matrix<B, E>, Propagation<B>);

/// The same on the host.
enum Rows<'a, E: Element> {
    /// Of a graph that is here.
    Dealt(&'a PreparedGraph<'a>, Shard),
    /// Read from parts, with the features of the own vertices.
    Read(Box<PreparedRows<E>>, RowFeatures),
}

impl<'a, E: Element> Rows<'a, E> {
    /// Reads what a rank has.
    fn read<B: Backend>(
        (common, dealt): (&Common<'_, B>, &Dealt),
        parts: &InParts,
        group: &Group,
    ) -> Result<Self, Failure> {
        let (dataset, plan) = (common.dataset, common.plan);
        let own = parts.parted.range_of(group.rank(), group.ranks())?;
        let rows = parts.parted.rows(&parts.table, own)?;
        let features = rows.edge_features.as_ref();
        let edges = EdgeData {
            // What is ignored of a dataset is ignored of its parts.
            weights: rows
                .edge_weights
                .as_deref()
                .filter(|_| dataset.edge_weights.is_some()),
            features: features
                .filter(|_| dataset.edge_features.is_some() && plan.model.edge_features() > 0)
                .map(|features| (features.columns(), features.values())),
        };
        let of_all = (&parts.table, &dealt.partition);
        let prepared = plan
            .model
            .prepare_rows::<E>((&rows, edges), of_all, group)?;
        Ok(Self::Read(Box::new(prepared), rows.features))
    }

    fn shard(&self) -> &Shard {
        match self {
            Self::Dealt(_, shard) => shard,
            Self::Read(prepared, _) => &prepared.shard,
        }
    }

    /// Whether each edge has a weight, and how many features of each are read.
    fn of_edges(&self) -> (bool, usize) {
        match self {
            Self::Dealt(graph, _) => graph.of_edges(),
            Self::Read(prepared, _) => prepared.of_edges(),
        }
    }

    /// Copies it to the device. Where the model's first layer hears from neighbours it wants their features as well, which those who read
    /// parts ask the others for.
    fn upload<B: Backend>(
        self,
        backend: &B,
        common: &Common<'_, B>,
        first_hears: bool,
        group: &Group,
    ) -> Result<OfRank<B, E>, Failure> {
        let (dataset, plan) = (common.dataset, common.plan);
        let columns = dataset.feature_len();
        match self {
            Self::Dealt(graph, shard) => {
                let vertices = match first_hears {
                    true => shard.part.vertices(),
                    false => shard.part.own(),
                };
                let (shape, kind) = ((vertices.len(), columns), MemoryKind::Features);
                let features = Matrix::from_rows(backend, shape, kind, |row, values| {
                    dataset.features.write_row(vertices[row] as usize, values);
                })?;
                let of = (&shard, group);
                let part = graph.propagation_of_shard::<B, E>(backend, &plan.model, of)?;
                Ok((shard, features, part))
            }
            Self::Read(prepared, features) => {
                let part = prepared.propagation(backend, group)?;
                let features = match first_hears {
                    true => prepared.shard.with_halo(group, features)?,
                    false => features,
                };
                let (shape, kind) = ((features.rows(), columns), MemoryKind::Features);
                let features = Matrix::from_rows(backend, shape, kind, |row, values| {
                    features.write_row(row, values);
                    if let Some(divisors) = &plan.feature_divisors {
                        let divide = |(value, divisor): (&mut f32, &f32)| *value /= divisor;
                        values.iter_mut().zip(divisors).for_each(divide);
                    }
                })?;
                Ok((prepared.shard, features, part))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::tests::card_of;
    use crate::placement::{Placement, PlacementArgs};
    use halfgnn::data::{Features, Splits};
    use halfgnn::graph::Graph;
    use halfgnn::graph::generate::Rmat;
    use halfgnn::nn::ModelConfig;
    use halfgnn::sample::Sampling;
    use halfgnn::tensor::Precision;
    use halfgnn_bench::names::FeaturesName;

    /// A graph with so many features of each vertex.
    fn dataset(graph: Graph, columns: usize) -> Dataset {
        let vertices = graph.vertices();
        let values = vec![1.0; columns * vertices];
        let features = Features::dense(columns, values).expect("whole rows");
        let splits = Splits {
            train: vec![0, 1, 2],
            ..Splits::default()
        };
        let labels = vec![0; vertices];
        Dataset::new("a graph", graph, features, labels, splits).expect("a dataset")
    }

    /// Where each of two ranks has the features of a dataset, which learn by `model` in batches and have so many bytes each; or why they have
    /// no room.
    fn placed(
        dataset: &Dataset,
        (model, features): (ModelConfig, FeaturesName),
        rooms: [u64; 2],
    ) -> Vec<Result<Placement, String>> {
        let plan = &Plan {
            label: "sage",
            precision: Precision::Float,
            model,
            goal: Goal::default(),
            sampling: Some(Sampling::of(
                "neighbor:2,2,2".parse().expect("it is one"),
                None,
                None,
            )),
            placement: PlacementArgs {
                features,
                ..PlacementArgs::default()
            },
            ranks: Some(Ranks {
                count: 2,
                dealt: None,
                timeout: Duration::from_secs(60),
                faults: Vec::new(),
                exchange: Exchange::default(),
                overlap: None,
                process: None,
            }),
            feature_divisors: None,
            train: TrainConfig::new(Precision::Float),
            seeds: 1,
            saving: None,
            resume: None,
        };
        std::thread::scope(|scope| {
            let group = in_process(2, "test", Duration::from_secs(60), &[]);
            let threads = group.into_iter().zip(rooms).map(|(rank, bytes)| {
                scope.spawn(move || {
                    let (device, group) = (card_of(bytes), Group::new(rank));
                    let placed = Placed::<f32>::of_rank(&device, (dataset, plan), &group);
                    let placed = placed.map(|placed| placed.placement);
                    placed.map_err(|failure| failure.to_string())
                })
            });
            let threads: Vec<_> = threads.collect();
            let placed = threads.into_iter().map(|it| it.join().expect("a rank"));
            placed.collect()
        })
    }

    /// Of ranks that exchange features the one with the least memory says in how many pieces all evaluate; others choose for themselves.
    #[test]
    fn ranks_that_exchange_features_have_as_many_pieces() {
        let dataset = dataset(Rmat::graph500(10).generate(1).expect("a graph"), 64);
        let pieces = |features| {
            let sage = ModelConfig {
                layers: 3,
                ..ModelConfig::sage(64, 8)
            };
            let placed = placed(&dataset, (sage, features), [64 << 20, 900 << 10]);
            let pieces = placed
                .into_iter()
                .map(|placed| placed.expect("room").pieces);
            pieces.collect::<Vec<_>>()
        };
        let own = pieces(FeaturesName::Device);
        assert!(own[0] == 1 && own[1] > 1, "{own:?}");
        let agreed = pieces(FeaturesName::Sharded);
        assert!(agreed[0] > 1 && agreed[0] == agreed[1], "{agreed:?}");
    }

    /// Where nothing is asked for, features are dealt out as soon as one rank has no room for all; where it has none for a share either, each
    /// has them where it has room, as one rank does.
    #[test]
    fn features_are_dealt_out_where_a_rank_has_no_room_for_all() {
        let ring: Vec<u32> = (0..1000).collect();
        let next: Vec<u32> = ring.iter().map(|vertex| (vertex + 1) % 1000).collect();
        // A MiB of features, and half of one.
        let dataset = dataset(Graph::from_edges(1000, &ring, &next).expect("a ring"), 256);
        let auto = |model: ModelConfig, kib: u64| {
            let rooms = [64 << 20, kib << 10];
            placed(&dataset, (model, FeaturesName::Auto), rooms)
        };
        let sage = ModelConfig::sage(256, 8);
        let told = |kib| {
            auto(sage.clone(), kib)
                .into_iter()
                .map(|own| own.expect("room"))
        };
        let kinds = |kib| -> Vec<_> {
            let kinds = told(kib).map(|own| (own.sharded, own.features));
            kinds.collect()
        };
        let (device, host) = (MemoryKind::Features, MemoryKind::HostFeatures);
        assert_eq!(kinds(1700), [(false, device), (false, device)]);
        assert_eq!(kinds(1300), [(true, device), (true, device)]);
        assert_eq!(kinds(800), [(false, device), (false, host)]);
        for own in told(1300) {
            // Half of them, a row of zeros, and labels and splits.
            let features = own.footprint.of(MemoryKind::Features);
            assert_eq!(features, 501 * 256 * 4 + 1000 * 3 * 4);
            assert!(own.footprint.total() <= 1300 << 10);
            let lines = own.lines().collect::<Vec<_>>().concat();
            assert!(
                lines.starts_with("features: 500.0 KiB on each rank at most")
                    && lines.contains("since all together has no room on each card"),
                "{lines}"
            );
        }
        // What reads all vertices at once exchanges none of a piece.
        let gin = ModelConfig {
            hidden: 16,
            ..ModelConfig::gin(256, 8)
        };
        let gin = auto(gin, 1000).remove(1).expect("room on the host");
        assert_eq!((gin.sharded, gin.features), (false, host));
        let refused = auto(sage.clone(), 400).remove(1).expect_err("no room");
        assert!(refused.starts_with("out of device memory: "), "{refused}");
    }
}
