//! The shape rule of each operator.

mod attention;
mod binary;
mod messages;
mod ranks;

use super::list::{Program, refuse};
use super::operator::{
    Aggregate, Coding, Direction, GroupNorm, Matmul, Normalization, Operator, RowFactors,
};
use super::value::{Edges, Format, Rows, Shape, Value, head_distance};
use crate::error::Error;
use crate::ops::Form;
use crate::tensor::padded;
use halfgnn_contract::norms::STATISTICS_ROWS;

/// Shape and format of a result.
pub(super) type Result_ = (Shape, Format);

impl Program {
    /// What `operator` writes.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where its operands do not fit.
    pub(super) fn results_of(&self, operator: &Operator) -> Result<Vec<Result_>, Error> {
        if let Some(unknown) = operator
            .operands()
            .iter()
            .find(|it| it.0 >= self.values.len())
        {
            return refuse(format!(
                "{} reads {unknown}, which there is not",
                operator.name()
            ));
        }
        let families = [
            Self::elementwise_results,
            Self::attention_results,
            Self::message_results,
            Self::norm_results,
            Self::moved_results,
            Self::results_of_binary,
        ];
        let of = |value: Value| self.described(value);
        let name = operator.name();
        let one = |result| Ok(vec![result]);
        match operator {
            Operator::Matmul(op) => self.results_of_matmul(op),
            Operator::Aggregate(op) => {
                let result = self.result_of_sum(op)?;
                // Own rows are among those that are summed, as that has seen.
                let other = op.addend.filter(|addend| addend.value != op.x);
                let other = other.map(|addend| addend.value);
                for same in other.into_iter().chain(op.positive) {
                    self.expect_same(name, same, result)?;
                }
                if let Some(epsilon) = op.addend.and_then(|addend| addend.epsilon) {
                    self.expect_same(name, epsilon, SCALAR)?;
                }
                self.expect_bias(name, op.bias, result)?;
                one(result)
            }
            Operator::Dot { x, y, .. } => {
                self.expect_same(name, *y, of(*x))?;
                one(SCALAR)
            }
            Operator::ColumnSums { x } => one(row(of(*x).0.columns)),
            _ => {
                for family in families {
                    if let Some(results) = family(self, operator)? {
                        return Ok(results);
                    }
                }
                refuse(format!("{name} has no rule of shapes"))
            }
        }
    }

    /// Shape and format of a value.
    fn described(&self, value: Value) -> Result_ {
        let description = &self.values[value.0];
        (description.shape, description.format)
    }

    /// What an operator that works element by element writes; none of any other operator.
    fn elementwise_results(&self, operator: &Operator) -> Result<Option<Vec<Result_>>, Error> {
        let of = |value: Value| self.described(value);
        let name = operator.name();
        let one = |result| Ok(vec![result]);
        let results = match operator {
            Operator::Activate(op) => {
                let result = of(op.x);
                if let Some(same) = op.add {
                    self.expect_same(name, same, result)?;
                }
                self.expect_bias(name, op.bias, result)?;
                one(result)
            }
            Operator::ActivateGradient(op) => {
                if let Some(same) = op.relu {
                    self.expect_same(name, same, of(op.d))?;
                }
                self.expect_factors(name, op.rows, of(op.d).0)?;
                one(of(op.d))
            }
            Operator::Nonlinearity { x, .. } => one(of(*x)),
            Operator::NonlinearityGradient { of: output, d, .. } => {
                self.expect_same(name, *output, of(*d))?;
                one(of(*d))
            }
            Operator::Combine { terms } => {
                let Some((_, first)) = terms.first() else {
                    return refuse("combine sums at least one value".into());
                };
                for (_, value) in terms {
                    self.expect_same(name, *value, of(*first))?;
                }
                one(of(*first))
            }
            Operator::Maximum { terms } => {
                let Some(first) = terms.first() else {
                    return refuse("maximum is of at least one value".into());
                };
                for value in terms {
                    self.expect_same(name, *value, of(*first))?;
                }
                one(of(*first))
            }
            Operator::MaximumGradient { terms, y, d } => {
                for value in terms.iter().chain([y]) {
                    self.expect_same(name, *value, of(*d))?;
                }
                Ok(vec![of(*d); terms.len() + 1])
            }
            Operator::Multiply { x, y } => {
                self.expect_same(name, *y, of(*x))?;
                one(of(*x))
            }
            Operator::Scale { x, factor, .. } => {
                self.expect_same(name, *factor, SCALAR)?;
                one(of(*x))
            }
            _ => return Ok(None),
        };
        results.map(Some)
    }

