//! SpMM of operands as they lie: rows at multiples of 16 bytes, one format, one device.

use super::interface::{Device, Interface, Kind, Tensor};
use super::{INTERFACE, answer};
use crate::memory::{Layout, RawAdjacency, RawArray, RawMatrix};
use crate::operators::SpmmCall;
use crate::place::{Place, perform_unattached};
use halfgnn::ops::edge_plane;
use halfgnn::tensor::{Element, Precision};
use halfgnn::with_element;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub const NAME: &str = "spmm_direct";

/// `shape`: rows and columns of the graph, `edges`: edges and the longest row, `rest`: rows without edges, and
/// 4 · heads + 2 · relu + maximum; each pair a word, the first its upper half.
pub const SCHEMA: &str = "spmm_direct(Tensor a, Tensor x, Tensor? weight, Tensor? row_scale, Tensor? column_scale, Tensor? bias, \
                          int shape, int edges, int rest) -> Tensor";

pub const PLAIN_NAME: &str = "spmm_direct.plain";

/// The same of operands that are all there is: each that need not be said is said faster.
pub const PLAIN_SCHEMA: &str =
    "spmm_direct.plain(Tensor a, Tensor x, int shape, int edges, int rest) -> Tensor";

/// Results of more bytes are left to the general form, whose call takes no time beside them: where memory is short torch tells of it
/// at length as soon as it is asked for through this interface, although the exception is made elsewhere.
const LARGE: usize = 1 << 26;

/// What [`SCHEMA`] names.
struct Arguments<'a> {
    a: Tensor<'a>,
    x: Tensor<'a>,
    weight: Option<Tensor<'a>>,
    row_scale: Option<Tensor<'a>>,
    column_scale: Option<Tensor<'a>>,
    bias: Option<Tensor<'a>>,
    pairs: [u64; 3],
}

/// The kernel of [`SCHEMA`], for the CPU and for cards.
///
/// # Safety
/// Called by torch with the arguments of [`SCHEMA`], which become the kernel's, and room for a result.
pub unsafe extern "C" fn kernel(stack: *mut u64, _arguments: u64, _results: u64) {
    let read = |interface: &'static Interface, words: [u64; 9]| {
        let [a, x, weight, row_scale, column_scale, bias, pairs @ ..] = words;
        // SAFETY: each word is of the type that the schema says, and is read here alone.
        unsafe {
            Arguments {
                a: interface.tensor(a),
                x: interface.tensor(x),
                weight: interface.optional(weight),
                row_scale: interface.optional(row_scale),
                column_scale: interface.optional(column_scale),
                bias: interface.optional(bias),
                pairs,
            }
        }
    };
    // SAFETY: what this function asks of its caller.
    unsafe { run(stack, read) };
}

/// The kernel of [`PLAIN_SCHEMA`].
///
/// # Safety
/// As of [`kernel`], of [`PLAIN_SCHEMA`].
pub unsafe extern "C" fn plain(stack: *mut u64, _arguments: u64, _results: u64) {
    let read = |interface: &'static Interface, [a, x, pairs @ ..]: [u64; 5]| {
        // SAFETY: as in [`kernel`].
        let (a, x) = unsafe { (interface.tensor(a), interface.tensor(x)) };
        Arguments {
            a,
            x,
            weight: None,
            row_scale: None,
            column_scale: None,
            bias: None,
            pairs,
        }
    };
    // SAFETY: what this function asks of its caller.
    unsafe { run(stack, read) };
}

