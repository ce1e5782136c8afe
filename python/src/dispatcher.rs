//! Operators in torch's dispatcher, without Python on the way: registered through torch's stable C interface, whose
//! functions Python finds in the torch that is loaded. Nothing of torch is needed to build this, and any torch that has
//! the functions will do.
//!
//! Such a kernel has no way to raise an exception. What it cannot do, it refuses with tensors of one dimension where
//! its results have two: Python then calls the operator in its general form, which makes copies where there must be
//! some, and raises what there is to raise.

mod attention;
mod edges;
mod interface;
mod operands;
mod operator;
mod spmm;

use interface::{Interface, Tensor};
pub use operands::LARGE;
use operator::{Definition, Operand};
use pyo3::prelude::*;
use std::collections::HashMap;
use std::sync::OnceLock;

static INTERFACE: OnceLock<Interface> = OnceLock::new();

/// What kernels return in place of a result.
static REFUSAL: OnceLock<Tensor<'static>> = OnceLock::new();

/// All operators.
fn definitions() -> [Definition; 7] {
    [
        Definition::of::<spmm::Spmm, 1>(),
        Definition::of::<spmm::Plain, 1>(),
        Definition::of::<edges::Sddmm, 1>(),
        Definition::of::<edges::Softmax, 1>(),
        Definition::of::<edges::SoftmaxBackward, 1>(),
        Definition::of::<attention::Attention, 3>(),
        Definition::of::<attention::AttentionBackward, 3>(),
    ]
}

/// Defines the operators in torch's dispatcher, for tensors of the CPU and of GPUs, by functions of these names and
/// addresses, which are those of torch's headers: once in a process. What stands in the way is returned.
#[pyfunction]
pub fn register(functions: HashMap<String, usize>) -> Option<String> {
    static REGISTERED: OnceLock<Option<String>> = OnceLock::new();
    let register = || try_register(&functions).err();
    REGISTERED.get_or_init(register).clone()
}

fn try_register(functions: &HashMap<String, usize>) -> Result<(), String> {
    // SAFETY: Python has looked them up in torch's library by these names, which are said to be stable.
    let interface = unsafe { Interface::of(functions) }?;
    let interface = INTERFACE.get_or_init(|| interface);
    let refusal = interface.list(0, interface::Kind::host());
    let refusal = refusal.ok_or("torch makes no tensor")?;
    let _ = REFUSAL.set(refusal);
    definitions().iter().try_for_each(|of| interface.define(of))
}

/// The results of a kernel, or the refusal in the place of each, as torch takes them: the caller's references.
fn answers<const N: usize>(torch: &'static Interface, results: Option<[Operand; N]>) -> [u64; N] {
    let refusal = || {
        let shared = REFUSAL.get().and_then(|refusal| refusal.shared(torch));
        // Torch has no field for a pointer: it would end by itself a moment later.
        shared.unwrap_or_else(|| std::process::abort())
    };
    match results {
        Some(results) => results.map(Tensor::into_raw),
        None => std::array::from_fn(|_| refusal().into_raw()),
    }
}
