//! A task that is small enough for dense float64: what a model's loss is there, and what it becomes when a weight moves.

use halfgnn::backend::{Backend, MemoryKind};
use halfgnn::graph::Graph;
use halfgnn::nn::{
    Aggregate, Appnp, ConvolutionConfig, Gat, Gcn, Gcnii, Gin, HiddenActivation, HiddenNorm,
    Jumping, Model, ModelConfig, Norm, Propagation,
};
use halfgnn::tensor::{Element, Matrix};
use halfgnn::train::Objective;
use halfgnn_contract::rng;
use std::collections::HashMap;

/// A task on a graph that is not symmetric, has a vertex that nobody hears from and one that hears from nobody.
#[derive(Debug)]
pub struct Toy {
    /// The graph.
    pub graph: Graph,
    /// The weight of each edge, where they have some.
    pub weights: Option<Vec<f32>>,
    /// Features of the edges, column by column.
    pub edge_features: Vec<Vec<f32>>,
    /// Features of the vertices, row-major.
    pub features: Vec<f32>,
    /// Features of a vertex.
    pub width: usize,
    /// The class of each vertex.
    pub labels: Vec<u32>,
    /// Number of classes.
    pub classes: usize,
    /// The vertices of each split.
    pub splits: [Vec<u32>; 3],
}

/// The `index`-th number of a stream.
pub fn random(index: u64, stream: u32) -> u32 {
    rng::uniform_u32(rng::key(2024, stream), index)
}

impl Toy {
    /// The task with `width` features.
    pub fn new(width: usize) -> Self {
        let vertices = 14;
        let edges: Vec<(u32, u32)> = (0..60)
            .map(|k| (random(k, 1) % 13, 1 + random(k, 2) % 13))
            .chain([(5, 5), (5, 5)])
            .collect();
        let (rows, columns): (Vec<_>, Vec<_>) = edges.into_iter().unzip();
        let features =
            (0..vertices as u64 * width as u64).map(|k| 2.0 * rng::unit_f32(random(k, 3)) - 1.0);
        Self {
            graph: Graph::from_edges(vertices, &rows, &columns).expect("ids are in range"),
            weights: None,
            edge_features: Vec::new(),
            features: features.collect(),
            width,
            labels: (0..vertices as u64).map(|k| random(k, 4) % 3).collect(),
            classes: 3,
            splits: [vec![0, 3, 4, 5, 9, 13], vec![1, 2], vec![6, 7, 8]],
        }
    }

    /// The task with a weight for each edge, of a wide range, and a vertex whose edges weigh nothing.
    pub fn weighted(width: usize) -> Self {
        let toy = Self::new(width);
        let weight = |(k, &row): (usize, &u32)| match row {
            7 => 0.0,
            _ => 4.0 * rng::unit_f32(random(k as u64, 5)).powi(3) + 0.01,
        };
        let weights = toy.graph.rows().iter().enumerate().map(weight).collect();
        Self {
            weights: Some(weights),
            ..toy
        }
    }

    /// The task with `columns` features of each edge.
    pub fn with_edge_features(width: usize, columns: usize) -> Self {
        let toy = Self::new(width);
        let edges = toy.graph.edges() as u64;
        let column = |of: u64| {
            let places = of * edges..(of + 1) * edges;
            places
                .map(|k| 4.0 * rng::unit_f32(random(k, 6)) - 2.0)
                .collect()
        };
        Self {
            edge_features: (0..columns as u64).map(column).collect(),
            ..toy
        }
    }

    /// The task on a backend, with the degree norm that a model wants.
    pub fn objective<B: Backend, E: Element>(&self, backend: &B, norm: Norm) -> Objective<B, E> {
        let weights = self.weights.as_deref();
        let graph = Propagation::of_graph::<E>(backend, &self.graph, weights, norm).expect("room");
        let graph = match self.edge_features.is_empty() {
            true => graph,
            false => graph
                .with_edge_features(backend, &self.graph, &self.edge_features)
                .expect("room"),
        };
        let (rows, kind) = (self.graph.vertices(), MemoryKind::Features);
        let features =
            Matrix::from_f32(backend, rows, self.width, &self.features, kind).expect("room");
        let splits = self.splits.each_ref().map(Vec::as_slice);
        Objective::new(backend, graph, features, &self.labels, self.classes, splits)
            .expect("a whole task")
    }
}

