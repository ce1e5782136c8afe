//! A thread a walk, a warp a frontier and a warp a row.

use super::{
    EdgeNormOperands, EdgeNorms, FrontierWalkOperands, MarkDrawOperands, RandomWalkOperands,
    STREAM, SizeDrawsOperands, SubgraphOperators, TakeEdgesOperands, TallyDrawsOperands,
    WithinOperands,
};
use crate::backend::gpu::{Gpu, dense_config, entry, linear_config, narrow};
use crate::backend::{Adjacency, MemoryKind};
use crate::driver::Driver;
use crate::error::Error;
use crate::ops::{Checked, Places};
use crate::tensor::{Array, Element};
use halfgnn_contract::rng::key;
use halfgnn_contract::subgraph::{
    DrawsParams, EdgeNormParams, FrontierParams, SIZED_WORDS, WalkParams, WithinParams, ctas,
    frontier_sums, vertex_ctas,
};
use halfgnn_contract::{DevicePtr, WARP};

impl<D: Driver> SubgraphOperators for Gpu<D> {
    fn random_walks(&self, operands: Checked<RandomWalkOperands<'_, Self>>) -> Result<(), Error> {
        const NAME: &str = "random_walks";
        let of = operands.into_inner();
        let params = WalkParams {
            offsets: self.array(of.graph.offsets(self)?)?,
            columns: self.array(&of.graph.column_ids)?,
            roots: self.optional_array(of.roots)?,
            graph_rows: of.graph.rows() as u64,
            edges: of.graph.edges() as u64,
            root_count: narrow(NAME, "roots", of.roots.map_or(0, Array::len))?,
            walks: narrow(NAME, "walks", of.walks())?,
            length: of.length,
            step: of.draw.step,
            key: key(of.draw.seed, STREAM),
            vertices: self.array(of.vertices)?,
        };
        let config = dense_config(NAME, ctas(params.walks.into()), 1, 0)?;
        // SAFETY: the operator checked that the graph is square, so that a column is a row, that there is a root or an
        // edge to begin at, and that there is memory for whole walks; the kernel looks whether a root is a row.
        unsafe { self.launch(NAME, config, &params) }
    }

    fn frontier_walk(
        &self,
        operands: Checked<FrontierWalkOperands<'_, Self>>,
    ) -> Result<(), Error> {
        const NAME: &str = "frontier_walk";
        let of = operands.into_inner();
        let frontier =
            Array::<Self, u32>::uninit(self, 2 * of.frontier as usize, MemoryKind::Workspace)?;
        let sums = frontier_sums(of.frontier) as usize;
        let sums = Array::<Self, u64>::uninit(self, sums, MemoryKind::Workspace)?;
        let params = FrontierParams {
            offsets: self.array(of.graph.offsets(self)?)?,
            columns: self.array(&of.graph.column_ids)?,
            roots: self.array(of.roots)?,
            frontier: self.array(&frontier)?,
            sums: self.array(&sums)?,
            graph_rows: of.graph.rows() as u64,
            root_count: narrow(NAME, "roots", of.roots.len())?,
            frontier_len: of.frontier,
            vertex_count: narrow(NAME, "vertices", of.vertices.len())?,
            step: of.draw.step,
            key: key(of.draw.seed, STREAM),
            vertices: self.array(of.vertices)?,
        };
        let config = linear_config(NAME, 1, WARP, 0)?;
        // SAFETY: as above; the frontier is no longer than its walk and three levels of sums distinguish its vertices.
        // The memory that it works in is freed behind the kernel on its stream.
        unsafe { self.launch(NAME, config, &params) }
    }

    fn count_within(&self, operands: Checked<WithinOperands<'_, Self>>) -> Result<(), Error> {
        const NAME: &str = "count_within";
        let of = operands.into_inner();
        let params = WithinParams {
            firsts: self.array(of.counts)?,
            ..self.within(NAME, of.graph, of.places, of.vertices)?
        };
        let warps = u64::from(params.vertex_count) + 1;
        let config = dense_config(NAME, vertex_ctas(warps), 1, 0)?;
        // SAFETY: the operator checked that there is a bit for each column and a count for each vertex and one more;
        // the kernel looks whether a vertex is a row.
        unsafe { self.launch(NAME, config, &params) }
    }

    fn take_within(&self, operands: Checked<TakeEdgesOperands<'_, Self>>) -> Result<(), Error> {
        const NAME: &str = "take_within";
        let of = operands.into_inner();
        let params = WithinParams {
            firsts: self.array(of.firsts)?,
            edges: of.rows.len() as u64,
            rows: self.array(of.rows)?,
            neighbors: self.array(of.neighbors)?,
            edge_ids: self.array(of.edges)?,
            ..self.within(NAME, of.graph, of.places, of.vertices)?
        };
        let config = dense_config(NAME, vertex_ctas(params.vertex_count.into()), 1, 0)?;
        // SAFETY: as above; the kernel looks whether the edges of a vertex lie among those that there is memory for.
        unsafe { self.launch(NAME, config, &params) }
    }

    fn mark_draw(&self, operands: Checked<MarkDrawOperands<'_, Self>>) -> Result<(), Error> {
        const NAME: &str = "mark_draw";
        let of = operands.into_inner();
        let params = DrawsParams {
            vertices: self.array(of.vertices)?,
            vertex_count: of.vertices.len() as u64,
            draws: 1 << of.draw,
            ..self.draws(of.members)?
        };
        let config = dense_config(NAME, ctas(params.vertex_count), 1, 0)?;
        // SAFETY: the kernel looks whether a vertex has a word.
        unsafe { self.launch(NAME, config, &params) }
    }

