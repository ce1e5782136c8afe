//! Partitions and shards of graphs of every kind, and ranks that fail.

use super::*;
use crate::backend::cpu::Cpu;
use crate::backend::{Floats, MemoryKind, Rows};
use crate::error::Error;
use crate::graph::Graph;
use crate::graph::generate::Rmat;
use crate::tensor::{Array, Matrix};
use std::time::{Duration, Instant};

fn graphs() -> Vec<Graph> {
    vec![
        // Directed, with duplicate edges, a self-loop and isolated vertices.
        Graph::from_edges(7, &[0, 1, 1, 3, 3, 5, 5], &[2, 0, 3, 1, 1, 5, 0]).unwrap(),
        Graph::from_edges(4, &[], &[]).unwrap(),
        Graph::from_edges(0, &[], &[]).unwrap(),
        // A star, with edges in both directions.
        Graph::from_edges(
            9,
            &[[0; 8], [1, 2, 3, 4, 5, 6, 7, 8]].concat(),
            &[[1, 2, 3, 4, 5, 6, 7, 8], [0; 8]].concat(),
        )
        .unwrap(),
        Rmat::graph500(8).generate(3).unwrap(),
    ]
}

fn partitions(graph: &Graph, ranks: usize) -> Vec<Partition> {
    let last = vec![ranks as u32 - 1; graph.vertices()];
    vec![
        Partition::by_degree(graph, ranks).unwrap(),
        Partition::louvain(graph, ranks).unwrap(),
        // All ranks but one have no vertex.
        Partition::from_parts(last, ranks).unwrap(),
    ]
}

#[test]
fn shards_are_the_graph() {
    for graph in graphs() {
        for ranks in [1, 2, 3, 5, 8] {
            for partition in partitions(&graph, ranks) {
                let shards: Vec<Shard> = (0..ranks)
                    .map(|rank| Shard::new(&graph, &partition, rank).unwrap())
                    .collect();
                expect_whole(&graph, &partition, &shards);
                let balance = partition.balance(&graph).unwrap();
                let mut edges = Vec::new();
                let mut vertices: Vec<u32> = Vec::new();
                for (rank, shard) in shards.iter().enumerate() {
                    let (own, csr) = (shard.part.own(), shard.part.block().csr());
                    vertices.extend(own);
                    assert_eq!(own, partition.vertices(rank));
                    assert_eq!(balance.vertices[rank], own.len());
                    assert_eq!(balance.edges[rank], csr.edges());
                    assert_eq!(balance.halo[rank], shard.part.vertices().len() - own.len());
                    assert_eq!(shard.counts, balance.vertices);
                    for (at, &edge) in shard.part.edges().iter().enumerate() {
                        let ends = [csr.rows()[at], csr.cols()[at]]
                            .map(|it| shard.part.vertices()[it as usize]);
                        assert_eq!(
                            ends,
                            [graph.rows()[edge as usize], graph.cols()[edge as usize]]
                        );
                        edges.push(edge);
                    }
                    // In the reverse direction edges are sorted by column, then by row.
                    let against: Vec<[u32; 2]> = (shard.part.against().iter())
                        .map(|&edge| [csr.cols()[edge as usize], csr.rows()[edge as usize]])
                        .collect();
                    assert!(against.is_sorted());
                    // What one rank sends the other receives, in its order.
                    for (other, to) in shards.iter().enumerate() {
                        let sent: Vec<u32> = (shard.sends[other].iter())
                            .map(|&place| own[place as usize])
                            .collect();
                        assert_eq!(
                            sent,
                            to.part.vertices()[to.receives[rank].clone()],
                            "{rank} to {other}"
                        );
                    }
                    assert!(shard.sends[rank].is_empty() && shard.receives[rank].is_empty());
                    let received: usize = shard.receives.iter().map(|it| it.len()).sum();
                    assert_eq!(received, balance.halo[rank]);
                    let sent: usize = shard.sends.iter().map(Vec::len).sum();
                    assert_eq!(sent, balance.sent[rank]);
                }
                edges.sort_unstable();
                assert!(edges.into_iter().eq(0..graph.edges() as u32));
                vertices.sort_unstable();
                assert!(vertices.into_iter().eq(0..graph.vertices() as u32));
            }
        }
    }
}

