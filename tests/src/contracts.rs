//! Operands that do not fit: an error that names the operator, the operand and the two figures, and nothing is done.

use crate::Scale;
use crate::graphs::from_edges;
use crate::input::{elements, matrix, unwritten, words};
use crate::spmm;
use half::{bf16, f16};
use halfgnn::Error;
use halfgnn::backend::{Adjacency, Backend, MemoryKind};
use halfgnn::ops;
use halfgnn::ops::{
    Accumulate, Activation, Addend, Dropout, EdgeWeights, Epilogue, Form, LossScaling,
    MatmulFusion, Normalization, Optimizer, OptimizerState, ParameterMut, RandomState, Sddmm,
    SddmmPolicy, Spmm, SpmmEpilogue, SpmmPolicy, Write,
};
use halfgnn::tensor::{Array, Element, Matrix};

#[track_caller]
fn assert_refused(result: Result<(), Error>, words: &str) {
    let error = result.expect_err("an operand that does not fit");
    assert_eq!(error.to_string(), words);
}

fn half<B: Backend>(backend: &B, rows: usize, columns: usize) -> Matrix<B, f16> {
    unwritten(backend, (rows, columns))
}

fn float<B: Backend>(backend: &B, rows: usize, columns: usize) -> Matrix<B, f32> {
    unwritten(backend, (rows, columns))
}

const SCALING: LossScaling = LossScaling {
    initial: 1.0,
    growth_interval: 0,
    maximum: 1.0,
};

/// Wrong rows, columns and lengths, for every operator.
pub fn shapes_are_checked<B: Backend>(backend: &B, _: Scale) {
    sparse(backend);
    dense(backend);
    training(backend);
}

fn sparse<B: Backend>(backend: &B) {
    let graph =
        Adjacency::new(backend, &from_edges(3, &[(0, 1), (2, 0)])).expect("room for a graph");
    let spmm = |op: &Spmm<'_, B, f16>, x: [usize; 2], y: [usize; 2]| {
        let mut y = half(backend, y[0], y[1]);
        ops::spmm(backend, &graph, op, &half(backend, x[0], x[1]), &mut y)
    };
    let plain = Spmm::default();
    assert_refused(
        spmm(&plain, [2, 5], [3, 5]),
        "spmm: rows of x should be 3, is 2",
    );
    assert_refused(
        spmm(&plain, [3, 5], [4, 5]),
        "spmm: rows of y should be 3, is 4",
    );
    assert_refused(
        spmm(&plain, [3, 5], [3, 6]),
        "spmm: columns of x should be 6, is 5",
    );
    let addend = |rows, columns| {
        let matrix = &half(backend, rows, columns);
        let addend = Addend {
            matrix,
            factor: 1.0,
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
        spmm(&op, [3, 5], [3, 5])
    };
    assert_refused(addend(2, 5), "spmm: rows of the addend should be 3, is 2");
    assert_refused(
        addend(3, 4),
        "spmm: columns of the addend should be 5, is 4",
    );
    addend(4, 5).expect("more rows than are read");
    let positive = |rows, columns| {
        let op = Spmm {
            epilogue: SpmmEpilogue {
                positive: Some(&half(backend, rows, columns)),
                ..SpmmEpilogue::default()
            },
            ..Spmm::default()
        };
        spmm(&op, [3, 5], [3, 5])
    };
    assert_refused(
        positive(2, 5),
        "spmm: rows of the ReLU's output should be 3, is 2",
    );
    assert_refused(
        positive(3, 4),
        "spmm: columns of the ReLU's output should be 5, is 4",
    );
    positive(4, 5).expect("more rows than are read");
    let weights = elements(backend, &[1.0; 3]);
    let op = Spmm {
        weights: EdgeWeights::Features(&weights),
        ..Spmm::default()
    };
    assert_refused(
        spmm(&op, [3, 5], [3, 5]),
        "spmm: edge weights should be 2, is 3",
    );
    let factors = elements(backend, &[1.0; 4]);
    let op = Spmm {
        weights: EdgeWeights::Columns(&factors),
        ..Spmm::default()
    };
    assert_refused(
        spmm(&op, [3, 5], [3, 5]),
        "spmm: column factors should be 3, is 4",
    );
    let op = Spmm {
        row_scale: Some(&factors),
        ..Spmm::default()
    };
    assert_refused(
        spmm(&op, [3, 5], [3, 5]),
        "spmm: row factors should be 3, is 4",
    );
}

