//! Memory of somebody else's on a device that launches kernels: matrices among other columns, and a lent workspace.

use crate::graphs::power_law;
use crate::input::{KIND, Random, elements, matrix, read, unwritten};
use crate::spmm::{POST, policies};
use half::{bf16, f16};
use halfgnn::Error;
use halfgnn::backend::gpu::Gpu;
use halfgnn::backend::{Adjacency, MemoryKind, Storage};
use halfgnn::driver::Driver;
use halfgnn::ops;
use halfgnn::ops::{
    Activation, Addend, Combine, EdgeWeights, Epilogue, Form, MatmulFusion, Spmm, SpmmEpilogue,
    SpmmPolicy, Write,
};
use halfgnn::tensor::{Array, Element, Matrix, padded};

const ROWS: usize = 40;
/// What stands around the columns that are lent: whoever reads it finds its sums spoilt.
const STRANGE: f32 = f32::NAN;

/// A wide matrix, some columns of which are lent.
struct Wide<D: Driver, E: Element> {
    all: Matrix<Gpu<D>, E>,
    columns: usize,
}

impl<D: Driver, E: Element> Wide<D, E> {
    /// `values` among strange ones, as many rows as there are.
    fn new(gpu: &Gpu<D>, columns: usize, values: &[f32]) -> Self {
        let (row, width) = (padded::<E>(columns), Self::width(columns));
        let mut all = vec![STRANGE; values.len() / columns * width];
        for (all, values) in all
            .chunks_exact_mut(width)
            .zip(values.chunks_exact(columns))
        {
            all[E::LANES..][..row].fill(0.0);
            all[E::LANES..][..columns].copy_from_slice(values);
        }
        Self {
            all: matrix(gpu, (values.len() / columns, width), &all),
            columns,
        }
    }

    /// A vector before them and two after.
    fn width(columns: usize) -> usize {
        padded::<E>(columns) + 3 * E::LANES
    }

    fn lend(&self, gpu: &Gpu<D>) -> Matrix<Gpu<D>, E> {
        let address = self.all.device_address() + (E::LANES * size_of::<E>()) as u64;
        let shape = (self.all.rows(), self.columns);
        // SAFETY: columns of a matrix that the tests keep, padding among them; they use it when operators are done.
        let lent = unsafe { Matrix::from_raw(gpu, address, shape, self.all.stride(), KIND) };
        lent.expect("a loan")
    }

    /// The lent columns, after asserting that all others are as they were and the padding is zero.
    fn read(&self, gpu: &Gpu<D>) -> Vec<f32> {
        let all = read(gpu, &self.all);
        let (row, width) = (padded::<E>(self.columns), Self::width(self.columns));
        let mut values = Vec::new();
        for (number, all) in all.chunks_exact(width).enumerate() {
            let (before, rest) = all.split_at(E::LANES);
            let (own, after) = rest.split_at(row);
            let strange = before.iter().chain(after).all(|value| value.is_nan());
            assert!(strange, "row {number}: {before:?} and {after:?}");
            let (own, padding) = own.split_at(self.columns);
            assert!(padding.iter().all(|&value| value == 0.0), "{padding:?}");
            values.extend(own);
        }
        values
    }
}

