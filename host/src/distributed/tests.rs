//! Partitions and shards of graphs of every kind, and ranks that fail.

use super::*;
use crate::error::Error;
use crate::graph::Graph;
use crate::graph::generate::Rmat;
use std::time::{Duration, Instant};

fn graphs() -> Vec<Graph> {
    vec![
        // Directed, with equal edges, a self-loop and vertices that have none.
        Graph::from_edges(7, &[0, 1, 1, 3, 3, 5, 5], &[2, 0, 3, 1, 1, 5, 0]).unwrap(),
        Graph::from_edges(4, &[], &[]).unwrap(),
        Graph::from_edges(0, &[], &[]).unwrap(),
        // Everybody hears the hub, and it hears all.
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
        // All but one have nothing.
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
                    // Against their direction edges go by column, then by row.
                    let against: Vec<[u32; 2]> = (shard.part.against().iter())
                        .map(|&edge| [csr.cols()[edge as usize], csr.rows()[edge as usize]])
                        .collect();
                    assert!(against.is_sorted());
                    // What one sends the other receives, in its order.
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
    // Four rings of 50 that one edge each joins.
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

/// What each of three ranks comes to that take ten turns, with a fault.
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
    for (rank, result) in results.into_iter().enumerate() {
        let expected = format!(
            "ranks {rank} and {} of 2 have another graph: give all ranks the same",
            1 - rank
        );
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

/// What each of so many processes' stand-ins, threads here, comes to.
fn by_tcp<T: Send>(
    rendezvous: &Rendezvous,
    ranks: usize,
    deadline: Duration,
    work: impl Fn(Group) -> Result<T, Error> + Sync,
) -> Vec<Result<T, String>> {
    let rank = |rank| {
        let tcp = Tcp::meet(rendezvous, (rank, ranks), "CPU", deadline)?;
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
            // More than a socket holds, both ways at once.
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
    // Rank 1 ends, does not answer, or says why.
    for (how, said) in [
        (0, &["it ended in epoch 3, loss exchange"][..]),
        (1, &["no answer for 0.5 s in epoch 3, loss exchange"]),
        (2, &["there is no room"]),
        // Whoever sees it first says so: rank 1 of another, or another of rank 1.
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
    // Two of three come, and one that was told another number.
    let alone = Tcp::meet(&rendezvous, (0, 2), "CPU", Duration::from_millis(200))
        .unwrap_err()
        .to_string();
    assert!(
        alone.contains("did not meet at file:") && alone.contains("start all of them"),
        "{alone}"
    );
    for wrong in [
        "",
        "tcp://",
        "tcp://host",
        "tcp://host:x",
        "file:",
        "udp://x:1",
    ] {
        assert!(wrong.parse::<Rendezvous>().is_err(), "{wrong}");
    }
    let given: Rendezvous = "tcp://host:29500".parse().unwrap();
    assert_eq!(given.to_string(), "tcp://host:29500");
}
