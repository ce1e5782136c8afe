//! PyG's classes with their options, and the checks of what they cannot compute.

use super::super::{StateDictError, refuse};
use crate::nn::{Aggregate, ConvolutionConfig, ModelConfig, Norm, Statistics};

/// PyG's name of an aggregation.
fn aggr(aggregate: Aggregate) -> &'static str {
    match aggregate {
        Aggregate::Mean => "mean",
        Aggregate::Sum => "add",
        Aggregate::Max => "max",
        Aggregate::Min => "min",
        Aggregate::Softmax => "softmax",
        Aggregate::Std => "std",
    }
}

/// The number of edge features as an option of PyG's, where there are some.
fn with_edges(option: &str, features: usize) -> String {
    match features {
        0 => String::new(),
        _ => format!(", {option}={features}"),
    }
}

/// A boolean in Python.
fn truth(value: bool) -> &'static str {
    if value { "True" } else { "False" }
}

/// PyG's class for these layers, with its options; none for layers that the registry does not convert.
///
/// # Errors
/// What PyG's class does not support.
pub(in super::super) fn class_of(
    convolution: &ConvolutionConfig,
) -> Result<Option<String>, StateDictError> {
    let symmetric = |class: &str, norm: Norm| match norm {
        Norm::Both => Ok(()),
        _ => refuse(format!(
            "its degree norm is not {class}'s, which is `both` on graphs whose edges go both ways; train with --norm both"
        )),
    };
    let class = match convolution {
        ConvolutionConfig::GraphConv(of) => format!("GraphConv(…, aggr='{}')", aggr(of.aggregate)),
        ConvolutionConfig::Sg(of) => {
            symmetric("SGConv", of.norm)?;
            format!("SGConv(…, K={})", of.hops)
        }
        ConvolutionConfig::Ssg(of) => {
            symmetric("SSGConv", of.norm)?;
            format!("SSGConv(…, alpha={}, K={})", of.alpha, of.hops)
        }
        ConvolutionConfig::Tag(of) => {
            symmetric("TAGConv", of.norm)?;
            format!("TAGConv(…, K={})", of.hops)
        }
        ConvolutionConfig::Cheb(of) => {
            let normalization = match of.norm {
                Norm::Both => "sym",
                Norm::Right => "rw",
                _ => {
                    return refuse(
                        "its degree norm is not ChebConv's, which is `both` or `right`; train with --norm both",
                    );
                }
            };
            format!(
                "ChebConv(…, K={}, normalization='{normalization}'), called with lambda_max={}",
                of.terms, of.lambda_max
            )
        }
        ConvolutionConfig::Arma(of) => {
            symmetric("ARMAConv", of.norm)?;
            let shared = truth(of.share_weights);
            format!(
                "ARMAConv(…, num_stacks={}, num_layers={}, shared_weights={shared})",
                of.stacks, of.steps
            )
        }
        ConvolutionConfig::MixHop(of) => {
            symmetric("MixHopConv", of.norm)?;
            format!("MixHopConv(…, powers={:?})", of.powers)
        }
        ConvolutionConfig::ClusterGcn(of) => {
            format!("ClusterGCNConv(…, diag_lambda={})", of.diag_lambda)
        }
        ConvolutionConfig::Le(_) => "LEConv(…)".into(),
        ConvolutionConfig::GatedGraph(of) => format!("GatedGraphConv(…, num_layers={})", of.steps),
        ConvolutionConfig::Transformer(of) => {
            format!(
                "TransformerConv(…, heads={}, beta={})",
                of.heads,
                truth(of.beta)
            )
        }
        ConvolutionConfig::Appnp(of) => format!("APPNP(K={}, alpha={})", of.steps, of.alpha),
        ConvolutionConfig::Gcnii(of) => format!(
            "GCN2Conv(…, alpha={}, theta={}, layer=N + 1) for convs.N",
            of.alpha, of.theta
        ),
        ConvolutionConfig::Rgcn(of) => {
            let shared = match (of.bases, of.blocks) {
                (0, 0 | 1) => String::new(),
                (0, blocks) => format!(", num_blocks={blocks}"),
                (bases, _) => format!(", num_bases={bases}"),
            };
            format!("RGCNConv(…, num_relations=1{shared}) or FastRGCNConv, with the edge_type 0")
        }
        other => return of_messages(other),
    };
    Ok(Some(class))
}

