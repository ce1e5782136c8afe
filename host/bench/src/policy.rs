//! How operators compute, as it is typed.

use clap::ValueEnum;
use halfgnn::ops::{
    Accumulate, HalfLoad, Reduction, Scaling, Schedule, SddmmPolicy, Slices, SpmmPolicy, Write,
};
use std::fmt;
use std::str::FromStr;

/// The grammar of [`SpmmPolicyName`], for `--help`.
pub const SPMM_GRAMMAR: &str = "\
A policy of the SpMM is SUMS[-WARPS][-LOAD][-COLUMNS], or `all`, or `hp` and `coo` for discretized-float-hp and -coo:
  SUMS   discretized-float, discretized-half   batches added up in float or half2, scaled and merged in float
         post-half, pre-half                   rows summed up in half, then scaled; products scaled, then summed up
         atomic-float, atomic-half             as discretized, what warps share of a row added by atomics
  WARPS  edge, edge16 … edge256   a warp has that number of edges, and a row that several have takes a second launch
         hp                       as edge, with as many edges a warp as HP-SpMM's inequality says
         coo, coo16 … coo256      as edge, of row ids alone (GNNOne): no row starts, sums discretized-float or atomic-float
         roundrobin, roundrobin16 …   the same, of atomic-float in float: the lanes' groups of a warp take its edges round-robin
         vertex                   a warp has a row, in one launch
         left away, the faster of them is chosen
  LOAD   half2, half4   what a lane loads at once in half, 16 bytes (half8) if left away
  COLUMNS whole, lines  a walk over the edges has columns of all lanes, or those of a cache line; left away, the faster
  all    discretized-float with every WARPS, and how far the choice is from the best";

/// A [`SpmmPolicy`] by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpmmPolicyName(pub SpmmPolicy);

/// What `--policy` takes: one policy, or several by one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpmmPolicies(pub Vec<SpmmPolicyName>);

/// HP-SpMM's and HP-SDDMM's partition, as it is typed.
const HP: &str = "hp";

/// GNNOne's plain COO, as it is typed.
const COO: &str = "coo";

/// GNNOne's other way to divide a warp's edges, as it is typed.
const ROUND_ROBIN: &str = "roundrobin";

/// Schedules in which a warp has some edges, as they are typed.
const BY_EDGES: [(&str, Schedule); 3] = [
    ("edge", Schedule::Edge),
    (COO, Schedule::RowIds),
    (ROUND_ROBIN, Schedule::RowIdsInTurn),
];

/// The policies that have the name of their schedule alone.
const BY_SCHEDULE: [(&str, SpmmPolicyName); 2] = {
    const fn of(schedule: Schedule) -> SpmmPolicyName {
        SpmmPolicyName(SpmmPolicy {
            schedule,
            ..SpmmPolicy::DEFAULT
        })
    }
    [(HP, of(Schedule::Hybrid)), (COO, of(Schedule::RowIds))]
};

/// Edges of a warp that can be asked for.
const EDGES_PER_WARP: [u32; 5] = [16, 32, 64, 128, 256];

impl FromStr for SpmmPolicies {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text != "all" {
            return Ok(Self(vec![text.parse()?]));
        }
        let of = |schedule, edges_per_warp| {
            SpmmPolicyName(SpmmPolicy {
                schedule,
                edges_per_warp,
                ..SpmmPolicy::DEFAULT
            })
        };
        let mut all = vec![
            of(Schedule::Auto, None),
            of(Schedule::Vertex, None),
            of(Schedule::Hybrid, None),
            of(Schedule::RowIds, None),
        ];
        all.extend(EDGES_PER_WARP.map(|edges| of(Schedule::Edge, Some(edges))));
        Ok(Self(all))
    }
}

