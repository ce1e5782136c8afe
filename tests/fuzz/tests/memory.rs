//! The memory that reading a list of edges takes in addition to that of the finished graph.

use halfgnn::data::parts::{Deal, FeaturePrecision, Parted, StreamedArchive};
use halfgnn::data::{Dataset, OpenGraph, OpenOptions};
use halfgnn::distributed::Partition;
use halfgnn::graph::Graph;
use halfgnn_fuzz::allocation;
use std::fmt::Write as _;
use std::io::{Cursor, Write as _};

#[global_allocator]
static ALLOCATOR: allocation::Counting = allocation::Counting;

const VERTICES: u32 = 150_000;

/// `count` edges, hardly one of them twice.
fn edges(count: u32) -> impl Iterator<Item = (u32, u32)> {
    (0..count).map(|k| {
        let far = k.wrapping_mul(2_654_435_761) >> 8;
        (k % VERTICES, far % VERTICES)
    })
}

/// Reads a text on one thread, the one whose memory is counted: the graph, and the most that was held, in graphs.
fn read(text: &str, undirected: bool) -> (Graph, f64) {
    let mut options = OpenOptions::default();
    options.undirected = undirected;
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build();
    let (graph, peak) = pool.expect("a thread").install(|| {
        allocation::peak_of(|| Graph::read_from(Cursor::new(text), &options).expect("a graph"))
    });
    let share = peak as f64 / graph.bytes() as f64;
    (graph, share)
}

#[test]
fn a_list_of_edges_is_read_in_less_than_five_graphs() {
    const LISTED: u32 = 1_500_000;
    let (mut once, mut both) = (String::new(), String::new());
    for (from, to) in edges(LISTED) {
        writeln!(once, "{from}\t{to}").expect("room");
    }
    for (from, to) in edges(LISTED / 2) {
        writeln!(both, "{from}\t{to}\n{to}\t{from}").expect("room");
    }
    let mut lower = format!(
        "%%MatrixMarket matrix coordinate pattern symmetric\n{VERTICES} {VERTICES} {LISTED}\n"
    );
    for (one, other) in edges(LISTED) {
        let (row, column) = (one.max(other) + 1, one.min(other) + 1);
        writeln!(lower, "{row} {column}").expect("room");
    }

    let listed = LISTED as usize;
    for (what, text, undirected, expected) in [
        ("each edge once", &once, false, listed),
        ("once, and the reverse added", &once, true, 2 * listed),
        ("in both directions", &both, true, listed),
        ("a symmetric matrix", &lower, false, 2 * listed),
    ] {
        let (graph, share) = read(text, undirected);
        println!("{what}: {} edges, {share:.2} graphs", graph.edges());
        let few = expected / 50; // self-loops and duplicates
        assert!(
            graph.edges() <= expected && graph.edges() + few > expected,
            "{what}"
        );
        assert!((1.0..5.0).contains(&share), "{what}: {share} graphs");
    }
}

/// An archive of PyG's arrays as `np.savez` writes it: a number of edges between vertices with 64 features each.
fn archive(vertices: usize, edges: u32) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let stored =
        zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    let mut add = |key: &str, kind: &str, shape: &str, bytes: &[u8]| {
        zip.start_file(format!("{key}.npy"), stored)
            .expect("a member");
        let header = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({shape}), }}");
        zip.write_all(b"\x93NUMPY\x01\x00\x76\x00").expect("room");
        writeln!(zip, "{header:<117}").expect("room");
        zip.write_all(bytes).expect("room");
    };
    let end = |k: u32, factor: u32| i64::from((k.wrapping_mul(factor) >> 8) % vertices as u32);
    let ends = (0..edges).map(|k| end(k, 2_654_435_761));
    let ends = ends.chain((0..edges).map(|k| end(k, 40_503)));
    let ends: Vec<u8> = ends.flat_map(i64::to_le_bytes).collect();
    add("edge_index", "<i8", &format!("2, {edges}"), &ends);
    let features: Vec<u8> = (0..vertices * 64)
        .flat_map(|at| (at as f32 % 9.0).to_le_bytes())
        .collect();
    add("x", "<f4", &format!("{vertices}, 64"), &features);
    let labels: Vec<u8> = (0..vertices as i64)
        .flat_map(|vertex| (vertex % 3).to_le_bytes())
        .collect();
    add("y", "<i8", &format!("{vertices},"), &labels);
    zip.finish().expect("an archive").into_inner()
}

#[test]
fn a_dataset_is_cut_in_parts_in_the_memory_of_its_vertices() {
    const LISTED: u32 = 1_500_000;
    const FEW: usize = 20_000;
    let folder = tempfile::tempdir().expect("room");
    let (file, parts) = (folder.path().join("x.npz"), folder.path().join("parts"));
    std::fs::write(&file, archive(FEW, LISTED)).expect("room");
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build();
    let pool = pool.expect("a thread");
    let options = OpenOptions::default();
    let (written, streamed) = pool.install(|| {
        allocation::peak_of(|| {
            let archive = StreamedArchive::open(&file, &options, folder.path());
            let archive = archive.expect("an archive").expect("a stream");
            let partition = Partition::of_degrees(archive.in_degrees(), 32).expect("parts");
            let deal = Deal {
                owners: partition.owners(),
                parts: 32,
                by: "degree",
                precision: FeaturePrecision::Half,
            };
            archive.save_parts(&parts, &deal).expect("room")
        })
    });
    assert_eq!(written.edges, u64::from(LISTED));
    let (whole, all) =
        pool.install(|| allocation::peak_of(|| Dataset::open(&parts).expect("parts")));
    let (rows, own) = pool.install(|| {
        allocation::peak_of(|| {
            let parted = Parted::open(&parts).expect("parts");
            let table = parted.table().expect("a table");
            parted
                .rows(&table, parted.range_of(1, 8).expect("a rank"))
                .expect("rows")
        })
    });
    println!("streamed {streamed}, a rank of 8 {own}, whole {all} bytes");
    assert_eq!(whole.graph.edges(), LISTED as usize);
    assert!(rows.columns.len().abs_diff(LISTED as usize / 8) < LISTED as usize / 80);
    // The archive has 24 bytes an edge and 256 a vertex.
    assert!(streamed < 6 << 20, "{streamed} bytes were held");
    assert!(own * 4 < all, "{own} of {all} bytes were held");
}