fn dense<B: Backend>(backend: &B) {
    let matmul = |form, a: [usize; 2], b: [usize; 2], epilogue: &Epilogue<'_, B>, c: [usize; 2]| {
        let (a, b) = (half(backend, a[0], a[1]), half(backend, b[0], b[1]));
        ops::matmul(
            backend,
            form,
            &a,
            &b,
            epilogue,
            &mut half(backend, c[0], c[1]),
        )
    };
    let plain = Epilogue::default();
    for (form, a, b) in [
        (Form::NN, [2, 3], [4, 5]),
        (Form::NT, [2, 3], [5, 4]),
        (Form::TN, [3, 2], [4, 5]),
    ] {
        let words = "matmul: inner dimension of b should be 3, is 4";
        assert_refused(matmul(form, a, b, &plain, [2, 5]), words);
    }
    let c = |rows, columns| matmul(Form::NN, [2, 3], [3, 5], &plain, [rows, columns]);
    assert_refused(c(3, 5), "matmul: rows of c should be 2, is 3");
    assert_refused(c(2, 4), "matmul: columns of c should be 5, is 4");
    let (factors, bias) = (elements(backend, &[1.0; 5]), float(backend, 1, 2));
    let op = Epilogue {
        row_scale: Some(&factors),
        ..Epilogue::default()
    };
    let refused = matmul(Form::NN, [2, 3], [3, 5], &op, [2, 5]);
    assert_refused(refused, "matmul: row factors should be 2, is 5");
    let op = Epilogue {
        bias: Some(&bias),
        ..Epilogue::default()
    };
    let refused = matmul(Form::NN, [2, 3], [3, 5], &op, [2, 5]);
    assert_refused(refused, "matmul: columns of the bias should be 5, is 2");
    normalized_operands(backend);

    let op = Activation {
        bias: Some(&bias),
        relu: true,
        dropout: None,
    };
    let mut y = half(backend, 4, 3);
    let refused = ops::activate(backend, &op, None, &mut y);
    assert_refused(refused, "activate: columns of the bias should be 3, is 2");
    // One that is too long has all that is read, and is another's all the same.
    let long = float(backend, 1, 4);
    let op = Activation {
        bias: Some(&long),
        ..op
    };
    let refused = ops::activate(backend, &op, None, &mut y);
    assert_refused(refused, "activate: columns of the bias should be 3, is 4");
    let op = Activation { bias: None, ..op };
    let refused = ops::activate(backend, &op, Some(&half(backend, 5, 3)), &mut y);
    assert_refused(refused, "activate: rows of y should be 5, is 4");
    let refused = ops::activate_backward(backend, &op, Some(&half(backend, 4, 2)), None, &mut y);
    assert_refused(refused, "activate_backward: columns of y should be 3, is 2");
    let refused = ops::activate_backward(
        backend,
        &op,
        Some(&half(backend, 4, 3)),
        Some(&factors),
        &mut y,
    );
    assert_refused(refused, "activate_backward: row factors should be 4, is 5");
    let refused = ops::column_sums(backend, &y, &mut float(backend, 1, 4));
    assert_refused(
        refused,
        "column_sums: columns of the sums should be 3, is 4",
    );
}

fn normalized_operands<B: Backend>(backend: &B) {
    fn refused<B: Backend, O: Element>(
        backend: &B,
        form: Form,
        [weight, bias]: [usize; 2],
        words: &str,
    ) {
        let [weight, bias] = [weight, bias].map(|columns| float(backend, 1, columns));
        let normalization = Normalization {
            statistics: &float(backend, 2, 3),
            weight: &weight,
            bias: &bias,
            relu: true,
        };
        let fusion = MatmulFusion {
            normalization: Some(&normalization),
            ..MatmulFusion::default()
        };
        let (a, b) = (half(backend, 3, 3), half(backend, 3, 3));
        let mut c = unwritten::<B, O>(backend, (3, 3));
        let plain = Epilogue::default();
        let result = ops::matmul_fused(backend, form, &a, &b, &plain, fusion, &mut c);
        assert_refused(result, words);
    }
    let words = "matmul: columns of the scales should be 3, is 2";
    refused::<B, f16>(backend, Form::NN, [2, 3], words);
    let words = "matmul: columns of the shifts should be 3, is 4";
    refused::<B, f32>(backend, Form::TN, [3, 4], words);
    let words = |form, precision| {
        format!(
            "matmul: a product of the form {form} in {precision} takes no normalised operand; normalise it before"
        )
    };
    refused::<B, f16>(backend, Form::NT, [3, 3], &words("NT", "half"));
    refused::<B, f16>(backend, Form::TN, [3, 3], &words("TN", "half"));
    refused::<B, f32>(backend, Form::NN, [3, 3], &words("NN", "float"));
}