/// Sums over neighbours and products of columns of wider matrices are those of matrices of their own.
pub fn strided_operands<D: Driver>(gpu: &Gpu<D>) {
    fn check<D: Driver, E: Element>(gpu: &Gpu<D>, columns: usize) {
        let values = |seed, len| Random(seed).uniform::<E>(len);
        let (x, z) = (values(501, ROWS * columns), values(502, ROWS * columns));
        let of = |values: &[f32]| matrix::<_, E>(gpu, (ROWS, columns), values);
        let wide = |values: &[f32]| Wide::<D, E>::new(gpu, columns, values);
        let old = vec![3.0; ROWS * columns];
        let (own_x, own_z, wide_x, wide_z) = (of(&x), of(&z), wide(&x), wide(&z));
        let (lent_x, lent_z) = (wide_x.lend(gpu), wide_z.lend(gpu));
        assert!(!lent_x.is_contiguous());
        assert_eq!(lent_x.to_f32(gpu).expect("it is read"), x);

        let graph = power_law(ROWS, 500, Random(503));
        let a = Adjacency::new(gpu, &graph).expect("room");
        let factors = elements::<_, f32>(gpu, &Random(504).uniform::<f32>(ROWS));
        let bias = matrix::<_, f32>(gpu, (1, columns), &Random(505).uniform::<f32>(columns));
        let sum = |x: &_, z: &_, y: &mut _| {
            let addend = Addend {
                matrix: z,
                factor: 0.5,
                row_scale: None,
                epsilon: None,
            };
            let op = Spmm {
                weights: EdgeWeights::Columns(&factors),
                epilogue: SpmmEpilogue {
                    addend: Some(addend),
                    bias: Some(&bias),
                    relu: true,
                    ..SpmmEpilogue::default()
                },
                ..Spmm::default()
            };
            ops::spmm(gpu, &a, &op, x, y).expect("a legal sum");
        };
        let (mut y, wide_y) = (unwritten(gpu, (ROWS, columns)), wide(&old));
        sum(&own_x, &own_z, &mut y);
        sum(&lent_x, &lent_z, &mut wide_y.lend(gpu));
        assert_eq!(
            wide_y.read(gpu),
            read(gpu, &y),
            "{} x {columns}",
            E::PRECISION
        );
        for &policy in policies::<E>() {
            let op = Spmm {
                policy,
                ..Spmm::default()
            };
            let (mut y, wide_y) = (unwritten(gpu, (ROWS, columns)), wide(&old));
            ops::spmm(gpu, &a, &op, &own_x, &mut y).expect("a legal sum");
            ops::spmm(gpu, &a, &op, &lent_x, &mut wide_y.lend(gpu)).expect("a legal sum");
            assert_eq!(
                wide_y.read(gpu),
                read(gpu, &y),
                "{} x {columns}",
                E::PRECISION
            );
        }

        // x · zᵀ, where another matrix is positive.
        let square = values(506, ROWS * ROWS);
        let product = |x: &_, z: &_, positive: &_, y: &mut _| {
            let fusion = MatmulFusion {
                positive: Some(positive),
                ..MatmulFusion::default()
            };
            let plain = Epilogue::default();
            ops::matmul_fused(gpu, Form::NT, x, z, &plain, fusion, y).expect("a legal product");
        };
        let (mut y, positive) = (
            unwritten(gpu, (ROWS, ROWS)),
            matrix(gpu, (ROWS, ROWS), &square),
        );
        product(&own_x, &own_z, &positive, &mut y);
        let wide_y = Wide::<D, E>::new(gpu, ROWS, &[3.0; ROWS * ROWS]);
        let wide_positive = Wide::<D, E>::new(gpu, ROWS, &square);
        let lent = wide_positive.lend(gpu);
        product(&lent_x, &lent_z, &lent, &mut wide_y.lend(gpu));
        assert_eq!(
            wide_y.read(gpu),
            read(gpu, &y),
            "{} x {columns}",
            E::PRECISION
        );

        // xᵀ · z in float, split or not, and (xᵀ · z)ᵀ · …: every operand of every form.
        let plain = Epilogue::default();
        let mut y = unwritten::<_, f32>(gpu, (columns, columns));
        ops::matmul(gpu, Form::TN, &own_x, &own_z, &plain, &mut y).expect("a legal product");
        let wide_y = Wide::<D, f32>::new(gpu, columns, &vec![3.0; columns * columns]);
        let lent_y = &mut wide_y.lend(gpu);
        ops::matmul(gpu, Form::TN, &lent_x, &lent_z, &plain, lent_y).expect("a legal product");
        assert_eq!(
            wide_y.read(gpu),
            read(gpu, &y),
            "{} x {columns}",
            E::PRECISION
        );
        let weights = values(507, columns * columns);
        let own = matrix::<_, E>(gpu, (columns, columns), &weights);
        let lent = Wide::<D, E>::new(gpu, columns, &weights);
        let (mut y, wide_y) = (unwritten::<_, E>(gpu, (ROWS, columns)), wide(&old));
        ops::matmul(gpu, Form::NN, &own_x, &own, &plain, &mut y).expect("a legal product");
        let (lent, lent_y) = (&lent.lend(gpu), &mut wide_y.lend(gpu));
        ops::matmul(gpu, Form::NN, &lent_x, lent, &plain, lent_y).expect("a legal product");
        assert_eq!(
            wide_y.read(gpu),
            read(gpu, &y),
            "{} x {columns}",
            E::PRECISION
        );
    }
    for columns in [5, 16, 41] {
        check::<D, f16>(gpu, columns);
        check::<D, bf16>(gpu, columns);
        check::<D, f32>(gpu, columns);
    }
}

