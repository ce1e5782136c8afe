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

    /// The raw address.
    #[inline(always)]
    pub fn address(self) -> u64 {
        self.address
    }
}

/// A value that one instruction moves between a register, or a vector of them, and memory.
pub trait Access: Copy {
    /// # Safety
    /// `address` is aligned to the size of `Self` and readable, and nothing writes there during the launch.
    unsafe fn read(address: u64) -> Self;
    /// # Safety
    /// `address` is aligned to the size of `Self` and readable.
    unsafe fn load(address: u64) -> Self;
    /// # Safety
    /// `address` is aligned to the size of `Self` and writable, and no other thread touches it unordered.
    unsafe fn store(address: u64, value: Self);
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

    /// `ld.global` of the element.
    ///
    /// # Safety
    /// The element lies in the buffer.
    #[inline(always)]
    pub unsafe fn load(self) -> T {
        // SAFETY: the caller's promise; elements of an aligned buffer are aligned.
        unsafe { T::load(self.address) }
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
}

/// Implements [`Access`] for a type of one register.
macro_rules! access_scalar {
    ($ty:ty, $suffix:literal, $class:ident) => {
        impl Access for $ty {
            #[inline(always)]
            unsafe fn read(address: u64) -> Self {
                let value: Self;
                // SAFETY: the caller's promise; `pure` and `nomem` hold because the memory does not change.
                unsafe {
                    asm!(concat!("ld.global.nc.", $suffix, " {}, [{}];"), out($class) value, in(reg64) address,
                        options(pure, nomem, nostack, preserves_flags));
                }
                value
            }
            #[inline(always)]
            unsafe fn load(address: u64) -> Self {
                let value: Self;
                // SAFETY: the caller's promise.
                unsafe {
                    asm!(concat!("ld.global.", $suffix, " {}, [{}];"), out($class) value, in(reg64) address,
                        options(readonly, nostack, preserves_flags));
                }
                value
            }
            #[inline(always)]
            unsafe fn store(address: u64, value: Self) {
                // SAFETY: the caller's promise.
                unsafe {
                    asm!(concat!("st.global.", $suffix, " [{}], {};"), in(reg64) address, in($class) value,
                        options(nostack, preserves_flags));
                }
            }
        }
    };
}

access_scalar!(u16, "b16", reg16);
access_scalar!(u32, "b32", reg32);
access_scalar!(f32, "b32", reg32);
access_scalar!(u64, "b64", reg64);

/// Implements [`Access`] for an array of 32-bit registers.
macro_rules! access_vector {
    ($n:literal, $suffix:literal, $places:literal, $($r:ident),+) => {
        impl Access for [u32; $n] {
            #[inline(always)]
            unsafe fn read(address: u64) -> Self {
                $(let $r: u32;)+
                // SAFETY: the caller's promise; `pure` and `nomem` hold because the memory does not change.
                unsafe {
                    asm!(concat!("ld.global.nc.", $suffix, " {{", $places, "}}, [{}];"), $(out(reg32) $r,)+ in(reg64) address,
                        options(pure, nomem, nostack, preserves_flags));
                }
                [$($r),+]
            }
            #[inline(always)]
            unsafe fn load(address: u64) -> Self {
                $(let $r: u32;)+
                // SAFETY: the caller's promise.
                unsafe {
                    asm!(concat!("ld.global.", $suffix, " {{", $places, "}}, [{}];"), $(out(reg32) $r,)+ in(reg64) address,
                        options(readonly, nostack, preserves_flags));
                }
                [$($r),+]
            }
            #[inline(always)]
            unsafe fn store(address: u64, [$($r),+]: Self) {
                // SAFETY: the caller's promise.
                unsafe {
                    asm!(concat!("st.global.", $suffix, " [{}], {{", $places, "}};"), in(reg64) address, $(in(reg32) $r,)+
                        options(nostack, preserves_flags));
                }
            }
        }
    };
}

access_vector!(2, "v2.b32", "{}, {}", a, b);
access_vector!(4, "v4.b32", "{}, {}, {}, {}", a, b, c, d);

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