/// Compares shards that receive all rows with shards that receive their halo.
fn expect_whole(graph: &Graph, partition: &Partition, of_halos: &[Shard]) {
    let ranks = partition.ranks();
    let heard: usize = of_halos.iter().flat_map(|of| &of.sends).map(Vec::len).sum();
    for (rank, of_halo) in of_halos.iter().enumerate() {
        let gathering = |gather| Shard::gathering(graph, partition, rank, gather).unwrap();
        let shard = gathering(Gather::Whole);
        assert!(shard.whole && !of_halo.whole);
        let own = shard.part.own();
        assert_eq!(own, of_halo.part.own());
        let mut start = own.len();
        for other in 0..ranks {
            let (to, theirs) = match other == rank {
                true => (0, Vec::new()),
                false => (own.len() as u32, partition.vertices(other)),
            };
            assert!(shard.sends[other].iter().copied().eq(0..to));
            let from = shard.receives[other].clone();
            assert_eq!(from, start..start + theirs.len());
            assert_eq!(shard.part.vertices()[from.clone()], theirs);
            start = from.end;
        }
        assert_eq!(start, graph.vertices());
        // The edges are the same, and each row sorts them by the new places of their columns.
        let ends = |shard: &Shard| {
            let csr = shard.part.block().csr();
            let vertex = |place: &u32| shard.part.vertices()[*place as usize];
            let columns: Vec<u32> = csr.cols().iter().map(vertex).collect();
            (csr.offsets().to_vec(), columns)
        };
        assert_eq!(ends(&shard), ends(of_halo));
        let auto = gathering(Gather::Auto);
        match Gather::cheaper(heard as u64, (ranks, graph.vertices())) {
            Gather::Whole => assert_eq!(auto, shard),
            _ => assert_eq!(&auto, of_halo),
        }
    }
}

#[test]
fn a_deal_by_degree_is_even() {
    let graph = Rmat::graph500(12).generate(1).unwrap();
    for ranks in [2, 3, 4, 8] {
        let dealt = Partition::by_degree(&graph, ranks).unwrap();
        let balance = dealt.balance(&graph).unwrap();
        assert!(
            balance.imbalance() <= 1.02,
            "{ranks}: {}",
            balance.imbalance()
        );
        let most = balance.vertices.iter().max().unwrap();
        assert_eq!(*most, graph.vertices().div_ceil(ranks));
    }
}

#[test]
fn communities_have_fewer_neighbours_elsewhere() {
    // Four rings of 50 vertices, each joined to the next by one edge.
    let vertex = |ring: u32, at: u32| ring % 4 * 50 + at % 50;
    let mut rows = Vec::new();
    let mut columns = Vec::new();
    for ring in 0..4 {
        for at in 0..50 {
            for step in 1..5 {
                rows.extend([vertex(ring, at), vertex(ring, at + step)]);
                columns.extend([vertex(ring, at + step), vertex(ring, at)]);
            }
        }
        rows.push(vertex(ring, 0));
        columns.push(vertex(ring + 1, 0));
    }
    let graph = Graph::from_edges(200, &rows, &columns).unwrap();
    let halo = |partition: Partition| {
        partition
            .balance(&graph)
            .unwrap()
            .halo
            .iter()
            .sum::<usize>()
    };
    assert!(halo(Partition::louvain(&graph, 4).unwrap()) < 60);
    assert!(halo(Partition::by_degree(&graph, 4).unwrap()) > 300);
}

