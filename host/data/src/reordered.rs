//! A dataset whose vertices have other names.

use super::Dataset;
use halfgnn_graph::reorder::Permutation;
use halfgnn_graph::{Graph, GraphError};

impl Dataset {
    /// The same dataset with its vertices in another order, in which a card may find more of what it reads in its caches
    /// ([`reorder`](halfgnn_graph::reorder)). What there is one of a vertex afterwards, such as predictions, is in that order
    /// too: [`Permutation::restore`] maps it back.
    ///
    /// # Errors
    /// [`GraphError::Length`] where `order` is of another number of vertices.
    pub fn reordered(&self, order: &Permutation) -> Result<Self, GraphError> {
        let graph = self.graph.permuted(order.new_of_old())?;
        let weights = |weights: &Vec<f32>| reordered_weights(&self.graph, &graph, weights, order);
        let edge_weights = self.edge_weights.as_ref().map(weights);
        let renamed =
            |vertices: &[u32]| -> Vec<u32> { vertices.iter().map(|&v| order.rename(v)).collect() };
        Ok(Self {
            name: self.name.clone(),
            graph,
            edge_weights,
            features: self.features.reordered(order),
            targets: self.targets.reordered(order),
            outputs: self.outputs,
            train: renamed(&self.train),
            val: renamed(&self.val),
            test: renamed(&self.test),
            preparations: self.preparations.clone(),
        })
    }
}

/// One weight an edge, as `graph` lists them, as `renamed` does: by column in each row, edges of one column in their order.
fn reordered_weights(
    graph: &Graph,
    renamed: &Graph,
    weights: &[f32],
    order: &Permutation,
) -> Vec<f32> {
    let mut out = vec![0.0; weights.len()];
    let (csr, target) = (graph.csr(), renamed.csr().offsets());
    for (row, ends) in csr.offsets().windows(2).enumerate() {
        let edges = ends[0] as usize..ends[1] as usize;
        let columns = csr.row(row).iter().map(|&column| order.rename(column));
        let mut edges: Vec<_> = columns.zip(&weights[edges]).collect();
        edges.sort_by_key(|&(column, _)| column);
        let first = target[order.rename(row as u32) as usize] as usize;
        for (place, (_, &weight)) in out[first..].iter_mut().zip(edges) {
            *place = weight;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::{Features, Splits};
    use super::*;
    use halfgnn_graph::reorder::{by_degree, louvain};

    /// 2 has most edges, two of them between the same vertices.
    fn dataset(features: Features) -> Dataset {
        let (rows, columns) = ([0, 1, 2, 2, 2, 2, 3], [2, 2, 0, 1, 3, 3, 2]);
        let graph = Graph::from_edges(4, &rows, &columns).expect("a legal graph");
        let splits = Splits {
            train: vec![0, 2],
            val: vec![3],
            test: vec![1],
        };
        let mut dataset =
            Dataset::new("toy", graph, features, vec![0, 1, 2, 1], splits).expect("parts that fit");
        dataset.edge_weights = Some((1..=7).map(|weight| weight as f32).collect());
        dataset
    }

    fn sparse() -> Features {
        Features::sparse(
            2,
            vec![0, 1, 1, 3, 4],
            vec![1, 0, 1, 0],
            vec![1., 2., 3., 4.],
        )
        .expect("legal features")
    }

    #[test]
    fn every_vertex_keeps_what_is_its_own() {
        let dense = Features::dense(2, (0..8).map(|x| x as f32).collect()).expect("features");
        for features in [dense, sparse()] {
            let old = dataset(features);
            for order in [by_degree(&old.graph), louvain(&old.graph)] {
                let new = old.reordered(&order).expect("an order of its vertices");
                for vertex in 0..4u32 {
                    let renamed = order.rename(vertex);
                    let class = |of: &Dataset, vertex: u32| {
                        of.class_labels().expect("classes")[vertex as usize]
                    };
                    assert_eq!(class(&new, renamed), class(&old, vertex));
                    let row = |of: &Dataset, vertex: u32| {
                        let mut row = [0.0; 2];
                        of.features.write_row(vertex as usize, &mut row);
                        row
                    };
                    assert_eq!(row(&new, renamed), row(&old, vertex));
                    // Edges with their weights, by the old names of their ends.
                    let edges = |of: &Dataset, vertex: u32, name: &dyn Fn(u32) -> u32| {
                        let first = of.graph.csr().offsets()[vertex as usize] as usize;
                        let weights = &of.edge_weights.as_ref().expect("weights")[first..];
                        let columns = of.graph.csr().row(vertex as usize).iter();
                        let mut edges: Vec<_> = columns
                            .zip(weights)
                            .map(|(&column, &weight)| (name(column), weight as u32))
                            .collect();
                        edges.sort_unstable();
                        edges
                    };
                    let named = |column| order.rename(column);
                    assert_eq!(
                        edges(&new, renamed, &|column| column),
                        edges(&old, vertex, &named)
                    );
                }
                let back = |new: &[u32]| -> Vec<u32> {
                    let old_of_new = order.apply(&[0, 1, 2, 3], 1);
                    new.iter().map(|&v| old_of_new[v as usize]).collect()
                };
                assert_eq!(back(&new.train), old.train);
                assert_eq!(back(&new.val), old.val);
                assert_eq!(back(&new.test), old.test);
                assert_eq!(
                    order.restore(new.class_labels().expect("classes"), 1),
                    old.class_labels().expect("classes")
                );
            }
        }
    }

    #[test]
    fn an_order_of_other_vertices_is_refused() {
        let two = Graph::from_edges(2, &[0], &[1]).expect("a legal graph");
        let refused = dataset(sparse()).reordered(&by_degree(&two));
        assert!(refused.is_err());
    }
}
