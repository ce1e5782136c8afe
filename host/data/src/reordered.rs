//! A dataset whose vertices have other names.

use super::edge_features::gathered;
use super::{DataError, DataProblem, Dataset};
use halfgnn_graph::Graph;
use halfgnn_graph::reorder::Permutation;

impl Dataset {
    /// The same dataset with its vertices in another order, which may raise the cache hit rate of a GPU
    /// ([`reorder`](halfgnn_graph::reorder)). Results with one row a vertex, such as predictions, are then in that
    /// order too: [`Permutation::restore`] maps them back.
    ///
    /// # Errors
    /// [`DataProblem::Graph`] where `order` is of another number of vertices, [`DataProblem::OutOfMemory`],
    /// [`DataProblem::ManyGraphs`] where the dataset has many graphs, [`DataProblem::SeveralTypes`].
    pub fn reordered(&self, order: &Permutation) -> Result<Self, DataError> {
        let refuse = |problem| DataError::new(&self.name, problem);
        if let Some(graphs) = &self.graphs {
            return Err(refuse(DataProblem::ManyGraphs {
                graphs: graphs.graphs(),
                what: "another order would mix their vertices; leave the order as it is",
            }));
        }
        if self.outline.is_some() {
            let reason = "ranks read its parts as they are, and another order is one of a whole dataset; leave the order as it is, or train with one rank";
            return Err(refuse(DataProblem::NotPartitioned {
                reason: reason.into(),
            }));
        }
        if self.types.is_some() {
            return Err(refuse(DataProblem::SeveralTypes));
        }
        let permuted = self.graph.permuted(order.new_of_old());
        let graph = permuted.map_err(|error| refuse(DataProblem::graph("order", error)))?;
        let (mut edge_weights, mut edge_features) = (None, None);
        if self.edge_weights.is_some() || self.edge_features.is_some() {
            let old_of_new = renamed_edges(&self.graph, &graph, order).map_err(refuse)?;
            if let Some(weights) = &self.edge_weights {
                let weights = gathered("edge weights", weights, 1, &old_of_new);
                edge_weights = Some(weights.map_err(refuse)?);
            }
            if let Some(features) = &self.edge_features {
                edge_features = Some(features.in_order(&old_of_new).map_err(refuse)?);
            }
        }
        let renamed =
            |vertices: &[u32]| -> Vec<u32> { vertices.iter().map(|&v| order.rename(v)).collect() };
        let ids = self.ids.as_ref().map(|ids| ids.reordered(order));
        Ok(Self {
            name: self.name.clone(),
            graph,
            edge_weights,
            edge_features,
            graphs: None,
            features: self.features.reordered(order).map_err(refuse)?,
            targets: self.targets.reordered(order),
            outputs: self.outputs,
            class_names: self.class_names.clone(),
            ids: ids.transpose().map_err(refuse)?,
            train: renamed(&self.train),
            val: renamed(&self.val),
            test: renamed(&self.test),
            file_splits: self.file_splits,
            preparations: self.preparations.clone(),
            types: None,
            outline: None,
        })
    }
}

/// Which edge of `graph` each edge of `renamed` is: by column in each row, edges of one column in their order.
fn renamed_edges(
    graph: &Graph,
    renamed: &Graph,
    order: &Permutation,
) -> Result<Vec<u32>, DataProblem> {
    let mut out = DataProblem::with_capacity("order of the edges", graph.edges() as u64)?;
    out.resize(graph.edges(), 0);
    let (csr, target) = (graph.csr(), renamed.csr().offsets());
    let mut edges = DataProblem::with_capacity("order of the edges", csr.longest_row().into())?;
    for (row, ends) in csr.offsets().windows(2).enumerate() {
        let columns = csr.row(row).iter().map(|&column| order.rename(column));
        edges.clear();
        edges.extend(columns.zip(ends[0] as u32..));
        // Equal columns lie in the order of their edges.
        edges.sort_unstable();
        let first = target[order.rename(row as u32) as usize] as usize;
        for (place, &(_, edge)) in out[first..].iter_mut().zip(&edges) {
            *place = edge;
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::super::{EdgeFeatures, Features, Splits, VertexIds};
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
        let features = (0..14).map(|x| (10 + x / 2 * (1 + x % 2)) as f32).collect();
        dataset.edge_features = Some(EdgeFeatures::new(2, features).expect("whole rows"));
        let mut ids = VertexIds::default();
        for id in ["a", "b", "c", "d"] {
            ids.push(id).expect("memory");
        }
        dataset.ids = Some(ids);
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
                    let id = |of: &Dataset, vertex: u32| {
                        let ids = of.ids.as_ref().expect("ids");
                        ids.get(vertex as usize).to_owned()
                    };
                    assert_eq!(id(&new, renamed), id(&old, vertex));
                    // Edges with their weights and features, by the old names of their ends.
                    let edges = |of: &Dataset, vertex: u32, name: &dyn Fn(u32) -> u32| {
                        let first = of.graph.csr().offsets()[vertex as usize] as usize;
                        let weights = &of.edge_weights.as_ref().expect("weights")[first..];
                        let columns = of.graph.csr().row(vertex as usize).iter();
                        let mut edges: Vec<_> = columns
                            .zip(weights)
                            .zip(first..)
                            .map(|((&column, &weight), edge)| {
                                let features = of.edge_features.as_ref().expect("features");
                                let row = features.row(edge).iter().map(|&x| x as u32);
                                (name(column), weight as u32, row.collect::<Vec<_>>())
                            })
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
