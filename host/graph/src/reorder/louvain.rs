//! Communities by Louvain's method, and the order that puts them together.

use super::Permutation;
use crate::Graph;

/// Most passes over the vertices of one level.
const MOST_PASSES: usize = 6;

/// Most levels; each has far fewer vertices than the one before.
const MOST_LEVELS: usize = 12;

/// A pass that moves fewer than this share of the vertices is the last of its level.
const MOVED_AT_LEAST: f64 = 0.01;

/// Communities by Louvain's method (Blondel et al.: "Fast unfolding of communities in large networks", 2008), laid out
/// one after the other, and so within each community those of the level below; vertices of one community keep their
/// order. Deterministic: vertices are visited in their order, and ties keep a vertex where it is.
///
/// The graph is taken as undirected: an edge pulls both its ends, whichever way it points.
pub fn louvain(graph: &Graph) -> Permutation {
    let undirected;
    let graph = if graph.is_symmetric() {
        graph
    } else {
        match graph.to_undirected() {
            Ok(both) => {
                undirected = both;
                &undirected
            }
            // Twice the edges are too many to count in 32 bits: one direction will do.
            Err(_) => graph,
        }
    };
    // Level by level, the community of each vertex of the level.
    let mut levels: Vec<Vec<u32>> = Vec::new();
    let mut coarse: Option<Weighted> = None;
    while levels.len() < MOST_LEVELS {
        let (communities, count) = match &coarse {
            None => communities(&Unweighted::new(graph)),
            Some(weighted) => communities(weighted),
        };
        let vertices = communities.len();
        if count == vertices {
            break;
        }
        coarse = Some(match &coarse {
            None => aggregate(&Unweighted::new(graph), &communities, count),
            Some(weighted) => aggregate(weighted, &communities, count),
        });
        levels.push(communities);
        // Another level would merge next to nothing.
        if count as f64 > vertices as f64 * (1.0 - MOVED_AT_LEAST) {
            break;
        }
    }
    Permutation::from_order(unfold(&levels, graph.vertices()))
}

/// The vertices in the order of their communities, from the coarsest level down.
fn unfold(levels: &[Vec<u32>], vertices: usize) -> Vec<u32> {
    let top = levels.last().map_or(vertices, |communities| {
        communities
            .iter()
            .max()
            .map_or(0, |&last| last as usize + 1)
    });
    let mut order: Vec<u32> = (0..top as u32).collect();
    for communities in levels.iter().rev() {
        let mut rank = vec![0_u32; order.len()];
        for (position, &community) in order.iter().enumerate() {
            rank[community as usize] = position as u32;
        }
        // A counting sort, so that members keep their order.
        let mut starts = vec![0_u32; order.len() + 1];
        for &community in communities {
            starts[rank[community as usize] as usize + 1] += 1;
        }
        for index in 1..starts.len() {
            starts[index] += starts[index - 1];
        }
        order = vec![0; communities.len()];
        for (member, &community) in communities.iter().enumerate() {
            let start = &mut starts[rank[community as usize] as usize];
            order[*start as usize] = member as u32;
            *start += 1;
        }
    }
    order
}

/// A graph whose edges have weights, each in both directions.
trait Network {
    fn vertices(&self) -> usize;
    /// Calls `each` with every neighbour and the weight of the edge; a self-loop once, with its weight.
    fn neighbours(&self, vertex: usize, each: impl FnMut(u32, f64));
}

struct Unweighted<'a>(&'a Graph);

impl<'a> Unweighted<'a> {
    fn new(graph: &'a Graph) -> Self {
        Self(graph)
    }
}

impl Network for Unweighted<'_> {
    fn vertices(&self) -> usize {
        self.0.vertices()
    }
    #[inline]
    fn neighbours(&self, vertex: usize, mut each: impl FnMut(u32, f64)) {
        for &neighbour in self.0.csr().row(vertex) {
            each(neighbour, 1.0);
        }
    }
}

