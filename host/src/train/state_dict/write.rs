//! Export of a model under another framework's names.

use super::{
    Framework, StateDict, StateDictError, StateTensor, jumping, norms, packed, padded, refuse,
    registry, transposed,
};
use crate::nn::{
    Aggregate, ConvolutionConfig, Gat, GatV2, Gin, HiddenActivation, HiddenNorm, LinkDecoder,
    ModelConfig, Norm, Statistics,
};
use crate::train::{Checkpoint, Tensor};
use safetensors::tensor::{Dtype, TensorView};
use std::io;

/// The parameters of one layer, and the output.
struct Layer<'a> {
    checkpoint: &'a Checkpoint,
    number: usize,
    to: Framework,
    out: &'a mut StateDict,
}

impl Layer<'_> {
    /// A matrix or a vector of this layer.
    fn get(&self, name: &str) -> Result<&Tensor, StateDictError> {
        let name = format!("layers.{}.{name}", self.number);
        match self.checkpoint.snapshot.tensors.get(&name) {
            Some(tensor) => Ok(tensor),
            None => refuse(format!(
                "the checkpoint has no tensor `{name}`, so it is of another model"
            )),
        }
    }

    fn put(&mut self, name: &str, shape: &[usize], values: Vec<f32>) {
        let name = format!("{}.{}.{name}", self.to.prefix(), self.number);
        let shape = shape.to_vec();
        self.out.insert(name, StateTensor { shape, values });
    }

    /// The first map of the layer, inputs × outputs. The first layer's includes the divisors of features.
    fn weight(&self, name: &str) -> Result<Tensor, StateDictError> {
        let mut weight = self.get(name)?.clone();
        if let (0, Some(divisors)) = (self.number, &self.checkpoint.feature_divisors) {
            let columns = weight.columns.max(1);
            for (row, divisor) in weight.values.chunks_exact_mut(columns).zip(divisors) {
                row.iter_mut().for_each(|value| *value /= divisor);
            }
        }
        Ok(weight)
    }

    /// Writes a weight as in `Linear`, outputs × inputs.
    fn linear(&mut self, name: &str, weight: &Tensor) {
        let values = transposed(&weight.values, weight.rows);
        self.put(name, &[weight.columns, weight.rows], values);
    }

    fn vector(&mut self, name: &str, values: &[f32]) {
        self.put(name, &[values.len()], values.to_vec());
    }

    fn gcn(&mut self) -> Result<(), StateDictError> {
        let weight = self.weight("weight")?;
        match self.to {
            Framework::Pyg => self.linear("lin.weight", &weight),
            Framework::Dgl => {
                let shape = [weight.rows, weight.columns];
                self.put("weight", &shape, weight.values);
            }
        }
        let bias = self.get("bias")?.values.clone();
        self.vector("bias", &bias);
        Ok(())
    }

    fn sage(&mut self) -> Result<(), StateDictError> {
        let (itself, neighbours) = (
            self.weight("self.weight")?,
            self.weight("neighbours.weight")?,
        );
        let bias = self.get("bias")?.values.clone();
        let [own, heard, shift] = match self.to {
            Framework::Pyg => ["lin_r.weight", "lin_l.weight", "lin_l.bias"],
            Framework::Dgl => ["fc_self.weight", "fc_neigh.weight", "fc_self.bias"],
        };
        self.linear(own, &itself);
        self.linear(heard, &neighbours);
        self.vector(shift, &bias);
        Ok(())
    }

    fn gat(&mut self, gat: &Gat) -> Result<(), StateDictError> {
        let (mut weight, vectors) = (self.weight("weight")?, self.get("attention")?.clone());
        let bias = self.get("bias")?.values.clone();
        let heads = gat.heads;
        let is_last = self.checkpoint.model.is_last(self.number);
        let (head, width) = self.head(heads);
        if (weight.columns, vectors.columns, vectors.rows) != (width, width, 2) {
            return refuse(format!(
                "layer {} is not as wide as its heads are",
                self.number
            ));
        }
        let whole = |values: &[f32]| packed(values, width / heads, head);
        weight.values = whole(&weight.values);
        weight.columns = heads * head;
        let (destination, source) = vectors.values.split_at(width);
        let (names, linear) = match self.to {
            Framework::Pyg => (["att_dst", "att_src"], "lin.weight"),
            Framework::Dgl => (["attn_r", "attn_l"], "fc.weight"),
        };
        self.linear(linear, &weight);
        for (name, vector) in names.into_iter().zip([destination, source]) {
            self.put(name, &[1, heads, head], whole(vector));
        }
        if gat.edge_features > 0 {
            let (lin, vector) = (self.get("edge.weight")?, self.get("edge.attention")?);
            if (lin.columns, vector.columns, vector.rows) != (width, width, 2)
                || lin.rows < gat.edge_features
            {
                return refuse(format!(
                    "layer {} has another term of edges than its model says",
                    self.number
                ));
            }
            let (lin, vector) = (
                &lin.values[..gat.edge_features * width],
                &vector.values[..width],
            );
            let (lin, vector) = (whole(lin), whole(vector));
            let linear = transposed(&lin, gat.edge_features);
            self.put(
                "lin_edge.weight",
                &[heads * head, gat.edge_features],
                linear,
            );
            self.put("att_edge", &[1, heads, head], vector);
        }
        // Each head has the bias, and so does their mean.
        let bias = match (self.to, is_last) {
            (Framework::Dgl, true) => bias.repeat(heads),
            _ => bias,
        };
        self.vector("bias", &bias);
        Ok(())
    }

    /// The number of columns of a head, and of all heads with their padding.
    fn head(&self, heads: usize) -> (usize, usize) {
        let model = &self.checkpoint.model;
        let head = match model.is_last(self.number) {
            true => model.classes,
            false => model.hidden_of(self.number) / heads,
        };
        let width = match heads {
            1 => head,
            heads => heads * padded(self.checkpoint.precision, head),
        };
        (head, width)
    }

    fn gatv2(&mut self, gat: &GatV2) -> Result<(), StateDictError> {
        let heads = gat.heads;
        let (head, width) = self.head(heads);
        let maps = match gat.share_weights {
            true => [("source", "lin_l"), ("source", "lin_r")],
            false => [("source", "lin_l"), ("destination", "lin_r")],
        };
        for (own, theirs) in maps {
            let mut weight = self.weight(&format!("{own}.weight"))?;
            let bias = self.get(&format!("{own}.bias"))?.values.clone();
            if (weight.columns, bias.len()) != (width, width) {
                return refuse(format!(
                    "layer {} is not as wide as its heads are",
                    self.number
                ));
            }
            weight.values = packed(&weight.values, width / heads, head);
            weight.columns = heads * head;
            self.linear(&format!("{theirs}.weight"), &weight);
            let bias = packed(&bias, width / heads, head);
            self.vector(&format!("{theirs}.bias"), &bias);
        }
        let vector = &self.get("attention")?.values;
        let vector = packed(vector, width / heads, head);
        self.put("att", &[1, heads, head], vector);
        let bias = self.get("bias")?.values.clone();
        self.vector("bias", &bias);
        Ok(())
    }

    fn gin(&mut self, gin: &Gin) -> Result<(), StateDictError> {
        let mut first = self.weight("mlp.0.weight")?;
        // (1 + ε) · x + λ · n is λ times (1 + ε) / λ · x + n, and the map after it is linear.
        first
            .values
            .iter_mut()
            .for_each(|value| *value *= gin.lambda);
        let epsilon = match gin.learn_epsilon {
            true => self.get("epsilon")?.values.first().copied().unwrap_or(0.0),
            false => gin.epsilon,
        };
        let second = self.get("mlp.1.weight")?.clone();
        let [scale, shift, bias] =
            ["norm.weight", "norm.bias", "bias"].map(|name| self.get(name).cloned());
        let (scale, shift, bias) = (scale?, shift?, bias?);
        let running = self.get("norm.running")?.clone();
        let mlp = self.to.mlp();
        let hidden = first.columns;
        let folded = match gin.lambda {
            1.0 => epsilon,
            lambda => (1.0 + epsilon) / lambda - 1.0,
        };
        self.vector("eps", &[folded]);
        self.linear(&format!("{mlp}.0.weight"), &first);
        self.vector(&format!("{mlp}.0.bias"), &vec![0.0; hidden]);
        self.vector(&format!("{mlp}.1.weight"), &scale.values);
        self.vector(&format!("{mlp}.1.bias"), &shift.values);
        if gin.statistics == Statistics::Running {
            let (mean, variance) = running.values.split_at(hidden.min(running.values.len()));
            self.vector(&format!("{mlp}.1.running_mean"), mean);
            self.vector(&format!("{mlp}.1.running_var"), variance);
        }
        self.linear(&format!("{mlp}.3.weight"), &second);
        self.vector(&format!("{mlp}.3.bias"), &bias.values);
        Ok(())
    }
}

