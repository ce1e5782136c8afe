//! A small labelled graph in a file, and a folder to train in.

use super::halfgnn;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The arrays of a gnn-benchmark file: two classes on a ring, distinguished by their first feature.
pub struct Ring {
    /// Features of a vertex: one of them is not 0.
    pub features: i64,
    /// What that is, of each vertex.
    pub values: Vec<f32>,
    pub columns: Vec<i32>,
    /// Of each edge.
    pub weights: Vec<f32>,
    pub labels: Vec<i64>,
    pub train: Vec<i64>,
    pub validation: Vec<i64>,
    pub test: Vec<i64>,
}

pub const VERTICES: i32 = 40;

impl Ring {
    pub fn new() -> Self {
        let neighbours = |v: i32| [(v + VERTICES - 1) % VERTICES, (v + 1) % VERTICES];
        Self {
            features: 3,
            values: vec![1.0; VERTICES as usize],
            columns: (0..VERTICES).flat_map(neighbours).collect(),
            weights: vec![1.0; 2 * VERTICES as usize],
            labels: (0..VERTICES.into()).map(|v| v / 20).collect(),
            train: vec![2, 5, 8, 22, 25, 28],
            validation: vec![10, 11, 30, 31],
            test: vec![13, 14, 15, 33, 34, 35],
        }
    }

    /// Writes the file `ring.npz` in `folder`.
    pub fn write(&self, folder: &Path) -> PathBuf {
        let path = folder.join("ring.npz");
        let mut zip = zip::ZipWriter::new(std::fs::File::create(&path).unwrap());
        let mut add = |name: &str, kind: &str, len: usize, bytes: Vec<u8>| {
            zip.start_file(
                format!("{name}.npy"),
                zip::write::SimpleFileOptions::default(),
            )
            .unwrap();
            let header =
                format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({len},), }}");
            let header = format!("{header:<117}\n");
            zip.write_all(b"\x93NUMPY\x01\x00").unwrap();
            zip.write_all(&(header.len() as u16).to_le_bytes()).unwrap();
            zip.write_all(header.as_bytes()).unwrap();
            zip.write_all(&bytes).unwrap();
        };
        let ints = |values: &[i32]| {
            values
                .iter()
                .flat_map(|v| v.to_le_bytes())
                .collect::<Vec<u8>>()
        };
        let longs = |values: &[i64]| {
            values
                .iter()
                .flat_map(|v| v.to_le_bytes())
                .collect::<Vec<u8>>()
        };
        let floats = |values: &[f32]| {
            values
                .iter()
                .flat_map(|v| v.to_le_bytes())
                .collect::<Vec<u8>>()
        };
        let n = VERTICES as usize;
        let adj_offsets: Vec<i32> = (0..=VERTICES).map(|v| 2 * v).collect();
        let attr_offsets: Vec<i32> = (0..=VERTICES).collect();
        let attr_columns: Vec<i32> = (0..VERTICES).map(|v| v / 20).collect();
        add("adj_data", "<f4", 2 * n, floats(&self.weights));
        add("adj_indices", "<i4", 2 * n, ints(&self.columns));
        add("adj_indptr", "<i4", n + 1, ints(&adj_offsets));
        add("adj_shape", "<i8", 2, longs(&[VERTICES.into(); 2]));
        add("attr_data", "<f4", n, floats(&self.values));
        add("attr_indices", "<i4", n, ints(&attr_columns));
        add("attr_indptr", "<i4", n + 1, ints(&attr_offsets));
        add(
            "attr_shape",
            "<i8",
            2,
            longs(&[VERTICES.into(), self.features]),
        );
        add("labels", "<i8", n, longs(&self.labels));
        add("train_idx", "<i8", self.train.len(), longs(&self.train));
        add(
            "val_idx",
            "<i8",
            self.validation.len(),
            longs(&self.validation),
        );
        add("test_idx", "<i8", self.test.len(), longs(&self.test));
        zip.finish().unwrap();
        path
    }
}

pub struct Place {
    pub folder: tempfile::TempDir,
    pub dataset: PathBuf,
}

pub fn place(ring: &Ring) -> Place {
    let folder = tempfile::tempdir().unwrap();
    let dataset = ring.write(folder.path());
    Place { folder, dataset }
}

impl Place {
    /// `halfgnn train` on the CPU on the dataset, with more arguments.
    pub fn train(&self, arguments: &[&str]) -> Command {
        let mut command = halfgnn(&["train", "--device", "cpu", "--dataset"]);
        command
            .arg(&self.dataset)
            .args(arguments)
            .current_dir(self.folder.path());
        command
    }

    pub fn files(&self) -> Vec<String> {
        let entries = self.folder.path().read_dir().unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}
