//! Dense products against float64: three forms, every pair of element types, shapes around every tile.

use crate::Scale;
use crate::input::{Random, bits, elements, matrix, read, rounded, unwritten};
use crate::reference::{Allowed, Sum, assert_close, exact_integers};
use half::{bf16, f16};
use halfgnn::backend::Backend;
use halfgnn::ops;
use halfgnn::ops::{Activation, Dropout, Epilogue, Form, MatmulFusion, Normalization, RandomState};
use halfgnn::tensor::{Element, Matrix};

/// The forms of a product.
pub const FORMS: [Form; 3] = [Form::NN, Form::NT, Form::TN];

/// A product with its inputs on the host.
#[derive(Clone, Debug)]
pub struct Case {
    /// Which operand is transposed.
    pub form: Form,
    /// Rows of the result.
    pub m: usize,
    /// Columns of the result.
    pub n: usize,
    /// Terms of each sum.
    pub k: usize,
    /// As it lies in memory.
    pub a: Vec<f32>,
    /// As it lies in memory.
    pub b: Vec<f32>,
    /// Factor of everything.
    pub alpha: f32,
    /// Factor of each row.
    pub row_scale: Option<Vec<f32>>,
    /// Added to each row.
    pub bias: Option<Vec<f32>>,
    /// Whether negative results become zero.
    pub relu: bool,
    /// What is made of the first operand before.
    pub normal: Option<Normal>,
}

/// A normalisation with a ReLU, on the host.
#[derive(Clone, Debug)]
pub struct Normal {
    /// Means, then reciprocal deviations.
    pub statistics: Vec<f32>,
    /// Scales.
    pub weight: Vec<f32>,
    /// Shifts.
    pub bias: Vec<f32>,
    /// Whether negative numbers become zero.
    pub relu: bool,
}

impl Normal {
    /// A plain one of random numbers.
    pub fn random(columns: usize) -> Self {
        let [means, deviations] = [68, 69].map(|seed| Random(seed).uniform::<f32>(columns));
        let deviations = deviations.iter().map(|value| 1.0 + value.abs());
        Self {
            statistics: means.iter().copied().chain(deviations).collect(),
            weight: Random(70).uniform::<f32>(columns),
            bias: Random(71).uniform::<f32>(columns),
            relu: true,
        }
    }

    /// Calls `then` with it on a backend.
    fn on<B: Backend, T>(&self, backend: &B, then: impl FnOnce(&Normalization<'_, B>) -> T) -> T {
        let columns = self.weight.len();
        then(&Normalization {
            statistics: &matrix(backend, (2, columns), &self.statistics),
            weight: &matrix(backend, (1, columns), &self.weight),
            bias: &matrix(backend, (1, columns), &self.bias),
            relu: self.relu,
        })
    }
}

impl Case {
    /// A plain product of random numbers.
    pub fn random<E: Element>(form: Form, [m, n, k]: [usize; 3]) -> Self {
        Self {
            form,
            m,
            n,
            k,
            a: Random(60).uniform::<E>(m * k),
            b: Random(61).uniform::<E>(k * n),
            alpha: 1.0,
            row_scale: None,
            bias: None,
            relu: false,
            normal: None,
        }
    }

    /// Rows and columns of the first operand as it lies in memory.
    fn a_shape(&self) -> (usize, usize) {
        match self.form {
            Form::NN | Form::NT => (self.m, self.k),
            Form::TN => (self.k, self.m),
        }
    }

    /// The product of what `normalize` makes of the first operand.
    pub fn normalized<B: Backend, E: Element>(&self, backend: &B) -> Self {
        let mut case = self.clone();
        if let Some(normal) = case.normal.take() {
            let a = matrix::<B, E>(backend, self.a_shape(), &self.a);
            let mut y = unwritten::<B, E>(backend, self.a_shape());
            normal
                .on(backend, |op| ops::normalize(backend, op, &a, &mut y))
                .expect("a legal normalisation");
            case.a = read(backend, &y);
        }
        case
    }

    /// What the backend makes of it, after asserting that its padding is zero.
    pub fn run<B: Backend, E: Element, O: Element>(&self, backend: &B) -> Vec<f32> {
        self.run_beside::<B, E, O>(backend, None, false).0
    }

