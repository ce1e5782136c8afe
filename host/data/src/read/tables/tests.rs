use std::path::Path;

use crate::testing::{Folder, gzip};
use crate::{ColumnNames, DataError, Dataset, Format, OpenGraph, OpenOptions, Targets, UNLABELLED};
use halfgnn_graph::Graph;

const NODES: &str = "\u{feff}id,age,city code,label,split\n\
    ann,31,0.5,cat,train\n\"b, c\",18,-1e2,dog,val\nøle, 7 ,true,,\n0004,0,1,cat,TEST\n";
const EDGES: &str = "source,target,weight,since\r\nann,\"b, c\",0.5,1999\r\nøle,ann,2,2001\r\n\"b, c\",ann,1,2003\r\n";

fn folder(nodes: &str, edges: &str) -> Folder {
    let folder = Folder::new();
    folder.write("nodes.csv", nodes.as_bytes());
    folder.write("edges.csv", edges.as_bytes());
    folder
}

fn open(nodes: &str, edges: &str, columns: ColumnNames) -> Result<Dataset, DataError> {
    let options = OpenOptions {
        columns,
        ..OpenOptions::default()
    };
    Dataset::open_with(folder(nodes, edges).path(), &options)
}

fn done(dataset: &Dataset, of: &str) -> String {
    let step = dataset.preparations.iter().find(|step| step.of == of);
    step.map_or_else(String::new, |step| step.what.clone())
}

fn check(dataset: &Dataset) {
    let ids = dataset.ids.as_ref().unwrap();
    assert_eq!(
        ids.iter().collect::<Vec<_>>(),
        ["ann", "b, c", "øle", "0004"]
    );
    // ann has the in-neighbours "b, c" and øle; "b, c" has ann.
    assert_eq!(dataset.graph.rows(), [0, 0, 1]);
    assert_eq!(dataset.graph.cols(), [1, 2, 0]);
    assert_eq!(dataset.edge_weights, Some(vec![1.0, 2.0, 0.5]));
    assert_eq!(
        dataset.edge_features.as_ref().unwrap().values(),
        [2003., 2001., 1999.]
    );
    let mut row = [0.0; 2];
    dataset.features.write_row(1, &mut row);
    assert_eq!(row, [18.0, -100.0]);
    assert_eq!(dataset.targets, vec![0, 1, UNLABELLED, 0].into());
    assert_eq!(dataset.class_names.as_ref().unwrap()[..], ["cat", "dog"]);
    assert_eq!(
        [&dataset.train[..], &dataset.val, &dataset.test],
        [&[0][..], &[1], &[3]]
    );
}

#[test]
fn tables_are_read_by_the_names_of_their_columns() {
    let here = folder(NODES, EDGES);
    check(&Dataset::open(here.path()).unwrap());
    assert_eq!(Format::detect(here.path()).unwrap(), Format::Csv);
    assert_eq!(Graph::open(here.path()).unwrap().edges(), 3);
    let named = |nodes: &Path, edges: &Path| format!("{},{}", nodes.display(), edges.display());
    let tabs = |text: &str| {
        text.replace("\"b, c\"", "b! c")
            .replace(',', "\t")
            .replace('!', ",")
    };
    let nodes = here.write("people.tsv.gz", &gzip(tabs(NODES).as_bytes()));
    let edges = here.write("knows.tsv", tabs(EDGES).as_bytes());
    let both = named(&nodes, &edges);
    assert_eq!(crate::locate(&both, None).unwrap(), Path::new(&both));
    check(&Dataset::open(&both).unwrap());
    let missing = named(&nodes, Path::new("none.csv"));
    let message = crate::locate(&missing, None).unwrap_err().to_string();
    assert!(message.contains("there is no none.csv"), "{message}");
}

#[test]
fn rows_without_ids_are_numbered() {
    let dataset = open(
        "x;y\n0.5;1\n1;0\n",
        "src;dst\n0;1\n",
        ColumnNames::default(),
    )
    .unwrap();
    assert_eq!(
        (dataset.ids.is_none(), dataset.graph.cols()),
        (true, &[0][..])
    );
    assert!(done(&dataset, "ids").starts_with("rows of the table"));
    assert_eq!(dataset.targets, vec![1, 0].into());
    let counted = open("id,f\n0,1\n1,2\n", "from,to\n1,0\n", ColumnNames::default()).unwrap();
    assert_eq!((counted.ids, counted.outputs), (None, 0));
    let bare = open("id\nb\na\n", "from,to\na,b\n", ColumnNames::default()).unwrap();
    assert_eq!((bare.feature_len(), bare.ids.unwrap().get(1)), (1, "a"));
}

