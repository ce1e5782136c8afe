//! What attention calls.

use crate::backend::Backend;
use crate::error::Error;
use crate::nn::{EdgePlanes, Propagation};
use crate::ops::{
    self, AdditiveBackward, AdditiveFeatures, AdditiveRoom, AttentionBackward, AttentionForward,
    DotAttentionBackwardOperands, EdgeBiases, Epilogue, Form, QuantizedMatrix,
};
use crate::program::list::refuse;
use crate::program::operator::{
    AdditiveAttention, AdditiveGradient, Attention, AttentionGradient, Direction, DotAttention,
    DotAttentionGradient, EdgeTerms, Node,
};
use crate::program::run::machine::{Bank, Elements, Floats, Taken, Typed};
use crate::program::value::Value;
use crate::tensor::{Array, Element, Matrix};

impl<B: Backend, E: Element> Typed<'_, B, E> {
    pub(super) fn attention(&mut self, op: &Attention, node: &Node) -> Result<(), Error> {
        match op.codes {
            None => self.attention_of((op, None), node),
            Some(codes) => self.with_codes(codes, |machine, codes| {
                machine.attention_of((op, Some(codes)), node)
            }),
        }
    }

    fn attention_of(
        &mut self,
        (op, codes): (&Attention, Option<&QuantizedMatrix<B>>),
        node: &Node,
    ) -> Result<(), Error> {
        let key = node.results[0];
        let Some(mut state) = self.memory.attentions.remove(&key) else {
            return missing();
        };
        let done = self.with_taken(&node.written(), |machine, taken| {
            let (y, positive) = match &mut taken.elements[..] {
                [y] => (y, None),
                [y, positive] => (y, Some(positive)),
                _ => return missing(),
            };
            let of = AttentionForward {
                h: Elements::matrix(machine, op.h)?,
                codes,
                vectors: Elements::matrix(machine, op.vectors)?,
                dropout: machine.drop(op.drop),
                y,
                positive,
                biases: machine.biases(op.biases)?,
                sums: taken.numbers.first_mut(),
            };
            let edges = &machine.edges[op.edges.0];
            state.forward(&machine.backend, edges.forward(), of)
        });
        self.memory.attentions.insert(key, state);
        done
    }

    pub(super) fn attention_gradient(
        &mut self,
        op: &AttentionGradient,
        node: &Node,
    ) -> Result<(), Error> {
        match op.codes {
            None => self.attention_gradient_of((op, None), node),
            Some(codes) => self.with_codes(codes, |machine, codes| {
                machine.attention_gradient_of((op, Some(codes)), node)
            }),
        }
    }

    fn attention_gradient_of(
        &mut self,
        (op, codes): (&AttentionGradient, Option<&QuantizedMatrix<B>>),
        node: &Node,
    ) -> Result<(), Error> {
        let Some(mut state) = self.memory.attentions.remove(&op.y) else {
            return missing();
        };
        let done = self.with_taken(&node.written(), |machine, taken| {
            let Taken {
                elements,
                floats,
                items,
                numbers,
            } = taken;
            let ([dh, lent], [d_vectors]) = (&mut elements[..], &mut floats[..]) else {
                return missing();
            };
            let (d_biases, numbers) = match op.against {
                Some(_) => numbers.split_at_mut(1),
                None => numbers.split_at_mut(0),
            };
            let [inner, d_destination, softmax, d_source] = numbers else {
                return missing();
            };
            let edges = &machine.edges[op.of.edges.0];
            let (forward, against) = (machine.biases(op.of.biases)?, machine.biases(op.against)?);
            let biases = match (forward, against, &mut items[..], d_biases) {
                (Some(forward), Some(backward), [lent], [d]) => Some(EdgeBiases {
                    a: edges.forward(),
                    forward,
                    backward,
                    lent,
                    d,
                }),
                _ => None,
            };
            let of = AttentionBackward {
                h: Elements::matrix(machine, op.of.h)?,
                vectors: Elements::matrix(machine, op.of.vectors)?,
                y: Elements::matrix(machine, op.y)?,
                positive: Elements::matrix(machine, op.positive)?,
                dy: Elements::matrix(machine, op.d)?,
                codes,
                dropout: machine.drop(op.of.drop),
                lent: (lent, [inner, d_destination, softmax, d_source]),
                dh,
                d_vectors,
                biases,
            };
            let backend = &machine.backend;
            state.backward(backend, edges.backward(backend)?, of)
        });
        self.memory.attentions.insert(op.y, state);
        done
    }

    pub(super) fn additive_attention(
        &mut self,
        op: &AdditiveAttention,
        node: &Node,
    ) -> Result<(), Error> {
        let key = node.results[0];
        let Some(mut state) = self.memory.additive.remove(&key) else {
            return missing();
        };
        let done = self.with_taken(&node.written(), |machine, taken| {
            let ([y], [scores]) = (&mut taken.elements[..], &mut taken.numbers[..]) else {
                return missing();
            };
            let edges = &machine.edges[op.edges.0];
            let features = machine.additive_features(op)?;
            state.forward(&machine.backend, edges.forward(), features, scores, y)
        });
        self.memory.additive.insert(key, state);
        done
    }

    pub(super) fn additive_gradient(
        &mut self,
        op: &AdditiveGradient,
        node: &Node,
    ) -> Result<(), Error> {
        let Some(mut state) = self.memory.additive.remove(&op.y) else {
            return missing();
        };
        let done = self.with_taken(&node.written(), |machine, taken| {
            let [d_sources, d_destinations, destinations, sources] = &mut taken.elements[..] else {
                return missing();
            };
            let ([d_vector], [inner, scores, d], [products]) = (
                &mut taken.floats[..],
                &mut taken.numbers[..],
                &mut taken.items[..],
            ) else {
                return missing();
            };
            let of = AdditiveBackward {
                y: Elements::matrix(machine, op.y)?,
                dy: Elements::matrix(machine, op.d)?,
                lent: AdditiveRoom {
                    inner,
                    edges: [scores, d],
                    products,
                    destinations,
                    sources,
                },
                d_destinations,
                d_sources,
                d_vector,
            };
            let (backend, edges) = (&machine.backend, &machine.edges[op.of.edges.0]);
            let orders = [edges.forward(), edges.backward(backend)?];
            let features = machine.additive_features(&op.of)?;
            state.backward(backend, orders, features, of)
        });
        self.memory.additive.insert(op.y, state);
        done
    }

    fn additive_features(
        &self,
        op: &AdditiveAttention,
    ) -> Result<AdditiveFeatures<'_, B, E>, Error> {
        Ok(AdditiveFeatures {
            destinations: Elements::matrix(self, op.destinations)?,
            sources: Elements::matrix(self, op.sources)?,
            vector: Elements::matrix(self, op.vector)?,
            dropout: self.drop(op.drop),
        })
    }

    pub(super) fn dot_attention(&mut self, op: &DotAttention, node: &Node) -> Result<(), Error> {
        let key = node.results[0];
        let Some(mut softmax) = self.memory.softmaxes.remove(&key) else {
            return missing();
        };
        let done = self.with_taken(&node.written(), |machine, taken| {
            let [y] = &mut taken.elements[..] else {
                return missing();
            };
            let edges = machine.edges[op.edges.0].forward();
            let of = machine.dot_operands(op)?;
            ops::dot_attention(&machine.backend, edges, of, y, &mut softmax)
        });
        self.memory.softmaxes.insert(key, softmax);
        done
    }

    pub(super) fn dot_attention_gradient(
        &mut self,
        op: &DotAttentionGradient,
        node: &Node,
    ) -> Result<(), Error> {
        let Some(mut statistics) = self.memory.softmaxes.remove(&op.y) else {
            return missing();
        };
        let done = self.with_taken(&node.written(), |machine, taken| {
            let [dq, dk, dv] = &mut taken.elements[..] else {
                return missing();
            };
            let (backend, edges) = (&machine.backend, &machine.edges[op.of.edges.0]);
            let of = DotAttentionBackwardOperands {
                a: edges.forward(),
                transposed: edges.backward(backend)?,
                op: machine.dot_operands(&op.of)?,
                y: Elements::matrix(machine, op.y)?,
                dy: Elements::matrix(machine, op.d)?,
                statistics: &mut statistics,
                dq,
                dk,
                dv,
            };
            ops::dot_attention_backward(backend, of)
        });
        self.memory.softmaxes.insert(op.y, statistics);
        done
    }

    fn dot_operands(&self, op: &DotAttention) -> Result<ops::DotAttention<'_, B, E>, Error> {
        Ok(ops::DotAttention {
            heads: op.heads,
            scale: op.scale,
            q: Elements::matrix(self, op.queries)?,
            k: Elements::matrix(self, op.keys)?,
            v: Elements::matrix(self, op.values)?,
            dropout: self.drop(op.drop),
        })
    }

    fn biases(&self, biases: Option<Value>) -> Result<Option<&Array<B, f32>>, Error> {
        biases.map(|biases| self.numbers(biases)).transpose()
    }

    pub(super) fn edge_terms(&mut self, op: &EdgeTerms, node: &Node) -> Result<(), Error> {
        self.with_taken(&node.written(), |machine, taken| {
            let (backend, heads) = (&machine.backend, op.heads);
            let features = features(machine.edges[op.edges.0])?;
            let features = match op.direction {
                Direction::Forward => &*features.forward,
                Direction::Backward => &*features.backward,
            };
            let numbers = &mut taken.numbers;
            let (Some(mut u), Some(mut zeros), Some(terms)) =
                (numbers.pop(), numbers.pop(), numbers.pop())
            else {
                return missing();
            };
            let (weight, vector) = (
                Floats::matrix(machine, op.weight)?,
                Floats::matrix(machine, op.vector)?,
            );
            let scored = ops::head_scores(backend, heads, weight, vector, &mut u, &mut zeros);
            let u = Matrix::from_padded(u, heads, op.features)?;
            let mut terms = Matrix::from_array(terms, heads, features.columns())?;
            let plain = Epilogue::default();
            let multiply = |()| ops::matmul(backend, Form::NN, &u, features, &plain, &mut terms);
            let done = scored.and_then(multiply);
            numbers.extend([terms.into_array()?, zeros, u.into_array()?]);
            done
        })
    }

    pub(super) fn edge_terms_gradient(
        &mut self,
        (op, zeros, d): (&EdgeTerms, Value, Value),
        node: &Node,
    ) -> Result<(), Error> {
        let values = [node.written(), vec![d]].concat();
        self.with_taken(&values, |machine, taken| {
            let (backend, heads) = (&machine.backend, op.heads);
            let features = &*features(machine.edges[op.edges.0])?.forward;
            let (numbers, [d_weight, d_vector]) = (&mut taken.numbers, &mut taken.floats[..])
            else {
                return missing();
            };
            let (Some(d), Some(du)) = (numbers.pop(), numbers.pop()) else {
                return missing();
            };
            let d = Matrix::from_array(d, heads, features.columns())?;
            let mut du = Matrix::from_padded(du, heads, op.features)?;
            let plain = Epilogue::default();
            let multiplied = ops::matmul(backend, Form::NT, &d, features, &plain, &mut du);
            let du = du.into_array()?;
            let done = multiplied.and_then(|()| {
                let zeros = machine.numbers(zeros)?;
                let (weight, vector) = (
                    Floats::matrix(machine, op.weight)?,
                    Floats::matrix(machine, op.vector)?,
                );
                d_weight.clear(backend)?;
                ops::head_outer(backend, heads, &du, zeros, vector, d_weight)?;
                ops::head_sums(backend, heads, weight, &du, zeros, d_vector)
            });
            numbers.extend([du, d.into_array()?]);
            done
        })
    }
}

fn features<B: Backend>(edges: &Propagation<B>) -> Result<&EdgePlanes<B>, Error> {
    edges
        .edge_features()
        .map_or_else(missing, |features| features.planes())
}

fn missing<T>() -> Result<T, Error> {
    refuse("attention is without one of its operands or results".into())
}
