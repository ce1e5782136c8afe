//! What is sampled at random: a thread a pair, a warp a vertex; and the places of what was sampled.

use super::{
    Draw, FirstEdgesOperands, MarkVerticesOperands, NEIGHBORS, NeighborPolicy, PlaceMarkedOperands,
    PlaceVerticesOperands, Places, RelabelOperands, STREAM, SampleNeighborsOperands,
    SamplePairsOperands, SamplingOperators, TakeCodesOperands, TakeRowsOperands, Total,
};
use crate::backend::gpu::{Gpu, dense_config, narrow};
use crate::backend::{Adjacency, Storage};
use crate::driver::{Driver, LaunchConfig};
use crate::error::Error;
use crate::ops::Checked;
use crate::ops::sort::{FIRST_EDGES, STARTS, WORDS, grouped_by_counts, no_items};
use crate::tensor::{Array, Element, padded};
use halfgnn_contract::elementwise::THREADS_PER_CTA;
use halfgnn_contract::rng::key;
use halfgnn_contract::sampling::{
    NeighborParams, RelabelParams, SamplePairsParams, TakeRowsParams, mark_words, neighbor_ctas,
    row_ctas, row_lanes,
};
use halfgnn_contract::scan::{self, ScanParams};
use halfgnn_contract::{DevicePtr, VECTOR_BYTES};

impl<D: Driver> SamplingOperators for Gpu<D> {
    fn sample_pairs(&self, operands: Checked<SamplePairsOperands<'_, Self>>) -> Result<(), Error> {
        const NAME: &str = "sample_pairs";
        let of = operands.into_inner();
        let pairs = of.firsts.len() as u64;
        let params = SamplePairsParams {
            offsets: self.optional_array(of.edges.map(|edges| edges.offsets(self)).transpose()?)?,
            columns: self.optional_array(of.edges.map(|edges| &edges.column_ids))?,
            firsts: self.array(of.firsts)?,
            seconds: self.array(of.seconds)?,
            pairs,
            key: key(of.seed, STREAM),
            step: of.step,
            vertices: narrow(NAME, "vertices", of.vertices)?,
        };
        let config = dense_config(NAME, pairs.div_ceil(THREADS_PER_CTA.into()), 1, 0)?;
        // SAFETY: the operator checked that memory is free for both vertices of each pair and that the graph has a row
        // a vertex.
        unsafe { self.launch(NAME, config, &params) }
    }

    fn first_edges(&self, operands: Checked<FirstEdgesOperands<'_, Self>>) -> Result<(), Error> {
        let of = operands.into_inner();
        let items = of.firsts.len() as u64;
        let workspace = self.lend(scan::partial_words(items))?;
        let firsts = self.array(of.firsts)?;
        let params = ScanParams {
            words: self.array(of.vertices)?,
            offsets: self.array(of.graph.offsets(self)?)?,
            partials: DevicePtr::new(workspace.address()),
            result: firsts,
            graph_rows: of.graph.rows() as u64,
            fanout: of.policy.fanout.word(),
            replace: of.policy.draws_again().into(),
            own: of.policy.self_loops.into(),
            ..no_items(items)
        };
        let kept = ScanParams {
            words: firsts,
            ..params
        };
        // SAFETY: the operator checked that there is a first edge a vertex and one more; the kernel looks whether a
        // vertex is a row. The workspace has the partial sums.
        unsafe { self.scan_kept(FIRST_EDGES, &params, (WORDS, &kept)) }
    }

    fn sample_neighbors(
        &self,
        operands: Checked<SampleNeighborsOperands<'_, Self>>,
    ) -> Result<(), Error> {
        const NAME: &str = "sample_neighbors";
        let of = operands.into_inner();
        let Draw { seed, step, layer } = of.draw;
        let params = NeighborParams {
            firsts: self.array(of.firsts)?,
            rows: self.array(of.rows)?,
            neighbors: self.array(of.neighbors)?,
            edges: of.rows.len() as u64,
            key: key(seed, NEIGHBORS),
            step,
            layer,
            total: self.total(of.total)?,
            steps: self.optional_array(of.steps)?,
            row_offsets: self.optional_array(of.row_offsets.as_deref())?,
            known: self.optional_array(of.marks.as_ref().map(|places| &places.known))?,
            marks: self.optional_array(of.marks.as_ref().map(|places| &places.marks))?,
            ..self.neighbors(NAME, of.graph, of.policy, of.vertices)?
        };
        let config = dense_config(
            NAME,
            neighbor_ctas(params.vertex_count.into(), params.fanout),
            1,
            0,
        )?;
        // SAFETY: the operator checked that there is a first edge a vertex, and an offset where they are wanted, as
        // many rows as neighbours, and a bit for each column; the kernel looks whether a vertex is a row and its edges
        // lie among them.
        unsafe { self.launch(NAME, config, &params) }
    }