    /// What attention, its terms and its heads write; none of any other operator.
    fn attention_results(&self, operator: &Operator) -> Result<Option<Vec<Result_>>, Error> {
        let of = |value: Value| self.described(value);
        let name = operator.name();
        let one = |result| Ok(vec![result]);
        let results = match operator {
            Operator::Attention(op) => self.results_of_attention(op),
            Operator::AttentionGradient(op) => {
                let y = self.results_of_attention(&op.of)?[0];
                for same in [op.y, op.positive, op.d] {
                    self.expect_same(name, same, y)?;
                }
                if let Some(codes) = op.codes {
                    self.expect_same(name, codes, (y.0, Format::Codes))?;
                }
                let (h, biases) = (of(op.of.h), op.of.biases.map(of));
                let mut results = vec![h, rows_of(2, h.0.columns)];
                if let (Some(against), Some(biases)) = (op.against, biases) {
                    self.expect_same(name, against, biases)?;
                    results.push(biases);
                }
                Ok(results)
            }
            Operator::AdditiveAttention(op) => one(self.result_of_additive(op)?),
            Operator::AdditiveGradient(op) => {
                let y = self.result_of_additive(&op.of)?;
                self.expect_same(name, op.y, y)?;
                self.expect_same(name, op.d, y)?;
                let (sources, destinations) = (of(op.of.sources), of(op.of.destinations));
                Ok(vec![sources, destinations, row(sources.0.columns)])
            }
            Operator::DotAttention(op) => one(self.result_of_dot(op)?),
            Operator::DotAttentionGradient(op) => {
                let y = self.result_of_dot(&op.of)?;
                self.expect_same(name, op.y, y)?;
                self.expect_same(name, op.d, y)?;
                Ok([op.of.queries, op.of.keys, op.of.values].map(of).to_vec())
            }
            Operator::EdgeTerms(op) => {
                let weight = of(op.weight);
                self.expect_same(name, op.vector, rows_of(2, weight.0.columns))?;
                let rows = padded::<f32>(op.features);
                self.expect_same(name, op.weight, rows_of(rows, weight.0.columns))?;
                Ok(vec![
                    numbers(Rows::Edges(op.edges), op.heads),
                    numbers(Rows::Fixed(rows), op.heads),
                ])
            }
            Operator::EdgeTermsGradient {
                of: terms,
                zeros,
                d,
            } => {
                let rows = padded::<f32>(terms.features);
                self.expect_same(name, *zeros, numbers(Rows::Fixed(rows), terms.heads))?;
                self.expect_same(name, *d, numbers(Rows::Edges(terms.edges), terms.heads))?;
                Ok(vec![of(terms.weight), of(terms.vector)])
            }
            Operator::HeadMean { heads, columns, x } => {
                let (shape, format) = of(*x);
                let distance = head_distance(self.precision, *heads, *columns);
                if format != Format::Element || shape.columns != heads * distance {
                    return refuse(format!(
                        "head_mean: {} has not {heads} heads of {columns} columns",
                        self.describe(*x)
                    ));
                }
                let columns = *columns;
                one((Shape { columns, ..shape }, format))
            }
            Operator::HeadMeanGradient { heads, d } => {
                let (shape, format) = of(*d);
                let columns = heads * head_distance(self.precision, *heads, shape.columns);
                one((Shape { columns, ..shape }, format))
            }
            _ => return Ok(None),
        };
        results.map(Some)
    }

