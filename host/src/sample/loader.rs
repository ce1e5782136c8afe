//! The order of vertices in an epoch, and its batches.

use crate::error::Error;
use halfgnn_contract::rng::{key, philox};
use halfgnn_contract::sampling::choice;

/// Tags the random numbers of orders.
const STREAM: u32 = 0x6c6f_6164;

/// Cuts vertices into batches: in each epoch in another order, which the seed and the epoch alone decide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loader {
    vertices: Vec<u32>,
    batch: usize,
    seed: u64,
    shuffled: bool,
    whole_only: bool,
}

/// The seeds of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seeds {
    /// Which batch of the epoch, from 0 on.
    pub number: usize,
    /// Which batch of the run: what a [`Sampler`](super::Sampler) draws by.
    pub step: u32,
    /// The vertices.
    pub vertices: Vec<u32>,
}

impl Loader {
    /// Of `vertices` in batches of `batch`, shuffled by `seed`; the last batch of an epoch has what is left.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where there is no vertex, or batches are to have none.
    pub fn new(vertices: Vec<u32>, batch: usize, seed: u64) -> Result<Self, Error> {
        let refuse = |reason: &str| {
            Err(Error::Unsupported {
                operator: "Loader",
                reason: reason.into(),
            })
        };
        match (vertices.is_empty(), batch) {
            (true, _) => refuse("no vertices to make batches of; list one at least"),
            (_, 0) => refuse("batches of 0 vertices; take 1 at least"),
            _ => Ok(Self {
                vertices,
                batch,
                seed,
                shuffled: true,
                whole_only: false,
            }),
        }
    }

    /// In the order in which the vertices were given, as evaluation has them.
    pub fn in_order(self) -> Self {
        Self {
            shuffled: false,
            ..self
        }
    }

    /// Without the last batch of an epoch where that is not whole, unless it is the only one.
    pub fn whole_only(self) -> Self {
        Self {
            whole_only: true,
            ..self
        }
    }

    /// Batches of an epoch.
    pub fn batches(&self) -> usize {
        match self.whole_only {
            true => (self.vertices.len() / self.batch).max(1),
            false => self.vertices.len().div_ceil(self.batch),
        }
    }

    /// The seed of orders.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// All vertices in the order of an epoch: a shuffle (Fisher and Yates) of the given order.
    pub fn order(&self, epoch: u32) -> Vec<u32> {
        let mut order = self.vertices.clone();
        if self.shuffled {
            let key = key(self.seed, STREAM);
            for last in (1..order.len()).rev() {
                let number = philox(key, [last as u32, 0, 0, epoch])[0];
                order.swap(last, choice(number, last as u32 + 1) as usize);
            }
        }
        order
    }

    /// The batches of an epoch, epochs and batches counted from 0.
    pub fn epoch(&self, epoch: u32) -> impl Iterator<Item = Seeds> + use<> {
        let (order, batch, batches) = (self.order(epoch), self.batch, self.batches());
        let first = epoch.wrapping_mul(batches as u32);
        (0..batches).map(move |number| Seeds {
            number,
            step: first.wrapping_add(number as u32),
            vertices: order[number * batch..order.len().min((number + 1) * batch)].to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(loader: &Loader, epoch: u32) -> Vec<u32> {
        loader
            .epoch(epoch)
            .flat_map(|seeds| seeds.vertices)
            .collect()
    }

    #[test]
    fn an_epoch_has_each_vertex_once() {
        let vertices: Vec<u32> = (100..117).collect();
        let loader = Loader::new(vertices.clone(), 5, 3).expect("vertices");
        assert_eq!(loader.batches(), 4);
        for epoch in 0..3 {
            let mut all = seen(&loader, epoch);
            assert_ne!(all, vertices, "shuffled");
            all.sort_unstable();
            assert_eq!(all, vertices);
            let sizes: Vec<usize> = loader.epoch(epoch).map(|it| it.vertices.len()).collect();
            assert_eq!(sizes, [5, 5, 5, 2]);
            let steps: Vec<u32> = loader.epoch(epoch).map(|seeds| seeds.step).collect();
            assert_eq!(steps, [0, 1, 2, 3].map(|step| step + 4 * epoch));
        }
        assert_ne!(seen(&loader, 0), seen(&loader, 1));
        assert_eq!(seen(&loader, 1), seen(&loader.clone(), 1));
        let other = Loader::new(vertices.clone(), 5, 4).expect("vertices");
        assert_ne!(seen(&loader, 0), seen(&other, 0));
        assert_eq!(seen(&loader.clone().in_order(), 2), vertices);
        let whole = loader.whole_only();
        assert_eq!((whole.batches(), seen(&whole, 0).len()), (3, 15));
        let one = Loader::new(vertices, 50, 3).expect("vertices").whole_only();
        assert_eq!((one.batches(), seen(&one, 0).len()), (1, 17));
    }

    /// Chi-square of where the first of eight comes to stand, against eight places that are as likely.
    #[test]
    fn all_orders_are_as_likely() {
        const ROUNDS: u32 = 8_000;
        let loader = Loader::new((0..8).collect(), 8, 1).expect("vertices");
        let mut places = [[0_u32; 8]; 8];
        for epoch in 0..ROUNDS {
            for (place, vertex) in loader.order(epoch).into_iter().enumerate() {
                places[vertex as usize][place] += 1;
            }
        }
        let expected = f64::from(ROUNDS) / 8.0;
        for of_vertex in places {
            let chi: f64 = (of_vertex.iter())
                .map(|&count| (f64::from(count) - expected).powi(2) / expected)
                .sum();
            // Of 7 degrees of freedom; one in a hundred thousand is larger.
            assert!(chi < 35.3, "{chi}: {of_vertex:?}");
        }
    }

    #[test]
    fn nothing_is_no_batch() {
        let message = |vertices, batch| {
            Loader::new(vertices, batch, 0)
                .expect_err("nothing")
                .to_string()
        };
        assert!(message(vec![], 1).contains("list one at least"));
        assert!(message(vec![1], 0).contains("take 1 at least"));
    }
}
