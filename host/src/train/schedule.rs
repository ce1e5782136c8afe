//! Learning rate schedules.
//!
//! A schedule is a function of the epoch and of the validation scores. The host computes it and writes the factor of
//! the rate to the device, in a word that a recorded step reads.

use serde::{Deserialize, Serialize};
use std::f64::consts::PI;
use std::fmt;
use std::str::FromStr;

/// The change of the learning rate from epoch to epoch: first the warm-up, then the decay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    /// Number of epochs at the beginning in which the rate grows linearly; the last of them has the full rate.
    #[serde(default)]
    pub warmup: u32,
    /// The decay after the warm-up.
    pub decay: Decay,
}

/// The decay of the learning rate. Its text is what a command line takes, such as `step:30,0.5`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decay {
    /// No decay.
    #[default]
    Constant,
    /// Half a cosine wave, to zero after the last epoch: PyTorch's `CosineAnnealingLR`, with the epochs after the
    /// warm-up as `T_max`.
    Cosine,
    /// Multiplied by the factor every `every` epochs: PyTorch's `StepLR`.
    Step {
        /// Epochs, at least one.
        every: u32,
        /// In (0, 1].
        factor: f64,
    },
    /// Multiplied by the factor when validation has not improved for more epochs than the patience: PyTorch's
    /// `ReduceLROnPlateau` with a threshold of 0.
    Plateau {
        /// The number of epochs without improvement that are tolerated.
        patience: u32,
        /// In (0, 1].
        factor: f64,
    },
}

/// The state of [`Decay::Plateau`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Plateau {
    /// Epochs since validation improved or the rate fell.
    pub stale: u32,
    /// The number of times that the rate fell.
    pub falls: u32,
}

impl Plateau {
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Schedule {
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// The factor of the learning rate in epoch `epoch`, from 1, of `epochs`.
    pub fn factor(&self, epoch: u32, epochs: u32, plateau: &Plateau) -> f64 {
        if epoch <= self.warmup {
            return f64::from(epoch) / f64::from(self.warmup);
        }
        let (done, of) = (
            epoch - self.warmup - 1,
            epochs.saturating_sub(self.warmup).max(1),
        );
        let falls = |factor: f64, times: u32| factor.powi(times.min(i32::MAX as u32) as i32);
        match self.decay {
            Decay::Constant => 1.0,
            Decay::Cosine => 0.5 * (1.0 + libm::cos(PI * f64::from(done.min(of)) / f64::from(of))),
            Decay::Step { every, factor } => falls(factor, done / every.max(1)),
            Decay::Plateau { factor, .. } => falls(factor, plateau.falls),
        }
    }

    /// Records an epoch, and whether it was the best so far.
    pub(super) fn follow(&self, epoch: u32, better: bool, plateau: &mut Plateau) {
        let Decay::Plateau { patience, .. } = self.decay else {
            return;
        };
        if better || epoch <= self.warmup {
            plateau.stale = 0;
            return;
        }
        plateau.stale += 1;
        if plateau.stale > patience {
            plateau.stale = 0;
            plateau.falls += 1;
        }
    }
}

impl fmt::Display for Decay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Constant => f.pad("constant"),
            Self::Cosine => f.pad("cosine"),
            Self::Step { every, factor } => f.pad(&format!("step:{every},{factor}")),
            Self::Plateau { patience, factor } => f.pad(&format!("plateau:{patience},{factor}")),
        }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.warmup {
            0 => self.decay.fmt(f),
            warmup => f.pad(&format!("{}, warm-up of {warmup}", self.decay)),
        }
    }
}

impl FromStr for Decay {
    type Err = String;