    /// What a norm writes; none of any other operator.
    fn norm_results(&self, operator: &Operator) -> Result<Option<Vec<Result_>>, Error> {
        let of = |value: Value| self.described(value);
        let name = operator.name();
        let one = |result| Ok(vec![result]);
        let results = match operator {
            Operator::BatchStatistics(op) => {
                let statistics = rows_of(2, of(op.x).0.columns);
                self.expect_same(name, op.running, statistics)?;
                one(statistics)
            }
            Operator::Normalize { norm, x } => {
                self.expect_norm(name, *norm, of(*x))?;
                one(of(*x))
            }
            Operator::NormalizeGradient(op) => {
                self.expect_norm(name, op.norm, of(op.x))?;
                self.expect_same(name, op.d, of(op.x))?;
                self.expect_factors(name, op.rows, of(op.x).0)?;
                let scales = row(of(op.x).0.columns);
                let mut results = vec![of(op.x), scales, scales];
                if let Some(coding) = op.coding {
                    results.push(self.codes_of(name, of(op.x).0, coding)?);
                }
                Ok(results)
            }
            Operator::NormalizeRows { x, weight, bias } => {
                self.expect_bias(name, Some(*weight), of(*x))?;
                self.expect_bias(name, Some(*bias), of(*x))?;
                Ok(vec![of(*x), statistics_of_rows(of(*x))])
            }
            Operator::NormalizeRowsGradient {
                x,
                weight,
                statistics,
                d,
            } => {
                self.expect_same(name, *d, of(*x))?;
                self.expect_bias(name, Some(*weight), of(*x))?;
                self.expect_same(name, *statistics, statistics_of_rows(of(*x)))?;
                let scales = row(of(*x).0.columns);
                Ok(vec![of(*x), scales, scales])
            }
            Operator::NormalizeGroups { norm, groups, x } => {
                self.expect_group_norm(name, *norm, of(*x))?;
                Ok(vec![of(*x), self.statistics_of_graphs(name, *groups, *x)?])
            }
            Operator::NormalizeGroupsGradient {
                norm,
                groups,
                x,
                statistics,
                d,
            } => {
                self.expect_group_norm(name, *norm, of(*x))?;
                self.expect_same(name, *d, of(*x))?;
                let expected = self.statistics_of_graphs(name, *groups, *x)?;
                self.expect_same(name, *statistics, expected)?;
                let scales = row(of(*x).0.columns);
                Ok(match norm {
                    GroupNorm::Pair => vec![of(*x)],
                    GroupNorm::Graph(_) => vec![of(*x), scales, scales, scales],
                })
            }
            _ => return Ok(None),
        };
        results.map(Some)
    }

    /// What an operator writes that moves, quantizes or picks rows, or that is from outside; none of any other operator.
    fn moved_results(&self, operator: &Operator) -> Result<Option<Vec<Result_>>, Error> {
        let of = |value: Value| self.described(value);
        let name = operator.name();
        let one = |result| Ok(vec![result]);
        let results = match operator {
            Operator::Quantize { x, coding } => {
                if of(*x).1 != Format::Element {
                    return refuse(format!("quantize: {} has no elements", self.describe(*x)));
                }
                one(self.codes_of(name, of(*x).0, *coding)?)
            }
            Operator::Store { x } if of(*x).1 == Format::Element => one((of(*x).0, Format::Codes)),
            Operator::Dequantize { x } if of(*x).1 == Format::Codes => {
                one((of(*x).0, Format::Element))
            }
            Operator::Store { x } | Operator::Dequantize { x } => {
                refuse(format!("{name}: {} has another format", self.describe(*x)))
            }
            Operator::GroupMaximum { edges, x } => {
                one(self.along((*edges, Direction::Forward), *x, name)?)
            }
            Operator::GroupMaximumGradient { edges, x, y, d } => {
                self.expect_same(name, *y, of(*d))?;
                let result = self.along((*edges, Direction::Backward), *d, name)?;
                self.expect_same(name, *x, result)?;
                one(result)
            }
            Operator::OwnRows { edges, x } => {
                one(self.along((*edges, Direction::Forward), *x, name)?)
            }
            Operator::OwnRowsGradient { edges, d } => {
                one(self.along((*edges, Direction::Backward), *d, name)?)
            }
            Operator::Extend { edges, x, .. } => {
                one(self.along((*edges, Direction::Backward), *x, name)?)
            }
            Operator::Fold { edges, d, .. } => {
                one(self.along((*edges, Direction::Forward), *d, name)?)
            }
            Operator::DropRows { x, .. } => one(of(*x)),
            Operator::Own(own) => {
                for operand in &own.operands {
                    if of(*operand).1 != Format::Element {
                        return refuse(format!(
                            "{name}: {} has no elements",
                            self.describe(*operand)
                        ));
                    }
                }
                let shapes: Vec<Shape> = own.operands.iter().map(|it| of(*it).0).collect();
                match own.operator.shape(&shapes) {
                    Ok(shape) => one((shape, Format::Element)),
                    Err(reason) => refuse(format!("{name}: {reason}")),
                }
            }
            _ => return Ok(None),
        };
        results.map(Some)
    }

