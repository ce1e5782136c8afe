//! Ranks that are processes: where they meet, which one this is, and what moves rows between them.

use crate::failure::Failure;
use crate::interrupt;
use clap::ValueEnum;
use halfgnn::backend::Backend;
use halfgnn::distributed::{Gather, Group, Key, Member, Rendezvous};

/// Refuses an address that requires a key where none is set, before anything is read.
///
/// # Errors
/// What to set.
pub fn check_key(rendezvous: &Rendezvous, ranks: usize) -> Result<(), Failure> {
    if ranks <= 1 {
        return Ok(());
    }
    let checked = rendezvous.check_key(Key::from_environment().as_ref());
    checked.map_err(|error| Failure::Input(error.to_string()))
}

/// Meets the other ranks; an interrupt meanwhile ends the program.
///
/// # Errors
/// Those of [`Group::meet`].
pub fn meet(rendezvous: &Rendezvous, member: &Member<'_>) -> Result<Group, Failure> {
    Ok(interrupt::at_once(|| Group::meet(rendezvous, member))?)
}

/// What moves rows between ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Exchange {
    /// NCCL where each process has it and a GPU of its own, else the host
    #[default]
    Auto,
    /// NCCL, from GPU to GPU: a step is recorded with its exchanges
    Nccl,
    /// The host, through its memory and the network
    Host,
}

impl Exchange {
    /// The group, whose devices are linked if that is wanted and can be. All ranks are given the same.
    ///
    /// # Errors
    /// Those of the group; where NCCL is wanted and some rank cannot have it, why.
    pub fn link<B: Backend>(self, group: Group, backend: &B) -> Result<Group, Failure> {
        match (group.interconnect(backend, self != Self::Host)?, self) {
            (Ok(library), _) => Ok(group.linked(backend, &library)?),
            (Err(reason), Self::Nccl) => Err(Failure::Run(format!("--exchange nccl: {reason}"))),
            (Err(reason), Self::Auto) => {
                // Of GPUs it is slow, and was not asked for.
                match backend.name().starts_with("CPU") {
                    true => tracing::info!("exchanges go through the host: {reason}"),
                    false => tracing::warn!("exchanges go through the host: {reason}"),
                }
                Ok(group)
            }
            (Err(_), Self::Host) => Ok(group),
        }
    }
}

/// Whether devices compute while NCCL moves rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Overlap {
    /// In recorded steps, on a stream of the first priority
    On,
    /// Rows are waited for
    Off,
}

impl Overlap {
    /// The group that does so: as it is where nothing is wanted.
    ///
    /// # Errors
    /// Where it is wanted, and exchanges go through the host.
    pub fn of(wanted: Option<Self>, group: Group) -> Result<Group, Failure> {
        match (wanted, group.library()) {
            (Some(Self::On), None) => Err(Failure::Input(
                "--overlap on: exchanges go through the host, beside which nothing is computed; take --exchange nccl, or leave it out"
                    .into(),
            )),
            (Some(wanted), _) => Ok(group.overlapping(wanted == Self::On)),
            (None, _) => Ok(group),
        }
    }
}

/// Which rows of others ranks are given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum GatherName {
    /// What takes less time where NCCL moves rows, by a model
    #[default]
    Auto,
    /// Those that a rank aggregates: fewer, and packed before they are sent
    Halo,
    /// All, as they lie
    Whole,
}

impl From<GatherName> for Gather {
    fn from(name: GatherName) -> Self {
        match name {
            GatherName::Auto => Self::Auto,
            GatherName::Halo => Self::Halo,
            GatherName::Whole => Self::Whole,
        }
    }
}

/// The first of some options that was given: each, and whether it was.
pub fn first_given(options: &[(&'static str, bool)]) -> Option<&'static str> {
    let given = options.iter().find(|(_, given)| *given);
    given.map(|(option, _)| *option)
}

/// What moves rows of `group`, for people: `NCCL 2.28.9`, or `the host`.
pub fn moved_by(group: &Group) -> &str {
    group.library().unwrap_or_else(|| group.mover())
}

/// What errors call a device: a process that was given one GPU says which.
pub fn device_name(name: &str) -> String {
    match std::env::var("CUDA_VISIBLE_DEVICES") {
        Ok(card) if !name.starts_with("CPU") && !card.is_empty() && !card.contains(',') => {
            format!("{name}, GPU {card}")
        }
        _ => name.to_owned(),
    }
}

/// Which rank this process is, of how many, by what its launcher says.
///
/// # Errors
/// That nothing says so.
pub fn this_process() -> Result<(usize, usize), Failure> {
    place(|name| std::env::var(name).ok())
}

/// What a launcher says of this process: which rank it is, of how many.
fn place(variable: impl Fn(&str) -> Option<String>) -> Result<(usize, usize), Failure> {
    const LAUNCHERS: [[&str; 2]; 4] = [
        ["RANK", "WORLD_SIZE"],
        ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"],
        ["PMI_RANK", "PMI_SIZE"],
        ["SLURM_PROCID", "SLURM_NTASKS"],
    ];
    for [rank, ranks] in LAUNCHERS {
        let (Some(of_rank), Some(of_ranks)) = (variable(rank), variable(ranks)) else {
            continue;
        };
        return match (of_rank.parse(), of_ranks.parse()) {
            (Ok(rank), Ok(ranks)) if rank < ranks && ranks <= MOST_RANKS => Ok((rank, ranks)),
            _ => Err(Failure::Input(format!(
                "{rank}={of_rank} and {ranks}={of_ranks} are no rank, from 0 on, and a number of ranks, up to {MOST_RANKS}"
            ))),
        };
    }
    Err(Failure::Input(
        "--rendezvous: nothing says which rank this process is; start it by torchrun, mpirun or srun, or set RANK and WORLD_SIZE".into(),
    ))
}

/// As many as any machine has.
const MOST_RANKS: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_say_which_rank_it_is() {
        let of = |set: &[(&str, &str)]| {
            let set: Vec<_> = set
                .iter()
                .map(|(a, b)| (a.to_string(), b.to_string()))
                .collect();
            let variable = move |name: &str| {
                let found = set.iter().find(|(variable, _)| variable == name);
                found.map(|(_, value)| value.clone())
            };
            place(variable).map_err(|failure| failure.to_string())
        };
        assert_eq!(of(&[("RANK", "1"), ("WORLD_SIZE", "4")]), Ok((1, 4)));
        let slurm = [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "2")];
        assert_eq!(of(&slurm), Ok((0, 2)));
        let mpi = [("OMPI_COMM_WORLD_RANK", "2"), ("OMPI_COMM_WORLD_SIZE", "3")];
        // What mpirun says inside an allocation counts.
        assert_eq!(of(&[slurm, mpi].concat()), Ok((2, 3)));
        for wrong in [
            [("RANK", "4"), ("WORLD_SIZE", "4")],
            [("RANK", "x"), ("WORLD_SIZE", "4")],
        ] {
            assert!(of(&wrong).unwrap_err().contains("are no rank"), "{wrong:?}");
        }
        assert!(
            of(&[("RANK", "0")])
                .unwrap_err()
                .contains("nothing says which rank")
        );
    }
}