#[test]
fn labels_tell_the_task() {
    let of = |labels: &str| {
        let rows = labels.split(' ').enumerate();
        let rows: String = rows.map(|(id, label)| format!("v{id},{label}\n")).collect();
        open(
            &format!("id,y\n{rows}"),
            "from,to\nv0,v1\n",
            ColumnNames::default(),
        )
        .unwrap()
    };
    assert_eq!(
        of("3 -1 0  nan").targets,
        vec![3, UNLABELLED, 0, UNLABELLED, UNLABELLED].into()
    );
    let values = of("0.5 2 -7 nan");
    let Targets::Values(numbers) = &values.targets else {
        panic!("{:?}", values.targets)
    };
    assert_eq!(&numbers.values()[..3], [0.5, 2.0, -7.0]);
    assert!(numbers.values()[3].is_nan());
    assert!(done(&values, "targets").starts_with("a number of each vertex"));
    let names = ColumnNames {
        labels: vec!["a".into(), "c".into()],
        ignored: vec!["b".into()],
        ..ColumnNames::default()
    };
    let several = open("id,a,b,c\nu,1,x,0\nv,0,y,1\n", "from,to\nu,v\n", names).unwrap();
    assert!(matches!(&several.targets, Targets::Labels(labels) if labels.words() == [1, 2]));
    assert_eq!(done(&several, "other"), "columns b are left alone");
}

#[test]
fn a_table_without_names_is_refused() {
    let edges = "source,target\n0,1\n1,2\n";
    for nodes in [
        "0,0.5,1\n1,0.25,0\n2,1.5,1\n",
        "ann,31,0.5\nbob,18,2\n",
        "0\n1\n2\n",
    ] {
        let error = open(nodes, edges, ColumnNames::default()).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("nodes.csv: line 1: the names are numbers"),
            "{error}"
        );
    }
    let error = open("id,f\n0,1\n1,2\n", "0,1\n1,0\n", ColumnNames::default());
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("begin the table with a line of names, such as source,target"),
        "{error}"
    );
    // Among names with a meaning they are features, and named.
    let named = open(
        "id,0,1,y\na,0.5,1,0\nb,2,3,1\n",
        "source,target\na,b\n",
        ColumnNames::default(),
    );
    let named = named.unwrap();
    assert_eq!(named.feature_len(), 2);
    assert_eq!(
        done(&named, "other"),
        "columns '0', '1' of the table of vertices have numbers for names, and are features"
    );
}

#[test]
fn an_index_of_pandas_is_no_feature() {
    for name in ["", "Unnamed: 0"] {
        let nodes = format!("{name},id,f,y\n0,a,0.5,0\n1,b,2,1\n");
        let edges = format!("{name},source,target\n0,a,b\n1,b,a\n");
        let dataset = open(&nodes, &edges, ColumnNames::default()).unwrap();
        assert_eq!(
            (dataset.feature_len(), dataset.edge_features.is_none()),
            (1, true)
        );
        let said = |of: &str| {
            let all = dataset.preparations.iter().filter(|step| step.of == of);
            all.map(|step| step.what.clone())
                .collect::<Vec<_>>()
                .join("; ")
        };
        for table in ["vertices", "edges"] {
            let words =
                format!("'{name}' of the table of {table}, an index of pandas', is left alone");
            assert!(said("other").contains(&words), "{}", said("other"));
        }
        // Without ids it has them.
        let nodes = format!("{name},f\nb,1\na,2\n");
        let dataset = open(&nodes, "source,target\na,b\n", ColumnNames::default()).unwrap();
        assert_eq!(dataset.ids.as_ref().unwrap().get(1), "a");
        assert_eq!((dataset.feature_len(), dataset.graph.cols()), (1, &[1][..]));
    }
}