    fn results_of_matmul(&self, op: &Matmul) -> Result<Vec<Result_>, Error> {
        let a = self.own_shape(op.a, op.reads_own[0])?;
        let reads_codes = op.form == Form::TN && op.norm.is_none() && op.second.is_none();
        let format = match self.values[op.a.0].format {
            Format::Codes if reads_codes => Format::Element,
            format => format,
        };
        let b = self.values[op.b.0].shape;
        let (inner, shape) = match op.form {
            Form::NN => ((Rows::Fixed(a.columns), b.rows), (a.rows, b.columns)),
            Form::NT => (
                (Rows::Fixed(a.columns), Rows::Fixed(b.columns)),
                (a.rows, self.fixed(b.rows)?),
            ),
            Form::TN => ((a.rows, b.rows), (Rows::Fixed(a.columns), b.columns)),
        };
        let is_of_codes = format == Format::Codes;
        if inner.0 != inner.1 || self.values[op.b.0].format != format || is_of_codes {
            return refuse(format!(
                "matmul of {} and {} in the form {:?}: inner sizes or formats differ",
                self.describe(op.a),
                self.describe(op.b),
                op.form
            ));
        }
        let (rows, columns) = shape;
        let format = match op.form {
            Form::TN => Format::Float,
            _ if op.to_float => Format::Float,
            _ => format,
        };
        let result = (Shape { rows, columns }, format);
        if let Some([a2, b2]) = op.second {
            let second = self.results_of_matmul(&Matmul {
                reads_own: [op.reads_own[1], None],
                ..Matmul::new(op.form, a2, b2)
            })?;
            if op.form != Form::NN || second[0] != result {
                return refuse(
                    "matmul adds a second product of the form NN and of its shape".into(),
                );
            }
        }
        if let Some(norm) = op.norm {
            self.expect_norm("matmul", norm, (a, self.values[op.a.0].format))?;
            if op.form == Form::NT || op.second.is_some() {
                return refuse(
                    "matmul normalizes the first operand of one product, which is not of the form NT".into(),
                );
            }
        }
        self.expect_bias("matmul", op.bias, result)?;
        self.expect_factors("matmul", op.rows, result.0)?;
        if let Some(factors) = op.row_scale {
            self.expect_same("matmul", factors, numbers(result.0.rows, 1))?;
            if op.rows.is_some() {
                return refuse("matmul has one factor of each row".into());
            }
        }
        let result = match (op.adds_to_own, op.sum) {
            (None, _) => result,
            (Some(edges), Some(sum)) if self.own_shape(sum, op.adds_to_own)? == result.0 => {
                let rows = Rows::Of(self.edges[edges.0].sources);
                (Shape { rows, ..result.0 }, result.1)
            }
            _ => {
                return refuse(
                    "matmul adds own rows to a matrix with a row for each source".into(),
                );
            }
        };
        if let Some(positive) = op.positive {
            let is_stored = self.values[positive.0].format == Format::Codes;
            let can = op.form == Form::NT && result.1 == Format::Element;
            let format = if is_stored && can {
                Format::Codes
            } else {
                result.1
            };
            self.expect_same("matmul", positive, (result.0, format))?;
        }
        if let Some(sum) = op.sum {
            self.expect_same("matmul", sum, result)?;
        }
        let mut results = vec![result];
        if op.column_sums {
            results.push(row(b.columns));
        }
        if let Some(coding) = op.coding {
            results.push(self.codes_of("matmul", result.0, coding)?);
        }
        Ok(results)
    }