/// A matrix in float64.
pub type Rows = Vec<Vec<f64>>;

/// The parameters of a model in float64, by name.
#[derive(Clone, Debug)]
pub struct Parameters(HashMap<String, (Vec<f64>, usize)>);

impl Parameters {
    /// Those of a model as they are.
    pub fn of<B: Backend, E: Element>(backend: &B, model: &impl Model<B, E>) -> Self {
        let entry = |parameter: &halfgnn::nn::Parameter<B, E>| {
            let values = parameter
                .master()
                .to_f32(backend)
                .expect("no failure before");
            let values = values.into_iter().map(f64::from).collect();
            (parameter.name().to_owned(), (values, parameter.shape().1))
        };
        Self(model.parameters().into_iter().map(entry).collect())
    }

    /// A weight, to change it.
    pub fn at(&mut self, name: &str, index: usize) -> &mut f64 {
        &mut self.0.get_mut(name).expect("the model has it").0[index]
    }

    /// The rows of a parameter.
    pub fn rows(&self, name: &str) -> Rows {
        let (values, columns) = &self.0[name];
        values.chunks(*columns).map(<[f64]>::to_vec).collect()
    }

    fn row(&self, name: &str) -> &[f64] {
        &self.0[name].0
    }

    fn product(&self, x: &Rows, name: &str) -> Rows {
        let (weights, columns) = &self.0[name];
        let row = |row: &Vec<f64>| {
            let mut y = vec![0.0; *columns];
            for (x, weights) in row.iter().zip(weights.chunks(*columns)) {
                y.iter_mut().zip(weights).for_each(|(y, w)| *y += x * w);
            }
            y
        };
        x.iter().map(row).collect()
    }
}

/// The masks of a training step, which a model draws by the number of the dropout.
#[derive(Clone, Copy, Debug)]
pub struct Masks {
    /// The seed of the run.
    pub seed: u64,
    /// Steps before this one.
    pub step: u32,
}

impl Masks {
    /// Numbers of dropouts begin here; that of the features is the first, and a layer's comes after it.
    const STREAM: u32 = u32::from_be_bytes(*b"drop");
    /// Numbers of attention's dropouts, a layer each, are so much further on.
    const OF_ATTENTION: u32 = 1 << 16;

    fn key(self, number: u32) -> [u32; 2] {
        rng::key(self.seed, Self::STREAM + number)
    }

    /// What a number that was drawn multiplies with.
    fn factor(bits: u32, probability: f32) -> f64 {
        if bits < rng::threshold(probability) {
            0.0
        } else {
            f64::from(1.0 / (1.0 - probability))
        }
    }

    /// Drops elements as the dropout `number` does.
    pub fn drop(self, number: u32, probability: f32, x: &mut Rows) {
        let key = self.key(number);
        for (row, values) in x.iter_mut().enumerate() {
            for (column, value) in values.iter_mut().enumerate() {
                let bits = rng::dropout_bits(key, self.step, row as u64, column as u32 / 4);
                *value *= Self::factor(bits[column % 4], probability);
            }
        }
    }

    /// What the edge from `source` to `destination` is multiplied with.
    fn of_edge(
        self,
        layer: usize,
        probability: f32,
        [head, destination, source]: [usize; 3],
    ) -> f64 {
        let key = self.key(Self::OF_ATTENTION + layer as u32);
        let [head, destination, source] = [head, destination, source].map(|number| number as u32);
        let counter = rng::edge_dropout_counter(self.step, head, destination, source);
        Self::factor(rng::philox(key, counter)[0], probability)
    }
}