/// What no kernel can bear is refused in a line, and nothing is written.
pub fn strides_are_checked<D: Driver>(gpu: &Gpu<D>) {
    let own = matrix::<_, f16>(gpu, (3, 41), &[1.0; 123]);
    let refused = |stride| {
        let (address, shape) = (own.device_address(), (3, 41));
        // SAFETY: nothing is made of it.
        let lent = unsafe { Matrix::<_, f16>::from_raw(gpu, address, shape, stride, KIND) };
        lent.expect_err("no such matrix").to_string()
    };
    assert_eq!(
        refused(41),
        "Matrix::from_raw: rows that are 41 elements apart do not begin at multiples of 16 bytes, as kernels load them: \
         make that a multiple of 8, 48 at least"
    );
    assert!(refused(40).contains("with their padding they are 48 long"));
    assert!(refused(1 << 31).contains("2^32 - 1 bytes"));

    let wide = Wide::<D, f16>::new(gpu, 5, &[1.0; 15]);
    let mut lent = wide.lend(gpu);
    let other = matrix::<_, f16>(gpu, (3, 5), &[2.0; 15]);
    let assert_refused = |result: Result<(), Error>, words: &str| {
        let error = result.expect_err("it is refused").to_string();
        assert!(error.contains(words), "{error}");
    };
    let apart = "rows of a matrix of 3 x 5 are 32 elements apart, which products and sums over neighbours take; this \
                 operator wants them 8 apart";
    assert_refused(ops::combine(gpu, &Combine::sum(), &other, &mut lent), apart);
    let relu = Activation {
        bias: None,
        relu: true,
        dropout: None,
    };
    assert_refused(ops::activate(gpu, &relu, None, &mut lent), apart);
    assert_refused(
        lent.write_f32(gpu, &[4.0; 15]),
        "rows are 32 elements apart",
    );
    assert_refused(lent.clear(gpu), "rows are 32 elements apart");
    assert_refused(gpu.address_of(&lent).map(drop), apart);
    assert!(gpu.strided_address_of(&lent).is_ok());

    // A sum whose kernels do not finish it would be finished by operators of other kinds.
    let graph = power_law(3, 9, Random(508));
    let a = Adjacency::new(gpu, &graph).expect("room");
    let op = Spmm {
        policy: POST,
        epilogue: SpmmEpilogue {
            relu: true,
            ..SpmmEpilogue::default()
        },
        ..Spmm::default()
    };
    assert_refused(ops::spmm(gpu, &a, &op, &other, &mut lent), apart);
    let op = Spmm {
        policy: SpmmPolicy {
            write: Write::Atomic,
            ..SpmmPolicy::DEFAULT
        },
        ..Spmm::default()
    };
    let words = "rows are 32 elements apart";
    assert_refused(ops::spmm(gpu, &a, &op, &other, &mut lent), words);
    let x = matrix::<_, f16>(gpu, (3, 3), &[1.0; 9]);
    let z = matrix::<_, f16>(gpu, (5, 3), &[1.0; 15]);
    let fusion = MatmulFusion {
        positive: Some(&other),
        ..MatmulFusion::default()
    };
    let product = ops::matmul_fused(
        gpu,
        Form::NT,
        &x,
        &z,
        &Epilogue::default(),
        fusion,
        &mut lent,
    );
    assert_refused(product, "stride of the ReLU's output should be 32, is 8");
    assert_eq!(wide.read(gpu), [1.0; 15]);

    // A single row has no distance to another.
    let one = matrix::<_, f16>(gpu, (1, 5), &[1.0; 5]);
    // SAFETY: the row of a matrix that lives.
    let row = unsafe { Matrix::<_, f16>::from_raw(gpu, one.device_address(), (1, 5), 3, KIND) };
    assert!(row.expect("a row").is_contiguous());
}