/// Checks that the other framework computes what the model does between its layers.
fn check(model: &ModelConfig, to: Framework) -> Result<(), StateDictError> {
    if model.residual {
        return refuse(
            "its layers are residual, which the other's convolutions are not; train without --residual",
        );
    }
    if model.binary.is_some() {
        return refuse(
            "its layers are of one bit, which the other's convolutions are not; train without --binary",
        );
    }
    if model.readout.is_some() {
        return refuse(
            "it tells whole graphs, and no one layout of the other's has the maps behind the pooling; a model that tells vertices can be carried over",
        );
    }
    if model.types.is_some() {
        return refuse(
            "it reads several types of vertices and edges, and its map of each type has no name among the other's convolutions; a model of one type can be carried over",
        );
    }
    if to == Framework::Dgl && model.jumping.is_some() {
        return refuse(
            "it has jumping knowledge, whose last map has no name among DGL's convolutions; PyG's models have",
        );
    }
    if to == Framework::Dgl && model.hidden_norm != HiddenNorm::None {
        return refuse(
            "it has norms between its layers, for which DGL's convolutions have no names; PyG's models have",
        );
    }
    Ok(())
}

/// The options that the other framework's layers need, in words.
fn options_of(
    convolution: &ConvolutionConfig,
    to: Framework,
) -> Result<Vec<String>, StateDictError> {
    let mut notes = Vec::new();
    match convolution {
        ConvolutionConfig::Gcn(gcn) => match (to, gcn.norm) {
            (Framework::Pyg, Norm::Both) => notes.push(
                "GCNConv divides by in-degrees on both sides, which is the same on graphs that are symmetric".into(),
            ),
            (Framework::Pyg, _) => {
                return refuse(
                    "its degree norm is not GCNConv's, which is `both`; train with --norm both, or export to dgl",
                );
            }
            (Framework::Dgl, norm) => {
                let norm = format!("{norm:?}").to_lowercase();
                notes.push(format!(
                    "GraphConv(…, norm='{norm}') on dgl.add_self_loop(graph)"
                ));
            }
        },
        ConvolutionConfig::Sage(_) => {}
        ConvolutionConfig::Gat(gat) => {
            if to == Framework::Dgl && gat.edge_features > 0 {
                return refuse(
                    "its scores have a term of features of edges, and DGL's GATConv has none; PyG's has",
                );
            }
            if gat.edge_features > 0 {
                notes.push(format!(
                    "GATConv(…, edge_dim={}): edge_attr is the weight, where edges have one, and then their features",
                    gat.edge_features
                ));
            }
            if to == Framework::Dgl {
                notes.push("GATConv on dgl.add_self_loop(graph); the last layer's output is the mean over heads".into());
            }
            if gat.slope != 0.2 {
                notes.push(format!("GATConv(…, negative_slope={})", gat.slope));
            }
        }
        ConvolutionConfig::GatV2(gat) => {
            if to == Framework::Dgl {
                return refuse(
                    "GATv2 is written under PyG's names alone; export it to pyg, whose lin_l is DGL's fc_src and lin_r its fc_dst",
                );
            }
            notes.push(format!(
                "GATv2Conv(…, heads={}, negative_slope={}, share_weights={}), the last layer with concat=False",
                gat.heads,
                gat.slope,
                if gat.share_weights { "True" } else { "False" }
            ));
        }
        ConvolutionConfig::Gin(gin) => notes.extend(options_of_gin(gin, to)?),
        other => match (registry::class_of(other)?, to) {
            (Some(class), Framework::Pyg) => {
                notes.push(format!("{class}, on a graph whose edges go both ways"));
                notes.extend(registry::notes_on(other));
            }
            (Some(_), Framework::Dgl) => {
                return refuse(format!(
                    "{} is written under PyG's names alone; export it to pyg",
                    other.name()
                ));
            }
            (None, _) => {
                return refuse(format!(
                    "the layers of {} are not written under {}'s names; those of gcn, sage, gin, gat, gatv2, {} are",
                    other.name(),
                    to.name(),
                    registry::NAMES
                ));
            }
        },
    }
    Ok(notes)
}

