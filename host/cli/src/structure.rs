//! Where the edges lie that the neighbours of batches are sampled of.

use crate::failure::Failure;
use crate::placement::has_no_room;
use crate::screen::bytes;
use clap::{Args, ValueEnum};
use halfgnn::Error;
use halfgnn::data::Dataset;
use halfgnn::driver::DriverError;
use halfgnn::sample::{EdgesIn, SamplingPolicy};
use halfgnn::train::host_memory;
use halfgnn_bench::source::{OpenArgs, SourceName};
use std::fmt;

/// Where edges lie.
#[derive(Args)]
pub struct StructureArgs {
    /// Where the edges lie that a neighbour sampler samples from; auto leaves them in the host's memory, which the GPU
    /// reads, where they do not fit the GPU, and those of a folder of parts on disk where they do not fit the host
    /// either
    #[arg(long, value_enum, value_name = "WHERE", default_value_t)]
    pub structure: StructureName,
}

/// [`EdgesIn`], as it is typed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum StructureName {
    /// The device's memory if all fits there, else the host's, else on disk
    #[default]
    Auto,
    /// The device's memory
    Device,
    /// The host's memory, which the GPU reads over its bus
    Host,
    /// A file without a name in --temp-folder, of which the host draws, and whose graph is evaluated in pieces
    Disk,
}

/// Where edges lie for a prediction, which draws none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum GraphPlace {
    /// The host's memory, or the disk where those of a folder of parts do not fit there
    #[default]
    Auto,
    /// The host's memory, until the device has them or a piece of them
    Host,
    /// A file without a name in --temp-folder, of which the device has a piece at a time
    Disk,
}

impl GraphPlace {
    /// Whether the edges of a dataset go to disk as it is read: on request, or where they are in parts and do not fit
    /// the host's memory together with features, unless those stay on disk.
    ///
    /// # Errors
    /// Where the dataset cannot be looked at.
    pub fn goes_to_disk(
        self,
        source: (&SourceName, &OpenArgs),
        features_stay: bool,
    ) -> Result<bool, Failure> {
        match self {
            Self::Auto => lack_room_in_memory(source, features_stay),
            Self::Host => Ok(false),
            Self::Disk => Ok(true),
        }
    }
}

/// Whether the edges of a dataset are in parts, and do not fit the host's memory.
fn lack_room_in_memory(
    (source, open): (&SourceName, &OpenArgs),
    features_stay: bool,
) -> Result<bool, Failure> {
    let parted = open.parted(source)?;
    let taken = parted.map_or(0, |parted| {
        let features = match features_stay {
            true => 0,
            false => parted.memory_of_features(),
        };
        parted.memory_of_edges().saturating_add(features)
    });
    Ok(has_no_room(taken, host_memory()))
}

/// Refuses to look for an order of a dataset whose edges are on disk.
///
/// # Errors
/// In a line that says what to do.
pub fn may_be_reordered(dataset: &Dataset) -> Result<(), Failure> {
    match dataset.graph.csr().is_on_disk() {
        false => Ok(()),
        true => Err(Failure::Input(format!(
            "--reorder: an order is found of edges in memory, and those of {} are on disk; leave it out, or take --structure host",
            dataset.name
        ))),
    }
}

/// Refuses what needs the edges of `dataset` in memory, which are on disk.
///
/// # Errors
/// In a line that says what to do.
pub fn check_on_disk(
    dataset: &Dataset,
    (policy, inductive): (Option<&SamplingPolicy>, bool),
) -> Result<(), Failure> {
    let name = &dataset.name;
    let refuse = |why: &str| {
        Err(Failure::Input(format!(
            "{name}: its edges are on disk, by --structure disk or since memory has no room for them, and {why}"
        )))
    };
    match policy {
        _ if !dataset.graph.csr().is_on_disk() => Ok(()),
        Some(policy) if draws_neighbors(policy) && !inductive => Ok(()),
        Some(policy) if draws_neighbors(policy) => refuse(
            "--inductive makes a graph of the training vertices in memory; leave it out, or take --structure host",
        ),
        _ => refuse(
            "only neighbours are drawn there; learn in batches by --sampler neighbor:15,10, or take --structure host",
        ),
    }
}

/// Edges that lie elsewhere than on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EdgesElsewhere {
    /// Where that is.
    pub place: EdgePlace,
    /// Whether it was not asked for.
    pub for_room: bool,
}

/// Where edges lie that are not on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EdgePlace {
    /// In memory of the host that a GPU reads, and what they take of it; nothing more of a CPU, whose memory it is.
    Host(u64),
    /// Where the dataset has them, in the host's memory, whose threads draw.
    Memory,
    /// In a file, of which they do.
    Disk,
}