fn training<B: Backend>(backend: &B) {
    let state = OptimizerState::new(backend, &SCALING).expect("room for a state");
    let logits = half(backend, 3, 4);
    let loss = |targets: usize, count, gradient: [usize; 2], losses: usize| {
        let targets = words(backend, &vec![0; targets]);
        let mut gradient = half(backend, gradient[0], gradient[1]);
        let mut loss =
            Array::zeros(backend, losses, MemoryKind::Workspace).expect("room for a loss");
        ops::cross_entropy(
            backend,
            &logits,
            &targets,
            count,
            &state,
            &mut gradient,
            &mut loss,
        )
    };
    assert_refused(
        loss(2, 1, [3, 4], 1),
        "cross_entropy: targets should be 3, is 2",
    );
    assert_refused(
        loss(3, 1, [2, 4], 1),
        "cross_entropy: rows of the gradient should be 3, is 2",
    );
    assert_refused(
        loss(3, 1, [3, 4], 2),
        "cross_entropy: loss should be 1, is 2",
    );
    assert_refused(loss(3, 0, [3, 4], 1), "cross_entropy: no row has a target");
    let correct = |labels: usize, splits: usize, counts: usize| {
        let (labels, splits) = (
            words(backend, &vec![0; labels]),
            words(backend, &vec![0; splits]),
        );
        ops::count_correct(
            backend,
            &logits,
            &labels,
            &splits,
            &mut words(backend, &vec![0; counts]),
        )
    };
    assert_refused(correct(4, 3, 3), "count_correct: labels should be 3, is 4");
    assert_refused(correct(3, 2, 3), "count_correct: splits should be 3, is 2");
    assert_refused(correct(3, 3, 1), "count_correct: counts should be 3, is 1");
    let adam = |shapes: [usize; 4]| {
        let [gradient, mut first, mut second] = [0, 1, 2].map(|i| float(backend, 2, shapes[i]));
        let (mut master, mut rounded) = (float(backend, 2, 3), half(backend, 2, shapes[3]));
        let parameter = ParameterMut {
            gradient: &gradient,
            master: &mut master,
            first_moment: Some(&mut first),
            second_moment: Some(&mut second),
            rounded: Some(&mut rounded),
        };
        ops::update(
            backend,
            &Optimizer::default(),
            None,
            &state,
            &mut [parameter],
        )
    };
    assert_refused(
        adam([1, 3, 3, 3]),
        "update: columns of the gradient should be 3, is 1",
    );
    assert_refused(
        adam([3, 1, 3, 3]),
        "update: columns of the first moment should be 3, is 1",
    );
    assert_refused(
        adam([3, 3, 1, 3]),
        "update: columns of the second moment should be 3, is 1",
    );
    assert_refused(
        adam([3, 3, 3, 1]),
        "update: columns of the rounded weights should be 3, is 1",
    );
    let (gradient, mut master) = (float(backend, 2, 3), float(backend, 2, 3));
    let lacking = ParameterMut::<B, f16> {
        gradient: &gradient,
        master: &mut master,
        first_moment: None,
        second_moment: None,
        rounded: None,
    };
    assert_refused(
        ops::update(backend, &Optimizer::default(), None, &state, &mut [lacking]),
        "update: adam keeps 2 moments of a parameter, and one has less",
    );
}

