//! Files of torch 2.15 and torch_geometric 2.8, made by these lines:
//!
//! ```python
//! ei = torch.tensor([[3, 0, 2, 0], [1, 1, 0, 3]])
//! mask = lambda at: torch.arange(4) == at
//! d = Data(x=torch.arange(8.).reshape(2, 4).t(), edge_index=ei, y=torch.tensor([2, 0, -1, 1]),
//!          edge_attr=torch.arange(1., 9.).reshape(4, 2).bfloat16(), edge_weight=torch.tensor([.25, .5, 2, 3]).half(),
//!          train_mask=mask(0), val_mask=mask(1), test_mask=mask(3), note='a text')
//! torch.save(d, 'data.pt')
//! torch.save({'edge_index': ei.int(), 'num_nodes': 5, 'y': torch.arange(.5, 5).double(),
//!             'x': torch.ones(1, 3).expand(5, 3)}, 'dict.pt')
//! InMemoryDataset.save([d], 'processed.pt'); InMemoryDataset.save([d, d], 'two_graphs.pt')
//! h = HeteroData(); h['a'].x = torch.ones(2, 1); torch.save(h, 'hetero.pt')
//! h = HeteroData()
//! h['paper'].x = torch.arange(6.).reshape(3, 2)
//! h['paper'].y = torch.tensor([1, 0, -1])
//! h['paper'].train_mask, h['paper'].test_mask = torch.tensor([[True, False, False], [False, True, False]])
//! h['author'].num_nodes = 2
//! h['author', 'writes', 'paper'].edge_index = torch.tensor([[0, 0, 1], [0, 1, 2]])
//! h['paper', 'cites', 'paper'].edge_index = torch.tensor([[1, 0], [0, 2]])
//! h['paper', 'cites', 'paper'].edge_attr = torch.ones(2, 1)
//! h.note = 'a text'
//! torch.save(h, 'types.pt'); torch.save(h.to_dict(), 'types_dict.pt'); InMemoryDataset.save([h], 'types_processed.pt')
//! torch.save({'edge_index': ei, 'x': torch.eye(4).to_sparse()}, 'sparse.pt')
//! torch.save({'edge_index': ei, 'y': d.y}, 'old.pt', _use_new_zipfile_serialization=False)
//! ```

use std::io::Cursor;

use crate::{DataProblem, Dataset, OpenGraph, OpenOptions, Targets, UNLABELLED};
use halfgnn_graph::Graph;

fn open(bytes: &[u8]) -> Result<Dataset, DataProblem> {
    Dataset::read_from(Cursor::new(bytes), &OpenOptions::default())
}

#[test]
fn a_data_object_is_read() {
    let alone: &[u8] = include_bytes!("data.pt");
    let processed: &[u8] = include_bytes!("processed.pt");
    for bytes in [alone, processed] {
        let dataset = open(bytes).unwrap();
        assert_eq!(dataset.graph.rows(), [0, 1, 1, 3]);
        assert_eq!(dataset.graph.cols(), [2, 0, 3, 0]);
        assert_eq!(dataset.edge_weights, Some(vec![2.0, 0.5, 0.25, 3.0]));
        let features = dataset.edge_features.as_ref().unwrap();
        assert_eq!(features.values(), [5., 6., 3., 4., 1., 2., 7., 8.]);
        assert_eq!(dataset.targets, vec![2, 0, UNLABELLED, 1].into());
        // x is the transpose of what lies in the file.
        let mut row = [0.0; 2];
        dataset.features.write_row(1, &mut row);
        assert_eq!(row, [1.0, 5.0]);
        let splits = [dataset.train, dataset.val, dataset.test];
        assert_eq!(splits, [vec![0], vec![1], vec![3]]);
        let other = dataset.preparations.iter().find(|step| step.of == "other");
        assert_eq!(other.unwrap().what, "note are left alone");
        let graph = Graph::read_from(Cursor::new(bytes), &OpenOptions::default());
        assert_eq!(graph.unwrap(), dataset.graph);
    }
}