/// The loss of a model in float64, from a dense adjacency, with the statistics of the batch; without masks nothing is dropped.
pub fn reference_loss(
    toy: &Toy,
    config: &ModelConfig,
    parameters: &Parameters,
    masks: Option<Masks>,
) -> f64 {
    let rows = |values: &[f32]| values.iter().map(|&value| value.into()).collect();
    let x: Rows = toy.features.chunks(toy.width).map(rows).collect();
    let drop = |number: usize, probability: f32, x: &Rows| {
        let mut x = x.clone();
        if let Some(masks) = masks {
            masks.drop(number as u32, probability, &mut x);
        }
        x
    };
    let logits = match &config.convolution {
        ConvolutionConfig::Appnp(appnp) => propagated(toy, config, appnp, parameters, &drop, x),
        ConvolutionConfig::Gcnii(gcnii) => deep(toy, config, gcnii, parameters, &drop, x),
        _ => stacked(toy, config, parameters, masks, &drop, x),
    };
    loss_of(toy, &logits)
}

/// The mean cross-entropy of the training vertices.
pub fn loss_of(toy: &Toy, logits: &Rows) -> f64 {
    let losses = toy.splits[0].iter().map(|&vertex| {
        let logits = &logits[vertex as usize];
        logits.iter().map(|z| z.exp()).sum::<f64>().ln()
            - logits[toy.labels[vertex as usize] as usize]
    });
    losses.sum::<f64>() / toy.splits[0].len() as f64
}

/// The rows after the dropout of a number and a probability.
type Drop<'a> = &'a dyn Fn(usize, f32, &Rows) -> Rows;

/// Layers of one kind, one after the other.
fn stacked(
    toy: &Toy,
    config: &ModelConfig,
    parameters: &Parameters,
    masks: Option<Masks>,
    drop: Drop<'_>,
    mut x: Rows,
) -> Rows {
    let mut all = match config.jumping {
        Some(Jumping::All) => vec![x.clone()],
        _ => Vec::new(),
    };
    for layer in 0..config.layers {
        x = drop(layer, config.dropout, &x);
        if layer > 0 {
            all.push(x.clone());
        }
        let mut y = convolve(toy, config, parameters, layer, masks, &x);
        let name = |parameter: &str| format!("layers.{layer}.{parameter}");
        let bias = parameters.row(&name("bias"));
        for row in &mut y {
            row.iter_mut().zip(bias).for_each(|(y, bias)| *y += bias);
        }
        let hidden = layer + 1 < config.layers || config.jumping.is_some();
        if hidden {
            normalize(config, parameters, layer, &mut y);
        }
        for (y, x) in y.iter_mut().zip(&x) {
            for (n, value) in y.iter_mut().enumerate() {
                if config.residual && x.len() == bias.len() {
                    *value += x[n];
                }
                if hidden {
                    *value = activated(config.activation, *value);
                }
            }
        }
        x = y;
    }
    if let Some(jumping) = config.jumping {
        all.push(drop(config.layers, config.dropout, &x));
        x = jumped(config, parameters, jumping, all);
    }
    x
}

/// The last map of jumping knowledge, from the rows of all layers.
fn jumped(config: &ModelConfig, parameters: &Parameters, jumping: Jumping, all: Vec<Rows>) -> Rows {
    if jumping == Jumping::Max {
        let larger = |mut a: Rows, b: Rows| {
            for (a, b) in a.iter_mut().flatten().zip(b.iter().flatten()) {
                *a = a.max(*b);
            }
            a
        };
        let largest = all.into_iter().reduce(larger).expect("a layer");
        return linear(parameters, config.layers + 1, &largest);
    }
    let products = all.iter().enumerate().map(|(number, rows)| {
        parameters.product(
            rows,
            &format!("layers.{}.jump.{number}.weight", config.layers),
        )
    });
    let mut y = products
        .reduce(|a, b| mixed((1.0, &a), (1.0, &b)))
        .expect("a layer");
    let bias = parameters.row(&format!("layers.{}.bias", config.layers));
    for row in &mut y {
        row.iter_mut().zip(bias).for_each(|(y, bias)| *y += bias);
    }
    y
}

