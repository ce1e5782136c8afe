//! The conformance suite on the kernels' own PTX, run by the emulator with every check on: a kernel that reads out of
//! bounds, reads what nothing wrote, or races, fails here. And what is tested on the emulator alone, in the same program because what is
//! compiled for a backend is most of it.

mod claims;
mod footprint;
mod hardware_operators;

use half::{bf16, f16};
use halfgnn::backend::cpu::Cpu;
use halfgnn::backend::gpu::Gpu;
use halfgnn::backend::{Adjacency, Block, MemoryKind, Storage};
use halfgnn::driver::Driver;
use halfgnn::driver::emulated::{Emulated, Options};
use halfgnn::graph::Csr;
use halfgnn::kernels::Kernels;
use halfgnn::nn::{Binary, ConvolutionConfig, Mode, Model, ModelConfig, Network};
use halfgnn::ops::{self, Addend, EdgeWeights, Sddmm, Spmm, SpmmEpilogue, edge_plane};
use halfgnn::tensor::{Array, Element, Matrix};
use halfgnn_tests::Scale;
use halfgnn_tests::borrowed;
use halfgnn_tests::graphs::{from_degrees, power_law};
use halfgnn_tests::input::{Random, matrix, read, unwritten};
use halfgnn_tests::properties::in_any_order;
use halfgnn_tests::second_levels::MULTIPROCESSORS;
use halfgnn_tests::spmm::BY_VERTEX;
use halfgnn_tests::task::edge_weights;
use halfgnn_tests::toy::Toy;
use halfgnn_tests::training::{
    assert_steps_agree, models, models_of_activations, models_of_bits, models_of_edge_features,
    models_of_messages_with_a_slight_bend, models_of_store, models_of_weights, parameters_after,
};
use std::sync::Mutex;

fn open(options: Options) -> Gpu<Emulated> {
    let driver = Emulated::with_options(options);
    let kernels = Kernels::find(Some(driver.info().compute_capability)).expect("the kernels");
    Gpu::new(driver, kernels).expect("the kernels fit this program")
}

/// An emulator that no other test has meanwhile: launches of one follow one another, so that tests of several threads would wait for each other.
/// It is this thread's until it ends, and then the next one's.
fn emulator() -> &'static Gpu<Emulated> {
    static FREE: Mutex<Vec<&'static Gpu<Emulated>>> = Mutex::new(Vec::new());
    struct Taken(&'static Gpu<Emulated>);
    impl Drop for Taken {
        fn drop(&mut self) {
            FREE.lock().expect("nothing panics there").push(self.0);
        }
    }
    thread_local! {
        static TAKEN: Taken = {
            let free = FREE.lock().expect("nothing panics there").pop();
            Taken(free.unwrap_or_else(|| Box::leak(Box::new(open(Options::default())))))
        };
    }
    TAKEN.with(|taken| taken.0)
}

halfgnn_tests::conformance!(|| Some(emulator()), Scale::Small);

