//! `halfgnn bench comm`: how long ranks take to exchange rows and to gather what all have.

use crate::failure::Failure;
use crate::json::JsonLines;
use crate::launch::{self, Devices, devices};
use crate::names::DeviceName;
use crate::processes::{Exchange, check_key, device_name, meet, moved_by, this_process};
use crate::screen::{Page, bytes};
use clap::Args;
use halfgnn::Error;
use halfgnn::backend::{Backend, Floats, MemoryKind, Rows};
use halfgnn::device::{self, Device, Task};
use halfgnn::distributed::{GatherPool, Group, Member, Rendezvous};
use halfgnn::tensor::Matrix;
use serde::Serialize;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Examples of the command.
pub const EXAMPLES: &str = "\
Examples:
  halfgnn bench comm --devices 0,1
  halfgnn bench comm --devices all --exchange host --json comm.jsonl
  torchrun --no-python --nproc-per-node 4 halfgnn bench comm --rendezvous tcp://node0:29400

Each rank gives every other as many rows of 128 bytes (all-to-all), or what it has to all (all-gather); what arrives is checked before
it is timed. Times are those of the slowest rank; where NCCL exchanges, of exchanges that were recorded, as those of a step are. α and
β, for `bench scale`, are fitted to all sizes.";

/// Options of `bench comm`.
#[derive(Args)]
pub struct CommArgs {
    /// Ranks are processes that the program starts, one for each of these GPUs of this host
    #[arg(long, value_name = "0,1,…|all", value_parser = devices, conflicts_with = "rendezvous", required_unless_present = "rendezvous")]
    devices: Option<Devices>,
    /// Ranks are processes that you start, and where these meet
    #[arg(long, value_name = "tcp://HOST:PORT|file:PATH|local:PATH|mpi")]
    rendezvous: Option<Rendezvous>,
    /// What moves bytes between them
    #[arg(long, value_enum, default_value_t = Exchange::Auto)]
    exchange: Exchange,
    /// KiB that a rank receives of all others, at each size
    #[arg(long, value_name = "KIB", value_delimiter = ',', default_values_t = [16, 256, 4096, 65536, 262_144], value_parser = clap::value_parser!(u32).range(1..=4_194_304))]
    sizes: Vec<u32>,
    /// Timed runs of each; the median is reported
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Seconds that a rank may stay away
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    rank_timeout: u32,
    /// Where the ranks are; auto takes a GPU if one can be used, else the CPU
    #[arg(long, value_enum, default_value_t = DeviceName::Auto)]
    device: DeviceName,
    /// Write one JSON object a line to FILE, or to stdout for `-`
    #[arg(long, value_name = "FILE|-")]
    json: Option<PathBuf>,
}

/// Exchanges of one size.
#[derive(Clone, Debug, Serialize)]
struct Row<'a> {
    event: &'static str,
    device: &'a str,
    ranks: usize,
    exchange: &'a str,
    /// `all-to-all` or `all-gather`.
    pattern: &'static str,
    /// That a rank receives of all others.
    bytes: u64,
    /// Of the slowest rank, the median.
    ms: f64,
    gb_per_s: f64,
}

/// What all sizes of a pattern say together.
#[derive(Clone, Debug, Serialize)]
struct Fitted<'a> {
    event: &'static str,
    device: &'a str,
    ranks: usize,
    exchange: &'a str,
    pattern: &'static str,
    alpha_us: f64,
    beta_gb_per_s: f64,
}

/// Bytes of a row: 64 halves, as floats here.
const ROW_BYTES: u64 = 128;
const ROW_FLOATS: usize = ROW_BYTES as usize / size_of::<f32>();

/// Exchanges that are made at once, where they are recorded.
const RECORDED: u32 = 10;

/// Times exchanges of ranks.
///
/// # Errors
/// Where ranks do not meet, and those of the device.
pub fn run(args: &CommArgs, stop: &Arc<AtomicBool>) -> Result<(), Failure> {
    if let Some(devices) = &args.devices {
        return launch::run(devices, matches!(args.device, DeviceName::Auto));
    }
    let _ = stop;
    device::open(args.device.into(), Comm(args))?
}

