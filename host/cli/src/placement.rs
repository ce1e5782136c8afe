//! Where the features of a graph lie while a device computes on them, and whether it computes on all of the graph at
//! once.

use crate::failure::Failure;
use crate::feature_cache::CachedFeatures;
use crate::screen::{bytes, count};
use crate::structure::{EdgesElsewhere, Made, lacks_room};
use clap::Args;
use halfgnn::Error;
use halfgnn::backend::{Backend, MemoryKind};
use halfgnn::data::{Dataset, GraphIndex, StoredFeatures};
use halfgnn::device::Device;
use halfgnn::nn::{Pieces, PreparedGraph};
use halfgnn::sample::LayerSources;
use halfgnn::tensor::{Element, padded};
use halfgnn::train::{BatchSizes, FeaturesIn, Footprint, Learning, Room, Work, host_memory};
use halfgnn_bench::names::FeaturesName;
use halfgnn_bench::source::{OpenArgs, SourceName};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Where what is computed on lies, as a person asks for it.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct PlacementArgs {
    /// Where the features of the graph lie while the device computes; auto leaves them in the host's memory where they
    /// do not fit the device. Several ranks that learn in batches have a share each where it fits. Those of a folder of
    /// parts stay on disk where they do not fit the host either
    #[arg(long, value_enum, value_name = "WHERE", default_value_t = FeaturesName::Auto)]
    pub features: FeaturesName,
    /// Evaluate layer by layer on one of N pieces of the graph after the other, each with all neighbours of its
    /// vertices, and keep what layers give in the host's memory, or on disk where the features are there: nothing is
    /// sampled; auto takes the graph whole where it fits the device, else as few pieces as fit; where steps are on the
    /// whole graph, so are evaluations
    #[arg(long, value_name = "auto|N", default_value = "auto")]
    pub pieces: PieceCount,
}

/// Where files for a while are.
#[derive(Args, Clone, Debug, Default)]
pub struct TempFolderArgs {
    /// With features on disk: a folder with space for the outputs of a layer and of the one before it, of all vertices;
    /// with edges on disk for those, 4 bytes each. A file there has no name, and is gone with the evaluation, or the
    /// run, whatever ends it [default: that of temporary files, TMPDIR or /tmp]
    #[arg(long, value_name = "DIR")]
    pub temp_folder: Option<PathBuf>,
}

impl TempFolderArgs {
    /// The folder, of features or edges that are on disk or not.
    ///
    /// # Errors
    /// Where it is given and not there, or nothing would be written to it.
    pub fn folder(&self, on_disk: bool) -> Result<PathBuf, Failure> {
        match &self.temp_folder {
            None => Ok(std::env::temp_dir()),
            Some(_) if !on_disk => Err(Failure::Input(
                "--temp-folder is for edges on disk, and for what layers give where features stay there, and here neither is; leave it out, or add --structure disk or --features disk".into(),
            )),
            Some(folder) if !folder.is_dir() => Err(Failure::Input(format!(
                "--temp-folder {}: there is no such folder",
                folder.display()
            ))),
            Some(folder) => Ok(folder.clone()),
        }
    }
}

/// In how many pieces a graph is evaluated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PieceCount {
    /// As few as fit.
    #[default]
    Auto,
    /// The given number.
    Of(NonZeroU32),
}

impl FromStr for PieceCount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            number => number
                .parse()
                .map(Self::Of)
                .map_err(|_| "it must be auto, or a number from 1 on".into()),
        }
    }
}

/// Where features and graph lie that might lie elsewhere.
#[derive(Clone, Copy, Debug)]
pub struct Placement {
    /// What was asked for.
    asked: PlacementArgs,
    /// [`MemoryKind::HostFeatures`], or that of the device.
    pub features: MemoryKind,
    /// What features take of it, or of the disk; nothing of the device's, which the table of memory reports.
    bytes: u64,
    /// Whether they stay on disk.
    on_disk: bool,
    /// Whether each rank has a share, and asks the others for rows.
    pub sharded: bool,
    /// Whether no more than their signs is computed on.
    of_signs: bool,
    /// In how many pieces the graph is evaluated.
    pub pieces: usize,
    /// What the work on the graph takes, or its evaluation, without batches.
    pub footprint: Footprint,
    /// Whether the device has memory of its own.
    is_card: bool,
}

