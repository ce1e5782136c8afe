//! The layers by name: on the command line, and their parameters in other frameworks.

use halfgnn::nn::{
    ConvolutionConfig, Gat as GatConfig, GatV2 as GatV2Config, Gin as GinConfig, HiddenActivation,
    Norm,
};
use halfgnn::program::layers::{
    ALL, Appnp, Arma, ArmaLayer, CgLayer, Cheb, ChebLayer, ClusterGcnLayer, Decomposition, Edge,
    EdgeConvLayer, Gat, GatV2, GatedGraphLayer, Gcn, Gcnii, Gen, GenLayer, Gin, Gine, GineLayer,
    GraphConvLayer, HgtLayer, Layer, LayerKind, LeLayer, LgLayer, MixHop, MixHopLayer, OfOneType,
    Pna, PnaLayer, ResGated, ResGatedLayer, RgcnLayer, Sage, SgLayer, Ssg, SsgLayer, TagLayer,
    Transformer, TransformerLayer, TypeReads,
};
use halfgnn::program::{Builder, Edges, Program, Value};
use halfgnn::tensor::Precision;
use halfgnn::train::Checkpoint;
use halfgnn::train::state_dict::{Framework, ImportOptions};
use std::collections::BTreeSet;
use std::path::Path;

fn kind(name: &str) -> &'static LayerKind {
    let mut all = ALL.iter();
    all.find(|kind| kind.name == name).expect("a layer")
}

/// A layer with every option that gives it a parameter, and the bias of a network where that has one.
fn built(name: &str) -> Program {
    let mut g = Builder::new(Precision::Float);
    let vertices = g.vertices("vertices", 10);
    let edges = g.edges("edges", vertices, vertices, Norm::None);
    let x = g.input("x", vertices, 8);
    let y = layer(&mut g, name, edges, x);
    let has_bias = kind(name).parameters.iter().any(|it| it.here == "bias");
    let y = match has_bias {
        true => super::setup::last(&mut g, y),
        false => y,
    };
    g.finish(y).expect("operands fit")
}

fn layer(g: &mut Builder, name: &str, edges: Edges, x: Value) -> Value {
    match name {
        "gcn" => Gcn { edges, outputs: 8 }.build(g, x),
        "sage" => Sage { edges, outputs: 8 }.build(g, x),
        "gin" => {
            let layer = Gin {
                edges,
                hidden: 8,
                outputs: 8,
                options: GinConfig {
                    learn_epsilon: true,
                    ..GinConfig::default()
                },
            };
            layer.build(g, x)
        }
        "gat" => {
            let layer = Gat {
                edges,
                outputs: 8,
                averaged: false,
                options: GatConfig {
                    edge_features: 2,
                    ..GatConfig::default()
                },
            };
            layer.build(g, x)
        }
        "gatv2" => {
            let layer = GatV2 {
                edges,
                outputs: 8,
                averaged: false,
                options: GatV2Config::default(),
            };
            layer.build(g, x)
        }
        "appnp" => {
            let layer = Appnp {
                initial: None,
                edges,
                steps: 2,
                alpha: 0.1,
                dropout: 0.0,
            };
            layer.build(g, x)
        }
        "gcnii" => {
            let layer = Gcnii {
                edges,
                initial: x,
                alpha: 0.1,
                beta: 0.5,
            };
            layer.build(g, x)
        }
        "rgcn" => {
            let layer = |decomposition| OfOneType {
                edges,
                layer: RgcnLayer {
                    reads: TypeReads::of_one_type(edges),
                    decomposition,
                    outputs: 8,
                },
            };
            let y = layer(Decomposition::None).build(g, x);
            g.layer(1, |g| layer(Decomposition::Basis(1)).build(g, y))
        }
        "hetero" => Sage { edges, outputs: 8 }.build(g, x),
        "hgt" => {
            let layer = HgtLayer {
                reads: TypeReads::of_one_type(edges),
                heads: 2,
                outputs: 8,
                activation: HiddenActivation::Gelu,
            };
            OfOneType { edges, layer }.build(g, x)
        }
        other => formula(other, edges).build(g, x),
    }
}