#[test]
fn a_dictionary_of_tensors_is_read() {
    let dataset = open(include_bytes!("dict.pt")).unwrap();
    assert_eq!((dataset.graph.vertices(), dataset.graph.edges()), (5, 4));
    let Targets::Values(values) = &dataset.targets else {
        panic!("{:?}", dataset.targets)
    };
    assert_eq!(values.values(), [0.5, 1.5, 2.5, 3.5, 4.5]);
    let mut row = [0.0; 3];
    dataset.features.write_row(4, &mut row);
    assert_eq!(row, [1.0; 3]);
}

/// Made by these lines; torch_sparse's classes stand in for those of a build of it, with the same fields:
///
/// ```python
/// w = torch.tensor([.25, .5, 2., 3.]); coo = torch.sparse_coo_tensor(ei.flip(0), w, (4, 4)).coalesce()
/// d = Data(x=torch.arange(8.).reshape(2, 4).t().contiguous(), y=torch.tensor([2, 0, -1, 1]),
///          adj_t=coo.to_sparse_csr())
/// torch.save(d, 'adj_csr.pt'); d.adj_t = coo; torch.save(d, 'adj_coo.pt')
/// torch.save({'x': d.x, 'y': d.y, 'adj_t': SparseTensor(rowptr=…, col=…, value=…)}, 'adj_sparse_tensor.pt')
/// ```
#[test]
fn a_sparse_adjacency_has_its_edges_and_weights() {
    let files: [&[u8]; 3] = [
        include_bytes!("adj_csr.pt"),
        include_bytes!("adj_coo.pt"),
        include_bytes!("adj_sparse_tensor.pt"),
    ];
    for bytes in files {
        let dataset = open(bytes).unwrap();
        assert_eq!(dataset.graph.rows(), [0, 1, 1, 3]);
        assert_eq!(dataset.graph.cols(), [2, 0, 3, 0]);
        assert_eq!(dataset.edge_weights, Some(vec![2.0, 0.5, 0.25, 3.0]));
        assert_eq!(dataset.targets, vec![2, 0, UNLABELLED, 1].into());
        let graph = Graph::read_from(Cursor::new(bytes), &OpenOptions::default());
        assert_eq!(graph.unwrap(), dataset.graph);
    }
}

/// `torch.save([g(2, 0), g(3, 1), g(2, 1)], 'list.pt')`, where `g(n, y)` is `Data(x=torch.full((n, 2), float(n)),
/// y=torch.tensor([y]), edge_index=torch.tensor([[0, 1], [1, 0]]))`.
#[test]
fn a_list_of_data_objects_is_a_set_of_graphs() {
    let dataset = open(include_bytes!("list.pt")).unwrap();
    assert_eq!(dataset.graphs.as_ref().unwrap().starts(), [0, 2, 5, 7]);
    assert_eq!(dataset.targets, vec![0, 1, 1].into());
    assert_eq!(dataset.graph.rows(), [0, 1, 2, 3, 5, 6]);
    assert_eq!(dataset.graph.cols(), [1, 0, 3, 2, 6, 5]);
    let mut row = [0.0; 2];
    dataset.features.write_row(4, &mut row);
    assert_eq!(row, [3.0; 2]);
}

#[test]
fn what_is_something_else_says_what_to_save() {
    let cases: [(&[u8], &str); 4] = [
        (
            include_bytes!("two_graphs.pt"),
            "a dataset of several graphs; save a list of them",
        ),
        (
            include_bytes!("hetero.pt"),
            "types of vertices and no edges",
        ),
        (
            include_bytes!("sparse.pt"),
            "x is what _rebuild_sparse_tens… makes, where a dense",
        ),
        (include_bytes!("old.pt"), "of before torch 1.6"),
    ];
    for (bytes, words) in cases {
        let message = open(bytes).unwrap_err().to_string();
        assert!(message.contains(words), "{message}");
    }
}

/// The file with other bytes of one length in the place of some; archives of torch's are not packed.
fn patched(from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut bytes = include_bytes!("dict.pt").to_vec();
    let at = bytes.windows(from.len()).position(|window| window == from);
    let at = at.expect("such bytes");
    bytes[at..at + to.len()].copy_from_slice(to);
    bytes
}