/// [`class_of`] for layers that aggregate messages with edge features, or by reductions other than a sum.
fn of_messages(convolution: &ConvolutionConfig) -> Result<Option<String>, StateDictError> {
    let class = match convolution {
        ConvolutionConfig::Gine(of) => {
            let (aggr, edges) = (aggr(of.aggregate), with_edges("edge_dim", of.edge_features));
            format!(
                "GINEConv(…, aggr='{aggr}'{edges}) with Sequential(Linear, BatchNorm1d, ReLU, Linear)"
            )
        }
        ConvolutionConfig::ResGated(of) => {
            let (aggr, edges) = (aggr(of.aggregate), with_edges("edge_dim", of.edge_features));
            let root = truth(of.root_weight);
            format!("ResGatedGraphConv(…, root_weight={root}, aggr='{aggr}'{edges})")
        }
        ConvolutionConfig::Cg(of) => {
            let (aggr, edges) = (aggr(of.aggregate), with_edges("dim", of.edge_features));
            format!("CGConv(…, aggr='{aggr}'{edges})")
        }
        ConvolutionConfig::Edge(of) => {
            if matches!(of.aggregate, Aggregate::Sum | Aggregate::Std) {
                return refuse(
                    "its bias is added once, and EdgeConv's is in each message that is aggregated; --aggregate max, min, mean or softmax can be carried over",
                );
            }
            let aggr = aggr(of.aggregate);
            format!("EdgeConv(…, aggr='{aggr}') with Sequential(Linear)")
        }
        ConvolutionConfig::Gen(of) => {
            let (aggr, edges) = (aggr(of.aggregate), with_edges("edge_dim", of.edge_features));
            let temperature = match of.aggregate {
                Aggregate::Softmax => format!(", t={}", of.temperature),
                _ => String::new(),
            };
            format!(
                "GENConv(…, aggr='{aggr}'{temperature}, expansion={}, bias=True{edges})",
                of.expansion
            )
        }
        ConvolutionConfig::Pna(of) => {
            let edges = with_edges("edge_dim", of.edge_features);
            format!(
                "PNAConv(…, aggregators=['mean', 'min', 'max', 'std'], scalers=['identity', 'amplification', 'attenuation'], deg=…{edges})"
            )
        }
        _ => return Ok(None),
    };
    Ok(Some(class))
}