    /// Quantized values of a matrix. Where ranks exchange them there are those of all sources.
    fn codes_of(&self, name: &str, of: Shape, coding: Coding) -> Result<Result_, Error> {
        self.expect_factors(name, coding.rows, of)?;
        let rows = match coding.exchanged().map(|edges| &self.edges[edges.0]) {
            None => of.rows,
            Some(edges) if of.rows == Rows::Of(edges.destinations) => Rows::Of(edges.sources),
            Some(edges) => {
                return refuse(format!(
                    "{name}: ranks exchange the quantized values of own rows of `{}`, and these are others",
                    edges.name
                ));
            }
        };
        Ok((Shape { rows, ..of }, Format::Codes))
    }

    /// A sum over edges, of a matrix or of its quantized values, which may be of more rows than those that a rank has itself.
    fn result_of_sum(&self, op: &Aggregate) -> Result<Result_, Error> {
        const NAME: &str = "aggregate";
        let direction = match op.is_mutual {
            true => op.direction.reversed(),
            false => op.direction,
        };
        let along = (op.edges, direction);
        let Some(codes) = op.codes else {
            return self.along(along, op.x, NAME);
        };
        let result = self.along_in(along, codes, (NAME, Format::Codes))?;
        let [read, x] = [codes, op.x].map(|it| self.values[it.0].shape);
        let are_its = x.columns == read.columns && (x.rows == read.rows || x.rows == result.0.rows);
        match are_its {
            true => Ok(result),
            false => refuse(format!(
                "{NAME}: {} are quantized values of another matrix than {}",
                self.describe(codes),
                self.describe(op.x)
            )),
        }
    }

    /// The shape of a value, or of its rows of destinations where it has a row for each source of `edges`.
    fn own_shape(&self, value: Value, edges: Option<Edges>) -> Result<Shape, Error> {
        let shape = self.values[value.0].shape;
        match edges.map(|edges| &self.edges[edges.0]) {
            None => Ok(shape),
            Some(edges) if shape.rows == Rows::Of(edges.sources) => Ok(Shape {
                rows: Rows::Of(edges.destinations),
                ..shape
            }),
            Some(edges) => refuse(format!(
                "{} has no row for each source of `{}`",
                self.describe(value),
                edges.name
            )),
        }
    }

    /// The result of an operator that reads the rows of one end of the edges and writes those of the other.
    fn along(&self, along: (Edges, Direction), x: Value, name: &str) -> Result<Result_, Error> {
        self.along_in(along, x, (name, Format::Element))
    }

    /// The same of an operand in a format. The result has elements.
    fn along_in(
        &self,
        (edges, direction): (Edges, Direction),
        x: Value,
        (name, format): (&str, Format),
    ) -> Result<Result_, Error> {
        let Some(of_edges) = self.edges.get(edges.0) else {
            return refuse(format!(
                "{name} names an adjacency that the program has not"
            ));
        };
        let [read, written] = match direction {
            Direction::Forward => [of_edges.sources, of_edges.destinations],
            Direction::Backward => [of_edges.destinations, of_edges.sources],
        };
        let description = &self.values[x.0];
        if description.shape.rows != Rows::Of(read) || description.format != format {
            return refuse(format!(
                "{name} over `{}` reads {} with a row for each of `{}`, and {} is another value",
                of_edges.name,
                match format {
                    Format::Codes => "quantized values",
                    Format::Bits => "bits",
                    _ => "elements",
                },
                self.vertices[read.0].name,
                self.describe(x)
            ));
        }
        let shape = Shape {
            rows: Rows::Of(written),
            columns: description.shape.columns,
        };
        Ok((shape, Format::Element))
    }