/// What a run in batches takes, reported before its first step.
#[derive(Clone, Debug)]
pub struct BatchMemory {
    /// All of it.
    pub footprint: Footprint,
    /// What the largest batch has.
    pub sizes: BatchSizes,
    /// Bytes of its graphs, features and activations.
    pub bytes: u64,
    /// Copies of features that lie in the host's memory.
    pub cached: Option<CachedFeatures>,
    /// The edges that batches are sampled of, where they lie elsewhere than on the device.
    pub edges: Option<EdgesElsewhere>,
}

impl BatchMemory {
    /// A line for a person.
    pub fn line(&self) -> String {
        let cached = self.cached.map(|cached| format!(", {cached}"));
        let edges = self.edges.map(|edges| format!("; {edges}"));
        format!(
            "memory: {} in all, {}{}{}",
            bytes(self.footprint.total()),
            self.of_batch(),
            cached.unwrap_or_default(),
            edges.unwrap_or_default(),
        )
    }

    /// With edges there, if they are.
    pub fn add_edges(&mut self, edges: Option<EdgesElsewhere>) {
        let bytes = edges.map_or(0, |edges| edges.bytes());
        self.footprint.add(MemoryKind::HostGraph, bytes);
        self.edges = edges;
    }

    /// With such copies of features.
    pub fn add_cached(&mut self, cached: CachedFeatures) {
        self.footprint.add(MemoryKind::Features, cached.bytes);
        self.cached = Some(cached);
    }

    fn of_batch(&self) -> String {
        format!(
            "{} of it for a batch of up to {} vertices{} and {} edges",
            bytes(self.bytes),
            count(self.sizes.vertices()),
            match self.sizes.sources {
                LayerSources::Met => "",
                LayerSources::All => ", which hear of features where they lie,",
            },
            count(self.sizes.edges())
        )
    }
}

impl Placement {
    /// What a run takes in addition to its evaluations that learns from batches of such `sizes`, sampled from a graph
    /// of that many bytes; and that it fits the device, or why it does not.
    ///
    /// # Errors
    /// With what it takes and what is free.
    pub fn with_batches<B: Backend, E: Element>(
        &self,
        device: &Device<B>,
        (sizes, drawn_from): (BatchSizes, u64),
        (learning, records): (Learning<'_>, bool),
    ) -> Made<BatchMemory> {
        let batch = Footprint::of_batch::<E>(&sizes, learning, device.multiprocessors)?;
        device.backend.prefetch(batch.kernels());
        let keeps = sizes.in_place.is_some() && records && !self.on_disk;
        let kinds = [
            MemoryKind::Graph,
            MemoryKind::Features,
            MemoryKind::Activations,
        ];
        let told = BatchMemory {
            footprint: self.footprint.with_batches(&batch, (drawn_from, keeps)),
            sizes,
            bytes: kinds.map(|kind| batch.of(kind)).iter().sum(),
            cached: None,
            edges: None,
        };
        let on_host = || {
            // Of a CPU what the run has by now is no longer free.
            let (free, total) = host_memory()?;
            let has: u64 = device.backend.memory().current.iter().sum();
            Some((free.saturating_add(has), total))
        };
        match device.memory.or_else(on_host) {
            Some((free, total)) if told.footprint.total() > free => {
                Ok(Err(Failure::Input(format!(
                    "the run takes {}, {}, and {} of {} are free; take a smaller --batch, or a --sampler that draws less",
                    bytes(told.footprint.total()),
                    told.of_batch(),
                    bytes(free),
                    bytes(total)
                ))))
            }
            _ => Ok(Ok(told)),
        }
    }
}

impl Placement {
    /// Whether the device has memory of its own.
    pub fn is_card(&self) -> bool {
        self.is_card
    }

    /// Lines for a person; none where all is as ever.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        [self.features_line(), self.pieces_line()]
            .into_iter()
            .flatten()
    }

