//! Baselines on the operands of a bench, where the backend is a GPU; elsewhere there are none, and why.

use super::measure::Times;
use halfgnn::tensor::Precision;
use serde::Serialize;

/// The best time of a peer.
#[derive(Clone, Debug, Serialize)]
pub struct PeerTime {
    /// Who.
    pub peer: &'static str,
    /// In which precision.
    pub precision: String,
    /// By which of its algorithms, where it has several.
    pub algorithm: Option<&'static str>,
    #[serde(flatten)]
    pub times: Times,
}

impl PeerTime {
    /// Whether it is the bound in `precision`: reading indices and rows, and nothing else.
    pub fn is_gather(&self, precision: Precision) -> bool {
        self.peer == GATHER && self.precision == precision.to_string()
    }
}

/// Name of the bound in rows.
pub const GATHER: &str = "gather";

/// The precision of a matrix of bits, in rows.
pub const BITS: &str = "bits";

/// Name of cuSPARSE in rows.
pub const CUSPARSE: &str = "cusparse";

#[cfg(feature = "cuda")]
pub use card::{Peers, is_card};
#[cfg(not(feature = "cuda"))]
pub use elsewhere::{Peers, is_card};

#[cfg(feature = "cuda")]
mod card {
    use super::{BITS, CUSPARSE, GATHER, PeerTime};
    use crate::baselines::cusparse::{Algorithm, Call, Cusparse, SparseMatrix, SpmvAlgorithm};
    use crate::baselines::kernels::{GATHER_EDGES_PER_WARP, GatheredRows};
    use crate::baselines::{EdgeIds, copy, kernels};
    use crate::bench::measure::{Operand, Times, check_sddmm, check_spmm};
    use crate::bench::sampled::clocked;
    use half::f16;
    use halfgnn::Error;
    use halfgnn::backend::gpu::Gpu;
    use halfgnn::backend::{Backend, MemoryKind};
    use halfgnn::driver::cuda::Cuda;
    use halfgnn::graph::Csr;
    use halfgnn::ops::{BitMatrix, QuantizedMatrix};
    use halfgnn::tensor::{Array, Element, Matrix};
    use std::any::Any;

    /// Bytes that are copied to learn the GPU's bandwidth.
    const COPIED_BYTES: usize = 1 << 30;
    /// Copies, of which the fastest counts.
    const COPIES: u32 = 7;

    /// Name of DGL's way in rows.
    const DGL: &str = "dgl";

    const SAME: &str = "operands are of the backend that they were made on";