struct Comm<'a>(&'a CommArgs);

impl Task for Comm<'_> {
    type Output = Result<(), Failure>;

    fn run<B: Backend>(self, device: &Device<B>) -> Self::Output {
        let (args, backend) = (self.0, &device.backend);
        let Some(rendezvous) = &args.rendezvous else {
            return Err(Failure::Input(
                "bench comm: give --devices or --rendezvous".into(),
            ));
        };
        let (rank, ranks) = this_process()?;
        let name = device_name(&backend.name());
        let deadline = Duration::from_secs(args.rank_timeout.into());
        check_key(rendezvous, ranks)?;
        let group = meet(rendezvous, &Member::new(rank, ranks, &name, deadline))?;
        let sizes: u64 = args.sizes.iter().map(|&size| u64::from(size)).sum();
        group.expect_same(
            "--sizes, --runs or --exchange",
            sizes ^ (u64::from(args.runs) << 40) ^ ((args.exchange as u64) << 60),
        )?;
        let group = args.exchange.link(group, backend)?;
        let mut json = JsonLines::open(if rank == 0 {
            args.json.as_deref()
        } else {
            None
        })?;
        let shown = rank == 0 && !json.is_stdout();
        let mut page = Page::new(false);
        let (exchange, name) = (moved_by(&group).to_owned(), backend.name());
        for pattern in ["all-to-all", "all-gather"] {
            let mut times = Vec::new();
            for &size in &args.sizes {
                let timed = time(backend, &group, pattern, u64::from(size) * 1024, args.runs);
                let (bytes_received, ms) =
                    timed.inspect_err(|error| group.abort(&error.to_string()))?;
                let row = Row {
                    event: "comm",
                    device: &name,
                    ranks,
                    exchange: &exchange,
                    pattern,
                    bytes: bytes_received,
                    ms,
                    gb_per_s: bytes_received as f64 / (ms * 1e6),
                };
                times.push([bytes_received as f64, ms]);
                if shown {
                    page.line(&format!(
                        "{pattern} of {ranks} ranks by {exchange}  {:>10} received  {ms:>9.4} ms  {:>7.1} GB/s",
                        bytes(bytes_received),
                        row.gb_per_s
                    ));
                }
                json.write(&row)?;
            }
            let [alpha_us, beta_gb_per_s] = fit(&times);
            let fitted = Fitted {
                event: "fit",
                device: &name,
                ranks,
                exchange: &exchange,
                pattern,
                alpha_us,
                beta_gb_per_s,
            };
            if shown && alpha_us.is_finite() {
                page.line(&format!(
                    "{pattern}: α {alpha_us:.1} µs, β {beta_gb_per_s:.1} GB/s: bench scale --alpha {alpha_us:.1} --beta {beta_gb_per_s:.1}"
                ));
            }
            json.write(&fitted)?;
        }
        group.any("end of the run", false)?;
        json.finish()
    }
}

