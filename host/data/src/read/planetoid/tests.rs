//! A miniature of the published files, byte for byte as Python 2 pickled them.

use super::*;
use crate::OpenGraph;
use crate::testing::Folder as Files;
use crate::{Dataset, Format, OpenOptions, SplitRule};
use halfgnn_graph::Graph;

/// A string of Python 2.
fn string(bytes: &[u8]) -> Vec<u8> {
    match u8::try_from(bytes.len()) {
        Ok(len) => [&b"U"[..], &[len], bytes].concat(),
        Err(_) => [&b"T"[..], &(bytes.len() as u32).to_le_bytes(), bytes].concat(),
    }
}

fn whole(number: usize) -> Vec<u8> {
    [&b"J"[..], &(number as i32).to_le_bytes()].concat()
}

/// `numpy.ndarray`, of protocol 2 under Python 2.
fn array(shape: &[usize], dtype: &str, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"cnumpy.core.multiarray\n_reconstruct\nq\x07cnumpy\nndarray\nq\x08K\x00\x85U\x01b\x87R(K\x01(".to_vec();
    shape.iter().for_each(|&side| bytes.extend(whole(side)));
    bytes.extend(b"tcnumpy\ndtype\nq\x0b");
    bytes.extend(string(dtype.as_bytes()));
    bytes.extend(b"K\x00K\x01\x87R(K\x03U\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89");
    bytes.extend(string(data));
    bytes.extend(b"tb");
    bytes
}