#[test]
fn a_decimal_comma_is_said_or_refused() {
    let labels = "id;y\na;0,5\nb;1,5\n";
    let edges = "source;target\na;b\n";
    let dataset = open(labels, edges, ColumnNames::default()).unwrap();
    assert!(
        done(&dataset, "labels").contains("'0,5' has a decimal comma, and is a number only as 0.5")
    );
    let features = open("id;f\na;0,5\nb;1,5\n", edges, ColumnNames::default());
    let error = features.unwrap_err().to_string();
    assert!(
        error.contains("line 2: '0,5' in column 'f' has a decimal comma; write 0.5"),
        "{error}"
    );
}

#[test]
fn missing_values_are_missing_in_every_spelling() {
    let rows = |labels: [&str; 4]| {
        let rows = labels.iter().enumerate();
        let rows: String = rows.map(|(at, label)| format!("v{at},{label}\n")).collect();
        open(
            &format!("id,y\n{rows}"),
            "from,to\nv0,v1\n",
            ColumnNames::default(),
        )
        .unwrap()
    };
    for missing in ["", "NA", "null", "NaN", "None", "<NA>"] {
        let names = rows(["cat", missing, "dog", "cat"]);
        assert_eq!(names.targets, vec![0, UNLABELLED, 1, 0].into(), "{missing}");
        let numbers = rows(["1", missing, "0", "2.0"]);
        assert_eq!(
            numbers.targets,
            vec![1, UNLABELLED, 0, 2].into(),
            "{missing}"
        );
        let all = [&numbers.train[..], &numbers.val, &numbers.test].concat();
        assert!(!all.contains(&1), "{missing}");
    }
    let names = ColumnNames {
        labels: vec!["a".into(), "b".into()],
        ..ColumnNames::default()
    };
    let several = open("id,a,b\nu,1,\nv,0,NA\nw,-1,1\n", "from,to\nu,v\n", names).unwrap();
    let Targets::Labels(labels) = &several.targets else {
        panic!("{:?}", several.targets)
    };
    let entries: Vec<_> = (0..6).map(|at| labels.get(at / 2, at % 2)).collect();
    assert_eq!(
        entries,
        [Some(true), None, Some(false), None, None, Some(true)]
    );
}

#[test]
fn old_macs_line_ends_are_line_ends() {
    let cr = |text: &str| text.replace("\r\n", "\n").replace('\n', "\r");
    check(&open(&cr(NODES), &cr(EDGES), ColumnNames::default()).unwrap());
}

#[test]
fn packings_that_are_not_read_are_named() {
    let zstd = b"\x28\xb5\x2f\xfd".as_slice();
    for (name, bytes, words) in [
        (
            "nodes.csv.zst",
            zstd,
            "packed by zstd, which is not read; unpack it first",
        ),
        ("nodes.csv.bz2", b"BZh91AY", "packed by bzip2"),
        (
            "nodes.csv",
            b"\xff\xfei\0d\0",
            "text in UTF-16, which is not read; save it as UTF-8",
        ),
    ] {
        let here = Folder::new();
        here.write(name, bytes);
        here.write("edges.csv", b"source,target\n0,1\n");
        let error = Dataset::open(here.path()).unwrap_err().to_string();
        assert!(error.contains(words), "{name}: {error}");
        let alone = Graph::open(here.write("graph.txt", bytes))
            .unwrap_err()
            .to_string();
        assert!(alone.contains(words), "{name}: {alone}");
    }
}

#[test]
fn masks_are_splits() {
    let nodes = "id,train_mask,val_mask,test_mask,y\na,True,False,False,0\nb,0,1,0,1\nc,False,False,True,0\n";
    let dataset = open(nodes, "from,to\na,b\n", ColumnNames::default()).unwrap();
    assert_eq!([dataset.train, dataset.val, dataset.test], [[0], [1], [2]]);
}

