//! GAT's attention, and its gradients.

use super::interface::Interface;
use super::operands::{Graph, Site};
use super::operator::{Direct, Operand, operator};
use crate::memory::{RawArray, RawMatrix};
use crate::operators::attention::{Backward, Forward, Gradients, Layer, saved, scratch};
use halfgnn::tensor::Precision;

/// A bit of the graph's: what the backward pass needs is kept.
const KEEP: usize = 1;

operator! {
    /// The sum over edges; over those whose sum of scores is positive, which is empty where it is not kept for the
    /// backward pass; and what else that one needs.
    Attention = "gat_attention_direct" {
        a: Graph,
        h: Operand,
        h_destination: Option<Operand>,
        vectors: Operand,
        seed: Option<Operand>,
        slope: f32,
        dropout: f32,
    }
}

impl Direct<3> for Attention {
    fn run(&self, torch: &'static Interface) -> Option<[Operand; 3]> {
        let site = Site::of(torch, &self.h)?;
        let a = site.adjacency(&self.a)?;
        let (destinations, sources) = (a.1, a.4);
        let features = Features {
            heads: self.a.heads(),
            h: &self.h,
            h_destination: self.h_destination.as_ref(),
            vectors: &self.vectors,
            seed: self.seed.as_ref(),
            slope: self.slope,
            dropout: self.dropout,
        };
        let heads = features.heads;
        let (kept, saved) = site.new_floats(saved(heads, destinations, sources))?;
        let room = match self.h_destination {
            None => None,
            Some(_) => Some(site.new_floats(scratch(heads, destinations, sources))?),
        };
        let scratch = room.as_ref().map_or(RawArray(0, 0), |(_, raw)| *raw);
        let layer = features.layer(&site, destinations, sources, saved, scratch)?;
        let (y, y_raw) = site.new_matrix(destinations, layer.h.2)?;
        let keeps = self.a.has(KEEP);
        let (positive, positive_raw) = match keeps {
            true => site.new_matrix(destinations, layer.h.2)?,
            false => site.new_matrix(0, 0)?,
        };
        let call = Forward {
            precision: site.precision,
            a,
            layer,
            y: y_raw,
            positive: keeps.then_some(positive_raw),
        };
        site.perform(&call)?;
        Some([y, positive, kept])
    }
}

operator! {
    /// The gradients for the features of sources, of destinations (empty where those are the sources'), and, in float,
    /// for the vectors.
    AttentionBackward = "gat_attention_backward_direct" {
        t: Graph,
        h: Operand,
        h_destination: Option<Operand>,
        vectors: Operand,
        seed: Option<Operand>,
        y: Operand,
        positive: Operand,
        saved: Operand,
        dy: Operand,
        slope: f32,
        dropout: f32,
    }
}

impl Direct<3> for AttentionBackward {
    fn run(&self, torch: &'static Interface) -> Option<[Operand; 3]> {
        let site = Site::of(torch, &self.h)?;
        let transposed = site.adjacency(&self.t)?;
        let (sources, destinations) = (transposed.1, transposed.4);
        let features = Features {
            heads: self.t.heads(),
            h: &self.h,
            h_destination: self.h_destination.as_ref(),
            vectors: &self.vectors,
            seed: self.seed.as_ref(),
            slope: self.slope,
            dropout: self.dropout,
        };
        let heads = features.heads;
        let float = Some(Precision::Float);
        let saved = site.array_of(&self.saved, float, saved(heads, destinations, sources))?;
        let (_room, scratch) = site.new_floats(2 * scratch(heads, destinations, sources))?;
        let layer = features.layer(&site, destinations, sources, saved, scratch)?;
        let width = layer.h.2;
        let given = |of| site.clean(of, (destinations, width), false);
        let vectors = || site.new_matrix_of(Precision::Float, 2, width);
        let ((dh, dh_raw), (_lent, lent)) = (
            site.new_matrix(sources, width)?,
            site.new_matrix(sources, width)?,
        );
        let (d_vectors, d_vectors_raw) = vectors()?;
        let own = self.h_destination.is_some();
        let (dh_destination, dh_destination_raw) = match own {
            true => site.new_matrix(destinations, width)?,
            false => site.new_matrix(0, 0)?,
        };
        let part = match own {
            true => Some(vectors()?),
            false => None,
        };
        let call = Backward {
            precision: site.precision,
            transposed,
            layer,
            gradients: Gradients {
                y: given(&self.y)?,
                positive: given(&self.positive)?,
                dy: given(&self.dy)?,
                dh: dh_raw,
                dh_destination: own.then_some(dh_destination_raw),
                lent,
                d_vectors: d_vectors_raw,
                d_vectors_part: part.as_ref().map(|(_, raw)| *raw),
            },
        };
        site.perform(&call)?;
        Some([dh, dh_destination, d_vectors])
    }
}

/// What both passes are given.
struct Features<'a> {
    heads: usize,
    h: &'a Operand,
    h_destination: Option<&'a Operand>,
    vectors: &'a Operand,
    seed: Option<&'a Operand>,
    slope: f32,
    dropout: f32,
}

impl Features<'_> {
    fn layer(
        &self,
        site: &Site,
        destinations: usize,
        sources: usize,
        saved: RawArray,
        scratch: RawArray,
    ) -> Option<Layer> {
        let [_, (width, _)] = self.h.shape::<2>()?;
        let matrix = |of, rows| site.clean(of, (rows, width), false);
        let optional: Option<RawMatrix> = match self.h_destination {
            None => None,
            Some(of) => Some(matrix(of, destinations)?),
        };
        let seed = match self.seed {
            None => None,
            Some(seed) => Some(site.array_of(seed, None, 1)?),
        };
        Some(Layer {
            heads: self.heads,
            slope: self.slope,
            dropout: self.dropout,
            seed,
            h: matrix(self.h, sources)?,
            h_destination: optional,
            vectors: matrix(self.vectors, 2)?,
            saved,
            scratch,
        })
    }
}