fn floats(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

fn ints(values: &[i32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

/// `scipy.sparse.csr_matrix` of a dense one.
fn sparse(columns: usize, rows: &[&[f32]]) -> Vec<u8> {
    let (mut indptr, mut indices, mut data) = (vec![0], Vec::new(), Vec::new());
    for row in rows {
        for (column, &value) in row.iter().enumerate().filter(|(_, value)| **value != 0.0) {
            indices.push(column as i32);
            data.push(value);
        }
        indptr.push(indices.len() as i32);
    }
    let mut bytes = b"\x80\x02cscipy.sparse.csr\ncsr_matrix\nq\x01)\x81q\x02}q\x03(".to_vec();
    let entries = [
        (
            "_shape",
            [whole(rows.len()), whole(columns), b"\x86".to_vec()].concat(),
        ),
        ("maxprint", whole(50)),
        ("indptr", array(&[indptr.len()], "i4", &ints(&indptr))),
        ("indices", array(&[indices.len()], "i4", &ints(&indices))),
        ("data", array(&[data.len()], "f4", &floats(&data))),
    ];
    for (name, value) in entries {
        bytes.extend(string(name.as_bytes()));
        bytes.extend(value);
    }
    bytes.extend(b"ub.");
    bytes
}

/// One-hot labels; a row of no class is all zero.
fn one_hot(classes: usize, labels: &[usize]) -> Vec<u8> {
    let hot = labels
        .iter()
        .flat_map(|&label| (0..classes).map(move |class| i32::from(class == label)));
    let data = ints(&hot.collect::<Vec<_>>());
    [
        b"\x80\x02".to_vec(),
        array(&[labels.len(), classes], "i4", &data),
        b".".to_vec(),
    ]
    .concat()
}

fn graph(lists: &[(usize, &[usize])]) -> Vec<u8> {
    let mut bytes =
        b"\x80\x02ccollections\ndefaultdict\nq\x01c__builtin__\nlist\nq\x02\x85Rq\x03(".to_vec();
    for (vertex, list) in lists {
        bytes.extend(whole(*vertex));
        bytes.extend(b"](");
        list.iter()
            .for_each(|&neighbour| bytes.extend(whole(neighbour)));
        bytes.extend(b"e");
    }
    bytes.extend(b"u.");
    bytes
}

/// Eight vertices: 2 to train on, 2 that are neither, 4 in the test's range, of which 5 is missing, as in Citeseer.
fn miniature() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("x", sparse(3, &[&[1.0, 0.0, 1.0], &[0.0, 1.0, 0.0]])),
        ("y", one_hot(3, &[2, 0])),
        (
            "allx",
            sparse(
                3,
                &[
                    &[1.0, 0.0, 1.0],
                    &[0.0, 1.0, 0.0],
                    &[0.0, 0.0, 0.0],
                    &[0.0, 0.0, 4.0],
                ],
            ),
        ),
        ("ally", one_hot(3, &[2, 0, 1, 1])),
        (
            "tx",
            sparse(3, &[&[7.0, 0.0, 0.0], &[0.0, 5.0, 5.0], &[0.0, 0.0, 6.0]]),
        ),
        ("ty", one_hot(3, &[0, 1, 2])),
        (
            "graph",
            graph(&[
                (0, &[1, 7, 1]),
                (1, &[0]),
                (2, &[2, 4]),
                (4, &[2]),
                (7, &[0]),
                (5, &[]),
            ]),
        ),
        ("test.index", b"7\n4\n6\n".to_vec()),
    ]
}

fn write(files: &[(&'static str, Vec<u8>)]) -> Files {
    let folder = Files::new();
    for (part, bytes) in files {
        folder.write(&format!("ind.tiny.{part}"), bytes);
    }
    folder
}

fn with(part: &'static str, bytes: Vec<u8>) -> Result<Dataset, DataError> {
    let mut files = miniature();
    files.retain(|(name, _)| *name != part);
    files.push((part, bytes));
    Dataset::open(write(&files).path())
}

#[test]
fn the_miniature_is_what_pytorch_geometric_makes_of_it() {
    let folder = write(&miniature());
    assert_eq!(Format::detect(folder.path()).unwrap(), Format::Planetoid);
    for path in [
        folder.path().to_path_buf(),
        folder.path().join("ind.tiny.graph"),
    ] {
        let dataset = Dataset::open(&path).unwrap();
        assert_eq!(dataset.name, "tiny");
        let done: Vec<String> = dataset.preparations[1..]
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            done,
            [
                "edges: 2 self-loops and duplicates of the file left out (default)",
                "labels: 1 vertices that test.index lacks get no features and no label, and are in no split (default)",
                "features: 5 rows divided by their sums, as is customary of counts of words; --normalize-features=false leaves them (default)",
                "splits: as they stand there (file)"
            ]
        );
        let expected = Graph::from_edges(8, &[0, 0, 1, 2, 4, 7], &[1, 7, 0, 4, 2, 0]).unwrap();
        assert_eq!(dataset.graph, expected);
        assert_eq!(Graph::open(&path).unwrap(), expected);
        let labels = [2, 0, 1, 1, 1, UNLABELLED, 2, 0];
        assert_eq!(dataset.class_labels().unwrap(), labels);
        assert_eq!(
            (dataset.train, dataset.val, dataset.test),
            (vec![0, 1], vec![2, 3], vec![4, 6, 7])
        );
        #[rustfmt::skip]
        let features = [
            0.5, 0.0, 0.5,  0.0, 1.0, 0.0,  0.0, 0.0, 0.0,  0.0, 0.0, 1.0,
            0.0, 0.5, 0.5,  0.0, 0.0, 0.0,  0.0, 0.0, 1.0,  1.0, 0.0, 0.0,
        ];
        assert_eq!(dataset.features.to_dense().unwrap(), features);
    }
}

#[test]
fn a_split_by_rule_takes_no_vertex_without_a_label() {
    let folder = write(&miniature());
    let options = OpenOptions {
        split: Some(SplitRule::Fractions {
            train: 1.0,
            val: 0.0,
        }),
        ..OpenOptions::default()
    };
    let dataset = Dataset::open_with(folder.path(), &options).unwrap();
    assert_eq!(dataset.train, [0, 1, 2, 3, 4, 6, 7]);
}

/// `pickle.dumps(scipy.sparse.csr_matrix([[1, 0, 2], [0, 0, 3]], dtype='f4'), 2)` by Python 3.11, numpy 2.4, scipy
/// 1.17.
const BY_PYTHON_3: &[u8] = b"\x80\x02cscipy.sparse._csr\ncsr_matrix\nq\x00)\x81q\x01}q\x02(X\x06\x00\x00\x00_shapeq\x03K\x02K\x03\x86q\x04X\x08\x00\x00\x00maxprintq\x05K2X\x06\x00\x00\x00indptrq\x06cnumpy._core.multiarray\n_reconstruct\nq\x07cnumpy\nndarray\nq\x08K\x00\x85q\tc_codecs\nencode\nq\nX\x01\x00\x00\x00bq\x0bX\x06\x00\x00\x00latin1q\x0c\x86q\rRq\x0e\x87q\x0fRq\x10(K\x01K\x03\x85q\x11cnumpy\ndtype\nq\x12X\x02\x00\x00\x00i4q\x13\x89\x88\x87q\x14Rq\x15(K\x03X\x01\x00\x00\x00<q\x16NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tq\x17b\x89h\nX\x0c\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x03\x00\x00\x00q\x18h\x0c\x86q\x19Rq\x1atq\x1bbX\x07\x00\x00\x00indicesq\x1ch\x07h\x08K\x00\x85q\x1dh\x0e\x87q\x1eRq\x1f(K\x01K\x03\x85q h\x15\x89h\nX\x0c\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x02\x00\x00\x00q!h\x0c\x86q\"Rq#tq$bX\x04\x00\x00\x00dataq%h\x07h\x08K\x00\x85q&h\x0e\x87q'Rq((K\x01K\x03\x85q)h\x12X\x02\x00\x00\x00f4q*\x89\x88\x87q+Rq,(K\x03h\x16NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tq-b\x89h\nX\r\x00\x00\x00\x00\x00\xc2\x80?\x00\x00\x00@\x00\x00@@q.h\x0c\x86q/Rq0tq1bub.";

#[test]
fn what_python_3_pickles_is_read_too() {
    let pickle = Pickle::read(BY_PYTHON_3).unwrap();
    let matrix = matrix(&pickle, pickle.root()).unwrap();
    assert_eq!((matrix.rows(), matrix.columns), (2, 3));
    assert_eq!(
        (matrix.indices, matrix.values),
        (vec![0, 2, 2], vec![1.0, 2.0, 3.0])
    );
}

#[test]
fn files_that_are_missing() {
    for (part, _) in miniature() {
        let mut files = miniature();
        files.retain(|(name, _)| *name != part);
        let folder = write(&files);
        match Dataset::open(folder.path()) {
            Ok(_) => assert_eq!(part, "x", "all that x has stands in allx"),
            Err(error) if part == "graph" => assert!(
                error.to_string().contains("in no format that is known"),
                "{error}"
            ),
            Err(error) => {
                let message = format!(": has no file ind.tiny.{part}; Planetoid's raw files are ");
                assert!(error.to_string().contains(&message), "{error}");
            }
        }
    }
    // Two datasets in a folder: which one is to be said.
    let folder = write(&miniature());
    folder.write("ind.other.graph", b"");
    let message = Dataset::open(folder.path()).unwrap_err().to_string();
    assert!(
        message.contains("holds other and tiny; name one by its file, ind.other.graph"),
        "{message}"
    );
    assert!(Dataset::open(folder.path().join("ind.tiny.graph")).is_ok());
}

#[test]
fn files_that_do_not_fit_are_refused() {
    let wide = |columns| sparse(columns, &[&[1.0], &[2.0], &[3.0]]);
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        (
            "ally",
            one_hot(3, &[2, 0]),
            "labels: the shape is [2], where (4), as many as allx has rows",
        ),
        (
            "ty",
            one_hot(3, &[2, 0]),
            "labels: the shape is [2], where (3), as many as tx has rows",
        ),
        (
            "y",
            one_hot(3, &[0; 5]),
            "labels: the shape is [5], where (at most 4), part of ally",
        ),
        (
            "y",
            graph(&[]),
            "as a Python pickle: it is no array of numpy's",
        ),
        (
            "tx",
            wide(4),
            "features: the shape is [3, 4], where (3, 3), as wide as allx",
        ),
        (
            "tx",
            one_hot(3, &[1]),
            "as a Python pickle: it is no csr_matrix",
        ),
        (
            "tx",
            sparse(3, &[&[f32::NAN], &[1.0], &[1.0]]),
            "as a Python pickle: data[0] is NaN, which is no finite float",
        ),
        (
            "graph",
            one_hot(3, &[1]),
            "as a Python pickle: it is no dictionary",
        ),
        (
            "graph",
            graph(&[(8, &[])]),
            "as a Python pickle: Int(8) is no vertex: there are 8",
        ),
        (
            "graph",
            graph(&[(0, &[9])]),
            "as a Python pickle: Int(9) is no vertex: there are 8",
        ),
        (
            "graph",
            b"\x80\x02}K\x00K\x01s.".to_vec(),
            "as a Python pickle: the neighbours of 0 are no list",
        ),
        ("graph", b"".to_vec(), "the file is empty"),
        (
            "test.index",
            b"7\n4\n".to_vec(),
            "test.index: the shape is [2], where (3)",
        ),
        (
            "test.index",
            b"7\n4\n4\n".to_vec(),
            "line 3: vertex 4 stands twice",
        ),
        (
            "test.index",
            b"7\n4\n3\n".to_vec(),
            "line 3: '3' is no vertex of the test's",
        ),
        (
            "test.index",
            b"7\n4\n4000000000\n".to_vec(),
            "line 3: '4000000000' is no vertex",
        ),
        (
            "test.index",
            b"7\n4\nsix\n".to_vec(),
            "line 3: 'six' is no vertex",
        ),
    ];
    for (part, bytes, message) in cases {
        let error = with(part, bytes).unwrap_err().to_string();
        assert!(error.contains(&format!(": {message}")), "{part}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn matrices_whose_arrays_disagree_are_refused() {
    let whole = sparse(3, &[&[7.0, 0.0, 0.0], &[0.0, 5.0, 5.0], &[0.0, 0.0, 6.0]]);
    let replaced = |from: &[u8], to: &[u8]| {
        let at = whole
            .windows(from.len())
            .position(|window| window == from)
            .expect("it is there");
        let mut bytes = whole.clone();
        bytes.splice(at..at + from.len(), to.iter().copied());
        with("tx", bytes).unwrap_err().to_string()
    };
    let indptr = ints(&[0, 1, 3, 4]);
    assert!(
        replaced(&indptr, &ints(&[0, 3, 1, 4]))
            .contains("indptr: offsets[2] is 1, but row offsets never decrease")
    );
    assert!(replaced(&indptr, &ints(&[0, 1, 3, -4])).contains("indptr[3] is no whole number"));
    assert!(
        replaced(&indptr, &ints(&[0, 1, 3, 5]))
            .contains("indptr: offsets[3] is 5, but row offsets end")
    );
    assert!(
        replaced(&ints(&[0, 1, 2, 2]), &ints(&[0, 1, 2, 3]))
            .contains("indices[3] is no whole number below 3")
    );
    assert!(
        replaced(b"J\x04\x00\x00\x00t", b"J\xff\xff\xff\x7ft")
            .contains("an array of shape [2147483647] has 16 bytes")
    );
    assert!(
        replaced(b"J\x04\x00\x00\x00t", b"J\xff\xff\xff\xfft").contains("it is no whole array")
    );
    assert!(
        replaced(b"U\x02f4", b"U\x02O8")
            .contains("an array is of type '<O8', which is no number's")
    );
    assert!(replaced(b"indices", b"indicez").contains("the csr_matrix has no field indices"));
}

#[test]
fn one_long_list_under_many_names_is_refused() {
    // 100,000 keys, and all have the list of 100,000 that stands once.
    let mut bytes = b"\x80\x02}(K\x00](".to_vec();
    bytes.extend(b"K\x01".repeat(100_000));
    bytes.extend(b"eq\x01");
    bytes.extend(b"K\x00h\x01".repeat(100_000));
    bytes.extend(b"u.");
    assert!(
        with("graph", bytes)
            .unwrap_err()
            .to_string()
            .contains("the lists are longer than the file")
    );
}

#[test]
fn files_cut_anywhere_are_refused() {
    for (part, whole) in miniature() {
        if part == "x" {
            continue;
        }
        // All but the last byte of test.index is the end of its last line.
        for len in (0..whole.len() - 1).step_by(3) {
            assert!(
                with(part, whole[..len].to_vec()).is_err(),
                "{len} bytes of {part}"
            );
        }
    }
}

/// Where the raw files lie, if `$HALFGNN_DATA` has them: in a folder by the name of the dataset.
#[test]
fn cora_equals_its_npz_where_both_are_at_hand() {
    let Some(root) = std::env::var_os("HALFGNN_DATA").map(std::path::PathBuf::from) else {
        return println!(
            "skipped: set HALFGNN_DATA to the folder that holds cora.npz and cora/raw/ind.cora.graph"
        );
    };
    for name in ["cora", "citeseer"] {
        let (raw, npz) = (root.join(name), root.join(format!("{name}.npz")));
        if !raw.exists() || !npz.exists() {
            println!(
                "skipped: {} and {} are not both there",
                raw.display(),
                npz.display()
            );
            continue;
        }
        let (raw, npz) = (Dataset::open(raw).unwrap(), Dataset::open(npz).unwrap());
        assert_eq!(raw.graph, npz.graph);
        assert_eq!(
            raw.features.to_dense().unwrap(),
            npz.features.to_dense().unwrap()
        );
        assert_eq!(
            (raw.targets, raw.train, raw.val, raw.test),
            (npz.targets, npz.train, npz.val, npz.test)
        );
    }
}