fn activated(function: HiddenActivation, x: f64) -> f64 {
    match function {
        HiddenActivation::Relu => x.max(0.0),
        HiddenActivation::Elu if x > 0.0 => x,
        HiddenActivation::Elu => x.exp_m1(),
        HiddenActivation::LeakyRelu if x > 0.0 => x,
        HiddenActivation::LeakyRelu => 0.01 * x,
        HiddenActivation::Gelu => x * normal(x),
        HiddenActivation::Tanh => x.tanh(),
        HiddenActivation::None => x,
    }
}

/// The normal distribution, by its series.
fn normal(x: f64) -> f64 {
    let (mut term, mut sum, mut n) = (x, x, 1.0);
    while term.abs() > 1e-18 {
        term *= x * x / (2.0 * n + 1.0);
        sum += term;
        n += 1.0;
    }
    0.5 + sum * (-0.5 * x * x).exp() / std::f64::consts::TAU.sqrt()
}

/// The norm behind a hidden layer, of all rows as one graph, by PyG's formulas.
fn normalize(config: &ModelConfig, parameters: &Parameters, layer: usize, rows: &mut Rows) {
    const EPSILON: f64 = 1e-5;
    let (count, columns) = (rows.len() as f64, rows[0].len());
    let parameter = |name: &str| parameters.row(&format!("layers.{layer}.hidden_norm.{name}"));
    let mean_of =
        |rows: &Rows, column: usize| rows.iter().map(|row| row[column]).sum::<f64>() / count;
    let affine = |rows: &mut Rows| {
        let (weight, bias) = (parameter("weight"), parameter("bias"));
        for (n, value) in rows.iter_mut().flat_map(|row| row.iter_mut().enumerate()) {
            *value = *value * weight[n] + bias[n];
        }
    };
    match config.hidden_norm {
        HiddenNorm::None => {}
        HiddenNorm::Layer => {
            for row in rows.iter_mut() {
                let width = columns as f64;
                let mean = row.iter().sum::<f64>() / width;
                let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / width;
                row.iter_mut()
                    .for_each(|x| *x = (*x - mean) / (variance + EPSILON).sqrt());
            }
            affine(rows);
        }
        HiddenNorm::Pair => {
            let means: Vec<f64> = (0..columns).map(|column| mean_of(rows, column)).collect();
            for row in rows.iter_mut() {
                row.iter_mut().zip(&means).for_each(|(x, mean)| *x -= mean);
            }
            let squares = rows.iter().flatten().map(|x| x * x).sum::<f64>() / count;
            let values = rows.iter_mut().flatten();
            values.for_each(|x| *x /= (EPSILON + squares).sqrt());
        }
        HiddenNorm::Batch | HiddenNorm::Graph => {
            for column in 0..columns {
                let share = match config.hidden_norm {
                    HiddenNorm::Graph => parameter("mean_scale")[column],
                    _ => 1.0,
                };
                let shift = share * mean_of(rows, column);
                rows.iter_mut().for_each(|row| row[column] -= shift);
                let squares = rows.iter().map(|row| row[column].powi(2)).sum::<f64>() / count;
                rows.iter_mut()
                    .for_each(|row| row[column] /= (squares + EPSILON).sqrt());
            }
            affine(rows);
        }
    }
}

fn activate(config: &ModelConfig, rows: &mut Rows) {
    let values = rows.iter_mut().flatten();
    values.for_each(|value| *value = activated(config.activation, *value));
}

/// A linear layer.
fn linear(parameters: &Parameters, layer: usize, x: &Rows) -> Rows {
    let mut y = parameters.product(x, &format!("layers.{layer}.weight"));
    let bias = parameters.row(&format!("layers.{layer}.bias"));
    for row in &mut y {
        row.iter_mut().zip(bias).for_each(|(y, bias)| *y += bias);
    }
    y
}

