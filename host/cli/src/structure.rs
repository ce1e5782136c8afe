//! Where the edges lie that the neighbours of batches are drawn of.

use crate::failure::Failure;
use crate::screen::bytes;
use clap::{Args, ValueEnum};
use halfgnn::Error;
use halfgnn::driver::DriverError;
use halfgnn::sample::{EdgesIn, Sampling, SamplingPolicy};
use std::fmt;

/// Where edges lie.
#[derive(Args)]
pub struct StructureArgs {
    /// Where the edges lie that a neighbour sampler draws of; auto leaves them in the host's memory where the card has no room for them beside the
    /// rest, from where it reads those that it draws
    #[arg(long, value_enum, value_name = "WHERE", default_value_t)]
    pub structure: StructureName,
}

/// [`EdgesIn`], as it is typed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum StructureName {
    /// The device's memory if all fits there, else the host's
    #[default]
    Auto,
    /// The device's memory
    Device,
    /// The host's memory, which the card reads over its bus
    Host,
}

/// Edges that lie in the host's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EdgesOnHost {
    /// What they take of it beside a card; nothing more of a CPU, whose memory it is.
    pub bytes: u64,
    /// Whether nobody asked for that.
    pub for_room: bool,
}

impl fmt::Display for EdgesOnHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.bytes == 0 {
            return f.write_str("edges in the host's memory, as all is on a CPU");
        }
        let bytes = bytes(self.bytes);
        write!(
            f,
            "{bytes} of edges in the host's memory, from where the card reads those that it draws"
        )?;
        match self.for_room {
            true => f.write_str(", since all together has no room on the card"),
            false => Ok(()),
        }
    }
}

/// What is made of a run, or why it has no room.
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
    /// Refuses edges in the host's memory of a run that draws none there.
    ///
    /// # Errors
    /// In a line that says what to do.
    pub fn check(self, sampling: Option<&Sampling>) -> Result<(), Failure> {
        let why = match (self, sampling) {
            (Self::Auto | Self::Device, _) => return Ok(()),
            (Self::Host, Some(sampling)) if draws_neighbors(&sampling.policy) => return Ok(()),
            (Self::Host, Some(sampling)) => format!(
                "--sampler {} takes edges on the device, and only those of neighbours are drawn in the host's memory; take --sampler neighbor:15,10",
                sampling.policy
            ),
            (Self::Host, None) => {
                "a step on the whole graph sums over edges on the device; learn in batches by --sampler neighbor:15,10, or leave it out".into()
            }
        };
        Err(Failure::Input(format!("--structure host: {why}")))
    }

    /// Refuses to lock so many edges in the host's memory where those have no room, `memory` being free and total bytes of it, where they are known.
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

    /// What `make` makes of a run whose edges lie where this says, or where it has room: with them on the device, else, if that is open and those
    /// are of neighbours, in the memory of the host of a card.
    ///
    /// # Errors
    /// Those of `make`; where neither has room, the first.
    pub fn made<T>(
        self,
        (policy, is_card): (&SamplingPolicy, bool),
        make: impl Fn(EdgesIn) -> Made<T>,
    ) -> Result<T, Failure> {
        match self {
            Self::Device => make(EdgesIn::Device)?,
            Self::Host => make(EdgesIn::Host)?,
            Self::Auto => match make(EdgesIn::Device)? {
                Err(lacks_room) if is_card && draws_neighbors(policy) => {
                    make(EdgesIn::Host)?.map_err(|_| lacks_room)
                }
                made => made,
            },
        }
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
        let found = StructureName::Auto.made((&neighbors, true), |_| -> Made<()> {
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
        let (device, host) = (EdgesIn::Device, EdgesIn::Host);
        for (name, policy, is_card, fits, tried, made) in [
            (
                StructureName::Auto,
                &neighbors,
                true,
                &[device, host][..],
                &[device][..],
                Some(device),
            ),
            (
                StructureName::Auto,
                &neighbors,
                true,
                &[host],
                &[device, host],
                Some(host),
            ),
            (
                StructureName::Auto,
                &neighbors,
                true,
                &[],
                &[device, host],
                None,
            ),
            (
                StructureName::Auto,
                &neighbors,
                false,
                &[host],
                &[device],
                None,
            ),
            (StructureName::Auto, &walks, true, &[host], &[device], None),
            (
                StructureName::Device,
                &neighbors,
                true,
                &[host],
                &[device],
                None,
            ),
            (
                StructureName::Host,
                &neighbors,
                true,
                &[device, host],
                &[host],
                Some(host),
            ),
        ] {
            let tries = RefCell::new(Vec::new());
            let found = name.made((policy, is_card), |edges| {
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
}