/// Communities as the vertices of the next level.
struct Weighted {
    offsets: Vec<usize>,
    edges: Vec<(u32, f64)>,
}

impl Network for Weighted {
    fn vertices(&self) -> usize {
        self.offsets.len() - 1
    }
    #[inline]
    fn neighbours(&self, vertex: usize, mut each: impl FnMut(u32, f64)) {
        for &(neighbour, weight) in &self.edges[self.offsets[vertex]..self.offsets[vertex + 1]] {
            each(neighbour, weight);
        }
    }
}

/// Weights by community, cleared in the time of what was added.
struct Tally {
    weight: Vec<f64>,
    touched: Vec<u32>,
}

impl Tally {
    fn new(len: usize) -> Self {
        Self {
            weight: vec![0.0; len],
            touched: Vec::new(),
        }
    }
    #[inline]
    fn add(&mut self, community: u32, weight: f64) {
        let sum = &mut self.weight[community as usize];
        // Weights are positive, so a zero is one that nothing was added to.
        if *sum == 0.0 {
            self.touched.push(community);
        }
        *sum += weight;
    }
    fn drain(&mut self, mut each: impl FnMut(u32, f64)) {
        for community in self.touched.drain(..) {
            each(
                community,
                std::mem::take(&mut self.weight[community as usize]),
            );
        }
    }
}

/// The community of each vertex after moving vertices, one after the other, to the neighbouring community that gains
/// most modularity, until few move; and how many communities there are, numbered by their first vertex.
fn communities(network: &impl Network) -> (Vec<u32>, usize) {
    let vertices = network.vertices();
    let mut community: Vec<u32> = (0..vertices as u32).collect();
    let mut degree = vec![0.0; vertices];
    for (vertex, degree) in degree.iter_mut().enumerate() {
        network.neighbours(vertex, |_, weight| *degree += weight);
    }
    let total: f64 = degree.iter().sum();
    let mut community_degree = degree.clone();
    let mut tally = Tally::new(vertices);
    for _ in 0..MOST_PASSES {
        let mut moved = 0_usize;
        for vertex in 0..vertices {
            network.neighbours(vertex, |neighbour, weight| {
                if neighbour as usize != vertex {
                    tally.add(community[neighbour as usize], weight);
                }
            });
            let own = community[vertex];
            let own_degree = degree[vertex];
            community_degree[own as usize] -= own_degree;
            // Gain of joining a community, in units of 1 / total: weight towards it less what chance would give.
            let chance = own_degree / total;
            let gain = |candidate: u32, weight: f64| {
                weight - chance * community_degree[candidate as usize]
            };
            let mut best = (own, gain(own, tally.weight[own as usize]));
            tally.drain(|candidate, weight| {
                let gain = gain(candidate, weight);
                if gain > best.1 {
                    best = (candidate, gain);
                }
            });
            community_degree[best.0 as usize] += own_degree;
            moved += usize::from(best.0 != own);
            community[vertex] = best.0;
        }
        if (moved as f64) < MOVED_AT_LEAST * vertices as f64 {
            break;
        }
    }
    let mut name = vec![u32::MAX; vertices];
    let mut count = 0;
    for community in &mut community {
        let name = &mut name[*community as usize];
        if *name == u32::MAX {
            *name = count;
            count += 1;
        }
        *community = *name;
    }
    (community, count as usize)
}