    fn size_draws(&self, operands: Checked<SizeDrawsOperands<'_, Self>>) -> Result<(), Error> {
        const NAME: &str = "size_draws";
        let of = operands.into_inner();
        let params = DrawsParams {
            sizes: self.array(of.sizes)?,
            ..self.draws(of.members)?
        };
        let warps = params.graph_rows.div_ceil(SIZED_WORDS);
        let config = dense_config(NAME, vertex_ctas(warps), 1, 0)?;
        // SAFETY: the operator checked that there is a size for each bit.
        unsafe { self.launch(NAME, config, &params) }
    }

    fn tally_draws(&self, operands: Checked<TallyDrawsOperands<'_, Self>>) -> Result<(), Error> {
        const NAME: &str = "tally_draws";
        let of = operands.into_inner();
        let params = DrawsParams {
            offsets: self.array(of.graph.offsets(self)?)?,
            columns: self.array(&of.graph.column_ids)?,
            vertex_counts: self.array(of.vertex_counts)?,
            edge_counts: self.array(of.edge_counts)?,
            draws: of.draws,
            ..self.draws(of.members)?
        };
        let config = dense_config(NAME, vertex_ctas(params.graph_rows), 1, 0)?;
        // SAFETY: the operator checked that the graph is square, and that there is a word and a count for each of its
        // vertices and a count for each edge.
        unsafe { self.launch(NAME, config, &params) }
    }

    fn edge_norms<E: Element>(
        &self,
        operands: Checked<EdgeNormOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let EdgeNormOperands {
            norms,
            scale,
            values,
        } = operands.into_inner();
        let params = EdgeNormParams {
            values: self.array(values)?,
            scale,
            ..self.norms(&norms)?
        };
        // SAFETY: the operator checked that the graph is square, and that there are as many items as rows, columns and
        // edges.
        unsafe { self.launch_norms::<E>(&params) }
    }

    fn largest_edge_norm(&self, norms: Checked<EdgeNorms<'_, Self>>) -> Result<f32, Error> {
        let largest = Array::<Self, u32>::zeros(self, 1, MemoryKind::Workspace)?;
        let params = EdgeNormParams {
            largest: self.array(&largest)?,
            ..self.norms(&norms.into_inner())?
        };
        // SAFETY: as above, but that nothing is written for edges.
        unsafe { self.launch_norms::<f32>(&params)? };
        let bits = largest.to_vec(self)?;
        Ok(f32::from_bits(bits[0]))
    }
}

impl<D: Driver> Gpu<D> {
    /// What edges multiply, without where it goes.
    fn norms(&self, norms: &EdgeNorms<'_, Self>) -> Result<EdgeNormParams, Error> {
        let [rows, columns] = match norms.sides {
            Some(sides) => sides.map(Some),
            None => [None; 2],
        };
        Ok(EdgeNormParams {
            offsets: self.array(norms.graph.offsets(self)?)?,
            columns: self.array(&norms.graph.column_ids)?,
            vertex_counts: self.array(norms.vertex_counts)?,
            edge_counts: self.array(norms.edge_counts)?,
            weights: self.optional_array(norms.weights)?,
            row_factors: self.optional_array(rows)?,
            column_factors: self.optional_array(columns)?,
            values: DevicePtr::NULL,
            largest: DevicePtr::NULL,
            graph_rows: norms.graph.rows() as u64,
            scale: 1.0,
            unused: 0,
        })
    }

    /// Launches `edge_norms` with a warp for each row.
    ///
    /// # Safety
    /// The launch contract of [`EdgeNormParams`], values being of `E`.
    unsafe fn launch_norms<E: Element>(&self, params: &EdgeNormParams) -> Result<(), Error> {
        const NAME: &str = "edge_norms";
        let config = dense_config(NAME, vertex_ctas(params.graph_rows), 1, 0)?;
        // SAFETY: the caller's promise.
        unsafe { self.launch(entry::<E>(NAME)?, config, params) }
    }

    /// What all kernels of draws take.
    fn draws(&self, members: &Array<Self, u32>) -> Result<DrawsParams, Error> {
        Ok(DrawsParams {
            offsets: DevicePtr::NULL,
            columns: DevicePtr::NULL,
            members: self.array(members)?,
            vertices: DevicePtr::NULL,
            sizes: DevicePtr::NULL,
            vertex_counts: DevicePtr::NULL,
            edge_counts: DevicePtr::NULL,
            graph_rows: members.len() as u64,
            vertex_count: 0,
            draws: 0,
            unused: 0,
        })
    }

    /// What both kernels of edges between known vertices take.
    fn within(
        &self,
        name: &'static str,
        graph: &Adjacency<Self>,
        places: &Places<Self>,
        vertices: &Array<Self, u32>,
    ) -> Result<WithinParams, Error> {
        Ok(WithinParams {
            offsets: self.array(graph.offsets(self)?)?,
            columns: self.array(&graph.column_ids)?,
            vertices: self.array(vertices)?,
            known: self.array(&places.known)?,
            places: self.array(&places.places)?,
            firsts: DevicePtr::NULL,
            rows: DevicePtr::NULL,
            neighbors: DevicePtr::NULL,
            edge_ids: DevicePtr::NULL,
            graph_rows: graph.rows() as u64,
            edges: 0,
            vertex_count: narrow(name, "vertices", vertices.len())?,
            unused: 0,
        })
    }
}