    fn features_line(&self) -> Option<String> {
        if self.of_signs {
            let bytes = bytes(self.footprint.of(MemoryKind::Features));
            return Some(format!(
                "features: {bytes} of signs, since the model reads no more of them"
            ));
        }
        let bytes = bytes(self.bytes);
        match (self.asked.features, self.features) {
            (FeaturesName::Disk, _) => Some(format!(
                "features: {bytes} on disk, from where rows are read that are wanted"
            )),
            (FeaturesName::Auto, _) if self.on_disk => Some(format!(
                "features: {bytes} on disk, from where rows are read that are wanted, since they have no room in the host's memory"
            )),
            (FeaturesName::Host, _) if !self.is_card => {
                Some("features: in the host's memory, as all is on a CPU".into())
            }
            (FeaturesName::Host, _) => Some(format!(
                "features: {bytes} in the host's memory, from where the GPU reads them"
            )),
            (FeaturesName::Sharded, _) => Some(format!(
                "features: {bytes} on each rank at most, of which all have the rows that a batch wants"
            )),
            (FeaturesName::Auto, _) if self.sharded => Some(format!(
                "features: {bytes} on each rank at most, of which all have the rows that a batch wants, since all together does not fit on each GPU"
            )),
            (FeaturesName::Auto, MemoryKind::HostFeatures) => Some(format!(
                "features: {bytes} in the host's memory, from where the GPU reads them, since all together does not fit on the GPU"
            )),
            _ => None,
        }
    }

    fn pieces_line(&self) -> Option<String> {
        let why = match (self.pieces, self.asked.pieces) {
            (1, PieceCount::Auto) => return None,
            (1, _) => return Some("evaluation: on the whole graph at once".into()),
            (_, PieceCount::Auto) => ", since the whole has no room",
            _ => "",
        };
        let between = match self.on_disk {
            true => "; what layers give is on disk meanwhile",
            false => "",
        };
        Some(format!(
            "evaluation: layer by layer in {} pieces of the graph, each with all neighbours{why}{between}",
            self.pieces
        ))
    }
}

/// More pieces than these save hardly more memory: what a piece aggregates is most of the graph by then.
const MOST_PIECES: usize = 1024;

/// Of a number of edges on disk, in how many pieces a graph is evaluated at least: one of them, and what it is made of,
/// fits a quarter of what is free.
fn pieces_on_disk(edges: usize, memory: Option<(u64, u64)>) -> usize {
    /// A row and a column, as they are put together and once they are.
    const BYTES: u64 = 16;
    let taken = edges as u64 * BYTES;
    let room = memory.map_or(taken, |(free, _)| free / 4).max(1);
    taken
        .div_ceil(room)
        .clamp(1, MOST_PIECES as u64)
        .next_power_of_two() as usize
}

/// Whether the features of `source` are to stay on disk: as they are asked to, or as they are in parts and do not fit
/// the host's memory. `in_batches` says whether they may, where that is known.
///
/// # Errors
/// Where they cannot, in a line that says what to do.
pub fn stays_on_disk(
    asked: FeaturesName,
    (source, open): (&SourceName, &OpenArgs),
    in_batches: bool,
) -> Result<bool, Failure> {
    match asked {
        FeaturesName::Disk if !in_batches => Err(whole_from_disk()),
        FeaturesName::Disk => source.may_stay_on_disk().map(|()| true),
        FeaturesName::Auto if in_batches => {
            let parted = open.parted(source)?;
            let bytes = parted.map_or(0, |parted| parted.memory_of_features());
            Ok(has_no_room(bytes, host_memory()))
        }
        _ => Ok(false),
    }
}

/// That features on disk are read for a step on the whole graph.
pub fn whole_from_disk() -> Failure {
    Failure::Input(
        "--features disk: a step on the whole graph reads all features at once; learn in batches by --sampler neighbor:15,10, or take --features host".into(),
    )
}