    /// The result where `positive` is, and the sums of the columns of `b` where they are wanted.
    pub fn run_beside<B: Backend, E: Element, O: Element>(
        &self,
        backend: &B,
        positive: Option<&Matrix<B, O>>,
        sums_wanted: bool,
    ) -> (Vec<f32>, Vec<f32>) {
        let (m, n, k) = (self.m, self.n, self.k);
        let b = match self.form {
            Form::NN | Form::TN => (k, n),
            Form::NT => (n, k),
        };
        let a = matrix::<B, E>(backend, self.a_shape(), &self.a);
        let b = matrix::<B, E>(backend, b, &self.b);
        let row_scale = self
            .row_scale
            .as_ref()
            .map(|scale| elements(backend, scale));
        let bias = self.bias.as_ref().map(|bias| matrix(backend, (1, n), bias));
        let epilogue = Epilogue {
            alpha: self.alpha,
            row_scale: row_scale.as_ref(),
            bias: bias.as_ref(),
            relu: self.relu,
        };
        let mut c = unwritten::<B, O>(backend, (m, n));
        let mut sums = sums_wanted.then(|| unwritten::<B, f32>(backend, (1, b.columns())));
        let mut run = |normalization: Option<&Normalization<'_, B>>| {
            let fusion = MatmulFusion {
                normalization,
                positive,
                column_sums: sums.as_mut(),
                ..MatmulFusion::default()
            };
            ops::matmul_fused(backend, self.form, &a, &b, &epilogue, fusion, &mut c)
        };
        match &self.normal {
            Some(normal) => normal.on(backend, |op| run(Some(op))),
            None => run(None),
        }
        .expect("a legal product");
        let sums = sums.map_or(Vec::new(), |sums| read(backend, &sums));
        (read(backend, &c), sums)
    }

    /// The product in float64.
    pub fn reference(&self) -> Vec<Sum> {
        let (m, n, k) = (self.m, self.n, self.k);
        let mut c = Vec::with_capacity(m * n);
        for i in 0..m {
            let factor = self
                .row_scale
                .as_ref()
                .map_or(1.0, |scale| f64::from(scale[i]))
                * f64::from(self.alpha);
            for j in 0..n {
                let mut sum = Sum::default();
                for l in 0..k {
                    let a = if self.form == Form::TN {
                        self.a[l * m + i]
                    } else {
                        self.a[i * k + l]
                    };
                    let b = if self.form == Form::NT {
                        self.b[j * k + l]
                    } else {
                        self.b[l * n + j]
                    };
                    sum.add(f64::from(a) * f64::from(b));
                }
                let mut sum = sum.scaled(factor);
                if let Some(bias) = &self.bias {
                    sum.add(f64::from(bias[j]));
                }
                if self.relu {
                    sum.value = sum.value.max(0.0);
                }
                c.push(sum);
            }
        }
        c
    }

    /// Runs it and compares the answer with float64.
    pub fn check<B: Backend, E: Element, O: Element>(&self, backend: &B) {
        let what = format!(
            "{:?} of {} x {} x {}, {} to {}",
            self.form,
            self.m,
            self.n,
            self.k,
            E::PRECISION,
            O::PRECISION
        );
        let actual = self.run::<B, E, O>(backend);
        let allowed = Allowed::float(self.k);
        assert_close::<O>(&what, &actual, &self.reference(), self.n, |_| allowed);
    }
}

fn on_all<B: Backend>(backend: &B, change: impl Fn(&mut Case), form: Form, shape: [usize; 3]) {
    let mut half = Case::random::<f16>(form, shape);
    change(&mut half);
    half.check::<B, f16, f16>(backend);
    half.check::<B, f16, f32>(backend);
    let mut bfloat = Case::random::<bf16>(form, shape);
    change(&mut bfloat);
    // What layers want is built.
    match form {
        Form::NN | Form::NT => bfloat.check::<B, bf16, bf16>(backend),
        Form::TN => bfloat.check::<B, bf16, f32>(backend),
    }
    let mut float = Case::random::<f32>(form, shape);
    change(&mut float);
    float.check::<B, f32, f32>(backend);
}

