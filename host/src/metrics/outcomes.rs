//! Right and wrong answers by class, and F1.

/// How often each class or label was told rightly, told where it is not, and not told where it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// Of each class: true positives, false positives, false negatives.
    pub counts: Vec<[u32; 3]>,
}

impl Outcomes {
    /// `2·TP / (2·TP + FP + FN)` of all classes together; a NaN where there is nothing to tell.
    pub fn micro_f1(&self) -> f64 {
        let sum = self.counts.iter().fold([0; 3], |sum: [u64; 3], counts| {
            std::array::from_fn(|i| sum[i] + u64::from(counts[i]))
        });
        f1(sum).unwrap_or(f64::NAN)
    }

    /// The mean F1 of the classes that there are, told or not; a NaN where there is none. Of labels, `all`, those without a vertex
    /// count as 0.
    pub fn macro_f1(&self, all: bool) -> f64 {
        let each = self.counts.iter().map(|counts| f1(counts.map(u64::from)));
        super::mean(each.map(|f1| match all {
            true => f1.or(Some(0.0)),
            false => f1,
        }))
    }
}

fn f1([right, wrong, missed]: [u64; 3]) -> Option<f64> {
    let all = 2 * right + wrong + missed;
    (all > 0).then(|| 2.0 * right as f64 / all as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f1_of_classes_and_labels() {
        let outcomes = |counts: &[[u32; 3]]| Outcomes {
            counts: counts.to_vec(),
        };
        // from sklearn.metrics import f1_score
        // y, p = [0,1,2,2,1,0,2,1,0,2,2,1], [0,1,2,0,1,0,2,0,1,2,0,1]; f1_score(y, p, average="macro")
        let three = outcomes(&[[2, 3, 1], [3, 1, 1], [3, 0, 2]]);
        assert!((three.micro_f1() - 8.0 / 12.0).abs() < 1e-12);
        assert!((three.macro_f1(false) - 2.0 / 3.0).abs() < 1e-12);
        // A class that nobody has and nobody was told is no class; as a label it is one that is never right.
        let empty = outcomes(&[[2, 0, 0], [0, 0, 0]]);
        assert_eq!((empty.macro_f1(false), empty.macro_f1(true)), (1.0, 0.5));
        assert!(outcomes(&[[0; 3]]).micro_f1().is_nan());
        assert!(outcomes(&[[0; 3]]).macro_f1(false).is_nan());
        assert_eq!(outcomes(&[[u32::MAX, 0, 0]; 2]).micro_f1(), 1.0);
    }
}