/// Four short rows a warp have the bits of a row a warp, which a larger card takes: also those beside a row that is long, beside one that all
/// warps of a CTA share, without edges, and behind the last; with an addend, and where a ReLU is undone.
#[test]
fn many_short_rows_are_those_of_a_row_a_warp() {
    fn sums<E: Element>(gpu: &Gpu<Emulated>, graph: &Csr, columns: usize, by: usize) -> Vec<u32> {
        let random = Random(811);
        let (rows, edges) = (graph.vertices(), graph.edges());
        let a = Adjacency::new(gpu, graph).expect("room");
        let x = matrix::<_, E>(gpu, (rows, columns), &random.uniform::<E>(rows * columns));
        let output = Random(813).uniform::<E>(rows * columns);
        let output = matrix::<_, E>(gpu, (rows, columns), &output);
        let weights = random.uniform::<E>(edges).into_iter().map(E::from_f32);
        let weights = Array::from_slice(gpu, &weights.collect::<Vec<_>>(), MemoryKind::Graph);
        let factors = |len| {
            let factors: Vec<f32> = random.uniform::<f32>(len);
            Array::from_slice(gpu, &factors, MemoryKind::Graph).expect("room")
        };
        let (weights, of_rows, of_columns) = (weights.expect("room"), factors(rows), factors(rows));
        let op = Spmm {
            weights: match by {
                1 => EdgeWeights::Features(&weights),
                2 | 4 => EdgeWeights::Columns(&of_columns),
                _ => EdgeWeights::Ones,
            },
            row_scale: (by != 1).then_some(&of_rows),
            policy: BY_VERTEX,
            epilogue: match by {
                3 => SpmmEpilogue {
                    addend: Some(Addend {
                        matrix: &x,
                        factor: 0.5,
                        row_scale: Some(&of_columns),
                        epsilon: None,
                    }),
                    bias: None,
                    relu: true,
                    ..SpmmEpilogue::default()
                },
                4 => SpmmEpilogue {
                    positive: Some(&output),
                    ..SpmmEpilogue::default()
                },
                _ => SpmmEpilogue::default(),
            },
            ..Spmm::default()
        };
        let mut y = unwritten::<_, E>(gpu, (rows, columns));
        ops::spmm(gpu, &a, &op, &x, &mut y).expect("legal");
        read(gpu, &y).into_iter().map(f32::to_bits).collect()
    }
    let with = |multiprocessors| {
        open(Options {
            multiprocessors,
            ..Options::default()
        })
    };
    let (many, few) = (with(1), with(132));

    let degrees = Random(810).below(3, 403);
    let mut degrees: Vec<usize> = degrees.into_iter().map(|it| it as usize).collect();
    // Of a warp, of a CTA, of the last CTA.
    for (row, degree) in [(37, 9), (38, 33), (90, 70), (92, 131), (402, 66)] {
        degrees[row] = degree;
    }
    let graph = from_degrees(&degrees, Random(812));
    for columns in [8, 100, 256, 300] {
        for by in 0..5 {
            let of = format!("{columns} columns, weights {by}");
            assert!(
                sums::<f16>(&many, &graph, columns, by) == sums::<f16>(&few, &graph, columns, by),
                "{of}"
            );
            assert!(
                sums::<f32>(&many, &graph, columns, by) == sums::<f32>(&few, &graph, columns, by),
                "{of}"
            );
        }
    }
}

/// An emulated card of as many multiprocessors as a large one has: products are split more than 64 times.
#[test]
fn products_on_many_multiprocessors() {
    let many = open(Options {
        multiprocessors: MULTIPROCESSORS,
        ..Options::default()
    });
    halfgnn_tests::second_levels::split_products(&many, Scale::Small);
}

#[test]
fn steps_are_recorded() {
    halfgnn_tests::recording::assert_recorded(emulator(), true);
}

#[test]
fn steps_of_ranks_are_recorded_with_their_exchanges() {
    let gpu = emulator();
    let stream = |_| gpu.new_stream().expect("a stream");
    halfgnn_tests::ranks::assert_recorded(gpu, stream, 3, true);
}

#[test]
fn batches_of_ranks_are_recorded_with_their_exchanges() {
    let gpu = emulator();
    let stream = |_| gpu.new_stream().expect("a stream");
    halfgnn_tests::batches::batches_of_ranks_are_recorded(gpu, stream, 3);
}

#[test]
fn batches_are_recorded_around_features_of_ranks() {
    let gpu = emulator();
    let stream = |_| gpu.new_stream().expect("a stream");
    halfgnn_tests::batches::batches_are_recorded_around_features_of_ranks(gpu, stream, 3);
}

#[test]
fn training_follows_the_cpu() {
    let cpu = Cpu::new();
    for (name, model) in models() {
        println!("{name}");
        assert_steps_agree::<_, _, f16>((&cpu, emulator()), &model, None, 2);
        assert_steps_agree::<_, _, bf16>((&cpu, emulator()), &model, None, 2);
        assert_steps_agree::<_, _, f32>((&cpu, emulator()), &model, None, 2);
    }
}