/// A layer that is a formula alone.
fn formula(name: &str, edges: Edges) -> Box<dyn Layer> {
    let (outputs, hops) = (4, 2);
    match name {
        "graphconv" => Box::new(GraphConvLayer {
            edges,
            outputs,
            reduction: None,
        }),
        "sg" => Box::new(SgLayer {
            edges,
            outputs,
            hops,
        }),
        "ssg" => Box::new(SsgLayer {
            edges,
            outputs,
            options: Ssg::default(),
        }),
        "tag" => Box::new(TagLayer {
            edges,
            outputs,
            hops,
        }),
        "cheb" => Box::new(ChebLayer {
            edges,
            outputs,
            options: Cheb::default(),
        }),
        "arma" => Box::new(ArmaLayer {
            edges,
            outputs,
            is_last: false,
            options: Arma {
                steps: 2,
                ..Arma::default()
            },
        }),
        "mixhop" => Box::new(MixHopLayer {
            edges,
            outputs,
            averaged: false,
            options: MixHop::default(),
        }),
        "clustergcn" => Box::new(ClusterGcnLayer {
            edges,
            outputs,
            diag_lambda: 0.5,
        }),
        "leconv" => Box::new(LeLayer { edges, outputs }),
        "gatedgraph" => Box::new(GatedGraphLayer {
            edges,
            outputs,
            steps: 2,
        }),
        "gine" => Box::new(GineLayer {
            edges,
            hidden: 8,
            outputs: 8,
            options: Gine {
                learn_epsilon: true,
                edge_features: 2,
                ..Gine::default()
            },
        }),
        "resgated" => Box::new(ResGatedLayer {
            edges,
            outputs: 8,
            options: ResGated {
                edge_features: 2,
                ..ResGated::default()
            },
        }),
        "cg" => Box::new(CgLayer {
            edges,
            edge_features: 2,
        }),
        "edge" => Box::new(EdgeConvLayer {
            edges,
            outputs,
            options: Edge::default(),
        }),
        "gen" => Box::new(GenLayer {
            edges,
            outputs,
            options: Gen {
                edge_features: 2,
                ..Gen::default()
            },
        }),
        "pna" => Box::new(PnaLayer {
            edges,
            outputs,
            options: Pna {
                edge_features: 2,
                ..Pna::default()
            },
        }),
        "transformer" => Box::new(TransformerLayer {
            edges,
            outputs,
            averaged: false,
            options: Transformer {
                beta: true,
                ..Transformer::default()
            },
        }),
        "lg" => Box::new(LgLayer { edges }),
        other => panic!("no layer {other} is built here"),
    }
}

/// The name of a parameter, without its layer's number and with the parts that a relation or a number gives it left
/// open: the first of the layer's names that stands for it.
fn open(kind: &LayerKind, name: &str) -> String {
    let name = name.strip_prefix("layers.1.").unwrap_or(name);
    let stands_for = |of: &str| match of.split_once('*') {
        None => of == name,
        Some((before, after)) => name.starts_with(before) && name.ends_with(after),
    };
    let mut names = kind.parameters.iter().map(|it| it.here);
    names.find(|of| stands_for(of)).unwrap_or(name).into()
}

#[test]
fn each_layer_names_its_parameters_and_no_others() {
    for kind in &ALL {
        let program = built(kind.name);
        let values = [program.parameters(), program.buffers()].concat();
        let found: BTreeSet<String> = values
            .iter()
            .map(|value| open(kind, &program.description(*value).name))
            .collect();
        let named: BTreeSet<String> = kind.parameters.iter().map(|it| it.here.into()).collect();
        assert_eq!(named, found, "{}", kind.name);
        assert_eq!(named.len(), kind.parameters.len(), "{}", kind.name);
    }
}

#[test]
fn each_model_of_the_command_line_is_a_layer_with_its_options() {
    for model in ConvolutionConfig::kinds() {
        let kind = kind(model.name);
        assert_eq!(kind.title, model.title);
        let names = |options: &[halfgnn::nn::ModelOption]| -> Vec<&str> {
            options.iter().map(|option| option.name).collect()
        };
        assert_eq!(
            names(&(kind.options)()),
            names(&model.options),
            "{}",
            model.name
        );
    }
    let names: BTreeSet<&str> = ALL.iter().map(|kind| kind.name).collect();
    assert_eq!(names.len(), ALL.len(), "two layers have one name");
}

/// The names are those that models are exported under, for a layer that PyG has made.
#[test]
fn names_of_other_frameworks_are_those_of_exported_models() {
    for name in ["gcn", "sage", "gat", "gin"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
        let options = ImportOptions {
            layers: None,
            from: Framework::Pyg,
            precision: Precision::Float,
            edge_weights: false,
            features: None,
        };
        let path = folder.join(format!("pyg-{name}.safetensors"));
        let checkpoint = Checkpoint::import(&path, &options).expect("PyG's model");
        for (framework, prefix) in [(Framework::Pyg, "convs.0."), (Framework::Dgl, "layers.0.")] {
            let (exported, _) = checkpoint.state_dict(framework).expect("its layers");
            let exported: BTreeSet<&str> = exported
                .keys()
                .filter_map(|key| key.strip_prefix(prefix))
                // What only the other side has: a bias that a normalisation takes out again, and a count.
                .filter(|key| !key.ends_with("0.bias") && !key.ends_with("num_batches_tracked"))
                .collect();
            let named = kind(name)
                .parameters
                .iter()
                .filter(|it| !it.here.starts_with("edge."));
            let named: BTreeSet<&str> = named
                .flat_map(|it| match framework {
                    Framework::Pyg => it.pyg.names,
                    Framework::Dgl => it.dgl.names,
                })
                .copied()
                .collect();
            assert_eq!(named, exported, "{name} of {framework:?}");
        }
    }
}