#[test]
fn what_is_wrong_is_reported_with_its_line() {
    let nodes = |text: &'static str| (text, "source,target\na,a\n");
    let edges = |text: &'static str| ("id,f\na,1\nb,2\n", text);
    let cases = [
        (
            nodes("id,f\na,1\nb\n"),
            "nodes.csv: line 3: there are 1 cells, where the first line names 2",
        ),
        (
            nodes("id,f\na,1\na,2\n"),
            "nodes.csv: line 3: id 'a' stands in line 2 already",
        ),
        (nodes("id,f\n,1\n"), "nodes.csv: line 2: the id is empty"),
        (
            nodes("id,f\na,one\n"),
            "'one' in column 'f' is no finite number, and every column",
        ),
        (
            nodes("id,f\na,\n"),
            "line 2: the cell in column 'f' is empty",
        ),
        (nodes("id,f\na,inf\n"), "line 2: 'inf' in column 'f'"),
        (
            nodes("id,split\na,both\n"),
            "line 2: 'both' is no split; it is train, val or test",
        ),
        (
            nodes("id,label,y\na,1,2\n"),
            "columns 'label' and 'y' could both be meant",
        ),
        (
            nodes("id,train_mask\na,2\n"),
            "'2' in column 'train_mask' is neither true nor false",
        ),
        (nodes(""), "nodes.csv: the file is empty"),
        (
            edges("source,target\na,c\n"),
            "edges.csv: line 2: 'c' is no id of the table of vertices",
        ),
        (
            edges("source,weight\na,1\n"),
            "there is no column 'target'; there are source, weight; name it by --target",
        ),
        (
            edges("source,target,weight\na,b,x\n"),
            "edges.csv: line 2: 'x' in column 'weight'",
        ),
    ];
    for ((nodes, edges), words) in cases {
        let error = open(nodes, edges, ColumnNames::default())
            .unwrap_err()
            .to_string();
        assert!(error.contains(words), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }
    let rows = open("f\n1\n", "from,to\n0,1\n", ColumnNames::default())
        .unwrap_err()
        .to_string();
    assert!(
        rows.contains("'1' is no row of the table of vertices, which has 1 and"),
        "{rows}"
    );
    let named = |names: ColumnNames| {
        open("id,f\na,1\n", "from,to\na,a\n", names)
            .unwrap_err()
            .to_string()
    };
    let id = ColumnNames {
        id: Some("key".into()),
        ..ColumnNames::default()
    };
    assert!(named(id).contains("there is no column 'key'; there are id, f"));
    let ignored = ColumnNames {
        ignored: vec!["g".into()],
        ..ColumnNames::default()
    };
    assert!(named(ignored).contains("there is no column 'g' to leave out"));
    let text = Folder::new();
    let mut options = OpenOptions::default();
    options.columns.id = Some("id".into());
    let edge_list = Graph::open_with(text.write("x.txt", b"0 1\n"), &options)
        .unwrap_err()
        .to_string();
    assert!(
        edge_list.contains("which has no columns to name"),
        "{edge_list}"
    );
}

/// Written by pandas 3 and pyarrow 26 (`df.to_parquet(name)`) from these tables:
///
/// ```python
/// pd.DataFrame({'id': ['ann', 'b, c', 'øle', '0004'], 'f': [[31, .5], [18, -100], [7, 1], [0, 1.]],
///               'label': ['cat', 'dog', None, 'cat'],
///               'split': ['train', 'val', None, 'test']}).to_parquet('nodes.parquet')
/// pd.DataFrame({'source': ['ann', 'øle', 'b, c'], 'target': ['b, c', 'ann', 'ann'], 'weight': [.5, 2, 1],
///               'since': [1999, 2001, 2003]}).to_parquet('edges.parquet')
/// ```
#[test]
#[cfg(feature = "parquet")]
fn parquet_is_the_same() {
    let folder = Folder::new();
    let nodes = folder.write("nodes.parquet", include_bytes!("nodes.parquet"));
    folder.write("edges.parquet", include_bytes!("edges.parquet"));
    check(&Dataset::open(folder.path()).unwrap());
    assert_eq!(Format::detect(folder.path()).unwrap(), Format::Parquet);
    let whole = include_bytes!("nodes.parquet");
    for len in [4, 100, whole.len() / 2, whole.len() - 1] {
        std::fs::write(&nodes, &whole[..len]).unwrap();
        let error = Dataset::open(folder.path()).unwrap_err().to_string();
        assert!(
            error.contains("is not a whole Parquet file"),
            "{len}: {error}"
        );
    }
}

#[test]
#[cfg(not(feature = "parquet"))]
fn parquet_names_its_feature() {
    let folder = Folder::new();
    folder.write("nodes.parquet", b"PAR1");
    folder.write("edges.parquet", b"PAR1");
    let error = Dataset::open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("the feature `parquet`"), "{error}");
}