/// The same for a GIN.
fn options_of_gin(gin: &Gin, to: Framework) -> Result<Vec<String>, StateDictError> {
    let mut notes = Vec::new();
    if gin.lambda == 0.0 {
        return refuse("its λ is 0, so that it reads no neighbours, and GINConv always does");
    }
    let aggregate = match gin.aggregate {
        Aggregate::Mean => "mean",
        _ => "sum",
    };
    match (gin.statistics, gin.lambda) {
        (Statistics::Batch, _) => notes.push(
            "BatchNorm1d(…, track_running_stats=False): the model evaluates with the statistics of all vertices".into(),
        ),
        (Statistics::Running, 1.0) if gin.aggregate == Aggregate::Sum => notes.push(
            "running statistics are right if no vertex of the training graph had more than 1,023 neighbours".into(),
        ),
        // With λ in the first map, the sum times λ is normalised on both sides.
        _ => {}
    }
    let option = match to {
        Framework::Pyg => format!("GINConv(…, aggr='{aggregate}')"),
        Framework::Dgl => format!("GINConv(…, aggregator_type='{aggregate}')"),
    };
    notes.push(format!(
        "{option} with Sequential(Linear, BatchNorm1d, ReLU, Linear)"
    ));
    Ok(notes)
}

/// Writes the layers that are not in the registry. Others have been refused before.
fn layers(
    checkpoint: &Checkpoint,
    to: Framework,
    out: &mut StateDict,
) -> Result<(), StateDictError> {
    let model = &checkpoint.model;
    for number in 0..model.layers {
        let mut layer = Layer {
            checkpoint,
            number,
            to,
            out: &mut *out,
        };
        match &model.convolution {
            ConvolutionConfig::Gcn(_) => layer.gcn()?,
            ConvolutionConfig::Sage(_) => layer.sage()?,
            ConvolutionConfig::Gat(gat) => layer.gat(gat)?,
            ConvolutionConfig::GatV2(gat) => layer.gatv2(gat)?,
            ConvolutionConfig::Gin(gin) => layer.gin(gin)?,
            _ => {}
        }
    }
    Ok(())
}

