//! Global memory: typed addresses with loads and stores of 2, 4, 8 and 16 bytes that say `.global`.
//!
//! Loads come in two kinds. [`Global::read`] is `ld.global.nc`: for memory that nothing writes during the launch; the
//! compiler may move and merge it. [`Global::load`] is an ordinary `ld.global`.

use core::arch::asm;
use core::marker::PhantomData;
use halfgnn_contract::DevicePtr;

/// An address in global memory of elements of type `T`.
pub struct Global<T> {
    address: u64,
    element: PhantomData<fn() -> T>,
}

impl<T> Clone for Global<T> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Global<T> {}

impl<T> Global<T> {
    /// The memory that a parameter names, seen as elements of type `T`.
    #[inline(always)]
    pub fn new<U>(pointer: DevicePtr<U>) -> Self {
        Self {
            address: pointer.address(),
            element: PhantomData,
        }
    }

    /// An address, such as that of a static of this crate.
    #[inline(always)]
    pub fn at_address(address: u64) -> Self {
        Self {
            address,
            element: PhantomData,
        }
    }

    /// Whether the parameter was null.
    #[inline(always)]
    pub fn is_null(self) -> bool {
        self.address == 0
    }

    /// The same address, seen as elements of another type.
    #[inline(always)]
    pub fn cast<U>(other: Global<U>) -> Self {
        Self {
            address: other.address,
            element: PhantomData,
        }
    }

    /// The element `index` further on. 64 bits, because a tensor may have more than 2³² elements.
    #[inline(always)]
    pub fn at(self, index: u64) -> Self {
        Self {
            address: self.address + index * size_of::<T>() as u64,
            element: PhantomData,
        }
    }

    /// The element at row `row` of a matrix with `stride` bytes a row: one `mad.wide.u32`, where LLVM would multiply 64 bits
    /// by 64 once it has moved the widening of the stride out of a loop.
    #[inline(always)]
    pub fn row(self, row: u32, stride: u32) -> Self {
        let address: u64;
        // SAFETY: an arithmetic instruction; no preconditions.
        unsafe {
            asm!("mad.wide.u32 {}, {}, {}, {};", out(reg64) address, in(reg32) row, in(reg32) stride,
                in(reg64) self.address, options(pure, nomem, nostack, preserves_flags));
        }
        Self::at_address(address)
    }

    /// The raw address.
    #[inline(always)]
    pub fn address(self) -> u64 {
        self.address
    }
}

/// A value that one instruction moves between a register, or a vector of them, and memory.
pub trait Access: Copy + Default {
    /// # Safety
    /// `address` is aligned to the size of `Self` and readable, and nothing writes there during the launch.
    unsafe fn read(address: u64) -> Self;
    /// [`Access::read`] that stays where it is written.
    ///
    /// # Safety
    /// As [`Access::read`].
    unsafe fn fetch(address: u64) -> Self;
    /// # Safety
    /// `address` is aligned to the size of `Self` and readable.
    unsafe fn load(address: u64) -> Self;
    /// `otherwise` where `present` is false.
    ///
    /// # Safety
    /// `address` is aligned to the size of `Self` and readable if `present`.
    unsafe fn load_or(present: bool, address: u64, otherwise: Self) -> Self;
    /// [`Access::load_or`] past the first-level cache.
    ///
    /// # Safety
    /// As [`Access::load_or`].
    unsafe fn load_once_or(present: bool, address: u64, otherwise: Self) -> Self;
    /// # Safety
    /// `address` is aligned to the size of `Self` and writable, and no other thread touches it unordered.
    unsafe fn store(address: u64, value: Self);
    /// [`Access::store`] of what leaves the caches first.
    ///
    /// # Safety
    /// As [`Access::store`].
    unsafe fn store_once(address: u64, value: Self);
}