#[test]
fn training_on_weighted_edges_follows_the_cpu() {
    let (cpu, weights) = (Cpu::new(), edge_weights());
    let weights = Some(&weights[..]);
    for (name, model) in models_of_weights() {
        println!("{name}");
        assert_steps_agree::<_, _, f32>((&cpu, emulator()), &model, weights, 2);
        // What follows a sum with weights is a pass of its own on a card, which rounds once more, and a batch normalisation makes
        // much of that where a ReLU comes after it.
        if !matches!(model.convolution, ConvolutionConfig::Gin(_)) {
            assert_steps_agree::<_, _, f16>((&cpu, emulator()), &model, weights, 2);
            assert_steps_agree::<_, _, bf16>((&cpu, emulator()), &model, weights, 2);
        }
    }
}

#[test]
fn training_with_messages_of_8_bits_follows_the_cpu() {
    let cpu = Cpu::new();
    for (name, model) in models_of_messages_with_a_slight_bend() {
        println!("{name} {:?}", model.messages);
        assert_steps_agree::<_, _, f16>((&cpu, emulator()), &model, None, 3);
        assert_steps_agree::<_, _, bf16>((&cpu, emulator()), &model, None, 3);
    }
}

#[test]
fn training_with_activations_of_8_bits_follows_the_cpu() {
    let cpu = Cpu::new();
    for (name, model) in models_of_store() {
        println!("{name}");
        assert_steps_agree::<_, _, f16>((&cpu, emulator()), &model, None, 3);
        assert_steps_agree::<_, _, bf16>((&cpu, emulator()), &model, None, 3);
    }
}

#[test]
fn training_through_every_activation_follows_the_cpu() {
    let cpu = Cpu::new();
    for model in models_of_activations() {
        println!("{}", model.activation);
        assert_steps_agree::<_, _, f16>((&cpu, emulator()), &model, None, 2);
        assert_steps_agree::<_, _, bf16>((&cpu, emulator()), &model, None, 2);
        assert_steps_agree::<_, _, f32>((&cpu, emulator()), &model, None, 2);
    }
}

#[test]
fn training_of_one_bit_follows_the_cpu() {
    let cpu = Cpu::new();
    for model in models_of_bits() {
        println!("{} {:?}", model.convolution, model.binary);
        assert_steps_agree::<_, _, f16>((&cpu, emulator()), &model, None, 2);
        // From its second step on a number is within a rounding of zero, and its sign turns.
        assert_steps_agree::<_, _, bf16>((&cpu, emulator()), &model, None, 1);
        assert_steps_agree::<_, _, f32>((&cpu, emulator()), &model, None, 2);
    }
}

/// What a GraphSAGE of one bit has of a vertex itself is added where its product is made, with no pass of its own.
#[test]
fn evaluations_of_one_bit_add_products_in_their_launch() {
    let recording = open(Options {
        record: true,
        ..Options::default()
    });
    let toy = Toy::new(9);
    for (binary, expected) in [
        (
            Binary::Full,
            &["bmm_f16", "bmm_add_f16", "bmm_f16", "bmm_add_f16"][..],
        ),
        (
            Binary::Bin,
            &["bmm_sign", "bmm_add_signs_f16", "bmm_add_f16"],
        ),
    ] {
        let config = ModelConfig::sage(9, 3).of_bits(binary);
        let objective = toy.objective::<_, f16>(&recording, config.norm());
        let mut model = Network::new(&recording, &config, 1).expect("a model");
        model.freeze(&recording).expect("room for bits");
        // The first one packs the weights.
        let launches = [(); 2].map(|()| {
            recording.driver().take_launches();
            let inputs = objective.inputs(&recording);
            model.forward(inputs, Mode::Evaluate).expect("legal");
            recording.driver().take_launches()
        });
        let kernels: Vec<&str> = launches[1].iter().map(|it| it.kernel.as_str()).collect();
        let (products, others): (Vec<_>, Vec<_>) = kernels
            .into_iter()
            .partition(|name| name.starts_with("bmm"));
        assert_eq!(products, expected, "{binary}");
        assert!(
            !others.iter().any(|name| name.starts_with("combine")),
            "{binary}: {others:?}"
        );
    }
}

#[test]
fn training_on_features_of_edges_follows_the_cpu() {
    let cpu = Cpu::new();
    for (name, model) in models_of_edge_features() {
        println!("{name} of {}", model.edge_features());
        assert_steps_agree::<_, _, f16>((&cpu, emulator()), &model, None, 2);
        assert_steps_agree::<_, _, bf16>((&cpu, emulator()), &model, None, 2);
        assert_steps_agree::<_, _, f32>((&cpu, emulator()), &model, None, 2);
    }
}