/// Refuses features that are partitioned where there are not several ranks, which `in_batches` says learn from batches
/// of one graph's vertices.
///
/// # Errors
/// In a line that says what to do.
pub fn may_be_sharded(asked: FeaturesName, ranks: usize, in_batches: bool) -> Result<(), Failure> {
    let refuse = |why: &str| Err(Failure::Input(format!("--features sharded: {why}")));
    match asked {
        FeaturesName::Sharded if !in_batches => refuse(
            "ranks exchange the rows that a batch of one graph's vertices wants; learn in batches by --sampler neighbor:15,10, or leave it out",
        ),
        FeaturesName::Sharded if ranks <= 1 => refuse(
            "features are dealt out to several ranks that train, and this is one; train with --devices, --ranks N or --rendezvous, or take --features device",
        ),
        _ => Ok(()),
    }
}

/// Features on disk.
#[derive(Clone, Copy, Debug)]
pub struct OnDisk<'a> {
    /// Where they lie.
    pub features: &'a StoredFeatures,
    /// The folder for what layers give.
    pub between: &'a Path,
}

/// A graph that a model does its work on.
#[derive(Debug)]
pub struct WorkOn<'a> {
    /// As the model needs it.
    pub prepared: &'a PreparedGraph<'a>,
    /// The graphs that it is, where those are many.
    pub graphs: Option<&'a GraphIndex>,
    /// From where features are fetched, where they stay elsewhere.
    pub fetched: Option<Fetched<'a>>,
    /// The vertices that an evaluation in pieces asks for, where those are not all.
    pub asked_for: Option<Vec<u32>>,
}

/// From where features are fetched that a batch or a piece of the graph needs.
#[derive(Clone, Copy, Debug)]
pub enum Fetched<'a> {
    /// On disk, where what layers give is for a while as well.
    Disk(OnDisk<'a>),
    /// Partitioned between the given number of ranks.
    Ranks(usize),
}

/// Whether the given number of bytes are more than are free, where that is known.
pub fn has_no_room(bytes: u64, memory: Option<(u64, u64)>) -> bool {
    memory.is_some_and(|(free, _)| bytes > free)
}

/// Bytes of features that are not on the device, or of a rank's share of them.
fn host_bytes<E: Element>(
    fetched: Option<Fetched<'_>>,
    (vertices, features): (usize, usize),
    footprint: &Footprint,
) -> u64 {
    match fetched {
        Some(Fetched::Disk(of)) => of.features.file_bytes(),
        Some(Fetched::Ranks(ranks)) => {
            let row = padded::<E>(features) * size_of::<E>();
            (vertices.div_ceil(ranks) * row) as u64
        }
        None => footprint.hosted_features().unwrap_or(0),
    }
}

/// That features or edges are read a piece at a time, and the model reads something of all vertices.
fn wants_all(why: &str, fetched: Option<Fetched<'_>>) -> Failure {
    Failure::Input(match fetched {
        Some(Fetched::Disk(_)) => format!(
            "--features disk: {why}, and features on disk are read for a piece of the graph at a time; take --features host"
        ),
        Some(Fetched::Ranks(_)) => format!(
            "--features sharded: {why}, and ranks exchange those of a piece of the graph at a time; take --features device or host"
        ),
        None => format!(
            "{why}, and the edges are on disk, by --structure disk or since memory has no room for them, and read for a piece of the graph at a time; take --structure host"
        ),
    })
}

/// Refuses pieces of a graph whose steps are on all of it.
fn expect_evaluation(work: Work, pieces: NonZeroU32) -> Result<(), Failure> {
    match work {
        Work::Training => Err(Failure::Input(format!(
            "--pieces {pieces}: steps are on the whole graph, so that memory is enough to evaluate it whole; add a --sampler, or leave it out"
        ))),
        _ => Ok(()),
    }
}

/// Where features lie that are fetched from somewhere, and where those are asked for that are not.
fn features_in(fetched: Option<Fetched<'_>>, asked: PlacementArgs) -> FeaturesIn {
    match fetched {
        None => FeaturesIn::from(asked.features),
        Some(Fetched::Disk(_)) => FeaturesIn::Disk,
        Some(Fetched::Ranks(ranks)) => FeaturesIn::Ranks(ranks),
    }
}

