//! What an operator of torch's dispatcher is here: operands, which say how torch gives them, and what becomes of them.

use super::interface::{Interface, Tensor};
use super::operands::Graph;
use super::{INTERFACE, answers};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A tensor that torch gives a kernel.
pub type Operand = Tensor<'static>;

/// An operator with `N` results. [`operator!`](crate::dispatcher::operator) makes all of it but [`run`](Direct::run).
pub trait Direct<const N: usize>: Operands {
    /// The results, where all operands are as the operator takes them. None refuses.
    fn run(&self, torch: &'static Interface) -> Option<[Operand; N]>;
}

/// What an operator is given.
pub trait Operands: Sized {
    /// Its name in torch, with that of the overload.
    const NAME: &'static str;

    /// The arguments as torch's schemas have them.
    fn arguments() -> Vec<String>;

    /// The operands, in the order of [`arguments`](Operands::arguments).
    ///
    /// # Safety
    /// The words are such arguments, which have no other owner.
    unsafe fn read(words: &mut Words) -> Self;
}

/// Something that torch gives in one word or several.
pub trait Argument: Sized {
    /// Appends what schemas say of it.
    fn describe(name: &str, arguments: &mut Vec<String>);

    /// # Safety
    /// As of [`Operands::read`].
    unsafe fn read(words: &mut Words) -> Self;
}

/// The arguments of a call, a word each, from the next one on.
pub struct Words {
    torch: &'static Interface,
    next: *const u64,
}

impl Words {
    /// # Safety
    /// There is another word.
    pub unsafe fn next(&mut self) -> u64 {
        // SAFETY: what this function asks of its caller.
        unsafe {
            let word = self.next.read_unaligned();
            self.next = self.next.add(1);
            word
        }
    }
}

impl Argument for Operand {
    fn describe(name: &str, arguments: &mut Vec<String>) {
        arguments.push(format!("Tensor {name}"));
    }

    unsafe fn read(words: &mut Words) -> Self {
        // SAFETY: what this function asks of its caller.
        unsafe { words.torch.tensor(words.next()) }
    }
}

impl Argument for Option<Operand> {
    fn describe(name: &str, arguments: &mut Vec<String>) {
        arguments.push(format!("Tensor? {name}"));
    }

    unsafe fn read(words: &mut Words) -> Self {
        // SAFETY: what this function asks of its caller.
        unsafe { words.torch.optional(words.next()) }
    }
}

impl Argument for f32 {
    fn describe(name: &str, arguments: &mut Vec<String>) {
        arguments.push(format!("float {name}"));
    }

    unsafe fn read(words: &mut Words) -> Self {
        // SAFETY: what this function asks of its caller. Torch's floats are doubles.
        f64::from_bits(unsafe { words.next() }) as f32
    }
}

impl Argument for Graph {
    fn describe(name: &str, arguments: &mut Vec<String>) {
        Operand::describe(name, arguments);
        arguments.extend(["shape", "edges", "rest"].map(|pair| format!("int {name}_{pair}")));
    }

    unsafe fn read(words: &mut Words) -> Self {
        // SAFETY: what this function asks of its caller.
        unsafe {
            let arrays = Operand::read(words);
            Graph::new(arrays, [words.next(), words.next(), words.next()])
        }
    }
}

/// Defines the operands of an operator: what torch calls it, and its arguments in their order. Schema and reading are
/// of one list.
macro_rules! operator {
    ($(#[$doc:meta])* $name:ident = $torch:literal { $($field:ident: $kind:ty),* $(,)? }) => {
        $(#[$doc])*
        pub struct $name { $($field: $kind),* }

        impl $crate::dispatcher::operator::Operands for $name {
            const NAME: &'static str = $torch;

            fn arguments() -> Vec<String> {
                use $crate::dispatcher::operator::Argument;
                let mut arguments = Vec::new();
                $(<$kind>::describe(stringify!($field), &mut arguments);)*
                arguments
            }

            unsafe fn read(words: &mut $crate::dispatcher::operator::Words) -> Self {
                use $crate::dispatcher::operator::Argument;
                // SAFETY: what this function asks of its caller.
                unsafe { Self { $($field: <$kind>::read(words)),* } }
            }
        }
    };
}
pub(super) use operator;

/// An operator as torch knows it.
pub struct Definition {
    pub name: &'static str,
    pub schema: String,
    pub kernel: super::interface::Kernel,
}

impl Definition {
    pub fn of<O: Direct<N>, const N: usize>() -> Self {
        let results = match N {
            1 => "Tensor".into(),
            _ => format!("({})", ["Tensor"; N].join(", ")),
        };
        let arguments = O::arguments().join(", ");
        Self {
            name: O::NAME,
            schema: format!("{}({arguments}) -> {results}", O::NAME),
            kernel: kernel::<O, N>,
        }
    }
}

/// The kernel of an operator, for the CPU and for GPUs.
///
/// # Safety
/// Called by torch with the arguments of its schema, which become the kernel's, and memory for the results.
unsafe extern "C" fn kernel<O: Direct<N>, const N: usize>(
    stack: *mut u64,
    _arguments: u64,
    _results: u64,
) {
    let Some(torch) = INTERFACE.get() else {
        // Torch has it from the code that set the interface.
        std::process::abort()
    };
    let mut words = Words { torch, next: stack };
    // SAFETY: what this function asks of its caller: the schema is of the same list of operands.
    let operands = unsafe { O::read(&mut words) };
    // Whatever panics here does so in the general form again, where it is reported.
    let results = catch_unwind(AssertUnwindSafe(|| operands.run(torch)));
    drop(operands);
    let words = answers(torch, results.ok().flatten());
    // SAFETY: as above.
    unsafe { stack.cast::<[u64; N]>().write_unaligned(words) };
}
