//! What is typed in many commands: devices, precisions, numbers.

use clap::ValueEnum;
use halfgnn::device;
use halfgnn::nn::{Binary, HiddenActivation, HiddenNorm, Jumping, Readout, Store};
use halfgnn::ops::CodeFormat;
use halfgnn::tensor::Precision;
use halfgnn::train::FeaturesIn;

/// A number of bytes, as a person writes it.
///
/// # Errors
/// Where it is none, with an example.
pub fn size(text: &str) -> Result<u64, String> {
    let size = text.parse::<bytesize::ByteSize>();
    size.map(|size| size.as_u64())
        .map_err(|_| "it must be a number of bytes, such as 256MiB or 4GiB".into())
}

/// [`device::Choice`], as it is typed.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum DeviceName {
    /// A GPU if one can be used, else the CPU
    Auto,
    /// The CPU
    Cpu,
    /// A GPU
    Cuda,
    /// The GPU kernels on the CPU: slow, checks every access
    Emulator,
}

impl From<DeviceName> for device::Choice {
    fn from(name: DeviceName) -> Self {
        match name {
            DeviceName::Auto => device::Choice::Auto,
            DeviceName::Cpu => device::Choice::Cpu,
            DeviceName::Cuda => device::Choice::Cuda,
            DeviceName::Emulator => device::Choice::Emulator,
        }
    }
}

/// [`FeaturesIn`], as it is typed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum FeaturesName {
    /// The device's memory if all fits there, else a share on each of several ranks that learn in batches, else the
    /// host's memory; the disk for a folder of parts that does not fit the host
    #[default]
    Auto,
    /// The device's memory
    Device,
    /// The host's memory, which the GPU reads over its bus
    Host,
    /// The folder of parts that the dataset is, from where the rows of each batch are read
    Disk,
    /// The memory of the devices of several ranks that learn in batches, a share on each; they exchange the rows of
    /// each batch
    Sharded,
}

impl From<FeaturesName> for FeaturesIn {
    fn from(name: FeaturesName) -> Self {
        match name {
            FeaturesName::Auto => FeaturesIn::Either,
            // Into how many shares is another option's to say.
            FeaturesName::Device | FeaturesName::Sharded => FeaturesIn::Device,
            FeaturesName::Host => FeaturesIn::Host,
            FeaturesName::Disk => FeaturesIn::Disk,
        }
    }
}

/// [`Precision`], as it is typed.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum PrecisionName {
    /// IEEE binary16, with float master weights
    Half,
    /// IEEE binary32
    Float,
    /// bfloat16, with float's range and float master weights; needs no loss scale
    #[value(name = "bf16", alias = "bfloat16")]
    BFloat16,
}

impl From<PrecisionName> for Precision {
    fn from(name: PrecisionName) -> Self {
        match name {
            PrecisionName::Half => Precision::Half,
            PrecisionName::Float => Precision::Float,
            PrecisionName::BFloat16 => Precision::BFloat16,
        }
    }
}

/// [`HiddenActivation`], as it is typed.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum ActivationName {
    /// Negative elements become zero
    Relu,
    /// eˣ − 1 below zero
    Elu,
    /// A hundredth below zero
    LeakyRelu,
    /// x · Φ(x), with the normal distribution itself
    Gelu,
    /// The hyperbolic tangent
    Tanh,
    /// Nothing
    None,
}

impl From<ActivationName> for HiddenActivation {
    fn from(name: ActivationName) -> Self {
        match name {
            ActivationName::Relu => HiddenActivation::Relu,
            ActivationName::Elu => HiddenActivation::Elu,
            ActivationName::LeakyRelu => HiddenActivation::LeakyRelu,
            ActivationName::Gelu => HiddenActivation::Gelu,
            ActivationName::Tanh => HiddenActivation::Tanh,
            ActivationName::None => HiddenActivation::None,
        }
    }
}

/// [`HiddenNorm`], as it is typed.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum HiddenNormName {
    /// Nothing
    None,
    /// Columns over all vertices; evaluated with running statistics
    Batch,
    /// Each vertex over its columns (PyG's LayerNorm of the mode node)
    Layer,
    /// Columns less their mean, all by one deviation of each graph (PairNorm)
    Pair,
    /// Columns of each graph less a learnt multiple of their mean (GraphNorm)
    Graph,
}

impl From<HiddenNormName> for HiddenNorm {
    fn from(name: HiddenNormName) -> Self {
        match name {
            HiddenNormName::None => HiddenNorm::None,
            HiddenNormName::Batch => HiddenNorm::Batch,
            HiddenNormName::Layer => HiddenNorm::Layer,
            HiddenNormName::Pair => HiddenNorm::Pair,
            HiddenNormName::Graph => HiddenNorm::Graph,
        }
    }
}

/// [`Readout`], as it is typed.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum PoolName {
    /// Their sum, which differs between graphs of different sizes
    Sum,
    /// Their mean
    Mean,
    /// The largest of each column
    Max,
}

impl From<PoolName> for Readout {
    fn from(name: PoolName) -> Self {
        match name {
            PoolName::Sum => Readout::Sum,
            PoolName::Mean => Readout::Mean,
            PoolName::Max => Readout::Max,
        }
    }
}

/// [`Jumping`], as it is typed.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum JumpingName {
    /// They lie side by side
    Cat,
    /// The largest of each element
    Max,
    /// They are concatenated, with the features, as GIN reads graphs out
    All,
}

impl From<JumpingName> for Jumping {
    fn from(name: JumpingName) -> Self {
        match name {
            JumpingName::Cat => Jumping::Cat,
            JumpingName::Max => Jumping::Max,
            JumpingName::All => Jumping::All,
        }
    }
}

/// [`Binary`], as it is typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BinaryName {
    /// Both factors of every product
    Full,
    /// What is summed up over neighbours as well
    Bin,
}

impl From<BinaryName> for Binary {
    fn from(name: BinaryName) -> Self {
        match name {
            BinaryName::Full => Binary::Full,
            BinaryName::Bin => Binary::Bin,
        }
    }
}

/// [`CodeFormat`], as it is typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CodeFormatName {
    /// Whole numbers of 8 bits
    Int8,
    /// Floats of 8 bits, 3 of them mantissa
    E4m3,
}

impl From<CodeFormatName> for CodeFormat {
    fn from(name: CodeFormatName) -> Self {
        match name {
            CodeFormatName::Int8 => CodeFormat::Int8,
            CodeFormatName::E4m3 => CodeFormat::E4m3,
        }
    }
}

/// [`Store`], as it is typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StoreName {
    /// As int8 values with a scale a column
    EightBit,
}

impl From<StoreName> for Store {
    fn from(name: StoreName) -> Self {
        match name {
            StoreName::EightBit => Store::EightBit,
        }
    }
}

fn number(text: &str, valid: fn(f32) -> bool, wanted: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(value) if value.is_finite() && valid(value) => Ok(value),
        _ => Err(format!("it must be {wanted}")),
    }
}

/// A number above 0, of a command line.
///
/// # Errors
/// What is wanted.
pub fn positive(text: &str) -> Result<f32, String> {
    number(text, |value| value > 0.0, "a number above 0")
}

/// 0 or a number above it, likewise.
///
/// # Errors
/// What is wanted.
pub fn not_negative(text: &str) -> Result<f32, String> {
    number(text, |value| value >= 0.0, "0 or a number above it")
}

/// A number from 0 to below 1, likewise.
///
/// # Errors
/// What is wanted.
pub fn probability(text: &str) -> Result<f32, String> {
    number(
        text,
        |value| (0.0..1.0).contains(&value),
        "at least 0 and below 1",
    )
}