impl<T: Access> Global<T> {
    /// `ld.global.nc` of the element.
    ///
    /// # Safety
    /// The element lies in the buffer, and nothing writes it during the launch.
    #[inline(always)]
    pub unsafe fn read(self) -> T {
        // SAFETY: the caller's promise; elements of an aligned buffer are aligned.
        unsafe { T::read(self.address) }
    }

    /// [`Global::read`] that the compiler leaves where it is. It sinks a plain one to its use, and of several loads that
    /// are to be in flight together one is left where branches stand between the uses.
    ///
    /// # Safety
    /// As [`Global::read`].
    #[inline(always)]
    pub unsafe fn fetch(self) -> T {
        // SAFETY: the caller's promise; elements of an aligned buffer are aligned.
        unsafe { T::fetch(self.address) }
    }

    /// `ld.global` of the element.
    ///
    /// # Safety
    /// The element lies in the buffer.
    #[inline(always)]
    pub unsafe fn load(self) -> T {
        // SAFETY: the caller's promise; elements of an aligned buffer are aligned.
        unsafe { T::load(self.address) }
    }

    /// `ld.global` of the element under a predicate: no branch, so loads before and after it stay side by side. Zeros where
    /// `present` is false.
    ///
    /// # Safety
    /// The element lies in the buffer if `present`.
    #[inline(always)]
    pub unsafe fn load_if(self, present: bool) -> T {
        // SAFETY: the caller's promise; elements of an aligned buffer are aligned.
        unsafe { T::load_or(present, self.address, T::default()) }
    }

    /// [`Global::load_if`], with `otherwise` where `present` is false: no selection after the load, which would wait for it.
    ///
    /// # Safety
    /// As [`Global::load_if`].
    #[inline(always)]
    pub unsafe fn load_or(self, present: bool, otherwise: T) -> T {
        // SAFETY: the caller's promise; elements of an aligned buffer are aligned.
        unsafe { T::load_or(present, self.address, otherwise) }
    }

    /// [`Global::load_if`] of what is read once, `ld.global.L1::no_allocate`: it leaves the first-level cache to what is read again
    /// ([PTX ISA, cache eviction priority hints](https://docs.nvidia.com/cuda/parallel-thread-execution/#cache-eviction-priority-hints)).
    ///
    /// # Safety
    /// As [`Global::load_if`].
    #[inline(always)]
    pub unsafe fn load_once_if(self, present: bool) -> T {
        // SAFETY: the caller's promise; elements of an aligned buffer are aligned.
        unsafe { T::load_once_or(present, self.address, T::default()) }
    }

    /// `prefetch.global.L2`: has the element come to the second-level cache, and waits for nothing
    /// ([PTX ISA](https://docs.nvidia.com/cuda/parallel-thread-execution/#data-movement-and-conversion-instructions-prefetch-prefetchu)).
    ///
    /// # Safety
    /// The element lies in the buffer.
    #[inline(always)]
    pub unsafe fn prefetch(self) {
        // SAFETY: the caller's promise; nothing is read that the program sees.
        unsafe {
            asm!("prefetch.global.L2 [{}];", in(reg64) self.address, options(nostack, preserves_flags));
        }
    }

    /// `st.global` of the element.
    ///
    /// # Safety
    /// The element lies in the buffer, and no other thread touches it unordered.
    #[inline(always)]
    pub unsafe fn store(self, value: T) {
        // SAFETY: the caller's promise; elements of an aligned buffer are aligned.
        unsafe { T::store(self.address, value) }
    }

    /// [`Global::store`] of what the launch does not read again, `st.global.cs`: it leaves the caches first
    /// ([PTX ISA, cache operators](https://docs.nvidia.com/cuda/parallel-thread-execution/#cache-operators)).
    ///
    /// # Safety
    /// As [`Global::store`].
    #[inline(always)]
    pub unsafe fn store_once(self, value: T) {
        // SAFETY: the caller's promise; elements of an aligned buffer are aligned.
        unsafe { T::store_once(self.address, value) }
    }
}

