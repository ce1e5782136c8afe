//! Operands as they lie: rows at multiples of 16 bytes, one format, one device. What lies otherwise is refused.

use super::interface::{Device, Interface, Kind};
use super::operator::Operand;
use crate::memory::{Layout, RawAdjacency, RawArray, RawMatrix};
use crate::place::{Operation, Place, perform_unattached};
use halfgnn::tensor::{Element, Precision};
use halfgnn::with_element;

/// Results of more bytes are left to the general form, whose call takes little time compared with them: where memory is
/// short torch reports it at length as soon as it is asked for through this interface, although the exception is made
/// elsewhere.
pub const LARGE: usize = 1 << 26;

/// A graph, as torch gives it, with the operator's numbers in the same words: pairs of numbers, the first in the upper
/// half.
pub struct Graph {
    arrays: Operand,
    rows: usize,
    columns: usize,
    edges: usize,
    longest: usize,
    empty: usize,
    options: usize,
}

impl Graph {
    /// `pairs`: rows and columns; edges and the longest row; rows without edges, and `8 · heads` and three bits of the
    /// operator's.
    pub fn new(arrays: Operand, pairs: [u64; 3]) -> Self {
        let [(rows, columns), (edges, longest), (empty, options)] =
            pairs.map(|pair| ((pair >> 32) as usize, (pair & 0xffff_ffff) as usize));
        Self {
            arrays,
            rows,
            columns,
            edges,
            longest,
            empty,
            options,
        }
    }

    pub fn heads(&self) -> usize {
        self.options >> 3
    }

    /// One of the operator's bits.
    pub fn has(&self, option: usize) -> bool {
        self.options & option != 0
    }
}

/// What torch is asked for memory, and the format and the device of an operator.
pub struct Site {
    torch: &'static Interface,
    device: Device,
    pub precision: Precision,
}

impl Site {
    /// Where an operand is, and of what.
    pub fn of(torch: &'static Interface, operand: &Operand) -> Option<Self> {
        let kind = operand.kind()?;
        Some(Self {
            torch,
            device: kind.device,
            precision: kind.format?,
        })
    }

    /// Elements of a vector of 16 bytes.
    pub fn lanes(&self) -> usize {
        lanes(self.precision)
    }

    fn kind(&self, format: Option<Precision>) -> Kind {
        Kind {
            format,
            device: self.device,
        }
    }

    /// The adjacency of a number of rows and columns.
    pub fn adjacency(&self, of: &Graph) -> Option<RawAdjacency> {
        let Graph {
            rows,
            columns,
            edges,
            longest,
            empty,
            ..
        } = *of;
        let words = self.array(&of.arrays, None)?;
        let fits = words.1 >= Layout::new(rows, edges, empty).words;
        fits.then_some(RawAdjacency(
            words.0,
            rows,
            edges,
            empty,
            columns,
            longest as u32,
        ))
    }