/// Values of the wrong number or range.
pub fn values_are_checked<B: Backend>(backend: &B, _: Scale) {
    let values = Matrix::<B, f16>::from_f32(backend, 2, 3, &[0.0; 5], MemoryKind::Workspace);
    assert_refused(
        values.map(|_| ()),
        "Matrix::write_f32: values should be 6, is 5",
    );
    let mut array = words(backend, &[1, 2]);
    assert_refused(
        array.write(backend, &[1]),
        "Array::write: values should be 2, is 1",
    );
    let enormous = Matrix::<B, f16>::zeros(backend, usize::MAX / 4, 9, MemoryKind::Workspace);
    assert!(matches!(enormous, Err(Error::TooLarge { columns: 9, .. })));

    let mut y = matrix::<B, f16>(backend, (1, 2), &[1.0, 2.0]);
    let random = &RandomState::new(backend, 0, 0).expect("memory");
    for probability in [1.0, 1.5, -0.1, f32::NAN] {
        let dropout = Some(Dropout {
            probability,
            stream: 0,
            random,
        });
        let op = Activation {
            dropout,
            ..Activation::default()
        };
        let words = format!("dropout probability {probability} is not in [0, 1)");
        let done = ops::activate(backend, &op, None, &mut y);
        assert_refused(done, &format!("activate: {words}"));
        let (a, b) = (half(backend, 1, 3), half(backend, 3, 2));
        let fusion = MatmulFusion {
            dropout,
            ..MatmulFusion::default()
        };
        let plain = Epilogue::default();
        let done = ops::matmul_fused(backend, Form::NN, &a, &b, &plain, fusion, &mut y);
        assert_refused(done, &format!("matmul: {words}"));
    }
    let (a, b) = (half(backend, 1, 3), half(backend, 3, 2));
    let fusion = MatmulFusion {
        sum: true,
        ..MatmulFusion::default()
    };
    let plain = Epilogue::default();
    assert_refused(
        ops::matmul_fused(backend, Form::NN, &a, &b, &plain, fusion, &mut y),
        "matmul: a product of the form NN is added to nothing; one of the form NT is, whose elements are neither coded nor dropped",
    );
    let op = Activation {
        bias: None,
        relu: true,
        dropout: None,
    };
    assert_refused(
        ops::activate_backward(backend, &op, None, None, &mut y),
        "activate_backward: the gradient of a ReLU wants the output of the forward pass",
    );
    assert_eq!(y.to_f32(backend).expect("no failure before"), [1.0, 2.0]);

    let logits = matrix::<B, f16>(backend, (2, 0), &[]);
    let (labels, mut counts) = (words(backend, &[0, 1]), words(backend, &[0; 3]));
    assert_refused(
        ops::count_correct(backend, &logits, &labels, &labels, &mut counts),
        "count_correct: the logits have no columns, one a class",
    );
    let state = OptimizerState::new(backend, &SCALING).expect("room for a state");
    let mut gradient = unwritten::<B, f16>(backend, (2, 0));
    let mut loss = Array::zeros(backend, 1, MemoryKind::Workspace).expect("room for a loss");
    assert_refused(
        ops::cross_entropy(
            backend,
            &logits,
            &labels,
            2,
            &state,
            &mut gradient,
            &mut loss,
        ),
        "cross_entropy: the logits have no columns, one a class",
    );
}

/// What would be added up in bfloats is refused by name, on every backend: they have no arithmetic of their own.
pub fn policies_are_checked<B: Backend>(backend: &B, _: Scale) {
    const REASON: &str = "bfloat16 has no arithmetic of its own: it is added up in float, with discretized scaling and \
                          the staged write";
    let graph = from_edges(3, &[(0, 1), (1, 2)]);
    let adjacency = Adjacency::new(backend, &graph).expect("room for a graph");
    let x = matrix::<B, bf16>(backend, (3, 4), &[1.0; 12]);
    let mut y = unwritten::<B, bf16>(backend, (3, 4));
    for policy in [spmm::IN_HALF, spmm::POST, spmm::PRE] {
        let op = Spmm {
            policy,
            ..Spmm::default()
        };
        assert_refused(
            ops::spmm(backend, &adjacency, &op, &x, &mut y),
            &format!("spmm: {REASON}"),
        );
    }
    let op = Spmm {
        policy: SpmmPolicy {
            write: Write::Atomic,
            ..SpmmPolicy::default()
        },
        ..Spmm::default()
    };
    assert_refused(
        ops::spmm(backend, &adjacency, &op, &x, &mut y),
        &format!("spmm: {REASON}"),
    );
    let op = Sddmm {
        policy: SddmmPolicy {
            accumulate: Accumulate::Half,
            ..SddmmPolicy::default()
        },
        ..Sddmm::default()
    };
    let mut e: Array<B, bf16> = elements(backend, &[0.0; 8]);
    assert_refused(
        ops::sddmm(backend, &adjacency, &op, &x, &x, &mut e),
        &format!("sddmm: {REASON}"),
    );
}

/// Buffers are counted under their kind while they live.
///
/// Other tests share the backend and take and give back memory meanwhile, so that only a try which none of them disturbed
/// can count exactly. A backend that counts wrongly never does.
pub fn memory_is_counted<B: Backend>(backend: &B, _: Scale) {
    const TRIES: usize = 10_000;
    let kind = MemoryKind::ALL
        .iter()
        .position(|&kind| kind == MemoryKind::Features)
        .expect("a kind");
    let bytes = 1000 * 48 * 2;
    let counts_exactly = || {
        let before = backend.memory();
        let matrix =
            Matrix::<B, f16>::zeros(backend, 1000, 41, MemoryKind::Features).expect("room");
        let during = backend.memory();
        drop(matrix);
        let after = backend.memory();
        during.current[kind] == before.current[kind] + bytes
            && during.peak[kind] >= during.current[kind]
            && during.peak_total >= during.peak[kind]
            && after.current[kind] == before.current[kind]
    };
    assert!(
        (0..TRIES).any(|_| counts_exactly()),
        "none of {TRIES} tries counted {bytes} bytes: {:?}",
        backend.memory()
    );
}