/// Where the features are to lie of a graph that a model does its work on, and the pieces where it is evaluated in
/// some; and that all of it fits the device. Features that are `fetched` stay where that says.
///
/// # Errors
/// With what it takes and what is free; where the model, or its work, is on whole graphs and pieces are asked for.
pub fn place<B: Backend, E: Element>(
    of: WorkOn<'_>,
    learning: Learning<'_>,
    device: &Device<B>,
    asked: PlacementArgs,
) -> Result<(Placement, Option<Pieces<E>>), Failure> {
    let WorkOn {
        prepared,
        graphs,
        fetched,
        asked_for,
    } = of;
    let (config, work) = (learning.model(), learning.work());
    let vertices = prepared.graph.vertices();
    // Of edges on disk no more than a piece is in memory.
    let edges_on_disk = prepared.graph.csr().is_on_disk();
    let takes_pieces = fetched.is_some() || edges_on_disk;
    // Of a CPU the pieces are to leave memory for one another.
    let memory = match takes_pieces {
        true => device.memory.or(host_memory()),
        false => device.memory,
    };
    let room = Room {
        device: memory,
        host: host_memory(),
        features: features_in(fetched, asked),
    };
    let multiprocessors = device.multiprocessors;
    let whole = || {
        let graphs = graphs.map_or(0, GraphIndex::graphs);
        let counts = prepared.counts().with_graphs(graphs);
        Footprint::check_work::<E>(&counts, learning, multiprocessors, room)
    };
    let in_pieces = |count: usize| -> Result<(Footprint, Option<Pieces<E>>), Error> {
        let mut pieces = Pieces::new(prepared, config, count)?;
        if let Some(asked) = &asked_for {
            pieces = pieces.asked_for(asked.clone());
        }
        if let Some(Fetched::Disk(OnDisk { between, .. })) = fetched {
            pieces = pieces.on_disk(between);
        }
        let footprint = Footprint::check_pieces(&pieces, learning, multiprocessors, room)?;
        Ok((footprint, Some(pieces)))
    };
    if let (true, Some(why)) = (takes_pieces, config.wants_all_vertices()) {
        return Err(wants_all(why, fetched));
    }
    let fewest = |fewer: &mut dyn Iterator<Item = usize>| {
        let most = MOST_PIECES.min(vertices);
        if !edges_on_disk && !matches!(fetched, Some(Fetched::Disk(_))) {
            // What does not fit with the smallest is refused before anything else is tried; those of a graph that is as
            // large as the host's memory are made each time, which takes longer the more they are.
            drop(in_pieces(most)?);
        }
        let mut fewer = fewer.take_while(|&count| count < most).map(in_pieces);
        match fewer.find(|tried| !tried.as_ref().is_err_and(lacks_room)) {
            Some(tried) => tried,
            None => in_pieces(most),
        }
    };
    let doubled = |first| std::iter::successors(Some(first), |count| Some(2 * count));
    let (footprint, pieces) = match asked.pieces {
        PieceCount::Of(count) if takes_pieces => in_pieces(count.get() as usize)?,
        PieceCount::Auto if edges_on_disk => {
            let first = pieces_on_disk(prepared.graph.edges(), host_memory());
            fewest(&mut doubled(first))?
        }
        PieceCount::Auto if takes_pieces => fewest(&mut doubled(1))?,
        PieceCount::Of(count) if count.get() > 1 => {
            expect_evaluation(work, count)?;
            in_pieces(count.get() as usize)?
        }
        PieceCount::Of(_) => (whole()?, None),
        PieceCount::Auto => match whole() {
            Err(error)
                if lacks_room(&error)
                    && work == Work::Evaluation
                    && config.wants_all_vertices().is_none() =>
            {
                fewest(&mut doubled(2))?
            }
            whole => (whole?, None),
        },
    };
    device.backend.prefetch(footprint.kernels());
    let bytes = host_bytes::<E>(fetched, (vertices, config.features), &footprint);
    let placement = Placement {
        asked,
        features: footprint.features_kind(),
        bytes,
        on_disk: footprint.features_on_disk(),
        sharded: matches!(fetched, Some(Fetched::Ranks(_))),
        of_signs: work == Work::EvaluationOfSigns,
        pieces: pieces.as_ref().map_or(1, Pieces::count),
        footprint,
        is_card: multiprocessors.is_some(),
    };
    Ok((placement, pieces))
}