/// All layers, and notes for the user who loads them.
pub(super) fn state_dict(
    checkpoint: &Checkpoint,
    to: Framework,
) -> Result<(StateDict, Vec<String>), StateDictError> {
    let model = &checkpoint.model;
    check(model, to)?;
    let mut notes = Vec::new();
    if model.decoder != LinkDecoder::Dot {
        notes.push(format!(
            "the {} decoder of links, which is left out: these are the layers that make the embeddings",
            model.decoder
        ));
    }
    if model.activation != HiddenActivation::Relu && model.hidden_layers() > 0 {
        notes.push(format!(
            "{} behind the hidden layers, not relu",
            model.activation
        ));
    }
    notes.extend(options_of(&model.convolution, to)?);
    let mut out = StateDict::new();
    if registry::class_of(&model.convolution)?.is_some() {
        registry::write(checkpoint, &mut out)?;
    } else {
        layers(checkpoint, to, &mut out)?;
    }
    notes.extend(norms::write(checkpoint, &mut out)?);
    notes.extend(jumping::write(checkpoint, &mut out)?);
    if checkpoint.feature_divisors.is_some() {
        notes.push("columns of features are divided in the first layer's weights, so that it takes them as they are".into());
    }
    Ok((out, notes))
}

/// The content of a safetensors file with these tensors.
pub(super) fn bytes(tensors: &StateDict) -> io::Result<Vec<u8>> {
    let bytes = |tensor: &StateTensor| -> Vec<u8> {
        tensor.values.iter().flat_map(|v| v.to_le_bytes()).collect()
    };
    let tensors: Vec<_> = tensors
        .iter()
        .map(|(name, tensor)| (name, tensor.shape.clone(), bytes(tensor)))
        .collect();
    let views = tensors
        .iter()
        .map(|(name, shape, bytes)| Ok((name, TensorView::new(Dtype::F32, shape.clone(), bytes)?)))
        .collect::<Result<Vec<_>, safetensors::SafeTensorError>>()
        .map_err(io::Error::other)?;
    safetensors::serialize(views, None).map_err(io::Error::other)
}