    fn expect_same(&self, name: &str, value: Value, expected: Result_) -> Result<(), Error> {
        let description = &self.values[value.0];
        match (description.shape, description.format) == expected {
            true => Ok(()),
            false => refuse(format!(
                "{name}: {} has another shape or format than the other operands",
                self.describe(value)
            )),
        }
    }

    fn expect_bias(&self, name: &str, bias: Option<Value>, of: Result_) -> Result<(), Error> {
        match bias {
            Some(bias) => self.expect_same(name, bias, row(of.0.columns)),
            None => Ok(()),
        }
    }

    fn expect_norm(&self, name: &str, norm: Normalization, x: Result_) -> Result<(), Error> {
        self.expect_same(name, norm.statistics, rows_of(2, x.0.columns))?;
        self.expect_bias(name, Some(norm.weight), x)?;
        self.expect_bias(name, Some(norm.bias), x)
    }

    /// Of each graph of `groups`, or of one of all rows: what is subtracted from each column, the reciprocal of what it is divided by, and
    /// its mean.
    fn statistics_of_graphs(
        &self,
        name: &str,
        groups: Option<Edges>,
        x: Value,
    ) -> Result<Result_, Error> {
        let (rows, columns) = (STATISTICS_ROWS as usize, self.values[x.0].shape.columns);
        let Some(edges) = groups else {
            return Ok(rows_of(rows, columns));
        };
        self.along((edges, Direction::Forward), x, name)?;
        let rows = Rows::Times(self.edges[edges.0].destinations, rows);
        Ok((Shape { rows, columns }, Format::Float))
    }

    fn expect_group_norm(&self, name: &str, norm: GroupNorm, x: Result_) -> Result<(), Error> {
        let GroupNorm::Graph(of) = norm else {
            return Ok(());
        };
        let mut scales = [of.weight, of.bias, of.mean_scale].into_iter();
        scales.try_for_each(|it| self.expect_bias(name, Some(it), x))
    }

    fn expect_factors(
        &self,
        name: &str,
        factors: Option<RowFactors>,
        shape: Shape,
    ) -> Result<(), Error> {
        match factors {
            Some(factors) if shape.rows != Rows::Of(self.end(factors)) => refuse(format!(
                "{name}: the factors of the degree norm of `{}` are of other rows",
                self.edges[factors.edges.0].name
            )),
            _ => Ok(()),
        }
    }

    /// A number of rows that the formula fixes.
    pub(super) fn fixed(&self, rows: Rows) -> Result<usize, Error> {
        match rows {
            Rows::Fixed(rows) => Ok(rows),
            Rows::Edges(_) | Rows::EachEdge(_) | Rows::Exchanged(..) | Rows::Share(_) => {
                refuse("a weight has a fixed number of rows".into())
            }
            Rows::Of(vertices) | Rows::Times(vertices, _) => refuse(format!(
                "a weight has a fixed number of rows, and not one for each of `{}`",
                self.vertices[vertices.0].name
            )),
        }
    }
}

/// One float.
const SCALAR: Result_ = row(1);

/// An array of floats: `columns` numbers for each row.
const fn numbers(rows: Rows, columns: usize) -> Result_ {
    (Shape { rows, columns }, Format::Numbers)
}

/// An array of elements: `columns` for each row.
const fn items(rows: Rows, columns: usize) -> Result_ {
    (Shape { rows, columns }, Format::Items)
}

/// A row of floats.
pub(super) const fn row(columns: usize) -> Result_ {
    rows_of(1, columns)
}

/// A fixed number of rows of floats.
const fn rows_of(rows: usize, columns: usize) -> Result_ {
    let rows = Rows::Fixed(rows);
    (Shape { rows, columns }, Format::Float)
}

/// Mean and reciprocal deviation of each row.
const fn statistics_of_rows(of: Result_) -> Result_ {
    let rows = of.0.rows;
    (Shape { rows, columns: 2 }, Format::Float)
}
