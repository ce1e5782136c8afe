//! Operators on memory of another program's.

use super::Cpu;
use crate::backend::{Adjacency, MemoryKind, Storage};
use crate::graph::Csr;
use crate::ops::{self, Combine, Sddmm, Spmm, edge_values};
use crate::tensor::{Array, Element, Matrix, padded};
use half::f16;

const KIND: MemoryKind = MemoryKind::Activations;

/// Elements at a multiple of 16 bytes, as a framework has them.
struct Foreign<E>(Vec<u128>, std::marker::PhantomData<E>);

impl<E: Element> Foreign<E> {
    fn new(len: usize) -> Self {
        // Nothing that an operator would write.
        Self(
            vec![u128::MAX; (len * size_of::<E>()).div_ceil(16)],
            std::marker::PhantomData,
        )
    }

    fn elements(&mut self) -> &mut [E] {
        bytemuck::cast_slice_mut(&mut self.0)
    }

    fn matrix(&mut self, cpu: &Cpu, shape: (usize, usize)) -> Matrix<Cpu, E> {
        let stride = padded::<E>(shape.1);
        let start = self.elements().as_mut_ptr();
        // SAFETY: it has the given number of rows, outlives the matrix in each test, and its padding is zero where it
        // is read.
        unsafe { Matrix::<Cpu, E>::from_pointer(cpu, start, shape, stride, KIND) }.unwrap()
    }
}

fn graph() -> Csr {
    let edges: Vec<(u32, u32)> = (0..60).map(|k| (k * 7 % 11, k * 5 % 13)).collect();
    let (rows, columns): (Vec<u32>, Vec<u32>) = edges.into_iter().unzip();
    Csr::rectangular_from_edges((12, 13), &rows, &columns).unwrap()
}

fn values<E: Element>(cpu: &Cpu, rows: usize, columns: usize) -> Matrix<Cpu, E> {
    let values: Vec<f32> = (0..rows * columns)
        .map(|i| (i * 37 % 19) as f32 - 9.0)
        .collect();
    Matrix::from_f32(cpu, rows, columns, &values, KIND).unwrap()
}

fn same_bits<E: Element>(columns: usize) {
    let cpu = Cpu::new();
    let a = Adjacency::new(&cpu, &graph()).unwrap();
    let (x, u) = (
        values::<E>(&cpu, 13, columns),
        values::<E>(&cpu, 12, columns),
    );
    let mut y = Matrix::zeros(&cpu, 12, columns, KIND).unwrap();
    ops::spmm(&cpu, &a, &Spmm::default(), &x, &mut y).unwrap();
    let mut e = Array::<_, E>::zeros(&cpu, edge_values(&a, 1), KIND).unwrap();
    ops::sddmm(&cpu, &a, &Sddmm::default(), &u, &x, &mut e).unwrap();
    let mut sum = values::<E>(&cpu, 12, columns);
    ops::combine(&cpu, &Combine::sum(), &y, &mut sum).unwrap();

    let row = padded::<E>(columns);
    let mut input = Foreign::<E>::new(13 * row);
    input
        .elements()
        .copy_from_slice(&x.to_padded(&cpu).unwrap());
    let mut output = Foreign::<E>::new(12 * row);
    let mut edges = Foreign::<E>::new(edge_values(&a, 1));
    let mut total = Foreign::<E>::new(12 * row);
    total
        .elements()
        .copy_from_slice(&values::<E>(&cpu, 12, columns).to_padded(&cpu).unwrap());
    let before = cpu.memory();
    {
        let (borrowed_x, mut borrowed_y) = (
            input.matrix(&cpu, (13, columns)),
            output.matrix(&cpu, (12, columns)),
        );
        ops::spmm(&cpu, &a, &Spmm::default(), &borrowed_x, &mut borrowed_y).unwrap();
        // SAFETY: as of the matrices.
        let mut borrowed_e = unsafe {
            Array::<Cpu, E>::from_pointer(
                &cpu,
                edges.elements().as_mut_ptr(),
                edge_values(&a, 1),
                KIND,
            )
        }
        .unwrap();
        ops::sddmm(
            &cpu,
            &a,
            &Sddmm::default(),
            &u,
            &borrowed_x,
            &mut borrowed_e,
        )
        .unwrap();
        ops::combine(
            &cpu,
            &Combine::sum(),
            &borrowed_y,
            &mut total.matrix(&cpu, (12, columns)),
        )
        .unwrap();
        assert_eq!(cpu.memory().current, {
            let mut with_rows = before.current;
            // The row of each edge, which the SDDMM has made by now.
            with_rows[MemoryKind::Graph as usize] =
                cpu.memory().current[MemoryKind::Graph as usize];
            with_rows
        });
    }
    // What the operators wrote is there, padding included, when the operands are gone.
    assert_eq!(output.elements(), y.to_padded(&cpu).unwrap());
    assert_eq!(edges.elements(), e.to_vec(&cpu).unwrap());
    assert_eq!(total.elements(), sum.to_padded(&cpu).unwrap());
}