/// `a · x + b · y`
fn mixed((a, x): (f64, &Rows), (b, y): (f64, &Rows)) -> Rows {
    let row =
        |(x, y): (&Vec<f64>, &Vec<f64>)| x.iter().zip(y).map(|(x, y)| a * x + b * y).collect();
    x.iter().zip(y).map(row).collect()
}

/// APPNP, equations 4 and 5 of the paper.
fn propagated(
    toy: &Toy,
    config: &ModelConfig,
    appnp: &Appnp,
    parameters: &Parameters,
    drop: Drop<'_>,
    mut x: Rows,
) -> Rows {
    for layer in 0..config.layers {
        x = linear(parameters, layer, &drop(layer, config.dropout, &x));
        if layer + 1 < config.layers {
            normalize(config, parameters, layer, &mut x);
            activate(config, &mut x);
        }
    }
    let (alpha, initial) = (f64::from(appnp.alpha), x.clone());
    let probability = appnp.propagation_dropout.unwrap_or(config.dropout);
    for step in 0..appnp.steps {
        x = drop(config.layers + step, probability, &x);
        x = mixed(
            (1.0 - alpha, &aggregate(toy, Norm::Both, &x)),
            (alpha, &initial),
        );
    }
    x
}

/// GCNII, equation 5 of the paper.
fn deep(
    toy: &Toy,
    config: &ModelConfig,
    gcnii: &Gcnii,
    parameters: &Parameters,
    drop: Drop<'_>,
    x: Rows,
) -> Rows {
    let mut x = linear(parameters, 0, &drop(0, config.dropout, &x));
    normalize(config, parameters, 0, &mut x);
    activate(config, &mut x);
    let (alpha, initial) = (f64::from(gcnii.alpha), x.clone());
    for layer in 1..=config.layers {
        let beta = (f64::from(gcnii.theta) / layer as f64 + 1.0).ln();
        x = drop(layer, config.dropout, &x);
        let sum = mixed(
            (1.0 - alpha, &aggregate(toy, Norm::Both, &x)),
            (alpha, &initial),
        );
        let product = parameters.product(&sum, &format!("layers.{layer}.weight"));
        x = mixed((1.0 - beta, &sum), (beta, &product));
        normalize(config, parameters, layer, &mut x);
        activate(config, &mut x);
    }
    let last = config.layers + 1;
    linear(parameters, last, &drop(last, config.dropout, &x))
}