/// Notes for the user who makes a model of these layers in PyG.
pub(in super::super) fn notes_on(convolution: &ConvolutionConfig) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    match convolution {
        ConvolutionConfig::Arma(_) => notes.push(
            "the last layer has act=None, and a hidden one its ReLU, so that a relu behind it changes nothing".into(),
        ),
        ConvolutionConfig::MixHop(of) if of.powers.len() > 1 => notes.push(format!(
            "out_channels of a hidden layer is its width divided by {}; the output is the mean over the powers of the last layer's",
            of.powers.len()
        )),
        ConvolutionConfig::GatedGraph(_) => notes.push(
            "lins.N, where the file has one, is a Linear without bias before convs.N".into(),
        ),
        ConvolutionConfig::Transformer(of) => {
            if of.heads > 1 {
                notes.push("the last layer has concat=False".into());
            }
            if !of.root_weight {
                notes.push(
                    "lin_skip.weight is zero, and lin_skip.bias is the bias of the layer, which root_weight=False has not".into(),
                );
            }
        }
        ConvolutionConfig::Appnp(_) => notes.push(
            "lins.N is a Linear, with the activation behind all but the last; APPNP follows them and has no tensors".into(),
        ),
        ConvolutionConfig::Gcnii(_) => notes.push(
            "lins.0 is a Linear before all convolutions, with the activation behind it, which is x_0; lins.1 is one behind all".into(),
        ),
        ConvolutionConfig::Cg(_) => notes.push(
            "lins.0 is a Linear before all convolutions, with the activation behind it, and lins.1 one behind all".into(),
        ),
        ConvolutionConfig::Rgcn(of) if of.blocks > 1 => {
            notes.push("the last layer has num_blocks=None".into());
        }
        ConvolutionConfig::Gine(of) => {
            if of.edge_features == 0 {
                notes.push("edge_attr is zero, as many columns as the layer's input has".into());
            }
            match (of.statistics, of.aggregate) {
                (Statistics::Batch, _) => notes.push("BatchNorm1d(…, track_running_stats=False): the model evaluates with the statistics of all vertices".into()),
                (Statistics::Running, Aggregate::Sum) => notes.push("running statistics are right if no vertex of the training graph had more than 1,023 neighbours".into()),
                (Statistics::Running, _) => {}
            }
        }
        ConvolutionConfig::Edge(_) => notes.push(
            "a vertex without neighbours has the bias of the layer here and zero in PyG".into(),
        ),
        ConvolutionConfig::Gen(of) if of.statistics == Statistics::Batch => notes.push(
            "mlp[1] is BatchNorm1d(…, track_running_stats=False): the model evaluates with the statistics of all vertices".into(),
        ),
        ConvolutionConfig::Pna(_) => notes.push(
            "avg_deg_log is the mean of ln (1 + degree) that the model divides by; avg_deg_lin is zero, and these scalers do not read it".into(),
        ),
        _ => {}
    }
    if edge_features(convolution) > 0 {
        notes.push("edge_attr is the weight, where edges have one, and then their features".into());
    }
    notes
}

/// The number of features of an edge that these layers read.
fn edge_features(convolution: &ConvolutionConfig) -> usize {
    match convolution {
        ConvolutionConfig::Gine(of) => of.edge_features,
        ConvolutionConfig::ResGated(of) => of.edge_features,
        ConvolutionConfig::Cg(of) => of.edge_features,
        ConvolutionConfig::Gen(of) => of.edge_features,
        ConvolutionConfig::Pna(of) => of.edge_features,
        _ => 0,
    }
}

/// Checks that PyG's class computes the same as the layers of a model of these widths.
///
/// # Errors
/// What it does not support.
pub(super) fn check(model: &ModelConfig) -> Result<(), StateDictError> {
    let mut hidden = (0..model.hidden_layers()).map(|layer| model.hidden_of(layer));
    match &model.convolution {
        ConvolutionConfig::Arma(of) if of.steps > 1 && model.jumping.is_none() => refuse(
            "its last layer has a ReLU behind each step but the last, and ARMAConv behind each or none; --steps 1 or --jumping can be carried over",
        ),
        ConvolutionConfig::MixHop(of) => {
            match hidden.find(|width| !width.is_multiple_of(of.powers.len().max(1))) {
                Some(width) => refuse(format!(
                    "{width} columns of a hidden layer are not as many of each of {} powers, as MixHopConv has them; a multiple can be carried over",
                    of.powers.len()
                )),
                None => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

/// Checks that divisors of features can be moved out of the aggregation.
///
/// # Errors
/// The aggregation that does not scale with its messages.
pub(super) fn check_divided(convolution: &ConvolutionConfig) -> Result<(), StateDictError> {
    let aggregate = match convolution {
        ConvolutionConfig::GraphConv(of) => of.aggregate,
        ConvolutionConfig::Gine(of) => of.aggregate,
        _ => return Ok(()),
    };
    match aggregate {
        Aggregate::Softmax | Aggregate::Std => refuse(
            "columns of its features are divided, and no weight behind a softmax or a deviation does that; train without --scale-features",
        ),
        _ => Ok(()),
    }
}