/// Operands of another device are refused, wherever an operator has them, and so are copies; nothing is launched.
#[test]
fn operands_of_another_device_are_refused() {
    let (here, there) = (open(Options::default()), open(Options::default()));
    let ring = Csr::from_edges(3, &[0, 1, 2], &[1, 2, 0]).expect("a ring");
    let kind = MemoryKind::Features;
    let graphs = [&here, &there].map(|gpu| Adjacency::new(gpu, &ring).expect("room"));
    let matrices =
        [&here, &there].map(|gpu| Matrix::<_, f16>::zeros(gpu, 3, 5, kind).expect("room"));
    let floats = [&here, &there].map(|gpu| Matrix::<_, f32>::zeros(gpu, 1, 5, kind).expect("room"));
    let scales =
        [&here, &there].map(|gpu| Array::from_slice(gpu, &[1.0_f32; 3], kind).expect("room"));
    let mut ys = [&here, &there].map(|gpu| Matrix::<_, f16>::zeros(gpu, 3, 5, kind).expect("room"));
    let mut run = |graph: usize, x: usize, scale: usize, bias: usize, addend: usize, y: usize| {
        let addend = Addend {
            matrix: &matrices[addend],
            factor: 1.0,
            row_scale: None,
            epsilon: None,
        };
        let op = Spmm {
            row_scale: Some(&scales[scale]),
            epilogue: SpmmEpilogue {
                addend: Some(addend),
                bias: Some(&floats[bias]),
                relu: false,
                ..SpmmEpilogue::default()
            },
            ..Spmm::default()
        };
        ops::spmm(&here, &graphs[graph], &op, &matrices[x], &mut ys[y])
            .map_err(|error| error.to_string())
    };
    run(0, 0, 0, 0, 0, 0).expect("all of one device");
    for (operands, what) in [
        ([1, 0, 0, 0, 0, 0], "an array of"),
        ([0, 1, 0, 0, 0, 0], "a matrix of 3 x 5"),
        ([0, 0, 1, 0, 0, 0], "an array of 3"),
        ([0, 0, 0, 1, 0, 0], "a matrix of 1 x 5"),
        ([0, 0, 0, 0, 1, 0], "a matrix of 3 x 5"),
        ([0, 0, 0, 0, 0, 1], "a matrix of 3 x 5"),
    ] {
        let [graph, x, scale, bias, addend, y] = operands;
        let error = run(graph, x, scale, bias, addend, y).expect_err("an operand from elsewhere");
        assert!(error.starts_with(what), "{operands:?}: {error}");
        assert!(error.contains("does not lie on PTX emulator"), "{error}");
    }
    let error = scales[1]
        .to_vec(&here)
        .expect_err("an array from elsewhere");
    assert!(error.to_string().contains("does not lie on"), "{error}");
    let error = scales[1].to_vec(&there);
    assert_eq!(error.expect("its own"), [1.0; 3]);
}

/// The row of each edge is made for the operators that read it: not for a sum of neighbours, not twice, not while recorded.
#[test]
fn row_ids_are_made_when_they_are_asked_for() {
    let gpu = open(Options::default());
    let graph = power_law(70, 900, Random(92));
    let a = Adjacency::new(&gpu, &graph).expect("room");
    let graph_bytes = || gpu.memory().current[MemoryKind::Graph as usize];
    let before = graph_bytes();
    let x = matrix::<_, f16>(&gpu, (70, 16), &[1.0; 70 * 16]);
    let mut y = unwritten::<_, f16>(&gpu, (70, 16));
    ops::spmm(&gpu, &a, &Spmm::default(), &x, &mut y).expect("a product");
    assert_eq!(graph_bytes(), before);
    let mut e = Array::<_, f16>::zeros(&gpu, edge_plane(900), MemoryKind::Features).expect("room");
    let mut dots = |a| ops::sddmm(&gpu, a, &Sddmm::default(), &x, &x, &mut e);
    let error = gpu.record(|| dots(&a)).expect_err("nothing is made there");
    assert!(error.to_string().contains("recorded step"), "{error}");
    for _ in 0..2 {
        dots(&a).expect("dots");
        assert_eq!(graph_bytes(), before + 4 * 900);
    }
    gpu.record(|| dots(&a)).expect("it is there");
    assert_eq!(a.row_ids(&gpu).unwrap().to_vec(&gpu).unwrap(), graph.rows());
}