impl FromStr for SpmmPolicyName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |part: &str| {
            format!(
                "`{text}` is no policy: {part}; say SUMS[-WARPS][-LOAD] as discretized-float-vertex, see --help"
            )
        };
        if let Some((_, policy)) = BY_SCHEDULE.iter().find(|(name, _)| *name == text) {
            return Ok(*policy);
        }
        let mut parts = text.split('-');
        let mut policy = SpmmPolicy::DEFAULT;
        let sums = (
            parts.next().unwrap_or_default(),
            parts.next().unwrap_or_default(),
        );
        (policy.scaling, policy.write) = match sums.0 {
            "discretized" => (Scaling::Discretized, Write::Staged),
            "post" => (Scaling::PostReduction, Write::Staged),
            "pre" => (Scaling::PreReduction, Write::Staged),
            "atomic" => (Scaling::Discretized, Write::Atomic),
            other => return Err(wrong(&format!("`{other}` is no way of scaling"))),
        };
        policy.accumulate = match sums {
            (_, "half") => Accumulate::Half,
            ("discretized" | "atomic", "float") => Accumulate::Float,
            (scaling, other) => {
                return Err(wrong(&format!("`{scaling}` has no sums in `{other}`")));
            }
        };
        for part in parts {
            match part {
                "vertex" => policy.schedule = Schedule::Vertex,
                HP => policy.schedule = Schedule::Hybrid,
                "half2" => policy.load = HalfLoad::Half2,
                "half4" => policy.load = HalfLoad::Half4,
                "whole" => policy.slices = Slices::Whole,
                "lines" => policy.slices = Slices::Lines,
                _ => {
                    let (schedule, edges) = by_edges(part).ok_or_else(|| {
                        wrong(&format!(
                            "`{part}` is neither vertex, edge, edge16 to edge256, hp, coo, coo16 to coo256, roundrobin, half2, half4, whole nor lines"
                        ))
                    })?;
                    policy.schedule = schedule;
                    policy.edges_per_warp = edges;
                }
            }
        }
        Ok(Self(policy))
    }
}

/// A schedule in which a warp has some edges, and how many where that is said.
fn by_edges(part: &str) -> Option<(Schedule, Option<u32>)> {
    BY_EDGES.iter().find_map(|&(name, schedule)| {
        let edges = part.strip_prefix(name)?;
        if edges.is_empty() {
            return Some((schedule, None));
        }
        let edges = EDGES_PER_WARP
            .iter()
            .find(|count| count.to_string() == edges)?;
        Some((schedule, Some(*edges)))
    })
}

impl fmt::Display for SpmmPolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let policy = &self.0;
        if let Some((name, _)) = BY_SCHEDULE.iter().find(|(_, policy)| policy == self) {
            return f.write_str(name);
        }
        f.write_str(match (policy.scaling, policy.write) {
            (Scaling::Discretized, Write::Staged) => "discretized",
            (_, Write::Atomic) => "atomic",
            (Scaling::PostReduction, Write::Staged) => "post",
            (Scaling::PreReduction, Write::Staged) => "pre",
        })?;
        f.write_str(match policy.accumulate {
            Accumulate::Half => "-half",
            Accumulate::Float => "-float",
        })?;
        let warps = match (policy.schedule, policy.edges_per_warp) {
            (Schedule::Auto, None) => "",
            (Schedule::Vertex, _) => "-vertex",
            (Schedule::Hybrid, _) => "-hp",
            (Schedule::Auto | Schedule::Edge, _) => "-edge",
            (Schedule::RowIds, _) => "-coo",
            (Schedule::RowIdsInTurn, _) => "-roundrobin",
        };
        f.write_str(warps)?;
        if let Some(edges) = policy.edges_per_warp {
            write!(f, "{edges}")?;
        }
        f.write_str(match policy.load {
            HalfLoad::Half2 => "-half2",
            HalfLoad::Half4 => "-half4",
            HalfLoad::Half8 => "",
        })?;
        f.write_str(match policy.slices {
            Slices::Auto => "",
            Slices::Whole => "-whole",
            Slices::Lines => "-lines",
        })
    }
}

impl SpmmPolicyName {
    /// The policy without what float precision has no choice of.
    pub fn in_float(self) -> Self {
        Self(SpmmPolicy {
            scaling: Scaling::Discretized,
            accumulate: Accumulate::Float,
            load: HalfLoad::Half8,
            ..self.0
        })
    }

    /// The policy without what is chosen from the graph and the GPU.
    pub fn sums(self) -> Self {
        Self(SpmmPolicy {
            schedule: Schedule::Auto,
            edges_per_warp: None,
            slices: Slices::Auto,
            ..self.0
        })
    }
}

/// [`SddmmPolicy`], as it is typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SddmmPolicyName {
    /// The default: 16-byte loads, lanes added up on tensor cores
    Half8Tensor,
    /// The same, with as many edges a warp as HP-SDDMM's inequality says; of floats too
    Hp,
    /// 16-byte loads, lanes added up in float by shuffles: GNNOne's, of plain COO, as all of these are
    #[value(alias = COO)]
    Half8,
    /// 16-byte loads, half2 arithmetic
    Half8InHalf,
    /// 8-byte loads, half2 arithmetic
    Half4InHalf,
    /// 4-byte loads, half2 arithmetic
    Half2InHalf,
    /// The same, reading the features of rows anew for every four edges instead of keeping them
    Half2InHalfAnew,
}