    /// # Errors
    /// What is expected.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, values) = text.split_once(':').unwrap_or((text, ""));
        let pair = |first: &str, least: u32| {
            let wanted = format!(
                "{name}:{first},FACTOR with a whole number from {least} on and a factor above 0 and at most 1, such as {name}:20,0.5"
            );
            let (count, factor) = values.split_once(',').ok_or(&wanted)?;
            let count = count.parse::<u32>().ok().filter(|count| *count >= least);
            let factor = factor.parse::<f64>().ok();
            let factor = factor.filter(|factor| *factor > 0.0 && *factor <= 1.0);
            count.zip(factor).ok_or(wanted)
        };
        match (name, values) {
            ("constant", "") => Ok(Self::Constant),
            ("cosine", "") => Ok(Self::Cosine),
            ("step", _) => pair("EVERY", 1).map(|(every, factor)| Self::Step { every, factor }),
            ("plateau", _) => {
                pair("PATIENCE", 0).map(|(patience, factor)| Self::Plateau { patience, factor })
            }
            _ => Err("constant, cosine, step:EVERY,FACTOR or plateau:PATIENCE,FACTOR".into()),
        }
        .map_err(|wanted| format!("it must be {wanted}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn factors(warmup: u32, decay: Decay, epochs: u32) -> Vec<f64> {
        let schedule = Schedule { warmup, decay };
        (1..=epochs)
            .map(|epoch| schedule.factor(epoch, epochs, &Plateau::default()))
            .collect()
    }

    fn close(found: &[f64], expected: &[f64]) {
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-12, "{found} for {expected}");
        }
    }

    // p = torch.zeros(1, requires_grad=True); o = torch.optim.SGD([p], lr=1.0)
    // s = torch.optim.lr_scheduler.CosineAnnealingLR(o, T_max=6)     or StepLR(o, 2, 0.5)
    // for _ in range(6): print(s.get_last_lr()[0]); o.step(); s.step()
    const COSINE: [f64; 6] = [
        1.0,
        0.933_012_701_892_219_3,
        0.75,
        0.5,
        0.249_999_999_999_999_94,
        0.066_987_298_107_780_66,
    ];

    #[test]
    fn rates_are_those_of_pytorch() {
        assert_eq!(factors(0, Decay::Constant, 3), [1.0; 3]);
        close(&factors(0, Decay::Cosine, 6), &COSINE);
        let step = Decay::Step {
            every: 2,
            factor: 0.5,
        };
        close(&factors(0, step, 6), &[1.0, 1.0, 0.5, 0.5, 0.25, 0.25]);
    }

    #[test]
    fn a_decay_begins_after_the_warm_up() {
        let mut expected = vec![0.25, 0.5, 0.75, 1.0];
        expected.extend(COSINE);
        close(&factors(4, Decay::Cosine, 10), &expected);
        close(&factors(5, Decay::Constant, 3), &[0.2, 0.4, 0.6]);
        // A run that is resumed with fewer epochs than it had, or whose epochs are all warm-up.
        let schedule = Schedule {
            warmup: 0,
            decay: Decay::Cosine,
        };
        assert!(schedule.factor(9, 4, &Plateau::default()).abs() < 1e-12);
    }

    #[test]
    fn a_plateau_lowers_the_rate_when_patience_ends() {
        let schedule = Schedule {
            warmup: 1,
            decay: Decay::Plateau {
                patience: 2,
                factor: 0.1,
            },
        };
        // torch.optim.lr_scheduler.ReduceLROnPlateau(o, mode='max', factor=0.1, patience=2, threshold=0) after
        // s.step(m) for m in [.5, .4, .5, .5, .6, .6, .6, .6, .1]: 1, 1, 1, .1, .1, .1, .1, .01, .01
        let metrics = [0.9, 0.5, 0.4, 0.5, 0.5, 0.6, 0.6, 0.6, 0.6, 0.1];
        let mut plateau = Plateau::default();
        // Epochs before the warm-up's end do not count for the best score here, so the rest matches torch.
        let mut best = 0.0;
        let mut rates = Vec::new();
        for (epoch, metric) in (1..).zip(metrics) {
            let better = metric > best || epoch == 2;
            if better && epoch > 1 {
                best = metric;
            }
            schedule.follow(epoch, better, &mut plateau);
            rates.push(schedule.factor(epoch + 1, 99, &plateau));
        }
        close(
            &rates,
            &[1.0, 1.0, 1.0, 1.0, 0.1, 0.1, 0.1, 0.1, 0.01, 0.01],
        );
        // Another schedule does not change it.
        let mut untouched = Plateau::default();
        Schedule::default().follow(9, false, &mut untouched);
        assert!(untouched.is_default());
    }

    #[test]
    fn texts_are_read_as_they_are_written() {
        for text in ["constant", "cosine", "step:30,0.5", "plateau:0,0.1"] {
            assert_eq!(text.parse::<Decay>().unwrap().to_string(), text);
        }
        for wrong in [
            "",
            "linear",
            "cosine:3",
            "step",
            "step:0,0.5",
            "step:3,0",
            "step:3,1.5",
            "step:3",
            "plateau:1,x",
            "step:-1,0.5",
            "plateau:1,NaN",
        ] {
            let refused = wrong.parse::<Decay>().unwrap_err();
            assert!(refused.starts_with("it must be"), "{wrong}: {refused}");
        }
        let refused = "step:0,0.5".parse::<Decay>().unwrap_err();
        assert!(refused.contains("step:EVERY,FACTOR"), "{refused}");
    }
}