/// # Safety
/// `stack` has so many words, which `read` may take, and room for one.
unsafe fn run<const N: usize>(
    stack: *mut u64,
    read: impl FnOnce(&'static Interface, [u64; N]) -> Arguments<'static>,
) {
    let Some(interface) = INTERFACE.get() else {
        // Torch has it from whoever set the interface.
        std::process::abort()
    };
    // SAFETY: what this function asks of its caller.
    let arguments = read(interface, unsafe {
        stack.cast::<[u64; N]>().read_unaligned()
    });
    // Whatever panics here does so in the general form again, where it is told.
    let result = catch_unwind(AssertUnwindSafe(|| product(interface, &arguments)));
    drop(arguments);
    let word = answer(interface, result.ok().flatten());
    // SAFETY: as above.
    unsafe { stack.write(word) };
}

/// The product, where all operands are as the operator takes them.
fn product<'a>(interface: &'a Interface, of: &Arguments<'_>) -> Option<Tensor<'a>> {
    let [(rows, columns), (edges, longest), (empty, options)] = of.pairs.map(halves);
    let kind = of.x.kind()?;
    let precision = kind.format?;
    let list = |tensor: &Tensor<'_>, format| array(tensor, Kind { format, ..kind });
    let words = list(&of.a, None)?;
    if words.1 < Layout::new(rows, edges, empty).words {
        return None;
    }
    let x = matrix(&of.x, kind.device, precision)?;
    if x.1 != columns {
        return None;
    }
    let heads = options >> 2;
    let float = Some(Precision::Float);
    let optional = |tensor: &Option<Tensor<'_>>, format, len| match tensor {
        None => Some(None),
        Some(tensor) => list(tensor, format).filter(|of| of.1 == len).map(Some),
    };
    let width = x.2.next_multiple_of(lanes(precision));
    if rows
        .checked_mul(width)?
        .checked_mul(16 / lanes(precision))?
        > LARGE
    {
        return None;
    }
    let y = interface.matrix(rows, x.2, width, kind)?;
    let bias = optional(&of.bias, float, x.2)?;
    if bias.is_some() && x.2 % lanes(Precision::Float) != 0 {
        return None;
    }
    let call = SpmmCall {
        precision,
        a: RawAdjacency(words.0, rows, edges, empty, columns, longest as u32),
        y: RawMatrix(y.address()?, rows, x.2, width),
        weights: optional(
            &of.weight,
            kind.format,
            heads.checked_mul(edge_plane(edges))?,
        )?,
        heads,
        row_scale: optional(&of.row_scale, float, rows)?,
        column_scale: optional(&of.column_scale, float, columns)?,
        bias: bias.map(|RawArray(address, len)| RawMatrix(address, 1, len, len)),
        relu: options & 2 != 0,
        maximum: options & 1 != 0,
        x,
    };
    let place = match kind.device {
        Device::Cpu => Place::host(),
        Device::Cuda(index) => Place::Cuda(u32::try_from(index).ok()?, interface.stream(index)?),
    };
    let _guard = match kind.device {
        Device::Cpu => None,
        Device::Cuda(index) => Some(interface.guard(index)?),
    };
    let room = |bytes: u64| {
        let floats = Kind {
            format: float,
            ..kind
        };
        let memory = interface.list(
            usize::try_from(bytes).ok()?.div_ceil(size_of::<f32>()),
            floats,
        )?;
        let address = memory.address()?;
        Some((memory, address))
    };
    perform_unattached(place, room, &call)?;
    Some(y)
}

/// Elements of a vector of 16 bytes.
fn lanes(precision: Precision) -> usize {
    with_element!(precision, E => E::LANES)
}

fn halves(pair: u64) -> (usize, usize) {
    ((pair >> 32) as usize, (pair & 0xffff_ffff) as usize)
}

/// A tensor of any shape, whose elements follow one another at a multiple of 16 bytes; of two dimensions the planes of edges' weights.
fn array(tensor: &Tensor<'_>, kind: Kind) -> Option<RawArray> {
    if tensor.kind()? != kind {
        return None;
    }
    let len = match tensor.shape::<1>() {
        Some([(len, stride)]) if stride == 1 || len <= 1 => len,
        Some(_) => return None,
        None => {
            let [(planes, apart), (len, stride)] = tensor.shape::<2>()?;
            let follow = (stride == 1 || len <= 1) && (apart == len || planes <= 1);
            follow.then_some(planes.checked_mul(len)?)?
        }
    };
    let address = tensor.address()?;
    (address % 16 == 0).then_some(RawArray(address, len))
}

/// A matrix whose rows begin at multiples of 16 bytes, with memory for whole vectors behind the last one as well.
fn matrix(tensor: &Tensor<'_>, device: Device, precision: Precision) -> Option<RawMatrix> {
    let [(rows, apart), (columns, stride)] = tensor.shape::<2>()?;
    let lanes = lanes(precision);
    let width = columns.next_multiple_of(lanes);
    let apart = if rows > 1 { apart } else { width };
    let rows_fit = match device {
        // The CPU takes rows that follow one another.
        Device::Cpu => apart == width,
        Device::Cuda(_) => apart >= width && apart % lanes == 0,
    };
    let address = tensor.address()?;
    if !rows_fit || (stride != 1 && columns > 1) || address % 16 != 0 {
        return None;
    }
    if width != columns && rows > 0 {
        let bytes = 16 / lanes;
        let end = (rows - 1).checked_mul(apart)?.checked_add(width)?;
        if tensor.room(bytes)? < end {
            return None;
        }
    }
    Some(RawMatrix(address, rows, columns, apart))
}