/// Shapes around the sizes of tiles and of steps, and without any element.
pub fn every_shape<B: Backend>(backend: &B, scale: Scale) {
    let mut shapes = vec![
        [1, 1, 1],
        [7, 9, 8],
        [16, 17, 33],
        [33, 7, 65],
        [65, 33, 31],
        [129, 16, 9],
        [130, 65, 41],
        [2, 3, 300],
        [0, 5, 3],
        [5, 0, 3],
        [5, 3, 0],
    ];
    if scale == Scale::Full {
        shapes.extend([
            [257, 130, 64],
            [300, 7, 1433],
            [513, 47, 1025],
            [64, 64, 5000],
            [1, 256, 602],
        ]);
    }
    for form in FORMS {
        for &shape in &shapes {
            on_all(backend, |_| {}, form, shape);
        }
    }
}

/// Alpha, row factors, bias and ReLU, alone and together.
pub fn epilogues<B: Backend>(backend: &B, _: Scale) {
    for form in FORMS {
        for parts in 0..16_u32 {
            let shape = [35, 10, 20];
            let change = |case: &mut Case| {
                case.alpha = if parts & 1 != 0 { -0.375 } else { 1.0 };
                case.row_scale = (parts & 2 != 0).then(|| Random(62).uniform::<f32>(case.m));
                case.bias = (parts & 4 != 0).then(|| Random(63).uniform::<f32>(case.n));
                case.relu = parts & 8 != 0;
            };
            on_all(backend, change, form, shape);
        }
        // A sum without terms is zero, and the bias is added to it.
        let bias = |case: &mut Case| case.bias = Some(Random(64).uniform::<f32>(case.n));
        on_all(backend, bias, form, [5, 3, 0]);
    }
}

/// What a layer's backward pass has beside its products: what a ReLU let through, wherever it let something through and
/// whether its output was a NaN or not; the same added to what is there; and the sums of the columns of `b`, whatever the rows of the result.
pub fn beside_the_product<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element, O: Element>(backend: &B, form: Form, shape: [usize; 3]) {
        let case = Case::random::<E>(form, shape);
        let [m, n, _] = shape;
        let mut output = Random(67).uniform::<O>(m * n);
        for (at, value) in output.iter_mut().enumerate() {
            match at % 11 {
                0 => *value = 0.0,
                1 => *value = -0.0,
                2 => *value = f32::NAN,
                3 => *value = f32::INFINITY,
                // The smallest positive number there is.
                4 => *value = rounded::<O>(6e-8),
                _ => {}
            }
        }
        let what = format!(
            "{form:?} of {shape:?}, {} to {}",
            E::PRECISION,
            O::PRECISION
        );
        let plain = case.run::<B, E, O>(backend);
        let positive = matrix::<B, O>(backend, (m, n), &output);
        let (c, none) = case.run_beside::<B, E, O>(backend, Some(&positive), false);
        assert!(none.is_empty());
        let through = |(&value, &output): (&f32, &f32)| if output > 0.0 { value } else { 0.0 };
        let expected: Vec<f32> = plain.iter().zip(&output).map(through).collect();
        assert!(bits(&c) == bits(&expected), "{what}");

        if form == Form::NT {
            // As passes of their own would have it; rows that it is not of stay as they are.
            let more = 2;
            let there = Random(68).uniform::<O>((m + more) * n);
            let mut c = matrix::<B, O>(backend, (m + more, n), &there);
            let [a, b] = [(case.a_shape(), &case.a), ((n, case.k), &case.b)]
                .map(|(shape, of)| matrix::<B, E>(backend, shape, of));
            let fusion = MatmulFusion {
                positive: Some(&positive),
                sum: true,
                ..MatmulFusion::default()
            };
            let (plain, to) = (Epilogue::default(), (0..m, &mut c));
            ops::matmul_fused_to_rows(backend, form, [&a, &b], &plain, fusion, to)
                .expect("a legal product");
            let mut summed = there.clone();
            for (sum, value) in summed.iter_mut().zip(&expected) {
                *sum = rounded::<O>(*sum + value);
            }
            assert!(bits(&read(backend, &c)) == bits(&summed), "{what}, a sum");
        }

        let (c, sums) = case.run_beside::<B, E, O>(backend, None, true);
        assert!(bits(&c) == bits(&plain), "{what}");
        let columns = sums.len();
        let mut expected = vec![Sum::default(); columns];
        for (at, &value) in case.b.iter().enumerate() {
            expected[at % columns].add(f64::from(value));
        }
        let terms = case.b.len() / columns.max(1);
        assert_close::<f32>(&what, &sums, &expected, columns.max(1), |_| {
            Allowed::float(terms)
        });
        let again = case.run_beside::<B, E, O>(backend, None, true).1;
        assert!(bits(&again) == bits(&sums), "{what}: sums repeat");
    }
    let mut shapes = vec![
        [1, 1, 1],
        [7, 9, 8],
        [8, 70, 41],
        [64, 64, 300],
        [64, 47, 31],
        // A row of sums that would want a tile of its own, and one in the second tile.
        [128, 5, 60],
        [121, 5, 60],
        [129, 16, 9],
        // Three and five steps of halves in one split: the last lies in either half of the stages.
        [40, 21, 90],
        [21, 40, 150],
        [2, 3, 700],
        [5, 0, 3],
        [5, 3, 0],
        [0, 3, 5],
    ];
    if scale == Scale::Full {
        shapes.extend([[64, 64, 30_000], [300, 70, 5000], [1, 256, 602]]);
    }
    for shape in shapes {
        // The columns of `b` are those of the result but in the second form.
        check::<B, f16, f32>(backend, Form::TN, shape);
        check::<B, f16, f16>(backend, Form::TN, shape);
        check::<B, f32, f32>(backend, Form::TN, shape);
        check::<B, f16, f16>(backend, Form::NT, shape);
        check::<B, f16, f32>(backend, Form::NT, shape);
        check::<B, f32, f32>(backend, Form::NT, shape);
        check::<B, f16, f16>(backend, Form::NN, shape);
        check::<B, bf16, f32>(backend, Form::TN, shape);
        check::<B, bf16, bf16>(backend, Form::NT, shape);
        check::<B, bf16, bf16>(backend, Form::NN, shape);
    }
}