impl EdgesElsewhere {
    /// What they take of the host's memory in addition to the dataset, with a GPU.
    pub fn bytes(&self) -> u64 {
        match self.place {
            EdgePlace::Host(bytes) => bytes,
            EdgePlace::Memory | EdgePlace::Disk => 0,
        }
    }
}

impl fmt::Display for EdgesElsewhere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.place {
            EdgePlace::Host(0) => {
                return f.write_str("edges in the host's memory, as all is on a CPU");
            }
            EdgePlace::Host(taken) => {
                write!(
                    f,
                    "{} of edges in the host's memory, from where the GPU reads those that it draws",
                    bytes(taken)
                )?;
                "since all together does not fit on the GPU"
            }
            EdgePlace::Memory => {
                f.write_str("edges where the host has them, which draws of them")?;
                "since all together does not fit on the GPU, nor with a locked copy of them in the host's memory"
            }
            EdgePlace::Disk => {
                f.write_str("edges on disk, of which the host draws")?;
                "since they have no room in its memory"
            }
        };
        match self.for_room {
            true => write!(f, ", {why}"),
            false => Ok(()),
        }
    }
}

/// What is made of a run, or why it does not fit.
pub type Made<T> = Result<Result<T, Failure>, Failure>;

/// Whether something was asked for that there is no memory for.
pub fn lacks_room(error: &Error) -> bool {
    use DriverError::{OutOfHostMemory, OutOfMemory};
    matches!(
        error,
        Error::Driver(OutOfMemory { .. } | OutOfHostMemory { .. })
    )
}

fn draws_neighbors(policy: &SamplingPolicy) -> bool {
    matches!(policy, SamplingPolicy::Neighbor { .. })
}

impl StructureName {
    /// [`GraphPlace::goes_to_disk`] of a run by a sampler, or of one that `resumes` and has its sampler from there.
    ///
    /// # Errors
    /// Where it is asked for and not possible, or the dataset cannot be looked at.
    pub fn goes_to_disk(
        self,
        source: (&SourceName, &OpenArgs),
        (policy, resumes): (Option<&SamplingPolicy>, bool),
        features_stay: bool,
    ) -> Result<bool, Failure> {
        match self {
            Self::Disk if policy.is_none() && resumes => Ok(true),
            Self::Disk => self.check(policy).map(|()| true),
            Self::Auto if policy.map_or(resumes, draws_neighbors) => {
                lack_room_in_memory(source, features_stay)
            }
            _ => Ok(false),
        }
    }

    /// Refuses edges elsewhere than on the device of a run that draws none there.
    ///
    /// # Errors
    /// In a line that says what to do.
    pub fn check(self, policy: Option<&SamplingPolicy>) -> Result<(), Failure> {
        let why = match (self, policy) {
            (Self::Auto | Self::Device, _) => return Ok(()),
            (_, Some(policy)) if draws_neighbors(policy) => return Ok(()),
            (_, Some(policy)) => format!(
                "--sampler {policy} takes edges on the device, and only those of neighbours are drawn elsewhere; take --sampler neighbor:15,10"
            ),
            (_, None) => {
                "a step on the whole graph sums over edges on the device; learn in batches by --sampler neighbor:15,10, or leave it out".into()
            }
        };
        let name = self.to_possible_value();
        let name = name.as_ref().map_or("", |value| value.get_name());
        Err(Failure::Input(format!("--structure {name}: {why}")))
    }

    /// Refuses to lock a number of edges in the host's memory where those do not fit, `memory` being free and total
    /// bytes of it, where they are known.
    ///
    /// # Errors
    /// With what they take and what is free.
    pub fn check_host(edges: usize, memory: Option<(u64, u64)>) -> Result<(), Failure> {
        let asked = size_of::<u32>() as u64 * edges as u64;
        match memory {
            Some((free, total)) if asked > free => Err(Failure::Input(format!(
                "--structure: {} of edges are to lie in the host's memory, and {} of {} are free",
                bytes(asked),
                bytes(free),
                bytes(total)
            ))),
            _ => Ok(()),
        }
    }