/// That a whole graph of several types fits on the device with its features, and the memory it takes.
///
/// # Errors
/// With what it takes and what is free.
pub fn place_types<B: Backend, E: Element>(
    dataset: &Dataset,
    learning: Learning<'_>,
    device: &Device<B>,
    asked: PlacementArgs,
) -> Result<Placement, Failure> {
    let room = Room {
        device: device.memory,
        host: host_memory(),
        features: FeaturesIn::Device,
    };
    let multiprocessors = device.multiprocessors;
    let footprint = Footprint::check_types::<E>(dataset, learning, multiprocessors, room)?;
    device.backend.prefetch(footprint.kernels());
    Ok(Placement {
        asked,
        features: footprint.features_kind(),
        bytes: 0,
        on_disk: false,
        sharded: false,
        of_signs: false,
        pieces: 1,
        footprint,
        is_card: multiprocessors.is_some(),
    })
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use halfgnn::backend::cpu::Cpu;
    use halfgnn::device::Cache;
    use halfgnn::graph::generate::Rmat;
    use halfgnn::nn::{EdgeData, ModelConfig};
    use halfgnn::tensor::Precision;
    use halfgnn::train::TrainConfig;

    /// What counts as a GPU that has the given number of bytes.
    pub fn card_of(bytes: u64) -> Device<Cpu> {
        Device {
            backend: Cpu::new(),
            memory: Some((bytes, bytes)),
            multiprocessors: Some(4),
            cache: Cache {
                bytes: 1 << 20,
                bytes_per_second: 1e9,
            },
        }
    }

    /// In how many pieces a graph is evaluated on a GPU that has the given number of bytes.
    fn pieces(
        config: &ModelConfig,
        bytes: u64,
        work: Work,
        asked: PieceCount,
    ) -> Result<usize, String> {
        let graph = Rmat::graph500(10).generate(1).expect("a graph");
        let prepared = config.prepare_edges(&graph, EdgeData::default());
        let device = card_of(bytes);
        let asked = PlacementArgs {
            features: FeaturesName::Host,
            pieces: asked,
        };
        let train = &TrainConfig::new(Precision::Float);
        let of = WorkOn {
            prepared: &prepared.expect("a graph"),
            graphs: None,
            fetched: None,
            asked_for: None,
        };
        let placed = place::<_, f32>(of, (config, train, work).into(), &device, asked);
        let placed = placed.map_err(|failure| failure.to_string());
        placed.map(|(placement, pieces)| {
            assert_eq!(pieces.map_or(1, |pieces| pieces.count()), placement.pieces);
            placement.pieces
        })
    }

    #[test]
    fn a_graph_is_cut_where_the_card_has_no_room_for_the_whole() {
        let sage = ModelConfig {
            layers: 3,
            ..ModelConfig::sage(64, 8)
        };
        let (auto, evaluation) = (PieceCount::Auto, Work::Evaluation);
        let three = PieceCount::Of(NonZeroU32::new(3).expect("it is 3"));
        assert_eq!(pieces(&sage, 64 << 20, evaluation, auto), Ok(1));
        assert_eq!(pieces(&sage, 64 << 20, evaluation, three), Ok(3));
        let few = pieces(&sage, 900 << 10, evaluation, auto).expect("room for a piece");
        let more = pieces(&sage, 600 << 10, evaluation, auto).expect("room for a piece");
        assert!(1 < few && few < more, "{few} and {more}");
        let told = |config, bytes, work, asked| pieces(config, bytes, work, asked).unwrap_err();
        // The weights alone take more.
        assert!(told(&sage, 9 << 10, evaluation, auto).contains("out of device memory"));
        assert!(told(&sage, 900 << 10, Work::Training, auto).contains("out of device memory"));
        assert!(told(&sage, 64 << 20, Work::Training, three).contains("add a --sampler"));
        let gin = ModelConfig::gin(64, 8);
        assert!(told(&gin, 900 << 10, evaluation, auto).contains("out of device memory"));
        assert!(told(&gin, 64 << 20, evaluation, three).contains("running statistics"));
    }

    #[test]
    fn features_stay_on_disk_where_memory_has_no_room_for_them() {
        assert!(has_no_room(101, Some((100, 200))));
        assert!(!has_no_room(100, Some((100, 200))) && !has_no_room(u64::MAX, None));
        let line = |asked, on_disk| {
            let placement = Placement {
                asked: PlacementArgs {
                    features: asked,
                    ..PlacementArgs::default()
                },
                features: MemoryKind::Features,
                bytes: 3 << 30,
                on_disk,
                sharded: false,
                of_signs: false,
                pieces: 1,
                is_card: true,
                footprint: Footprint::default(),
            };
            placement.lines().collect::<Vec<_>>().concat()
        };
        let told = line(FeaturesName::Auto, true);
        assert!(
            told.starts_with("features: 3.0 GiB on disk")
                && told.ends_with("since they have no room in the host's memory"),
            "{told}"
        );
        assert!(!line(FeaturesName::Disk, true).contains("since"));
        assert_eq!(line(FeaturesName::Auto, false), "");
    }

    #[test]
    fn batches_that_have_no_room_are_refused_with_the_figure() {
        let sage = ModelConfig {
            layers: 2,
            ..ModelConfig::sage(64, 8)
        };
        let layer = |rows, columns, edges| halfgnn::graph::RowCounts {
            rows,
            columns,
            edges,
            empty: 0,
            longest: 15,
        };
        let sizes = BatchSizes {
            layers: vec![layer(1000, 5000, 9000), layer(100, 1000, 1500)],
            induced: false,
            in_place: None,
            drawn_ahead: 0,
            sources: LayerSources::Met,
            types: None,
        };
        let mut footprint = Footprint::default();
        footprint.add(MemoryKind::Features, 1 << 20);
        let placement = Placement {
            asked: PlacementArgs::default(),
            features: MemoryKind::Features,
            bytes: 0,
            on_disk: false,
            sharded: false,
            of_signs: false,
            pieces: 1,
            is_card: true,
            footprint,
        };
        let train = &TrainConfig::new(Precision::Half);
        let of_card = |bytes: u64| {
            let of = (sizes.clone(), 1 << 20);
            let made = {
                let how = ((&sage, train).into(), train.record);
                placement.with_batches::<_, f32>(&card_of(bytes), of, how)
            };
            made.expect("it is counted")
        };
        let told = of_card(1 << 30).expect("room");
        // Features of 5,000 inputs, and what there was before.
        let features = told.footprint.of(MemoryKind::Features);
        assert!(features >= (1 << 20) + 5000 * 64 * 4, "{features}");
        assert!(told.footprint.of(MemoryKind::Graph) > (1 << 20) + 4 * 2 * 10500);
        assert!(told.bytes > 5000 * 64 * 4 && told.bytes < told.footprint.total());
        let line = told.line();
        assert!(
            line.contains("of up to 5,000 vertices and 10,500 edges"),
            "{line}"
        );
        assert!(of_card(told.footprint.total()).is_ok());
        let refused = of_card(told.footprint.total() - 1).map(drop);
        let refused = refused.expect_err("no room for the last byte").to_string();
        let figure = format!("the run takes {}", bytes(told.footprint.total()));
        assert!(
            refused.starts_with(&figure) && refused.contains("take a smaller --batch"),
            "{refused}"
        );
    }

    #[test]
    fn counts_are_auto_or_numbers() {
        assert_eq!("auto".parse(), Ok(PieceCount::Auto));
        assert_eq!("1".parse(), Ok(PieceCount::Of(NonZeroU32::MIN)));
        for wrong in ["", "0", "-1", "two", "4294967296"] {
            assert!(wrong.parse::<PieceCount>().is_err(), "{wrong}");
        }
    }
}