    /// A tensor of any shape, whose elements follow one another at a multiple of 16 bytes; of two dimensions the planes
    /// of edges' values. No format is that of words.
    pub fn array(&self, tensor: &Operand, format: Option<Precision>) -> Option<RawArray> {
        if tensor.kind()? != self.kind(format) {
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

    /// The same of a number of elements.
    pub fn array_of(
        &self,
        tensor: &Operand,
        format: Option<Precision>,
        len: usize,
    ) -> Option<RawArray> {
        self.array(tensor, format).filter(|of| of.1 == len)
    }

    /// The same of one that may be absent.
    #[expect(clippy::option_option, reason = "absent, or refused")]
    pub fn optional(
        &self,
        tensor: &Option<Operand>,
        format: Option<Precision>,
        len: usize,
    ) -> Option<Option<RawArray>> {
        match tensor {
            None => Some(None),
            Some(tensor) => self.array_of(tensor, format, len).map(Some),
        }
    }

    /// A matrix whose rows begin at multiples of 16 bytes, with memory for whole vectors behind the last one as well.
    pub fn matrix(&self, tensor: &Operand) -> Option<RawMatrix> {
        if tensor.kind()? != self.kind(Some(self.precision)) {
            return None;
        }
        let [(rows, apart), (columns, stride)] = tensor.shape::<2>()?;
        let lanes = self.lanes();
        let width = columns.next_multiple_of(lanes);
        let apart = if rows > 1 { apart } else { width };
        let rows_fit = match self.device {
            // The CPU takes rows that follow one another.
            Device::Cpu => apart == width,
            Device::Cuda(_) => apart >= width && apart % lanes == 0,
        };
        let address = tensor.address()?;
        if !rows_fit || (stride != 1 && columns > 1) || address % 16 != 0 {
            return None;
        }
        if width != columns && rows > 0 {
            let end = (rows - 1).checked_mul(apart)?.checked_add(width)?;
            if tensor.room(16 / lanes)? < end {
                return None;
            }
        }
        Some(RawMatrix(address, rows, columns, apart))
    }

    /// A matrix of this shape, of which what lies behind the last column is read: there is nothing, or it is said to be
    /// zero.
    pub fn clean(
        &self,
        tensor: &Operand,
        shape: (usize, usize),
        padded: bool,
    ) -> Option<RawMatrix> {
        let of = self.matrix(tensor)?;
        let RawMatrix(_, rows, columns, apart) = of;
        let width = columns.next_multiple_of(self.lanes());
        ((rows, columns) == shape && apart == width && (padded || width == columns)).then_some(of)
    }

    /// A new matrix of any content, whose rows are whole vectors.
    pub fn new_matrix(&self, rows: usize, columns: usize) -> Option<(Operand, RawMatrix)> {
        self.new_matrix_of(self.precision, rows, columns)
    }

    /// The same in another format.
    pub fn new_matrix_of(
        &self,
        precision: Precision,
        rows: usize,
        columns: usize,
    ) -> Option<(Operand, RawMatrix)> {
        let lanes = lanes(precision);
        let width = columns.checked_next_multiple_of(lanes)?;
        if rows.checked_mul(width)?.checked_mul(16 / lanes)? > LARGE {
            return None;
        }
        let kind = self.kind(Some(precision));
        let y = self.torch.matrix(rows, columns, width, kind)?;
        let raw = RawMatrix(y.address()?, rows, columns, width);
        Some((y, raw))
    }

    /// New planes of edges' values, of any content.
    pub fn new_planes(&self, heads: usize, plane: usize) -> Option<(Operand, RawArray)> {
        let (planes, RawMatrix(address, ..)) = self.new_matrix(heads, plane)?;
        Some((planes, RawArray(address, heads * plane)))
    }

    /// New floats of any content.
    pub fn new_floats(&self, len: usize) -> Option<(Operand, RawArray)> {
        if len.checked_mul(size_of::<f32>())? > LARGE {
            return None;
        }
        self.floats(len)
    }

    fn floats(&self, len: usize) -> Option<(Operand, RawArray)> {
        let memory = self.torch.list(len, self.kind(Some(Precision::Float)))?;
        let raw = RawArray(memory.address()?, len);
        Some((memory, raw))
    }

    /// A copy of planes of edges' values, to be changed in place.
    pub fn copy(&self, planes: &Operand, len: usize) -> Option<(Operand, RawArray)> {
        let format = Some(self.precision);
        self.array_of(planes, format, len)?;
        if len.checked_mul(16 / self.lanes())? > LARGE {
            return None;
        }
        let copy = planes.cloned()?;
        let raw = self.array_of(&copy, format, len)?;
        Some((copy, raw))
    }

    /// Calls operators, on torch's current stream of a GPU, in torch's memory.
    pub fn perform(&self, operation: &impl Operation) -> Option<()> {
        let place = match self.device {
            Device::Cpu => Place::host(),
            Device::Cuda(index) => {
                Place::Cuda(u32::try_from(index).ok()?, self.torch.stream(index)?)
            }
        };
        let _guard = match self.device {
            Device::Cpu => None,
            Device::Cuda(index) => Some(self.torch.guard(index)?),
        };
        let room = |bytes: u64| {
            let len = usize::try_from(bytes).ok()?.div_ceil(size_of::<f32>());
            let (memory, RawArray(address, _)) = self.floats(len)?;
            Some((memory, address))
        };
        perform_unattached(place, room, operation)
    }
}

/// Elements of a vector of 16 bytes.
pub fn lanes(precision: Precision) -> usize {
    with_element!(precision, E => E::LANES)
}