impl SddmmPolicyName {
    /// The name, as it is typed.
    pub fn as_str(self) -> &'static str {
        match self {
            SddmmPolicyName::Half8Tensor => "half8-tensor",
            SddmmPolicyName::Hp => HP,
            SddmmPolicyName::Half8 => "half8",
            SddmmPolicyName::Half8InHalf => "half8-in-half",
            SddmmPolicyName::Half4InHalf => "half4-in-half",
            SddmmPolicyName::Half2InHalf => "half2-in-half",
            SddmmPolicyName::Half2InHalfAnew => "half2-in-half-anew",
        }
    }
}

impl From<SddmmPolicyName> for SddmmPolicy {
    fn from(name: SddmmPolicyName) -> Self {
        let (load, reduction, accumulate) = match name {
            SddmmPolicyName::Half8Tensor => return SddmmPolicy::default(),
            SddmmPolicyName::Hp => {
                return SddmmPolicy {
                    hybrid: true,
                    ..SddmmPolicy::default()
                };
            }
            SddmmPolicyName::Half8 => (HalfLoad::Half8, Reduction::Shuffles, Accumulate::Float),
            SddmmPolicyName::Half8InHalf => {
                (HalfLoad::Half8, Reduction::Shuffles, Accumulate::Half)
            }
            SddmmPolicyName::Half4InHalf => {
                (HalfLoad::Half4, Reduction::Shuffles, Accumulate::Half)
            }
            SddmmPolicyName::Half2InHalf | SddmmPolicyName::Half2InHalfAnew => {
                (HalfLoad::Half2, Reduction::Shuffles, Accumulate::Half)
            }
        };
        SddmmPolicy {
            load,
            reduction,
            accumulate,
            read_anew: name == SddmmPolicyName::Half2InHalfAnew,
            ..SddmmPolicy::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back() {
        let mut names = vec![
            "discretized-float",
            "discretized-half",
            "post-half",
            "pre-half",
            "atomic-float",
            "atomic-half",
            "discretized-half-vertex-half2",
            "discretized-half-edge-half4",
            "discretized-half-hp-half2",
            "discretized-half-coo64-half2",
            "atomic-float-coo128",
            "atomic-float-roundrobin",
            "atomic-float-roundrobin32",
            "hp",
            "coo",
        ]
        .into_iter()
        .map(String::from)
        .collect::<Vec<_>>();
        let all: SpmmPolicies = "all".parse().expect("every schedule");
        names.extend(all.0.iter().map(SpmmPolicyName::to_string));
        assert_eq!(
            names[15..20].join(" "),
            "discretized-float discretized-float-vertex hp coo discretized-float-edge16"
        );
        for name in names {
            let policy: SpmmPolicyName = name.parse().expect("a policy");
            assert_eq!(policy.to_string(), name);
        }
        let default: SpmmPolicyName = "discretized-float".parse().expect("a policy");
        assert_eq!(default.0, SpmmPolicy::default());
        let whole: SpmmPolicyName = "discretized-float-hp".parse().expect("a policy");
        assert_eq!(whole.to_string(), "hp");
    }

    #[test]
    fn other_names_are_told_what_is_wrong() {
        for (text, told) in [
            ("", "`` is no way of scaling"),
            ("all-half", "`all` is no way of scaling"),
            ("discretized", "no sums in ``"),
            ("post-float", "`post` has no sums in `float`"),
            ("discretized-float-edge100", "`edge100` is neither"),
            ("discretized-float-coo7", "`coo7` is neither"),
            ("roundrobin", "`roundrobin` is no way of scaling"),
            ("discretized-float-half8", "`half8` is neither"),
        ] {
            let error = text.parse::<SpmmPolicyName>().expect_err("no policy");
            assert!(error.contains(told), "{error}");
        }
    }

    #[test]
    fn what_is_chosen_is_no_part_of_the_sums() {
        let parse = |text: &str| text.parse::<SpmmPolicyName>().expect("a policy");
        assert_eq!(
            parse("discretized-half-vertex-half2").sums(),
            parse("discretized-half-half2")
        );
        assert_eq!(parse("atomic-half-edge64").sums(), parse("atomic-half"));
        assert_eq!(parse("coo").sums(), parse("discretized-float"));
        assert_eq!(
            parse("post-half-edge").in_float(),
            parse("discretized-float-edge")
        );
    }
}