/// The graph of the communities: the weight of an edge is that of all edges between the two, inside one a self-loop.
fn aggregate(network: &impl Network, community: &[u32], count: usize) -> Weighted {
    let mut starts = vec![0_usize; count + 1];
    for &community in community {
        starts[community as usize + 1] += 1;
    }
    for index in 1..starts.len() {
        starts[index] += starts[index - 1];
    }
    let mut members = vec![0_u32; community.len()];
    let mut next = starts.clone();
    for (vertex, &community) in community.iter().enumerate() {
        let at = &mut next[community as usize];
        members[*at] = vertex as u32;
        *at += 1;
    }
    let mut tally = Tally::new(count);
    let mut offsets = Vec::with_capacity(count + 1);
    let mut edges = Vec::new();
    offsets.push(0);
    for own in 0..count {
        for &member in &members[starts[own]..starts[own + 1]] {
            network.neighbours(member as usize, |neighbour, weight| {
                tally.add(community[neighbour as usize], weight);
            });
        }
        tally.drain(|neighbour, weight| edges.push((neighbour, weight)));
        offsets.push(edges.len());
    }
    Weighted { offsets, edges }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::{BlockModel, ErdosRenyi, Rmat};

    fn is_permutation(order: &Permutation) -> bool {
        let mut names = order.new_of_old().to_vec();
        names.sort_unstable();
        names
            .iter()
            .enumerate()
            .all(|(index, &name)| name as usize == index)
    }

    /// Mean distance of the ends of an edge, in vertices.
    fn spread(graph: &Graph) -> f64 {
        let distances = graph
            .rows()
            .iter()
            .zip(graph.cols())
            .map(|(&row, &col)| row.abs_diff(col));
        distances.map(f64::from).sum::<f64>() / graph.edges() as f64
    }

    #[test]
    fn two_cliques_are_laid_out_one_after_the_other() {
        // Even vertices know one another, odd vertices too, and one edge joins the two groups.
        let mut edges: Vec<(u32, u32)> = (0..20_u32)
            .flat_map(|a| (0..20_u32).map(move |b| (a, b)))
            .filter(|(a, b)| a != b && a % 2 == b % 2)
            .collect();
        edges.extend([(0, 1), (1, 0)]);
        let (rows, cols): (Vec<_>, Vec<_>) = edges.into_iter().unzip();
        let graph = Graph::from_edges(20, &rows, &cols).unwrap();
        let order = louvain(&graph);
        let even: Vec<u32> = (0..20)
            .filter(|v| v % 2 == 0)
            .map(|v| order.rename(v))
            .collect();
        let (low, high) = (even.iter().min().unwrap(), even.iter().max().unwrap());
        assert_eq!(high - low, 9, "{even:?}");
    }

    #[test]
    fn hidden_communities_are_found_again() {
        let names_at_random = |graph: &Graph, seed: u64| {
            let key = halfgnn_contract::rng::key(seed, 0);
            let mut order: Vec<u32> = (0..graph.vertices() as u32).collect();
            order.sort_by_key(|&v| halfgnn_contract::rng::uniform_u32(key, v.into()));
            graph
                .permuted(Permutation::from_order(order).new_of_old())
                .unwrap()
        };
        let (graph, _) = BlockModel {
            vertices: 2000,
            classes: 20,
            within: 0.95,
            hubs: 0,
            hub_degree: 0,
            ..BlockModel::default()
        }
        .generate(3)
        .unwrap();
        let shuffled = names_at_random(&graph, 5);
        let found = shuffled.permuted(louvain(&shuffled).new_of_old()).unwrap();
        assert!(
            spread(&found) < 0.5 * spread(&shuffled),
            "{} of {}",
            spread(&found),
            spread(&shuffled)
        );
    }

    #[test]
    fn every_graph_has_an_order() {
        for graph in [
            Graph::from_edges(0, &[], &[]).unwrap(),
            Graph::from_edges(5, &[], &[]).unwrap(),
            Graph::from_edges(1, &[0], &[0]).unwrap(),
            Graph::from_edges(4, &[0, 0, 0], &[1, 1, 2]).unwrap(),
            Rmat::graph500(9).generate(2).unwrap(),
            ErdosRenyi {
                vertices: 300,
                edges: 900,
                undirected: false,
            }
            .generate(1)
            .unwrap(),
        ] {
            let order = louvain(&graph);
            assert!(is_permutation(&order));
            assert_eq!(order, louvain(&graph), "the same order again");
            let rows: Vec<u32> = (0..2 * graph.vertices() as u32).collect();
            assert_eq!(order.restore(&order.apply(&rows, 2), 2), rows);
        }
    }
}