    /// What can be timed with a backend.
    #[derive(Debug)]
    pub struct Peers<'a> {
        gpu: &'a Gpu<Cuda>,
        cusparse: Result<Cusparse, Error>,
    }

    fn cast<T: 'static, U: 'static>(value: &T) -> Option<&U> {
        (value as &dyn Any).downcast_ref()
    }

    /// Whether the backend is a GPU.
    pub fn is_card<B: Backend>(backend: &B) -> bool {
        cast::<B, Gpu<Cuda>>(backend).is_some()
    }

    impl<'a> Peers<'a> {
        /// The baselines of `backend`, or why there are none.
        pub fn of<B: Backend>(backend: &'a B) -> Result<Self, String> {
            match cast::<B, Gpu<Cuda>>(backend) {
                Some(gpu) => Ok(Self {
                    gpu,
                    cusparse: Cusparse::open(gpu),
                }),
                None => Err(format!(
                    "peers run on GPUs alone, and this is {}",
                    backend.name()
                )),
            }
        }

        /// cuSPARSE with its version, or why it cannot be used.
        pub fn cusparse(&self) -> Result<String, String> {
            match &self.cusparse {
                Ok(library) => Ok(format!("cuSPARSE {}", library.version())),
                Err(error) => Err(error.to_string()),
            }
        }

        /// Bytes a second of a copy on the GPU, read and written together.
        pub fn copy_bandwidth(&self) -> Result<f64, Error> {
            copy::bandwidth(self.gpu, COPIED_BYTES, COPIES)
        }

        /// The best of cuSPARSE's SpMM algorithms that work, each checked before it is timed.
        pub fn spmm<B: Backend, E: Element>(
            &self,
            graph: &Csr,
            x: &Operand<B, E>,
            y: &mut Matrix<B, E>,
            runs: u32,
        ) -> Result<PeerTime, String> {
            let library = self.cusparse.as_ref().map_err(|error| error.to_string())?;
            let a = SparseMatrix::new(self.gpu, graph).map_err(|error| error.to_string())?;
            let mut best: Option<PeerTime> = None;
            let mut refused = Vec::new();
            for algorithm in Algorithm::ALL {
                let timed = self.spmm_by(library, algorithm, &a, graph, x, y, runs);
                match timed {
                    Ok(times) if best.as_ref().is_none_or(|best| times.ms < best.times.ms) => {
                        best = Some(PeerTime {
                            peer: CUSPARSE,
                            precision: E::PRECISION.to_string(),
                            algorithm: Some(algorithm.name()),
                            times,
                        });
                    }
                    Ok(_) => {}
                    Err(reason) => {
                        tracing::info!("cuSPARSE {}: {reason}", algorithm.name());
                        refused.push(format!("{}: {reason}", algorithm.name()));
                    }
                }
            }
            best.ok_or_else(|| refused.join("; "))
        }

        /// The best of cuSPARSE's SpMM algorithms on a graph that is used once: what it asks for before the first call
        /// and one call, by the clock, the fastest of `runs`. Offsets and weights are there before. Each is checked.
        pub fn spmm_of_a_new_graph<B: Backend, E: Element>(
            &self,
            graph: &Csr,
            x: &Operand<B, E>,
            y: &mut Matrix<B, E>,
            runs: u32,
        ) -> Result<PeerTime, String> {
            let words = |error: Error| error.to_string();
            let library = self.cusparse.as_ref().map_err(|error| error.to_string())?;
            let a = SparseMatrix::<E>::new(self.gpu, graph).map_err(words)?;
            let mut best: Option<PeerTime> = None;
            let mut refused = Vec::new();
            for algorithm in Algorithm::ALL {
                let timed = (|| {
                    let mut all = Vec::new();
                    {
                        let y: &mut Matrix<Gpu<Cuda>, E> =
                            (&mut *y as &mut dyn Any).downcast_mut().expect(SAME);
                        let x = cast(&x.matrix).expect(SAME);
                        // One more than is timed, as of ours.
                        for _ in 0..=runs {
                            let (ms, ()) = clocked(self.gpu, || {
                                library.spmm::<E>(self.gpu, &a, x, y, algorithm)?.run()
                            })
                            .map_err(words)?;
                            all.push(ms);
                        }
                    }
                    let backend: &B = cast(self.gpu).expect(SAME);
                    check_spmm(backend, graph, x, y)?;
                    all.remove(0);
                    all.sort_by(f64::total_cmp);
                    Ok::<_, String>(Times {
                        ms: all[0],
                        ms_fastest: all[0],
                        ms_slowest: all[all.len() - 1],
                    })
                })();
                match timed {
                    Ok(times) if best.as_ref().is_none_or(|best| times.ms < best.times.ms) => {
                        best = Some(PeerTime {
                            peer: CUSPARSE,
                            precision: E::PRECISION.to_string(),
                            algorithm: Some(algorithm.name()),
                            times,
                        });
                    }
                    Ok(_) => {}
                    Err(reason) => refused.push(format!("{}: {reason}", algorithm.name())),
                }
            }
            best.ok_or_else(|| refused.join("; "))
        }

        /// Only reading each edge's column and the row of `x` that it names, by the best of its geometries.
        pub fn gather<B: Backend, E: Element>(
            &self,
            graph: &Csr,
            x: &Matrix<B, E>,
            runs: u32,
        ) -> Result<PeerTime, Error> {
            let x = cast::<_, Matrix<_, E>>(x).expect(SAME);
            let x = GatheredRows::of_matrix(self.gpu, x)?;
            self.gather_rows(graph, x, E::PRECISION.to_string(), runs)
        }

        /// As [`Peers::gather`], of rows of bits.
        pub fn gather_bits<B: Backend>(
            &self,
            graph: &Csr,
            x: &BitMatrix<B>,
            runs: u32,
        ) -> Result<PeerTime, Error> {
            let x = cast::<_, BitMatrix<_>>(x).expect(SAME);
            let x = GatheredRows::of_bits(self.gpu, x)?;
            self.gather_rows(graph, x, BITS.into(), runs)
        }

        /// As [`Peers::gather`], of rows of 8-bit values, whose format is `name`: by vectors of 16 bytes or of 8,
        /// whichever is faster.
        pub fn gather_codes<B: Backend>(
            &self,
            graph: &Csr,
            x: &QuantizedMatrix<B>,
            name: &str,
            runs: u32,
        ) -> Result<PeerTime, Error> {
            let x = cast::<_, QuantizedMatrix<_>>(x).expect(SAME);
            let [wide, narrow] = GatheredRows::of_codes(self.gpu, x)?
                .map(|rows| self.gather_rows(graph, rows, name.into(), runs));
            let (wide, narrow) = (wide?, narrow?);
            Ok(if narrow.times.ms < wide.times.ms {
                narrow
            } else {
                wide
            })
        }

        fn gather_rows(
            &self,
            graph: &Csr,
            x: GatheredRows,
            precision: String,
            runs: u32,
        ) -> Result<PeerTime, Error> {
            let ids = EdgeIds::new(self.gpu, graph)?;
            let sink = Array::zeros(self.gpu, 1, MemoryKind::Workspace)?;
            let mut times = GATHER_EDGES_PER_WARP
                .into_iter()
                .map(|edges| {
                    Times::of(self.gpu, runs, || {
                        kernels::gather(self.gpu, &ids, x, edges, &sink)
                    })
                })
                .collect::<Result<Vec<_>, Error>>()?;
            times.sort_by(|a, b| a.ms.total_cmp(&b.ms));
            Ok(PeerTime {
                peer: GATHER,
                precision,
                algorithm: None,
                times: times[0],
            })
        }

        /// SDDMM in DGL's way, in half, checked before it is timed; nothing in float.
        pub fn edge_by_edge<B: Backend, E: Element>(
            &self,
            graph: &Csr,
            u: &Operand<B, E>,
            v: &Operand<B, E>,
            e: &mut Array<B, E>,
            runs: u32,
        ) -> Result<Option<PeerTime>, String> {
            let words = |error: Error| error.to_string();
            let times = {
                let [u, v] = [&u.matrix, &v.matrix].map(cast::<_, Matrix<Gpu<Cuda>, f16>>);
                let e = (&mut *e as &mut dyn Any).downcast_mut::<Array<Gpu<Cuda>, f16>>();
                let (Some(u), Some(v), Some(e)) = (u, v, e) else {
                    return Ok(None);
                };
                let ids = EdgeIds::new(self.gpu, graph).map_err(words)?;
                Times::of(self.gpu, runs, || {
                    kernels::sddmm_edge_by_edge(self.gpu, &ids, u, v, e)
                })
                .map_err(words)?
            };
            let backend: &B = cast(self.gpu).expect(SAME);
            check_sddmm(backend, graph, u, v, e)?;
            Ok(Some(PeerTime {
                peer: DGL,
                precision: E::PRECISION.to_string(),
                algorithm: None,
                times,
            }))
        }

        /// cuSPARSE's SDDMM, checked before it is timed.
        pub fn sddmm<B: Backend, E: Element>(
            &self,
            graph: &Csr,
            u: &Operand<B, E>,
            v: &Operand<B, E>,
            runs: u32,
        ) -> Result<PeerTime, String> {
            let library = self.cusparse.as_ref().map_err(|error| error.to_string())?;
            let words = |error: Error| error.to_string();
            let a = SparseMatrix::new(self.gpu, graph).map_err(words)?;
            let [u_matrix, v_matrix] = [&u.matrix, &v.matrix].map(|m| cast(m).expect(SAME));
            let call = library
                .sddmm::<E>(self.gpu, &a, u_matrix, v_matrix)
                .map_err(words)?;
            let times = Times::of(self.gpu, runs, || call.run()).map_err(words)?;
            let backend: &B = cast(self.gpu).expect(SAME);
            let values = cast(a.values()).expect(SAME);
            check_sddmm(backend, graph, u, v, values)?;
            Ok(PeerTime {
                peer: CUSPARSE,
                precision: E::PRECISION.to_string(),
                algorithm: None,
                times,
            })
        }

        /// The best of cuSPARSE's SpMV algorithms that work, with the weight 1 on each edge; each is timed, and looked
        /// at by `check`.
        pub fn spmv<B: Backend, E: Element>(
            &self,
            graph: &Csr,
            x: &Array<B, E>,
            y: &mut Array<B, E>,
            runs: u32,
            check: impl Fn(&Array<B, E>) -> Result<(), String>,
        ) -> Result<PeerTime, String> {
            let library = self.cusparse.as_ref().map_err(|error| error.to_string())?;
            let words = |error: Error| error.to_string();
            let a = SparseMatrix::<E>::new(self.gpu, graph).map_err(words)?;
            let x = cast(x).expect(SAME);
            let mut best: Option<PeerTime> = None;
            let mut refused = Vec::new();
            for algorithm in SpmvAlgorithm::ALL {
                let timed = (|| {
                    let times = {
                        let y = (&mut *y as &mut dyn Any).downcast_mut().expect(SAME);
                        let call = library
                            .spmv::<E>(self.gpu, &a, x, y, algorithm)
                            .map_err(words)?;
                        Times::of(self.gpu, runs, || call.run()).map_err(words)?
                    };
                    check(y).map(|()| times)
                })();
                match timed {
                    Ok(times) if best.as_ref().is_none_or(|best| times.ms < best.times.ms) => {
                        best = Some(PeerTime {
                            peer: CUSPARSE,
                            precision: E::PRECISION.to_string(),
                            algorithm: Some(algorithm.name()),
                            times,
                        });
                    }
                    Ok(_) => {}
                    Err(reason) => refused.push(format!("{}: {reason}", algorithm.name())),
                }
            }
            best.ok_or_else(|| refused.join("; "))
        }

        #[allow(clippy::too_many_arguments)] // the operands of a product, and how it is timed
        fn spmm_by<B: Backend, E: Element>(
            &self,
            library: &Cusparse,
            algorithm: Algorithm,
            a: &SparseMatrix<E>,
            graph: &Csr,
            x: &Operand<B, E>,
            y: &mut Matrix<B, E>,
            runs: u32,
        ) -> Result<Times, String> {
            let words = |error: Error| error.to_string();
            let times = {
                let y = (&mut *y as &mut dyn Any).downcast_mut().expect(SAME);
                let call: Call<'_> = library
                    .spmm::<E>(self.gpu, a, cast(&x.matrix).expect(SAME), y, algorithm)
                    .map_err(words)?;
                Times::of(self.gpu, runs, || call.run()).map_err(words)?
            };
            let backend: &B = cast(self.gpu).expect(SAME);
            check_spmm(backend, graph, x, y)?;
            Ok(times)
        }
    }
}

