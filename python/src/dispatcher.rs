//! Operators in torch's dispatcher, without Python on the way: registered through torch's stable C interface, whose functions Python
//! finds in the torch that is loaded. Nothing of torch is needed to build this, and any torch that has the functions will do.
//!
//! Such a kernel has no way to raise an exception. What it cannot do, it refuses with a tensor of one dimension where its result has
//! two: Python then calls the operator in its general form, which makes copies where there must be some, and raises what there is to
//! raise.

mod interface;
mod spmm;

use interface::{Interface, Tensor};
use pyo3::prelude::*;
use std::collections::HashMap;
use std::sync::OnceLock;

static INTERFACE: OnceLock<Interface> = OnceLock::new();

/// What kernels return in place of a result.
static REFUSAL: OnceLock<Tensor<'static>> = OnceLock::new();

/// Defines the operators in torch's dispatcher, for tensors of the CPU and of cards, by functions of these names and addresses, which
/// are those of torch's headers: once in a process. What stands in the way is returned.
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
    interface.define(spmm::SCHEMA, spmm::NAME, spmm::kernel)?;
    interface.define(spmm::PLAIN_SCHEMA, spmm::PLAIN_NAME, spmm::plain)
}

/// The result of a kernel, or the refusal, as torch takes it: the caller's reference.
fn answer(interface: &Interface, result: Option<Tensor<'_>>) -> u64 {
    let tensor = result.or_else(|| REFUSAL.get().and_then(|refusal| refusal.shared(interface)));
    match tensor {
        Some(tensor) => tensor.into_raw(),
        // Torch has no room for a pointer: it would end by itself a moment later.
        None => std::process::abort(),
    }
}