    fn place_vertices(
        &self,
        operands: Checked<PlaceVerticesOperands<'_, Self>>,
    ) -> Result<(), Error> {
        let PlaceVerticesOperands { places, vertices } = operands.into_inner();
        let params = RelabelParams {
            vertices: self.array(vertices)?,
            vertex_count: vertices.len() as u64,
            ..self.places(places)?
        };
        let config = threads_config("place_vertices", params.vertex_count)?;
        // SAFETY: places and bits are as many as vertices, as `Places` makes them; the kernel passes over what is none.
        // Vertices that stand there twice would get one of two places.
        unsafe { self.launch("place_vertices", config, &params) }
    }

    fn mark_vertices(
        &self,
        operands: Checked<MarkVerticesOperands<'_, Self>>,
    ) -> Result<(), Error> {
        let MarkVerticesOperands { places, vertices } = operands.into_inner();
        let params = RelabelParams {
            vertices: self.array(vertices)?,
            vertex_count: vertices.len() as u64,
            ..self.places(places)?
        };
        let config = threads_config("mark_vertices", params.vertex_count)?;
        // SAFETY: as above.
        unsafe { self.launch("mark_vertices", config, &params) }
    }

    fn rank_marked(&self, places: &mut Places<Self>) -> Result<(), Error> {
        let items = places.marks.len() as u64;
        let workspace = self.lend(scan::partial_words(items))?;
        let params = ScanParams {
            starts: self.array(&places.marks)?,
            partials: DevicePtr::new(workspace.address()),
            ..no_items(items)
        };
        // SAFETY: a pair an item; the workspace has the partial sums.
        unsafe { self.scan(STARTS, &params) }
    }

    fn place_marked(&self, operands: Checked<PlaceMarkedOperands<'_, Self>>) -> Result<(), Error> {
        let of = operands.into_inner();
        let params = RelabelParams {
            vertices: self.array(of.destinations)?,
            vertex_count: of.destinations.len() as u64,
            sources: self.array(of.sources)?,
            first_place: of.destinations.len() as u64,
            source_count: of.sources.len() as u64,
            total: self.total(of.total)?,
            ..self.places(of.places)?
        };
        let threads = mark_words(params.graph_vertices).max(params.source_count);
        let config = threads_config("place_marked", threads)?;
        // SAFETY: as above; the kernel looks whether a place lies among the sources.
        unsafe { self.launch("place_marked", config, &params) }
    }

    fn relabel(&self, operands: Checked<RelabelOperands<'_, Self>>) -> Result<(), Error> {
        let RelabelOperands {
            places,
            vertices,
            counted,
        } = operands.into_inner();
        let counted = counted.filter(|_| grouped_by_counts(vertices.len() as u64).is_some());
        let params = RelabelParams {
            vertices: self.array(vertices)?,
            vertex_count: vertices.len() as u64,
            ..self.places(places)?
        };
        let params = match counted {
            Some(room) => RelabelParams {
                tally: self.array(&room.tally)?,
                slots: self.array(&room.slots)?,
                source_count: room.tally.len() as u64 - 1,
                ..params
            },
            None => params,
        };
        let config = threads_config("relabel", params.vertex_count)?;
        // SAFETY: as above; the operator checked that there is a slot for each of the vertices, and the kernel counts
        // no place that the tally has no word for.
        unsafe { self.launch("relabel", config, &params) }
    }

    fn take_rows<E: Element>(
        &self,
        operands: Checked<TakeRowsOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let TakeRowsOperands {
            rows,
            cache,
            order,
            taken,
        } = operands.into_inner();
        let vectors = narrow(
            TAKE_ROWS,
            "columns",
            padded::<E>(taken.columns()) / E::LANES,
        )?;
        let params = TakeRowsParams {
            rows: self.strided(rows)?,
            marks: cache.map_or(Ok(DevicePtr::NULL), |it| self.array(&it.marks))?,
            cached: cache.map_or(Ok(DevicePtr::NULL), |it| self.matrix(&it.copies))?,
            order: self.array(order)?,
            taken: self.matrix(taken)?,
            row_count: rows.rows() as u64,
            taken_count: order.len() as u64,
            vectors,
            stride: narrow(TAKE_ROWS, "stride", rows.stride() / E::LANES)?,
            lanes: row_lanes(vectors),
            unused: 0,
        };
        let name = match cache {
            Some(_) => TAKE_CACHED_ROWS,
            None => TAKE_ROWS,
        };
        // SAFETY: the operator checked that there is a row for each of the order, of as many columns; copies have as
        // many too, and there is one for each bit of the marks, of which there are as many as rows.
        unsafe { self.launch_take_rows(name, &params, rows.is_remote(self)) }
    }