/// Operators use the workspace that they are lent, which may be as long as they say beforehand and no shorter. Nothing was done
/// on the device before.
pub fn a_workspace_is_lent<D: Driver>(gpu: &Gpu<D>) {
    let graph = power_law(300, 5000, Random(509));
    let a = Adjacency::new(gpu, &graph).expect("room");
    let values = Random(510).uniform::<f16>(300 * 41);
    let x = matrix::<_, f16>(gpu, (300, 41), &values);
    let work = |gpu: &Gpu<D>, y: &mut _, gradient: &mut _| {
        let plain = Epilogue::default();
        ops::spmm(gpu, &a, &Spmm::default(), &x, y)?;
        ops::matmul(gpu, Form::TN, &x, &x, &plain, gradient)
    };
    let outputs = || {
        (
            unwritten::<_, f16>(gpu, (300, 41)),
            unwritten::<_, f32>(gpu, (41, 41)),
        )
    };
    let (mut y, mut gradient) = outputs();
    let held = || gpu.memory().current[MemoryKind::Workspace as usize];
    let wanted = gpu
        .workspace_wanted(|gpu| work(gpu, &mut y, &mut gradient))
        .expect("it is told");
    assert!(wanted > 0 && held() == 0, "{wanted}, {}", held());
    let before = y.to_f32(gpu).expect("no failure before");
    assert!(
        before.iter().all(|value| value.is_nan()),
        "nothing was launched"
    );

    let lend = |bytes: u64| {
        let floats = bytes as usize / size_of::<f32>();
        let memory = Array::zeros(gpu, floats, MemoryKind::Features).expect("room");
        gpu.lend_workspace(memory).expect("of this device");
    };
    lend(wanted - 4);
    let error = work(gpu, &mut y, &mut gradient).expect_err("it is too small");
    let words = format!(
        "{wanted} bytes are wanted while the operator runs, and {} were lent",
        wanted - 4
    );
    assert!(error.to_string().contains(&words), "{error}");
    lend(wanted);
    work(gpu, &mut y, &mut gradient).expect("it is enough");
    assert_eq!(held(), 0, "no other was allocated");
    let memory = gpu.reclaim_workspace().expect("the loan");
    assert_eq!((memory.len() * 4) as u64, wanted);
    assert!(gpu.reclaim_workspace().is_none());
    drop(memory);

    let (mut own_y, mut own_gradient) = outputs();
    work(gpu, &mut own_y, &mut own_gradient).expect("it grows");
    assert_eq!(held(), wanted);
    assert_eq!(read(gpu, &own_y), read(gpu, &y));
    assert_eq!(read(gpu, &own_gradient), read(gpu, &gradient));

    // A peak that begins anew has nothing of it.
    gpu.reset_peak();
    assert_eq!(
        (held(), gpu.memory().peak[MemoryKind::Workspace as usize]),
        (0, 0)
    );
    work(gpu, &mut own_y, &mut own_gradient).expect("it grows again");
    assert_eq!(held(), wanted);
}