fn convolve(
    toy: &Toy,
    config: &ModelConfig,
    parameters: &Parameters,
    layer: usize,
    masks: Option<Masks>,
    x: &Rows,
) -> Rows {
    let name = |parameter: &str| format!("layers.{layer}.{parameter}");
    let add = |a: Rows, b: Rows, factor: f64| -> Rows {
        let row =
            |(a, b): (Vec<f64>, Vec<f64>)| a.iter().zip(&b).map(|(a, b)| a + factor * b).collect();
        a.into_iter().zip(b).map(row).collect()
    };
    match &config.convolution {
        ConvolutionConfig::Gcn(Gcn { norm }) => {
            let product = parameters.product(x, &name("weight"));
            aggregate(toy, *norm, &product)
        }
        ConvolutionConfig::Sage(_) => {
            let itself = parameters.product(x, &name("self.weight"));
            let neighbours = parameters.product(x, &name("neighbours.weight"));
            add(itself, aggregate(toy, Norm::Right, &neighbours), 1.0)
        }
        ConvolutionConfig::Gin(Gin {
            aggregate: form,
            lambda,
            epsilon,
            learn_epsilon,
            ..
        }) => {
            let norm = match form {
                Aggregate::Mean => Norm::Right,
                _ => Norm::None,
            };
            let epsilon = match learn_epsilon {
                true => parameters.row(&name("epsilon"))[0],
                false => f64::from(*epsilon),
            };
            let nothing: Rows = vec![vec![0.0; x[0].len()]; x.len()];
            let sum = add(nothing, x.clone(), 1.0 + epsilon);
            let sum = add(sum, aggregate(toy, norm, x), f64::from(*lambda));
            let mut between = parameters.product(&sum, &name("mlp.0.weight"));
            let (weight, bias) = (
                parameters.row(&name("norm.weight")),
                parameters.row(&name("norm.bias")),
            );
            let count = between.len() as f64;
            for column in 0..weight.len() {
                let values: Vec<f64> = between.iter().map(|row| row[column]).collect();
                let mean = values.iter().sum::<f64>() / count;
                let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / count;
                for row in &mut between {
                    let normalized = (row[column] - mean) / (variance + 1e-5).sqrt();
                    row[column] = (normalized * weight[column] + bias[column]).max(0.0);
                }
            }
            parameters.product(&between, &name("mlp.1.weight"))
        }
        ConvolutionConfig::Gat(Gat {
            heads,
            slope,
            attention_dropout,
            edge_features,
        }) => {
            let h = parameters.product(x, &name("weight"));
            let vectors = parameters.row(&name("attention"));
            let outputs = parameters.row(&name("bias")).len();
            let kept = |place| match masks {
                Some(masks) => masks.of_edge(layer, *attention_dropout, place),
                None => 1.0,
            };
            let bias = |head: usize, edge: usize| {
                if *edge_features == 0 {
                    return 0.0;
                }
                // `a_e · (W_e · f)`, as PyG's `edge_updater` has it.
                let (weight, width) = &parameters.0[&name("edge.weight")];
                let vector = parameters.row(&name("edge.attention"));
                let columns = head * (width / heads)..(head + 1) * (width / heads);
                let of_feature = |feature: usize| -> f64 {
                    let weights = &weight[feature * width..];
                    columns.clone().map(|c| vector[c] * weights[c]).sum()
                };
                let features = (0..*edge_features).map(|feature| {
                    of_feature(feature) * f64::from(toy.edge_features[feature][edge])
                });
                features.sum()
            };
            let attention = (vectors, &bias as &dyn Fn(usize, usize) -> f64);
            attend(
                toy,
                *heads,
                f64::from(*slope),
                &h,
                attention,
                outputs,
                &kept,
            )
        }
        ConvolutionConfig::GatV2(gat) => {
            let map = |name: String| {
                let bias = parameters.row(&format!("{name}.bias")).to_vec();
                let mut rows = parameters.product(x, &format!("{name}.weight"));
                for row in &mut rows {
                    row.iter_mut().zip(&bias).for_each(|(y, bias)| *y += bias);
                }
                rows
            };
            let sources = map(name("source"));
            let destinations = match gat.share_weights {
                true => sources.clone(),
                false => map(name("destination")),
            };
            let vector = parameters.row(&name("attention"));
            let outputs = parameters.row(&name("bias")).len();
            let kept = |place| match masks {
                Some(masks) => masks.of_edge(layer, gat.attention_dropout, place),
                None => 1.0,
            };
            let distance = vector.len() / gat.heads;
            let slope = f64::from(gat.slope);
            let score = |head: usize, edge: usize| -> f64 {
                let i = toy.graph.rows()[edge] as usize;
                let j = toy.graph.cols()[edge] as usize;
                let columns = head * distance..(head + 1) * distance;
                let heard = |c: usize| {
                    let given = destinations[i][c] + sources[j][c];
                    vector[c] * if given > 0.0 { given } else { slope * given }
                };
                columns.map(heard).sum()
            };
            hear(toy, gat.heads, &sources, &score, outputs, &kept)
        }
        other => panic!("no reference for {other}"),
    }
}