#[test]
fn borrowed_operands_give_the_same_bits() {
    for columns in [1, 7, 8, 41] {
        same_bits::<f32>(columns);
        same_bits::<f16>(columns);
    }
}

#[test]
fn borrowed_memory_is_written_and_cleared_in_place() {
    let cpu = Cpu::new();
    let mut memory = Foreign::<f32>::new(8);
    let mut matrix = memory.matrix(&cpu, (2, 3));
    matrix
        .write_f32(&cpu, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
        .unwrap();
    assert_eq!(matrix.to_f32(&cpu).unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    drop(matrix);
    assert_eq!(memory.elements(), [1.0, 2.0, 3.0, 0.0, 4.0, 5.0, 6.0, 0.0]);
    memory.matrix(&cpu, (2, 3)).clear(&cpu).unwrap();
    assert_eq!(memory.elements(), [0.0; 8]);
}

#[test]
fn memory_that_does_not_fit_is_refused_in_one_line() {
    let cpu = Cpu::new();
    let mut memory = Foreign::<f32>::new(64);
    let start = memory.elements().as_mut_ptr();
    let refused = |start: *mut f32, shape, stride| {
        // SAFETY: it is refused, or has 64 elements, which are enough.
        let matrix = unsafe { Matrix::<Cpu, f32>::from_pointer(&cpu, start, shape, stride, KIND) };
        matrix.unwrap_err().to_string()
    };
    assert!(refused(start.wrapping_add(1), (2, 3), 4).contains("is no multiple of 16 bytes"));
    assert!(refused(std::ptr::null_mut(), (2, 3), 4).contains("8 elements at the address 0"));
    assert!(refused(start, (2, 3), 8).contains("copy them first"));
    assert!(refused(start, (2, 3), 6).contains("make that a multiple of 4"));
    assert!(refused(start, (2, 5), 4).contains("overlap"));
    assert!(refused(start, (usize::MAX, 4), 4).contains("more bytes than can be addressed"));
    // Of one row there is no distance, and of none no address.
    // SAFETY: as above.
    unsafe {
        Matrix::<Cpu, f32>::from_pointer(&cpu, start, (1, 3), 99, KIND).unwrap();
        Matrix::<Cpu, f32>::from_pointer(&cpu, std::ptr::null_mut(), (0, 3), 4, KIND).unwrap();
    }
}

#[test]
fn an_adjacency_of_the_arrays_of_another_is_the_same() {
    let cpu = Cpu::new();
    let of = |a: &Adjacency<Cpu>| a.arrays(&cpu).unwrap();
    let first = Adjacency::new(&cpu, &graph()).unwrap();
    let expected = of(&first);
    let arrays = first.into_arrays(&cpu).unwrap();
    // SAFETY: they are those of an adjacency.
    let mut again = unsafe { Adjacency::from_arrays(arrays) }.unwrap();
    assert_eq!(of(&again), expected);
    assert_eq!((again.rows(), again.columns(), again.edges()), (12, 13, 60));
    for missing in ["row ids", "starts", "filled rows"] {
        let mut arrays = again.into_arrays(&cpu).unwrap();
        let none = || Array::zeros(&cpu, 0, KIND).unwrap();
        match missing {
            "row ids" => arrays.row_ids = none(),
            "starts" => arrays.starts = Array::zeros(&cpu, 0, KIND).unwrap(),
            _ => arrays.filled_rows = none(),
        }
        // SAFETY: lengths are refused.
        let error = unsafe { Adjacency::from_arrays(arrays) }
            .unwrap_err()
            .to_string();
        assert!(error.contains(missing), "{error}");
        again = Adjacency::new(&cpu, &graph()).unwrap();
    }
}