#[test]
fn nothing_outside_of_a_storage_is_read() {
    // y's stride becomes 7. The archive's checksum would fail as well, so the strides must be checked first.
    let pickle = super::Torch::open(
        crate::input::Input::new(
            Cursor::new(include_bytes!("dict.pt").as_slice()),
            &crate::input::Silent,
        )
        .unwrap(),
    );
    let torch = pickle.unwrap();
    let super::Entry::Tensor(y) = &torch.entries["y"] else {
        panic!("{:?}", torch.entries)
    };
    assert_eq!(y.check("y", 5).unwrap(), 5);
    let far = |offset, shape: &[u64], strides: &[u64]| super::Tensor {
        offset,
        shape: shape.to_vec(),
        strides: strides.to_vec(),
        ..y.clone()
    };
    for tensor in [
        far(1, &[5], &[1]),
        far(0, &[5], &[7]),
        far(0, &[1 << 40], &[0]),
        far(0, &[1 << 40, 1 << 40], &[0, 0]),
        far(u64::MAX, &[2], &[1]),
        far(0, &[3], &[u64::MAX]),
    ] {
        let message = tensor.check("y", 5).unwrap_err().to_string();
        assert!(message.starts_with("y: the header promises"), "{message}");
    }
    assert_eq!(far(9, &[0, 4], &[1, 1]).check("y", 5).unwrap(), 0);
    let broken = open(&patched(b"DoubleStorage", b"DoubleStorxge")).unwrap_err();
    assert!(matches!(broken, DataProblem::Archive { .. }), "{broken}");
}

/// What the files of several types hold.
fn types_and_labels(dataset: &Dataset) {
    let types = dataset.types.as_ref().expect("several types");
    let vertices: Vec<_> = types
        .vertices()
        .iter()
        .map(|of| (&*of.name, of.vertices))
        .collect();
    assert_eq!(vertices, [("author", 2), ("paper", 3)]);
    let titles: Vec<_> = types.edges().iter().map(|of| types.title(of)).collect();
    assert_eq!(titles, ["paper cites paper", "author writes paper"]);
    let pairs = |of: usize| types.edges()[of].edges.iter().collect::<Vec<_>>();
    assert_eq!(pairs(0), [(0, 1), (2, 0)]);
    assert_eq!(pairs(1), [(0, 0), (1, 0), (2, 1)]);
    assert_eq!(types.labelled(), 1);
    assert_eq!(dataset.features_of_type(0), None);
    assert_eq!(
        dataset.features.to_dense().unwrap(),
        [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    );
    assert_eq!(dataset.targets, vec![1, 0, UNLABELLED].into());
    assert_eq!(
        (&dataset.train[..], &dataset.test[..]),
        (&[0][..], &[1][..])
    );
}

#[test]
fn data_of_several_types_is_read() {
    let options = OpenOptions {
        several_types: true,
        ..OpenOptions::default()
    };
    let files: [&[u8]; 3] = [
        include_bytes!("types.pt"),
        include_bytes!("types_dict.pt"),
        include_bytes!("types_processed.pt"),
    ];
    for bytes in files {
        let dataset = Dataset::read_from(Cursor::new(bytes), &options).unwrap();
        types_and_labels(&dataset);
        let other = dataset.preparations.iter().find(|step| step.of == "other");
        assert_eq!(
            other.unwrap().what,
            "paper/cites/paper/edge_attr are left alone"
        );
        let refused = open(bytes).unwrap_err().to_string();
        assert!(refused.contains("several types"), "{refused}");
        let refused = Graph::read_from(Cursor::new(bytes), &OpenOptions::default()).unwrap_err();
        assert!(refused.to_string().contains("several types"), "{refused}");
    }
}

#[cfg(feature = "write")]
#[test]
fn what_is_written_of_several_types_is_read_again() {
    let options = OpenOptions {
        several_types: true,
        ..OpenOptions::default()
    };
    let bytes: &[u8] = include_bytes!("types.pt");
    let dataset = Dataset::read_from(Cursor::new(bytes), &options).unwrap();
    let mut file = Cursor::new(Vec::new());
    let format = dataset.archive_format();
    dataset
        .write_to(&mut file, crate::WriteOptions::new(format))
        .unwrap();
    let again = Dataset::read_from(file, &options).unwrap();
    types_and_labels(&again);
    assert_eq!(again.types, dataset.types);
    for format in [crate::Format::GnnBenchmark, crate::Format::RawCsr] {
        let refused = dataset.write_to(Cursor::new(Vec::new()), crate::WriteOptions::new(format));
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("several types"), "{refused}");
    }
}