/// Implements [`Access`] for a type of one register or an array of them: the suffix of its instructions, the class of the
/// registers and how they are written in an instruction, and its value made of them.
macro_rules! access {
    ($ty:ty, $suffix:literal, $class:ident, $places:literal, $value:tt of $($r:ident),+) => {
        impl Access for $ty {
            // `pure` and `nomem` hold because the memory does not change.
            access!(load read, "ld.global.nc.", [pure, nomem], $suffix, $class, $places, $value of $($r),+);
            access!(load fetch, "ld.global.nc.", [readonly], $suffix, $class, $places, $value of $($r),+);
            access!(load load, "ld.global.", [readonly], $suffix, $class, $places, $value of $($r),+);
            access!(load_or load_or, "ld.global.", $suffix, $class, $places, $value of $($r),+);
            access!(load_or load_once_or, "ld.global.L1::no_allocate.", $suffix, $class, $places, $value of $($r),+);
            access!(store store, "st.global.", $suffix, $class, $places, $value of $($r),+);
            access!(store store_once, "st.global.cs.", $suffix, $class, $places, $value of $($r),+);
        }
    };
    (load $name:ident, $operation:literal, [$($option:ident),+], $suffix:literal, $class:ident, $places:literal,
        $value:tt of $($r:ident),+) => {
        #[inline(always)]
        unsafe fn $name(address: u64) -> Self {
            $(let $r;)+
            // SAFETY: the caller's promise.
            unsafe {
                asm!(concat!($operation, $suffix, " ", $places, ", [{}];"), $(out($class) $r,)+ in(reg64) address,
                    options($($option,)+ nostack, preserves_flags));
            }
            $value
        }
    };
    (load_or $name:ident, $operation:literal, $suffix:literal, $class:ident, $places:literal,
        $value:tt of $($r:ident),+) => {
        #[inline(always)]
        unsafe fn $name(present: bool, address: u64, $value: Self) -> Self {
            $(let mut $r = $r;)+
            // SAFETY: the caller's promise.
            unsafe {
                asm!(concat!("{{ .reg .pred %present; setp.ne.b32 %present, {present}, 0; @%present ", $operation, $suffix, " ",
                    $places, ", [{address}]; }}"), $(inout($class) $r,)+ present = in(reg32) u32::from(present),
                    address = in(reg64) address, options(readonly, nostack, preserves_flags));
            }
            $value
        }
    };
    (store $name:ident, $operation:literal, $suffix:literal, $class:ident, $places:literal,
        $value:tt of $($r:ident),+) => {
        #[inline(always)]
        unsafe fn $name(address: u64, $value: Self) {
            // SAFETY: the caller's promise.
            unsafe {
                asm!(concat!($operation, $suffix, " [{}], ", $places, ";"), in(reg64) address, $(in($class) $r,)+
                    options(nostack, preserves_flags));
            }
        }
    };
}

access!(u8, "b8", reg16, "{}", value of value);
access!(u16, "b16", reg16, "{}", value of value);
access!(u32, "b32", reg32, "{}", value of value);
access!(f32, "b32", reg32, "{}", value of value);
access!(u64, "b64", reg64, "{}", value of value);
access!([u32; 2], "v2.b32", reg32, "{{{}, {}}}", [a, b] of a, b);
access!([u32; 4], "v4.b32", reg32, "{{{}, {}, {}, {}}}", [a, b, c, d] of a, b, c, d);

/// `ld.relaxed.gpu.global.b32`: a word that other threads change by `red` during the launch, as it was at some time since the launch began
/// ([PTX ISA, `ld`](https://docs.nvidia.com/cuda/parallel-thread-execution/#data-movement-and-conversion-instructions-ld)).
///
/// # Safety
/// The word lies in the buffer.
#[inline(always)]
pub unsafe fn peek_u32(word: Global<u32>) -> u32 {
    let value: u32;
    // SAFETY: the caller's promise; elements of an aligned buffer are aligned.
    unsafe {
        asm!("ld.relaxed.gpu.global.b32 {}, [{}];", out(reg32) value, in(reg64) word.address,
            options(readonly, nostack, preserves_flags));
    }
    value
}