#[test]
fn parts_are_read_from_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("graph.part.3");
    let read = |text: &str| {
        std::fs::write(&file, text).unwrap();
        Partition::read(&file, 3)
    };
    assert_eq!(read("0\n2\n 1\n").unwrap().owners(), [0, 2, 1]);
    let told = read("0\n3\n").unwrap_err().to_string();
    assert_eq!(
        told,
        "vertex 1 is in part 3, and there are 3 ranks, from 0 on; cut the graph into 3 parts"
    );
    let told = read("0\nmuch\n").unwrap_err().to_string();
    assert!(told.contains("line 2: \"much\" is no part"), "{told}");
    assert!(Partition::read(&folder.path().join("none"), 3).is_err());
    assert!(Partition::from_parts(vec![], 0).is_err());
    let graph = Graph::from_edges(4, &[], &[]).unwrap();
    let told = Shard::new(&graph, &read("0\n1\n2\n").unwrap(), 0).unwrap_err();
    assert!(
        told.to_string()
            .contains("is of 3 vertices, and the graph has 4"),
        "{told}"
    );
}

/// The results of three ranks that gather ten times, with a fault.
fn turns(fault: Option<&str>, deadline: Duration) -> Vec<Result<(), String>> {
    let faults: Vec<Fault> = fault.iter().map(|fault| fault.parse().unwrap()).collect();
    let turn = |group: &Group| -> Result<(), Error> {
        for epoch in 1..=10 {
            group.set_epoch(epoch);
            let ranks: Vec<Vec<usize>> = group.gather("layers.1 forward", &[group.rank()])?;
            assert_eq!(ranks, [[0], [1], [2]]);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = in_process(3, "CPU", deadline, &faults)
            .into_iter()
            .map(|rank| {
                scope.spawn(move || turn(&Group::new(rank)).map_err(|error| error.to_string()))
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    })
}

#[test]
fn a_rank_that_fails_ends_all() {
    let deadline = Duration::from_millis(300);
    assert_eq!(turns(None, deadline), [Ok(()), Ok(()), Ok(())]);
    assert_eq!(
        turns(Some("delay(20 ms):1@6"), deadline),
        [Ok(()), Ok(()), Ok(())]
    );
    let said = [
        ("die:1@6", "it died in epoch 7, layers.1 forward exchange"),
        (
            "hang:1@6",
            "no answer for 0.3 s in epoch 7, layers.1 forward exchange",
        ),
        (
            "delay(3000 ms):1@6",
            "no answer for 0.3 s in epoch 7, layers.1 forward exchange",
        ),
        ("count:1@6", "it gave 7 bytes where rank"),
    ];
    for (fault, said) in said {
        let start = Instant::now();
        let results = turns(Some(fault), deadline);
        assert!(
            start.elapsed() < deadline + Duration::from_secs(10),
            "{fault}"
        );
        for result in &results {
            let told = result.as_ref().unwrap_err();
            assert!(told.starts_with("rank 1 of 3 ("), "{fault}: {told}");
            assert!(
                told.contains(", CPU)") && told.contains(said),
                "{fault}: {told}"
            );
            assert!(
                told.contains("in epoch 7") && !told.contains('\n'),
                "{fault}: {told}"
            );
            assert_eq!(Some(told), results[0].as_ref().err(), "{fault}");
        }
    }
}

#[test]
fn ranks_that_do_other_things_are_told() {
    let results: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = in_process(2, "CPU", Duration::from_secs(60), &[])
            .into_iter()
            .map(|rank| {
                scope.spawn(move || {
                    let group = Group::new(rank);
                    group.expect_same("seed", 7)?;
                    group.expect_same("graph", group.rank() as u64)
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    for result in results {
        let expected =
            "rank 1 differs from rank 0 in graph; give all ranks the same data and options";
        assert_eq!(result.unwrap_err().to_string(), expected);
    }
    let results: Vec<Result<_, Error>> = std::thread::scope(|scope| {
        let threads: Vec<_> = in_process(2, "CPU", Duration::from_secs(60), &[])
            .into_iter()
            .map(|rank| {
                scope.spawn(move || {
                    let group = Group::new(rank);
                    let what = ["loss", "gradients"][group.rank()];
                    group.sum_numbers(what, &[1.0])
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    let told: Vec<String> = results
        .into_iter()
        .filter_map(|it| Some(it.err()?.to_string()))
        .collect();
    assert!(
        told.iter()
            .any(|told| told.contains("all ranks must be given the same graph, model and options")),
        "{told:?}"
    );
}

#[test]
fn a_panic_of_one_ends_the_others() {
    let result = std::thread::scope(|scope| {
        let mut ranks = in_process(2, "CPU", Duration::from_secs(60), &[]);
        let (one, zero) = (ranks.pop().unwrap(), ranks.pop().unwrap());
        let waits = scope.spawn(move || Group::new(zero).any("end of the run", false));
        let panics = scope.spawn(move || {
            let _group = Group::new(one);
            panic!("as is wanted");
        });
        assert!(panics.join().is_err());
        waits.join().unwrap()
    });
    let told = result.unwrap_err().to_string();
    assert!(told.ends_with("its thread panicked"), "{told}");
}

/// The results of `ranks` threads, which stand for processes.
fn by_tcp<T: Send>(
    rendezvous: &Rendezvous,
    ranks: usize,
    deadline: Duration,
    work: impl Fn(Group) -> Result<T, Error> + Sync,
) -> Vec<Result<T, String>> {
    let rank = |rank| {
        let tcp = Tcp::meet(rendezvous, &Member::new(rank, ranks, "CPU", deadline))?;
        work(Group::new(tcp))
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..ranks)
            .map(|number| scope.spawn(move || rank(number).map_err(|error| error.to_string())))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    })
}

#[test]
fn processes_meet_and_exchange() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("meet");
    let rendezvous: Rendezvous = format!("file:{}", file.display()).parse().unwrap();
    for ranks in [1, 2, 5] {
        let results = by_tcp(&rendezvous, ranks, Duration::from_secs(60), |group| {
            // More than a socket buffer holds, in both directions at once.
            let own = vec![group.rank() as f32; 300_000];
            let mut sums = Vec::new();
            for _ in 0..3 {
                sums = group.sum_numbers("gradients", &own)?;
            }
            let counts: Vec<usize> = (0..group.ranks()).collect();
            let own = vec![group.rank() as u32; group.rank()];
            let all = group.gather_of("vertices", &own, &counts)?;
            Ok((sums, all))
        });
        let sum = (0..ranks).sum::<usize>() as f32;
        let parts: Vec<Vec<u32>> = (0..ranks as u32)
            .map(|rank| vec![rank; rank as usize])
            .collect();
        for result in results {
            let (sums, all) = result.unwrap();
            assert!(sums.iter().all(|&it| it == sum) && sums.len() == 300_000);
            assert_eq!(all, parts);
        }
        assert!(!file.exists());
    }
}

#[test]
fn a_process_that_ends_or_stays_away_ends_all() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("meet");
    let rendezvous = Rendezvous::File(file);
    // Rank 1 ends, does not answer, or aborts with a reason.
    for (how, said) in [
        (0, &["it ended in epoch 3, loss exchange"][..]),
        (1, &["no answer for 0.5 s in epoch 3, loss exchange"]),
        (2, &["there is no room"]),
        // The first rank that sees it reports it: rank 1 about another, or another about rank 1.
        (3, &["gradients exchange", "loss exchange", ", and rank "]),
    ] {
        let start = Instant::now();
        let results = by_tcp(&rendezvous, 3, Duration::from_millis(500), |group| {
            group.set_epoch(3);
            group.any("end of the run", false)?;
            match (group.rank(), how) {
                (1, 0) => return Ok(()),
                (1, 1) => std::thread::sleep(Duration::from_secs(2)),
                (1, 2) => group.abort("there is no room"),
                (1, _) => {
                    group.sum_numbers("gradients", &[1.0])?;
                }
                _ => {}
            }
            group.sum_numbers("loss", &[1.0]).map(drop)
        });
        assert!(start.elapsed() < Duration::from_secs(10));
        for (rank, result) in results.iter().enumerate().filter(|(rank, _)| *rank != 1) {
            let told = result.as_ref().unwrap_err();
            if how < 3 {
                assert!(told.starts_with("rank 1 of 3 ("), "{rank}: {told}");
            }
            assert!(
                said.iter().all(|said| told.contains(said)) && !told.contains('\n'),
                "{rank}: {told}"
            );
        }
    }
    if cfg!(not(feature = "mpi")) {
        let member = Member::new(0, 2, "CPU", Duration::from_millis(200));
        let refused = Group::meet(&Rendezvous::Mpi, &member);
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("built without MPI"), "{refused}");
    }
}

/// A rank with a CPU backend that is linked to those of the other ranks.
fn linked(group: Group) -> Result<(Cpu, Group), Error> {
    let backend = Cpu::new();
    let group = group.linked(&backend, "a link of threads")?;
    Ok((backend, group))
}

#[test]
fn linked_ranks_exchange_as_others_do() {
    let folder = tempfile::tempdir().unwrap();
    let rendezvous = Rendezvous::File(folder.path().join("meet"));
    for ranks in [1, 2, 3, 5] {
        let results = by_tcp(&rendezvous, ranks, Duration::from_secs(60), |group| {
            let rank = group.rank();
            // Rank r sends a row to each other rank, and receives one from each.
            let parts: Vec<_> = (0..ranks)
                .scan(0, |first, other| {
                    let part = *first..*first + usize::from(other != rank);
                    *first = part.end;
                    Some(part)
                })
                .collect();
            let rows = ranks - 1;
            let moves = |backend: &Cpu, group: &Group| -> Result<Vec<u32>, Error> {
                let kind = MemoryKind::Workspace;
                let values: Vec<f32> = (0..rows * 9).map(|at| (100 * rank + at) as f32).collect();
                let from = Matrix::<_, f32>::from_f32(backend, rows, 9, &values, kind)?;
                let to = Matrix::zeros(backend, rows, 9, kind)?;
                group.expect_fit("rows", &parts, &parts)?;
                let (given, room) = (Rows::of_matrix(&from)?, Rows::of_matrix(&to)?);
                group.exchange_rows(backend, "rows", (given, &parts), (room, &parts))?;
                let mut loss = Array::from_slice(backend, &[0.1 + rank as f32], kind)?;
                let mut matrix = Matrix::from_f32(backend, 3, 1, &[0.3, 1e9, rank as f32], kind)?;
                let terms = vec![Floats::Array(&mut loss), Floats::Matrix(&mut matrix)];
                let mut pool = super::GatherPool::new();
                group.sum(backend, "gradients", &mut pool, terms)?;
                let mut counts = Array::from_slice(backend, &[rank as u32, 7], kind)?;
                group.sum_counts(backend, "counts", &mut counts)?;
                let floats = [
                    to.to_f32(backend)?,
                    loss.to_vec(backend)?,
                    matrix.to_f32(backend)?,
                ];
                let mut all: Vec<u32> = floats.concat().iter().map(|it| it.to_bits()).collect();
                all.extend(counts.to_vec(backend)?);
                Ok(all)
            };
            assert!(group.library().is_none());
            let through_host = moves(&Cpu::new(), &group)?;
            let (backend, group) = linked(group)?;
            assert_eq!(group.library(), Some("a link of threads"));
            Ok((through_host, moves(&backend, &group)?))
        });
        let all: Vec<_> = results.into_iter().map(Result::unwrap).collect();
        for (rank, (through_host, linked)) in all.iter().enumerate() {
            assert_eq!(through_host, linked, "{ranks} ranks, rank {rank}");
            let sums = linked.len() - 6;
            assert_eq!(
                linked[sums..],
                all[0].1[sums..],
                "{ranks} ranks, rank {rank}"
            );
            assert_eq!(linked[linked.len() - 1] as usize, 7 * ranks);
            // The first row is from the lowest other rank: the row that it has for this rank.
            if let Some(other) = (0..ranks).find(|&other| other != rank) {
                let row = if rank > other { rank - 1 } else { rank };
                assert_eq!(f32::from_bits(linked[0]), (100 * other + 9 * row) as f32);
            }
        }
    }
}

#[test]
fn linked_ranks_that_wait_in_vain_say_for_whom() {
    let folder = tempfile::tempdir().unwrap();
    let rendezvous = Rendezvous::File(folder.path().join("meet"));
    for (how, said) in [
        ("ends", "it ended in epoch 3, counts exchange"),
        (
            "stays away",
            "no answer for 0.5 s in epoch 3, counts exchange",
        ),
        ("says why", "there is no room"),
    ] {
        let start = Instant::now();
        let results = by_tcp(&rendezvous, 3, Duration::from_millis(500), |group| {
            let (backend, group) = linked(group)?;
            group.set_epoch(3);
            let mut counts = Array::from_slice(&backend, &[1], MemoryKind::Workspace)?;
            group.sum_counts(&backend, "counts", &mut counts)?;
            match (group.rank(), how) {
                (1, "ends") => return Ok(()),
                (1, "stays away") => {
                    std::thread::sleep(Duration::from_secs(3));
                    return Ok(());
                }
                (1, _) => {
                    group.abort("there is no room");
                    return Ok(());
                }
                _ => {}
            }
            group.sum_counts(&backend, "counts", &mut counts)
        });
        assert!(start.elapsed() < Duration::from_secs(10), "{how}");
        for rank in [0, 2] {
            let told = results[rank].as_ref().unwrap_err();
            assert!(
                told.starts_with("rank 1 of 3 (") && told.ends_with(said) && !told.contains('\n'),
                "{how}: {told}"
            );
        }
    }
    // All ranks answer, but what they wait for does not end.
    let waits = |group: Group| {
        let what = "step";
        group.set_epoch(2);
        group.begin(what);
        group.missing()
    };
    let results = by_tcp(&rendezvous, 2, Duration::from_millis(300), |group| {
        Ok(waits(group))
    });
    for result in results {
        let told = result.unwrap();
        assert!(
            told.starts_with(
                "all ranks answer, but what they do did not end for 0.3 s in epoch 2, step exchange"
            ),
            "{told}"
        );
    }
}

#[test]
fn ranks_whose_devices_do_not_fit_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let rendezvous = Rendezvous::File(folder.path().join("meet"));
    let results = by_tcp(&rendezvous, 2, Duration::from_secs(60), |group| {
        let said = group.interconnect(&Cpu::new(), group.rank() == 1)?;
        // Rank 1 sends one row more than rank 0 receives.
        let one = |len| {
            if group.rank() == 0 {
                [0..0, 0..len]
            } else {
                [0..len, len..len]
            }
        };
        let parts = [one(2 + group.rank()), one(2)];
        Ok((said, group.expect_fit("rows", &parts[0], &parts[1])))
    });
    for (rank, result) in results.into_iter().enumerate() {
        let (said, fits) = result.unwrap();
        assert_eq!(
            said,
            Err("rank 0: it is told to exchange through the host".into())
        );
        match (rank, fits) {
            (0, fits) => {
                let told = fits.unwrap_err().to_string();
                assert!(
                    told.starts_with("rank 1 gives 3 rows where rank 0 wants 2"),
                    "{told}"
                );
            }
            (_, fits) => assert!(fits.is_ok()),
        }
    }
    let library = |version: &str| Ok(format!("NCCL {version}"));
    let told = |all: &[Result<String, String>]| super::group::same_library(all.iter());
    assert_eq!(told(&[library("2.28.9"), library("2.28.9")]), Ok(()));
    let other = told(&[library("2.28.9"), library("2.27.3")]).unwrap_err();
    assert_eq!(
        other,
        "rank 0 has NCCL 2.28.9, and rank 1 NCCL 2.27.3; give all the same"
    );
    let none = told(&[library("2.28.9"), Err("no NCCL".into())]).unwrap_err();
    assert_eq!(none, "rank 1: no NCCL");
}

/// Edges that ranks have in any order give the same shards as a graph that all have.
#[cfg(feature = "parts")]
#[test]
fn edges_are_dealt_out_as_of_the_whole_graph() {
    use crate::nn::{EdgeData, ModelConfig};

    let rmat = |undirected, edges| Rmat {
        vertices: 200,
        edges,
        undirected,
        ..Rmat::graph500(0)
    };
    // With duplicate edges, self-loops and isolated vertices, and with hardly any edges.
    for spec in [rmat(true, 900), rmat(false, 900), rmat(true, 2)] {
        let graph = spec.generate(7).unwrap();
        for (config, ranks) in [
            (ModelConfig::gcn(3, 2), 2),
            (ModelConfig::gin(3, 2), 2),
            (ModelConfig::gcn(3, 2), 1),
            (ModelConfig::gcn(3, 2), 5),
        ] {
            let prepared = config.prepare_edges(&graph, EdgeData::default()).unwrap();
            let partition = Partition::by_degree(&prepared.graph, ranks).unwrap();
            let of_rank = |group: &Group| {
                let (rank, ranks) = (group.rank() as u64, group.ranks() as u64);
                // Uneven shares: all ranks but the last have at most ten edges.
                let last = if rank + 1 == ranks {
                    u64::MAX
                } else {
                    10 * (rank + 1)
                };
                let some = SomeEdges {
                    vertices: 200,
                    edges: spec.drawn(7, 10 * rank..last).unwrap(),
                    undirected: spec.undirected,
                };
                let dealt = some.deal(group, config.wants_self_loops()).unwrap();
                assert!(dealt.partition == partition);
                assert_eq!(dealt.table.in_degrees, graph.in_degrees());
                assert_eq!(dealt.table.out_degrees, graph.out_degrees());
                for gather in [Gather::Halo, Gather::Whole, Gather::Auto] {
                    let rows = (&dealt.rows, EdgeData::default());
                    let of = (&dealt.table, &dealt.partition);
                    let of_rows = config
                        .prepare_rows::<f32>(rows, of, (group, gather))
                        .unwrap();
                    let (graph, rank) = (&prepared.graph, group.rank());
                    let expected = Shard::gathering(graph, &partition, rank, gather).unwrap();
                    let found = &of_rows.shard;
                    assert_eq!(found.part.vertices(), expected.part.vertices());
                    assert_eq!(found.part.block(), expected.part.block());
                    assert_eq!(
                        (&found.sends, &found.receives, found.whole),
                        (&expected.sends, &expected.receives, expected.whole)
                    );
                    assert_eq!(
                        (&found.counts, found.mutual),
                        (&expected.counts, expected.mutual)
                    );
                }
            };
            std::thread::scope(|scope| {
                for rank in in_process(ranks, "CPU", Duration::from_secs(20), &[]) {
                    scope.spawn(|| of_rank(&Group::new(rank)));
                }
            });
        }
    }
}

/// A fault in the edges of one rank fails all ranks.
#[cfg(feature = "parts")]
#[test]
fn edges_of_no_vertex_are_refused_by_all_ranks() {
    let of_rank = |rank: InProcess| {
        let group = Group::new(rank);
        let some = SomeEdges {
            vertices: 3,
            edges: vec![[1, 2], [2, group.rank() as u32 + 2]],
            undirected: true,
        };
        some.deal(&group, false).unwrap_err().to_string()
    };
    let told = std::thread::scope(|scope| {
        let ranks = in_process(2, "CPU", Duration::from_secs(20), &[]).into_iter();
        let threads: Vec<_> = ranks.map(|rank| scope.spawn(|| of_rank(rank))).collect();
        threads
            .into_iter()
            .map(|it| it.join().unwrap())
            .collect::<Vec<_>>()
    });
    assert!(
        told[0].contains("rank 1 has an edge of no vertex"),
        "{told:?}"
    );
    assert!(told[1].contains("edges[1] is 3"), "{told:?}");
}