/// Attention with `heads` heads of these vectors and these biases of a head and an edge, whose mean has `outputs` columns where all together have more; `kept` gives what the edge of a
/// head, a destination and a source is multiplied with.
fn attend(
    toy: &Toy,
    heads: usize,
    slope: f64,
    h: &Rows,
    (vectors, bias): (&[f64], &dyn Fn(usize, usize) -> f64),
    outputs: usize,
    kept: &dyn Fn([usize; 3]) -> f64,
) -> Rows {
    let width = h[0].len();
    let distance = width / heads;
    let dot = |v: usize, row: usize, head: usize| -> f64 {
        let columns = head * distance..(head + 1) * distance;
        columns.map(|c| h[v][c] * vectors[row * width + c]).sum()
    };
    let score = |head: usize, edge: usize| {
        let (i, j) = (
            toy.graph.rows()[edge] as usize,
            toy.graph.cols()[edge] as usize,
        );
        let e = dot(i, 0, head) + dot(j, 1, head) + bias(head, edge);
        if e > 0.0 { e } else { slope * e }
    };
    hear(toy, heads, h, &score, outputs, kept)
}

/// What each vertex hears of `h` with the weights that a softmax of scores of a head and an edge gives; the rest as of [`attend`].
fn hear(
    toy: &Toy,
    heads: usize,
    h: &Rows,
    score: &dyn Fn(usize, usize) -> f64,
    outputs: usize,
    kept: &dyn Fn([usize; 3]) -> f64,
) -> Rows {
    let (vertices, width) = (h.len(), h[0].len());
    let distance = width / heads;
    let mut y = vec![vec![0.0; width]; vertices];
    for head in 0..heads {
        let mut sums = vec![0.0; vertices];
        for (edge, &i) in toy.graph.rows().iter().enumerate() {
            sums[i as usize] += score(head, edge).exp();
        }
        for (edge, (&i, &j)) in toy.graph.rows().iter().zip(toy.graph.cols()).enumerate() {
            let place = [head, i as usize, j as usize];
            let weight = score(head, edge).exp() / sums[i as usize] * kept(place);
            for c in head * distance..(head + 1) * distance {
                y[i as usize][c] += weight * h[j as usize][c];
            }
        }
    }
    let mean = |row: Vec<f64>| -> Vec<f64> {
        let of = |c: usize| (0..heads).map(|head| row[head * distance + c]).sum::<f64>();
        (0..outputs).map(|c| of(c) / heads as f64).collect()
    };
    if heads > 1 && outputs < width && outputs <= distance {
        y = y.into_iter().map(mean).collect();
    } else if outputs < width {
        let head = outputs / heads;
        let side_by_side = |row: Vec<f64>| -> Vec<f64> {
            let of_head = |row: &[f64]| row[..head].to_vec();
            row.chunks(distance).flat_map(of_head).collect()
        };
        y = y.into_iter().map(side_by_side).collect();
    }
    y
}

/// `R · A · C · x`.
pub fn aggregate(toy: &Toy, norm: Norm, x: &Rows) -> Rows {
    let power = |degree: f64, exponent: f64| match degree {
        0.0 => 0.0,
        degree => degree.powf(exponent),
    };
    let (row_exponent, column_exponent) = match norm {
        Norm::Both | Norm::In => (-0.5, -0.5),
        Norm::Right => (-1.0, 0.0),
        Norm::Left => (0.0, -1.0),
        Norm::None => (0.0, 0.0),
    };
    let edges = || toy.graph.rows().iter().zip(toy.graph.cols()).enumerate();
    let weight = |edge: usize| match &toy.weights {
        Some(weights) => f64::from(weights[edge]),
        None => 1.0,
    };
    let (mut rows, mut columns) = (vec![0.0; x.len()], vec![0.0; x.len()]);
    for (edge, (&row, &column)) in edges() {
        rows[row as usize] += weight(edge);
        columns[column as usize] += weight(edge);
    }
    if norm == Norm::In {
        columns.clone_from(&rows);
    }
    let mut y = vec![vec![0.0; x[0].len()]; x.len()];
    for (edge, (&row, &column)) in edges() {
        let (row, column) = (row as usize, column as usize);
        let norms = power(rows[row], row_exponent) * power(columns[column], column_exponent);
        let factor = weight(edge) * norms;
        for (y, x) in y[row].iter_mut().zip(&x[column]) {
            *y += factor * x;
        }
    }
    y
}