/// The products of two pairs of operands are added up before anything is rounded: of whole numbers they are one product of the operands side
/// by side, bit for bit, with an epilogue behind, where the sum is split, whatever stands behind the rows that count, and where most elements
/// are zeros, which the CPU keeps of an operand that is read again and again. A dropout behind is that of a pass.
pub fn of_two_pairs<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, [m, n, k, k2]: [usize; 4], zeros: bool) {
        let whole = |random: u32, len: usize| -> Vec<f32> {
            let number = |at| (Random(random).bits(at) % 5) as f32 - 2.0;
            (0..len).map(number).collect()
        };
        let left = |random: u32, len: usize| -> Vec<f32> {
            let mut numbers = whole(random, len);
            if zeros {
                let dropped = |at: usize| !Random(random + 10).bits(at).is_multiple_of(16);
                let places = (0..len).filter(|&at| dropped(at));
                places.for_each(|at| numbers[at] = 0.0);
            }
            numbers
        };
        let more = 3;
        let (a, b) = (left(80, m * k), whole(81, k * n));
        let (mut a2, b2) = (left(82, (m + more) * k2), whole(83, k2 * n));
        let side_by_side: Vec<f32> = (0..m)
            .flat_map(|row| [&a[row * k..][..k], &a2[row * k2..][..k2]].concat())
            .collect();
        a2[m * k2..].fill(f32::NAN);
        let bias = matrix::<B, f32>(backend, (1, n), &whole(84, n));
        let one = [
            matrix::<B, E>(backend, (m, k + k2), &side_by_side),
            matrix(backend, (k + k2, n), &[&b[..], &b2].concat()),
        ];
        let [a, b] = [((m, k), &a), ((k, n), &b)].map(|(shape, of)| matrix(backend, shape, of));
        let [a2, b2] = [((m + more, k2), &a2), ((k2, n), &b2)]
            .map(|(shape, of)| matrix::<B, E>(backend, shape, of));
        for relu in [false, true].repeat(if zeros { 3 } else { 1 }) {
            let epilogue = Epilogue {
                alpha: 0.5,
                bias: relu.then_some(&bias),
                relu,
                ..Epilogue::default()
            };
            let product = |[a, b]: [&Matrix<B, E>; 2], second_pair, dropout| {
                let mut c = unwritten::<B, E>(backend, (m, n));
                let fusion = MatmulFusion {
                    second_pair,
                    dropout,
                    ..MatmulFusion::default()
                };
                ops::matmul_fused(backend, Form::NN, a, b, &epilogue, fusion, &mut c)
                    .expect("a legal product");
                c
            };
            let padded = |c: &Matrix<B, E>| c.to_padded(backend).expect("no failure before");
            let mut expected = product([&one[0], &one[1]], None, None);
            let second = || Some([&a2, &b2]);
            let found = padded(&product([&a, &b], second(), None));
            let what = format!("{m} x {n} x {k} + {k2}, relu {relu}");
            assert!(found == padded(&expected), "{what}");
            let random = RandomState::new(backend, 5, 3).expect("memory");
            let dropout = Some(Dropout {
                probability: 0.4,
                stream: 7,
                random: &random,
            });
            let drop = Activation {
                dropout,
                ..Activation::default()
            };
            ops::activate(backend, &drop, None, &mut expected).expect("a matrix");
            let found = product([&a, &b], second(), dropout);
            assert!(padded(&found) == padded(&expected), "{what}, dropped");
        }
    }
    let mut shapes = vec![
        [1, 1, 1, 1],
        [7, 9, 8, 30],
        [130, 70, 104, 104],
        [40, 47, 33, 300],
        // Split, in either pair and between them.
        [5, 20, 700, 90],
        [5, 64, 90, 700],
        [129, 16, 256, 256],
        [5, 7, 0, 40],
        [5, 7, 40, 0],
        [5, 0, 3, 4],
    ];
    if scale == Scale::Full {
        shapes.extend([[300, 256, 100, 100], [64, 64, 5000, 3000]]);
    }
    for shape in shapes {
        check::<B, f16>(backend, shape, false);
        check::<B, bf16>(backend, shape, false);
        check::<B, f32>(backend, shape, false);
    }
    check::<B, f16>(backend, [130, 30, 104, 204], true);
    check::<B, f32>(backend, [300, 20, 204, 104], true);
    let of = |rows, columns| matrix::<B, f32>(backend, (rows, columns), &vec![1.0; rows * columns]);
    let (a, b) = (of(3, 4), of(4, 5));
    for (second, what) in [
        ([of(2, 6), of(6, 5)], "rows of the second a"),
        ([of(3, 6), of(7, 5)], "columns of the second a"),
        ([of(3, 6), of(6, 4)], "columns of the second b"),
    ] {
        let fusion = MatmulFusion {
            second_pair: Some([&second[0], &second[1]]),
            ..MatmulFusion::default()
        };
        let mut c = unwritten::<B, f32>(backend, (3, 5));
        let plain = Epilogue::default();
        let told = ops::matmul_fused(backend, Form::NN, &a, &b, &plain, fusion, &mut c);
        assert!(told.unwrap_err().to_string().contains(what));
    }
}