    /// What `make` makes of a run whose edges lie where this says, or where they fit: with them on the device, else, if
    /// that is open and those are of neighbours, in the memory of the host of a GPU, else where the dataset has them.
    /// On disk a CPU leaves them, which has no memory but the host's.
    ///
    /// # Errors
    /// Those of `make`; where none fits, the first.
    pub fn made<T>(
        self,
        policy: &SamplingPolicy,
        (is_card, on_disk): (bool, bool),
        make: impl Fn(EdgesIn) -> Made<T>,
    ) -> Result<T, Failure> {
        let places: &[EdgesIn] = match self {
            Self::Device => &[EdgesIn::Device],
            Self::Host => &[EdgesIn::Host],
            Self::Disk => &[EdgesIn::Graph],
            Self::Auto if !draws_neighbors(policy) => &[EdgesIn::Device],
            Self::Auto if is_card => &[EdgesIn::Device, EdgesIn::Host, EdgesIn::Graph],
            Self::Auto if on_disk => &[EdgesIn::Graph],
            Self::Auto => &[EdgesIn::Device],
        };
        let mut lacks_room = None;
        for &place in places {
            match make(place)? {
                Ok(made) => return Ok(made),
                Err(why) => lacks_room = lacks_room.or(Some(why)),
            }
        }
        Err(lacks_room.unwrap_or_else(|| unreachable!("one place at least was tried")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};

    #[test]
    fn what_is_wrong_is_not_tried_again() {
        let neighbors: SamplingPolicy = "neighbor:3,2".parse().expect("a policy");
        let tries = Cell::new(0);
        let found = StructureName::Auto.made(&neighbors, (true, false), |_| -> Made<()> {
            tries.set(tries.get() + 1);
            Err(Failure::Input("two fanouts, three layers".into()))
        });
        assert_eq!((found.is_err(), tries.get()), (true, 1));
        let refused = StructureName::check_host(1 << 30, Some((1 << 30, 1 << 40)));
        let refused = refused.expect_err("4 GiB").to_string();
        assert!(refused.contains("4.0 GiB of edges"), "{refused}");
        assert!(StructureName::check_host(1 << 28, Some((1 << 30, 1 << 40))).is_ok());
    }

    #[test]
    fn edges_go_to_the_host_where_they_have_no_room() {
        let neighbors: SamplingPolicy = "neighbor:3,2".parse().expect("a policy");
        let walks: SamplingPolicy = "saint-rw:20,4".parse().expect("a policy");
        let (device, host, graph) = (EdgesIn::Device, EdgesIn::Host, EdgesIn::Graph);
        let (card, cpu) = ((true, false), (false, false));
        let (auto, all) = (StructureName::Auto, [device, host, graph]);
        for (name, policy, on, fits, tried, made) in [
            (auto, &neighbors, card, &all[..], &all[..1], Some(device)),
            (auto, &neighbors, card, &all[1..], &all[..2], Some(host)),
            (auto, &neighbors, card, &all[2..], &all, Some(graph)),
            (auto, &neighbors, card, &[], &all, None),
            (auto, &neighbors, cpu, &all[1..], &all[..1], None),
            (
                auto,
                &neighbors,
                (false, true),
                &all,
                &all[2..],
                Some(graph),
            ),
            (
                auto,
                &neighbors,
                (true, true),
                &all,
                &all[..1],
                Some(device),
            ),
            (auto, &walks, card, &all[1..], &all[..1], None),
            (
                StructureName::Device,
                &neighbors,
                card,
                &all[1..],
                &all[..1],
                None,
            ),
            (
                StructureName::Host,
                &neighbors,
                card,
                &all,
                &all[1..2],
                Some(host),
            ),
            (
                StructureName::Disk,
                &neighbors,
                card,
                &all,
                &all[2..],
                Some(graph),
            ),
        ] {
            let tries = RefCell::new(Vec::new());
            let found = name.made(policy, on, |edges| {
                tries.borrow_mut().push(edges);
                Ok(match fits.contains(&edges) {
                    true => Ok(edges),
                    false => Err(Failure::Input(format!("no room: {edges:?}"))),
                })
            });
            assert_eq!(tries.into_inner(), tried, "{name:?}, {policy}");
            match (found, made) {
                (Ok(found), Some(made)) => assert_eq!(found, made),
                (Err(Failure::Input(why)), None) => assert_eq!(why, "no room: Device"),
                (found, _) => panic!("{name:?}, {policy}: {:?}", found.is_ok()),
            }
        }
    }

    #[test]
    fn where_edges_are_is_told() {
        let line = |place, for_room| EdgesElsewhere { place, for_room }.to_string();
        assert_eq!(
            line(EdgePlace::Disk, false),
            "edges on disk, of which the host draws"
        );
        assert_eq!(
            line(EdgePlace::Disk, true),
            "edges on disk, of which the host draws, since they have no room in its memory"
        );
        assert!(line(EdgePlace::Memory, true).ends_with("in the host's memory"));
        let locked = line(EdgePlace::Host(3 << 30), true);
        assert!(locked.starts_with("3.0 GiB of edges"), "{locked}");
        assert!(locked.ends_with("does not fit on the GPU"), "{locked}");
        assert!(line(EdgePlace::Host(0), true).ends_with("as all is on a CPU"));
    }
}