#[cfg(not(feature = "cuda"))]
mod elsewhere {
    use super::PeerTime;
    use crate::bench::measure::Operand;
    use halfgnn::Error;
    use halfgnn::backend::Backend;
    use halfgnn::graph::Csr;
    use halfgnn::ops::{BitMatrix, QuantizedMatrix};
    use halfgnn::tensor::{Array, Element, Matrix};
    use std::convert::Infallible;
    use std::marker::PhantomData;

    /// What can be timed with a backend: in this build, nothing.
    #[derive(Debug)]
    pub struct Peers<'a> {
        none: Infallible,
        backend: PhantomData<&'a ()>,
    }

    /// Whether the backend is a GPU: in this build, none is.
    pub fn is_card<B: Backend>(_: &B) -> bool {
        false
    }

    impl<'a> Peers<'a> {
        /// Why there are none.
        pub fn of<B: Backend>(_: &'a B) -> Result<Self, String> {
            Err("this build has no CUDA; build with `--features cuda`".into())
        }

        /// cuSPARSE with its version, or why it cannot be used.
        pub fn cusparse(&self) -> Result<String, String> {
            match self.none {}
        }

        /// Bytes a second of a copy on the GPU, read and written together.
        pub fn copy_bandwidth(&self) -> Result<f64, Error> {
            match self.none {}
        }

        /// The best of cuSPARSE's SpMM algorithms on a graph that is used once.
        pub fn spmm_of_a_new_graph<B: Backend, E: Element>(
            &self,
            _: &Csr,
            _: &Operand<B, E>,
            _: &mut Matrix<B, E>,
            _: u32,
        ) -> Result<PeerTime, String> {
            match self.none {}
        }

        /// Only reading.
        pub fn gather<B: Backend, E: Element>(
            &self,
            _: &Csr,
            _: &Matrix<B, E>,
            _: u32,
        ) -> Result<PeerTime, Error> {
            match self.none {}
        }

        /// Only reading rows of bits.
        pub fn gather_bits<B: Backend>(
            &self,
            _: &Csr,
            _: &BitMatrix<B>,
            _: u32,
        ) -> Result<PeerTime, Error> {
            match self.none {}
        }

        /// Only reading rows of 8-bit values.
        pub fn gather_codes<B: Backend>(
            &self,
            _: &Csr,
            _: &QuantizedMatrix<B>,
            _: &str,
            _: u32,
        ) -> Result<PeerTime, Error> {
            match self.none {}
        }

        /// SDDMM in DGL's way.
        pub fn edge_by_edge<B: Backend, E: Element>(
            &self,
            _: &Csr,
            _: &Operand<B, E>,
            _: &Operand<B, E>,
            _: &mut Array<B, E>,
            _: u32,
        ) -> Result<Option<PeerTime>, String> {
            match self.none {}
        }

        /// cuSPARSE's SDDMM.
        pub fn sddmm<B: Backend, E: Element>(
            &self,
            _: &Csr,
            _: &Operand<B, E>,
            _: &Operand<B, E>,
            _: u32,
        ) -> Result<PeerTime, String> {
            match self.none {}
        }

        /// The best of cuSPARSE's SpMV algorithms.
        pub fn spmv<B: Backend, E: Element>(
            &self,
            _: &Csr,
            _: &Array<B, E>,
            _: &mut Array<B, E>,
            _: u32,
            _: impl Fn(&Array<B, E>) -> Result<(), String>,
        ) -> Result<PeerTime, String> {
            match self.none {}
        }

        /// The best of cuSPARSE's SpMM algorithms.
        pub fn spmm<B: Backend, E: Element>(
            &self,
            _: &Csr,
            _: &Operand<B, E>,
            _: &mut Matrix<B, E>,
            _: u32,
        ) -> Result<PeerTime, String> {
            match self.none {}
        }
    }
}