/// `red.global.or.b32`: sets bits of a word that other threads may set as well. The outcome does not depend on the order
/// ([PTX ISA, `red`](https://docs.nvidia.com/cuda/parallel-thread-execution/#parallel-synchronization-and-communication-instructions-red)).
///
/// # Safety
/// The word lies in the buffer, and is touched in no other way during the launch.
#[inline(always)]
pub unsafe fn or_u32(word: Global<u32>, bits: u32) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!("red.global.or.b32 [{}], {};", in(reg64) word.address, in(reg32) bits, options(nostack, preserves_flags));
    }
}

/// `red.global.add.u32`: counts one more in a word in which other threads may count as well. The outcome does not depend on the
/// order.
/// <https://docs.nvidia.com/cuda/parallel-thread-execution/#parallel-synchronization-and-communication-instructions-red>
///
/// # Safety
/// `word` is aligned to 4 bytes and lies in the buffer, and other threads touch it only by counting.
#[inline(always)]
pub unsafe fn count_one(word: Global<u32>) {
    // SAFETY: the caller's promise; the instruction writes that word.
    unsafe {
        asm!("red.global.add.u32 [{}], 1;", in(reg64) word.address, options(nostack, preserves_flags));
    }
}

/// `red.global.add.u32`: adds to a word that other threads may add to as well. The outcome does not depend on the order.
///
/// # Safety
/// As [`or_u32`].
#[inline(always)]
pub unsafe fn add_u32(word: Global<u32>, addend: u32) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!("red.global.add.u32 [{}], {};", in(reg64) word.address, in(reg32) addend, options(nostack, preserves_flags));
    }
}

/// `atom.global.add.u32`: adds to a word that other threads may add to as well, and gives what it was before. The sum does not depend on the
/// order, and what a thread is given does
/// ([PTX ISA, `atom`](https://docs.nvidia.com/cuda/parallel-thread-execution/#parallel-synchronization-and-communication-instructions-atom)).
///
/// # Safety
/// As [`or_u32`].
#[inline(always)]
pub unsafe fn add_u32_before(word: Global<u32>, addend: u32) -> u32 {
    let before: u32;
    // SAFETY: the caller's promise.
    unsafe {
        asm!("atom.global.add.u32 {}, [{}], {};", out(reg32) before, in(reg64) word.address, in(reg32) addend,
            options(nostack, preserves_flags));
    }
    before
}

/// `red.global.max.u32`: raises a word that other threads may raise as well. The outcome does not depend on the order.
///
/// # Safety
/// As [`or_u32`].
#[inline(always)]
pub unsafe fn max_u32(word: Global<u32>, value: u32) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!("red.global.max.u32 [{}], {};", in(reg64) word.address, in(reg32) value, options(nostack, preserves_flags));
    }
}

/// `red.global.add.noftz.f16x2`: adds to two halves that other threads may add to as well. Each addition is rounded, so the
/// outcome depends on their order.
///
/// # Safety
/// As [`or_u32`].
#[inline(always)]
pub unsafe fn add_half2(word: Global<u32>, addend: u32) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!("red.global.add.noftz.f16x2 [{}], {};", in(reg64) word.address, in(reg32) addend, options(nostack, preserves_flags));
    }
}

/// `red.global.add.f32`: adds to a float that other threads may add to as well.
///
/// # Safety
/// As [`or_u32`].
#[inline(always)]
pub unsafe fn add_f32(word: Global<u32>, addend: f32) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!("red.global.add.f32 [{}], {};", in(reg64) word.address, in(reg32) addend, options(nostack, preserves_flags));
    }
}