/// A sampled layer: what its destinations hear, and themselves, which are the first sources.
#[test]
fn a_block_adds_the_first_sources() {
    let csr = Csr::rectangular_from_edges((2, 4), &[0, 0, 1], &[2, 3, 3]).expect("a pattern");
    let gpu = open(Options::default());
    let block = Block::new(&gpu, &halfgnn::graph::Block::new(csr).expect("a block")).expect("room");
    assert_eq!((block.destinations(), block.sources()), (2, 4));
    let x = matrix::<_, f16>(&gpu, (4, 1), &[1.0, 2.0, 4.0, 8.0]);
    let mut y = unwritten::<_, f16>(&gpu, (2, 1));
    let addend = Addend {
        matrix: &x,
        factor: 0.5,
        row_scale: None,
        epsilon: None,
    };
    let op = Spmm {
        epilogue: SpmmEpilogue {
            addend: Some(addend),
            ..SpmmEpilogue::default()
        },
        ..Spmm::default()
    };
    ops::spmm(&gpu, block.forward(), &op, &x, &mut y).expect("a product");
    assert_eq!(read(&gpu, &y), [12.5, 9.0]);
    let mut dx = unwritten::<_, f16>(&gpu, (4, 1));
    let backward = block.backward(&gpu).expect("a transpose");
    ops::spmm(&gpu, backward, &Spmm::default(), &y, &mut dx).expect("a product");
    assert_eq!(read(&gpu, &dx), [0.0, 0.0, 12.5, 21.5]);
}

/// Matrices and arrays in memory of another's are operands like any, and outlive nothing: dropping them frees nothing.
#[test]
fn borrowed_memory_is_used_and_not_freed() {
    let gpu = open(Options::default());
    let ring = Csr::from_edges(3, &[0, 1, 2], &[1, 2, 0]).expect("a ring");
    let a = Adjacency::new(&gpu, &ring).expect("room");
    let x = matrix::<_, f16>(&gpu, (3, 5), &[2.0; 15]);
    let factors = Array::from_slice(&gpu, &[1.0_f32, 2.0, 3.0], MemoryKind::Graph).expect("room");
    let mut y = Matrix::<_, f16>::uninit(&gpu, 3, 5, MemoryKind::Activations).expect("room");
    let counted = gpu.memory();
    // SAFETY: addresses of operands of these shapes, which live and are not used meanwhile.
    let (lent_x, lent_factors) = unsafe {
        let kind = MemoryKind::Features;
        (
            Matrix::<_, f16>::from_raw(&gpu, x.device_address(), (3, 5), 8, kind).expect("a loan"),
            Array::<_, f32>::from_raw(&gpu, factors.device_address(), 3, kind).expect("a loan"),
        )
    };
    // SAFETY: as above.
    let mut lent_y = unsafe {
        let kind = MemoryKind::Activations;
        Matrix::<_, f16>::from_raw(&gpu, y.device_address(), (3, 5), 8, kind).expect("a loan")
    };
    assert_eq!(gpu.memory(), counted, "whoever allocated it counts it");
    let op = Spmm {
        row_scale: Some(&lent_factors),
        ..Spmm::default()
    };
    ops::spmm(&gpu, &a, &op, &lent_x, &mut lent_y).expect("a product");
    drop((lent_x, lent_y, lent_factors));
    let rows = [2.0, 4.0, 6.0].map(|value| [value; 5]).concat();
    assert_eq!(read(&gpu, &y), rows);
    ops::spmm(&gpu, &a, &Spmm::default(), &x, &mut y).expect("they are all there");
    // SAFETY: nothing is made of it.
    let odd = unsafe {
        let kind = MemoryKind::Features;
        Matrix::<_, f16>::from_raw(&gpu, x.device_address() + 2, (3, 5), 8, kind)
    };
    let error = odd.expect_err("no such matrix").to_string();
    assert!(error.contains("is no multiple of 16 bytes"), "{error}");
}