const TYPED: [(&str, &str); 5] = [
    (
        "nodes.paper.csv",
        "id,year,venue,split\np1,0.5,kdd,train\np2,1.5,nips,test\np3,2.5,,\n",
    ),
    ("nodes.author.csv", "id\nanna\nben\n"),
    (
        "edges.author.writes.paper.csv",
        "source,target,weight\nanna,p1,1\nanna,p2,2\nben,p3,1\n",
    ),
    (
        "edges.paper.cites.paper.tsv",
        "source\ttarget\np2\tp1\np1\tp3\n",
    ),
    ("readme.txt", "nothing"),
];

fn typed(changed: &[(&str, &str)]) -> Folder {
    let folder = Folder::new();
    for (name, text) in TYPED.iter().chain(changed) {
        folder.write(name, text.as_bytes());
    }
    folder
}

fn labels(name: &str) -> OpenOptions {
    OpenOptions {
        several_types: true,
        columns: ColumnNames {
            labels: vec![name.into()],
            ..ColumnNames::default()
        },
        ..OpenOptions::default()
    }
}

#[test]
fn tables_of_several_types_are_read() {
    let folder = typed(&[]);
    let options = labels("venue");
    let dataset = Dataset::open_with(folder.path(), &options).unwrap();
    let types = dataset.types.as_ref().unwrap();
    let titles: Vec<_> = types.edges().iter().map(|of| types.title(of)).collect();
    assert_eq!(titles, ["paper cites paper", "author writes paper"]);
    let pairs = |of: usize| types.edges()[of].edges.iter().collect::<Vec<_>>();
    assert_eq!(pairs(0), [(0, 1), (2, 0)]);
    assert_eq!(pairs(1), [(0, 0), (1, 0), (2, 1)]);
    assert_eq!(dataset.features.to_dense().unwrap(), [0.5, 1.5, 2.5]);
    assert_eq!(dataset.features_of_type(0), None);
    assert_eq!(dataset.class_labels().unwrap(), [0, 1, UNLABELLED]);
    assert_eq!(
        (&dataset.train[..], &dataset.test[..]),
        (&[0][..], &[1][..])
    );
    assert_eq!(
        dataset.ids.as_ref().map(|ids| ids.get(1).to_owned()),
        Some("p2".into())
    );
    let other: Vec<_> = dataset
        .preparations
        .iter()
        .filter(|step| step.of == "other")
        .collect();
    assert_eq!(
        other[0].what,
        "weights of edges author writes paper are left alone"
    );
    let one = OpenOptions {
        several_types: false,
        ..labels("venue")
    };
    let refused = Dataset::open_with(folder.path(), &one)
        .unwrap_err()
        .to_string();
    assert!(refused.contains("several types"), "{refused}");
}

#[test]
fn what_is_wrong_with_tables_of_types_names_its_file() {
    let cases = [
        (
            "edges.author.writes.paper.csv",
            "source,target\nanna,p9\n",
            "'p9' is no id",
        ),
        (
            "edges.author.writes.paper.csv",
            "source,target\np1,p1\n",
            "'p1' is no id",
        ),
        (
            "edges.author.likes.field.csv",
            "source,target\n",
            "no table nodes.field.csv",
        ),
        (
            "nodes.author.csv",
            "id,venue\nanna,a\nben,b\n",
            "types author and paper both have labels",
        ),
        (
            "nodes.paper.csv",
            "id,year\np1,0\np2,1\np3,x\n",
            "'x' in column 'year'",
        ),
    ];
    for (file, text, words) in cases {
        let folder = typed(&[(file, text)]);
        let message = Dataset::open_with(folder.path(), &labels("venue"))
            .unwrap_err()
            .to_string();
        assert!(message.contains(words), "{words}: {message}");
    }
    let message = Dataset::open_with(typed(&[]).path(), &labels("venues"))
        .unwrap_err()
        .to_string();
    assert!(message.contains("'kdd' in column 'venue'"), "{message}");
}