    fn take_codes(&self, operands: Checked<TakeCodesOperands<'_, Self>>) -> Result<(), Error> {
        let TakeCodesOperands {
            codes,
            order,
            taken,
        } = operands.into_inner();
        let vectors = narrow(TAKE_ROWS, "columns", codes.stride() / VECTOR_BYTES as usize)?;
        let params = TakeRowsParams {
            rows: self.array(&codes.codes)?,
            marks: DevicePtr::NULL,
            cached: DevicePtr::NULL,
            order: self.array(order)?,
            taken: self.array(taken)?,
            row_count: codes.rows() as u64,
            taken_count: order.len() as u64,
            vectors,
            stride: vectors,
            lanes: row_lanes(vectors),
            unused: 0,
        };
        // SAFETY: the operator checked that there are the words of a row for each of the order.
        unsafe { self.launch_take_rows(TAKE_ROWS, &params, self.is_remote(&codes.codes.buffer)) }
    }
}

const TAKE_ROWS: &str = "take_rows";
const TAKE_CACHED_ROWS: &str = "take_cached_rows";

/// CTAs that take rows from another memory: as many as keep the bus busy, and no more, since each of them waits most of
/// its time, in the place of a CTA of another kernel.
const REMOTE_CTAS: u64 = 32;

impl<D: Driver> Gpu<D> {
    /// # Safety
    /// The launch contract of [`TakeRowsParams`]; the kernel looks whether there is such a row to be taken.
    unsafe fn launch_take_rows(
        &self,
        name: &'static str,
        params: &TakeRowsParams,
        remote: bool,
    ) -> Result<(), Error> {
        let ctas = row_ctas(params.taken_count, params.lanes);
        let ctas = if remote { ctas.min(REMOTE_CTAS) } else { ctas };
        let config = dense_config(name, ctas, 1, 0)?;
        // SAFETY: the caller's promise.
        unsafe { self.launch(name, config, params) }
    }
}

/// A launch of a thread an item.
fn threads_config(name: &'static str, items: u64) -> Result<LaunchConfig, Error> {
    dense_config(name, items.div_ceil(THREADS_PER_CTA.into()), 1, 0)
}

impl<D: Driver> Gpu<D> {
    /// What neighbours are sampled of.
    fn neighbors(
        &self,
        name: &'static str,
        graph: &Adjacency<Self>,
        policy: NeighborPolicy,
        vertices: &Array<Self, u32>,
    ) -> Result<NeighborParams, Error> {
        Ok(NeighborParams {
            offsets: self.array(graph.offsets(self)?)?,
            columns: self.array(&graph.column_ids)?,
            vertices: self.array(vertices)?,
            firsts: DevicePtr::NULL,
            rows: DevicePtr::NULL,
            neighbors: DevicePtr::NULL,
            total: DevicePtr::NULL,
            steps: DevicePtr::NULL,
            row_offsets: DevicePtr::NULL,
            known: DevicePtr::NULL,
            marks: DevicePtr::NULL,
            graph_rows: graph.rows() as u64,
            edges: 0,
            vertex_count: narrow(name, "vertices", vertices.len())?,
            fanout: policy.fanout.word(),
            replace: policy.draws_again().into(),
            own: policy.self_loops.into(),
            key: [0; 2],
            step: 0,
            layer: 0,
        })
    }

    /// Where a number is reported, or null.
    fn total(&self, of: Option<Total<'_, Self>>) -> Result<DevicePtr<u32>, Error> {
        let Some(Total { words, at }) = of else {
            return Ok(DevicePtr::NULL);
        };
        let first: DevicePtr<u32> = self.array(words)?;
        Ok(DevicePtr::new(first.address() + 4 * at as u64))
    }

    /// What is known.
    fn places(&self, places: &Places<Self>) -> Result<RelabelParams, Error> {
        Ok(RelabelParams {
            vertices: DevicePtr::NULL,
            places: self.array(&places.places)?,
            known: self.array(&places.known)?,
            marks: self.array(&places.marks)?,
            sources: DevicePtr::NULL,
            total: DevicePtr::NULL,
            tally: DevicePtr::NULL,
            slots: DevicePtr::NULL,
            vertex_count: 0,
            graph_vertices: places.vertices() as u64,
            first_place: 0,
            source_count: 0,
        })
    }
}