#[test]
fn columns_of_wider_matrices_are_operands() {
    borrowed::strided_operands(&open(Options::default()));
    borrowed::strides_are_checked(&open(Options::default()));
}

#[test]
fn a_workspace_is_lent() {
    borrowed::a_workspace_is_lent(&open(Options::default()));
}

/// Two streams of each of two devices at once: each product is that of one stream, and memory is counted by device.
#[test]
fn streams_and_devices_side_by_side() {
    let graph = power_law(70, 900, Random(90));
    let transpose = graph.transposed();
    let features = 19;
    let values = Random(91).uniform::<f16>(70 * features);
    // `A (Aᵀ x)`: the second product waits for the first, which another stream computes.
    let product = |first: &Gpu<Emulated>, second: &Gpu<Emulated>| {
        let x = matrix::<_, f16>(first, (70, features), &values);
        let back = Adjacency::new(first, &transpose).expect("room");
        let mut between = unwritten::<_, f16>(first, (70, features));
        ops::spmm(first, &back, &Spmm::default(), &x, &mut between).expect("a product");
        second
            .wait(&first.mark().expect("a point"))
            .expect("it waits");
        let forward = Adjacency::new(second, &graph).expect("room");
        let mut y = unwritten::<_, f16>(second, (70, features));
        ops::spmm(second, &forward, &Spmm::default(), &between, &mut y).expect("a product");
        drop((x, back, between));
        read(second, &y)
    };
    let [a, b] = [(); 2].map(|()| open(Options::default()));
    let expected = product(&a, &a.clone());
    let peak = a.memory().peak_total;
    let others = [&a, &b].map(|gpu| gpu.new_stream().expect("another stream"));
    std::thread::scope(|scope| {
        let runs = [
            scope.spawn(|| product(&a, &others[0])),
            scope.spawn(|| product(&others[0], &a)),
            scope.spawn(|| product(&b, &others[1])),
            scope.spawn(|| product(&others[1], &b)),
        ];
        for run in runs {
            assert_eq!(run.join().expect("no panic"), expected);
        }
    });
    assert!(a.memory().peak_total >= peak && b.memory().peak_total > 0);
    assert_eq!(a.memory(), others[0].memory());

    // A recording uses its stream's workspace.
    let mut y = unwritten::<_, f16>(&a, (70, features));
    let x = matrix::<_, f16>(&a, (70, features), &values);
    let forward = Adjacency::new(&a, &graph).expect("room");
    let mut run = || ops::spmm(&a, &forward, &Spmm::default(), &x, &mut y);
    run().expect("a product");
    let recording = a.record(run).expect("it records").expect("a recording");
    a.replay(&recording).expect("its own");
    let error = others[0].replay(&recording).expect_err("another stream's");
    assert!(error.to_string().contains("another backend or stream"));
}

#[test]
fn one_network_serves_two_streams() {
    let gpu = open(Options::default());
    let stream = gpu.new_stream().expect("another stream");
    halfgnn_tests::sharing::two_threads([gpu, stream]);
}

#[test]
fn spmm_in_any_order() {
    in_any_order::spmm(&open(Options::default()));
}

#[test]
fn bspmm_in_any_order() {
    in_any_order::bspmm(&open(Options::default()));
}

#[test]
fn sddmm_in_any_order() {
    in_any_order::sddmm(&open(Options::default()));
}

#[test]
fn matmul_in_any_order() {
    in_any_order::matmul(&open(Options::default()));
}

/// Blocks and warps may run in any order: the bits are the same, and no order shows a race.
#[test]
fn training_in_any_order() {
    let backend = open(Options::default());
    for (name, model) in models() {
        let expected = parameters_after::<_, f16>(&backend, &model, 1);
        for seed in 1..=3 {
            backend.driver().set_seed(seed);
            let actual = parameters_after::<_, f16>(&backend, &model, 1);
            assert_eq!(actual, expected, "{name}, seed {seed}");
        }
    }
}