/// A normalised operand has the bits that `normalize` would store: with column sums beside it and an epilogue behind, a NaN
/// and infinities in it, with a ReLU and without, and where what lies outside the matrix would be infinite if it were
/// normalised.
pub fn of_a_normalized_operand<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element, O: Element>(backend: &B, form: Form, shape: [usize; 3]) {
        let mut case = Case::random::<E>(form, shape);
        let (_, columns) = case.a_shape();
        let mut normal = Normal::random(columns);
        // A column far away from zero, beside whose deviation zero is further than any half.
        if columns > 1 {
            for value in case.a.iter_mut().skip(1).step_by(columns) {
                *value = rounded::<E>(1000.0 + *value);
            }
            normal.statistics[1] = 1000.0;
            normal.statistics[columns + 1] = 100.0;
            normal.weight[1] = -1.0;
        }
        case.normal = Some(normal);
        case.row_scale = Some(Random(72).uniform::<f32>(case.m));
        case.bias = Some(Random(73).uniform::<f32>(case.n));
        let sums = form == Form::TN;
        let compare = |case: &Case, what: &str| {
            let found = case.run_beside::<B, E, O>(backend, None, sums);
            let stored = case.normalized::<B, E>(backend);
            let expected = stored.run_beside::<B, E, O>(backend, None, sums);
            let what = format!("{what}: {form:?} of {shape:?}, {}", E::PRECISION);
            assert!(bits(&found.0) == bits(&expected.0), "{what}");
            assert!(bits(&found.1) == bits(&expected.1), "{what}, sums");
            stored
        };
        let stored = compare(&case, "with a ReLU");
        let allowed = Allowed::float(case.k);
        let found = case.run::<B, E, O>(backend);
        assert_close::<O>("normalised", &found, &stored.reference(), case.n, |_| {
            allowed
        });
        if let Some(normal) = &mut case.normal {
            normal.relu = false;
        }
        compare(&case, "without one");
        let corners = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
        for (value, corner) in case.a.iter_mut().step_by(13).zip(corners) {
            *value = corner;
        }
        compare(&case, "with corners");
    }
    let mut shapes = vec![
        [1, 1, 1],
        [7, 9, 8],
        [33, 20, 65],
        [64, 64, 70],
        [129, 5, 33],
        [121, 5, 60],
        [5, 40, 700],
        [5, 3, 0],
        [5, 0, 3],
        [0, 3, 5],
    ];
    if scale == Scale::Full {
        shapes.extend([[64, 64, 3000], [3000, 64, 64], [300, 70, 1000]]);
    }
    for shape in shapes {
        check::<B, f16, f16>(backend, Form::NN, shape);
        check::<B, f32, f32>(backend, Form::NN, shape);
        check::<B, f16, f32>(backend, Form::TN, shape);
        check::<B, f32, f32>(backend, Form::TN, shape);
        check::<B, bf16, bf16>(backend, Form::NN, shape);
        check::<B, bf16, f32>(backend, Form::TN, shape);
    }
}