/// Bytes that a rank receives, about the number asked for, and the median of milliseconds that it takes, of the slowest
/// rank.
fn time<B: Backend>(
    backend: &B,
    group: &Group,
    pattern: &str,
    wanted: u64,
    runs: u32,
) -> Result<(u64, f64), Error> {
    let (rank, ranks) = (group.rank(), group.ranks());
    let others = (ranks - 1).max(1);
    let rows = (wanted / ROW_BYTES).div_ceil(others as u64).max(1) as usize;
    let kind = MemoryKind::Workspace;
    let own = |_: usize, row: &mut [f32]| row.fill(rank as f32);
    let mut pool = GatherPool::<B>::new();
    let mut exchange: Box<dyn FnMut() -> Result<(), Error>> = if pattern == "all-to-all" {
        let parts = parts(rank, ranks, rows);
        let shape = (rows * (ranks - 1), ROW_FLOATS);
        let from = Matrix::from_rows(backend, shape, kind, own)?;
        let to = Matrix::<B, f32>::zeros(backend, shape.0, shape.1, kind)?;
        let (given, room) = (Rows::of_matrix(&from)?, Rows::of_matrix(&to)?);
        group.exchange_rows(backend, "all-to-all", (given, &parts), (room, &parts))?;
        let arrived = to.read_rows(backend, 0..shape.0)?;
        let mut expected = (0..ranks).filter(|&other| other != rank);
        let fits = (arrived.chunks(rows * ROW_FLOATS)).all(|part| {
            expected
                .next()
                .is_some_and(|other| part.iter().all(|&it| it == other as f32))
        });
        check(fits)?;
        Box::new(move || {
            let (given, room) = (Rows::of_matrix(&from)?, Rows::of_matrix(&to)?);
            group.exchange_rows(backend, "all-to-all", (given, &parts), (room, &parts))
        })
    } else {
        let mut from = Matrix::from_rows(backend, (rows, ROW_FLOATS), kind, own)?;
        let gathered = group.gather_floats(
            backend,
            "all-gather",
            &mut pool,
            &[Floats::Matrix(&mut from)],
        )?;
        for all in gathered {
            let values = all.to_vec(backend)?;
            let mut parts = values.chunks(rows * ROW_FLOATS).enumerate();
            check(parts.all(|(rank, part)| part.iter().all(|&it| it == rank as f32)))?;
            pool.give(all);
        }
        Box::new(move || {
            let own = [Floats::Matrix(&mut from)];
            let gathered = group.gather_floats(backend, "all-gather", &mut pool, &own)?;
            gathered.into_iter().for_each(|all| pool.give(all));
            Ok(())
        })
    };
    for _ in 0..3 {
        exchange()?;
    }
    // What goes through the host cannot be recorded.
    let recorded = match group.library() {
        Some(_) => backend.record(|| (0..RECORDED).try_for_each(|_| exchange()))?,
        None => None,
    };
    let mut times = Vec::new();
    for _ in 0..runs {
        backend.synchronize()?;
        group.any("a timed exchange", false)?;
        let ms = match &recorded {
            Some(recording) => backend.timed(|| backend.replay(recording))? / f64::from(RECORDED),
            None => backend.timed(&mut exchange)?,
        };
        let all = group.gather("times", &[ms])?;
        times.push(
            all.iter()
                .fold(0.0_f64, |most, of_rank| most.max(of_rank[0])),
        );
    }
    times.sort_by(f64::total_cmp);
    let received = (rows * (ranks - 1)) as u64 * ROW_BYTES;
    Ok((received, times[times.len() / 2]))
}

fn check(fits: bool) -> Result<(), Error> {
    match fits {
        true => Ok(()),
        false => Err(Error::Communication(
            "what arrived is not what was sent".into(),
        )),
    }
}

/// Which rows are for each rank: as many, none for the own one.
fn parts(rank: usize, ranks: usize, rows: usize) -> Vec<Range<usize>> {
    let mut first = 0;
    (0..ranks)
        .map(|other| {
            let part = first..first + if other == rank { 0 } else { rows };
            first = part.end;
            part
        })
        .collect()
}

/// α in µs and β in GB/s of `α + bytes / β`, which miss the times by as little as can be, each by a share of itself
/// (least squares).
fn fit(times: &[[f64; 2]]) -> [f64; 2] {
    let mut sums = [0.0; 5];
    for [bytes, ms] in times {
        let (one, bytes) = (1.0 / ms, bytes / ms);
        let terms = [one * one, one * bytes, bytes * bytes, one, bytes];
        sums.iter_mut()
            .zip(terms)
            .for_each(|(sum, term)| *sum += term);
    }
    let [a, b, c, d, e] = sums;
    let determinant = a * c - b * b;
    let (alpha, slope) = ((d * c - e * b) / determinant, (a * e - b * d) / determinant);
    [alpha * 1e3, 1.0 / (slope * 1e6)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_again() {
        let times = [1e3, 1e6, 1e9].map(|bytes| [bytes, 0.012 + bytes / 315e6]);
        let [alpha, beta] = fit(&times);
        assert!(
            (alpha - 12.0).abs() < 1e-6 && (beta - 315.0).abs() < 1e-6,
            "{alpha} {beta}"
        );
        assert_eq!(parts(1, 3, 5), [0..5, 5..5, 5..10]);
    }
}