/// Small integers, with `==`.
pub fn integers_are_exact<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element, O: Element>(backend: &B, forms: &[Form], shape: [usize; 3]) {
        for &form in forms {
            let mut case = Case::random::<E>(form, shape);
            let most = (exact_integers::<O>() / case.k as u32).isqrt();
            case.a = Random(65).integers(most, case.a.len());
            case.b = Random(66).integers(most, case.b.len());
            let expected: Vec<f32> = case
                .reference()
                .iter()
                .map(|sum| sum.value as f32)
                .collect();
            assert_eq!(
                case.run::<B, E, O>(backend),
                expected,
                "{form:?} of {shape:?}"
            );
        }
    }
    for shape in [[20, 11, 200], [scale.pick(130, 300), 70, 100]] {
        check::<B, f16, f16>(backend, &FORMS, shape);
        check::<B, f16, f32>(backend, &FORMS, shape);
        check::<B, f32, f32>(backend, &FORMS, shape);
        check::<B, bf16, bf16>(backend, &[Form::NN, Form::NT], shape);
        check::<B, bf16, f32>(backend, &[Form::TN], shape);
    }
}

/// ReLU makes a zero of a negative number and of no NaN; a NaN stays in its row and an infinity stays one.
pub fn nan_passes_through_relu<B: Backend>(backend: &B, _: Scale) {
    fn check<B: Backend, E: Element>(backend: &B) {
        let mut case = Case::random::<E>(Form::NN, [4, 3, 2]);
        case.a = vec![1.0, 1.0, f32::NAN, 0.0, -1.0, -1.0, f32::INFINITY, 1.0];
        case.b = vec![2.0; 6];
        case.relu = true;
        let c = case.run::<B, E, E>(backend);
        assert_eq!(c[..3], [4.0; 3]);
        assert!(c[3..6].iter().all(|value| value.is_nan()), "{c:?}");
        assert_eq!(c[6..9], [0.0; 3]);
        assert_eq!(c[9..], [f32::INFINITY; 3]);
    }
    check::<B, f16>(backend);
    check::<B, bf16>(backend);
    check::<B, f32>(backend);
}

/// Ten runs give the same bits.
pub fn repeatable<B: Backend>(backend: &B, scale: Scale) {
    for form in FORMS {
        let case = Case::random::<f16>(form, scale.pick([70, 20, 300], [600, 64, 3000]));
        let first = bits(&case.run::<B, f16, f32>(backend));
        for _ in 1..scale.pick(3, 10) {
            assert!(bits(&case.run::<B, f16, f32>(backend)) == first, "{form:?}");
        }
    }
}

/// Factors that make a NaN of a zero, and a bias, do not reach the padding.
pub fn padding_stays_zero<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element, O: Element>(backend: &B, k: usize) {
        for form in FORMS {
            let mut case = Case::random::<E>(form, [5, 3, k]);
            case.row_scale = Some(vec![f32::INFINITY; 5]);
            case.bias = Some(vec![1.0; 3]);
            case.run::<B, E, O>(backend);
        }
    }
    for k in [2, scale.pick(700, 5000)] {
        check::<B, f16, f16>(backend, k);
        check::<B, f16, f32>(backend, k);
        check::<B, f32, f32>(backend, k);
    }
}
