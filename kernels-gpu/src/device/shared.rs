//! Dynamic shared memory, addressed by byte offsets in its own 32-bit space.
//!
//! Accesses through generic pointers would come out as plain `ld`/`st`, which find the space out at run time; these say
//! `.shared` (PTX ISA, "State Spaces").

use core::arch::asm;

/// An address in the shared memory of the CTA.
#[derive(Clone, Copy)]
pub struct Shared(u32);

impl Shared {
    /// The first byte of the dynamic shared memory, which the root of the entries declares.
    #[inline(always)]
    pub fn base() -> Self {
        let address: u32;
        // SAFETY: reads the address of a symbol; the kernel's module declares it above.
        unsafe {
            asm!("mov.u32 {}, halfgnn_shared;", out(reg32) address, options(pure, nomem, nostack, preserves_flags));
        }
        Self(address)
    }

    /// The address `bytes` further on.
    #[inline(always)]
    pub fn offset(self, bytes: u32) -> Self {
        Self(self.0.wrapping_add(bytes))
    }

    /// The raw address in the `.shared` window.
    #[inline(always)]
    pub fn address(self) -> u32 {
        self.0
    }

    /// `ld.shared.b32`
    ///
    /// # Safety
    /// The four bytes are aligned, within the launch's shared memory, and ordered by a barrier after their store, or by the wait
    /// for it where a copy of the thread's own brought them.
    #[inline(always)]
    pub unsafe fn load_u32(self) -> u32 {
        let value: u32;
        // SAFETY: the caller's promise.
        unsafe {
            asm!("ld.shared.b32 {}, [{}];", out(reg32) value, in(reg32) self.0, options(readonly, nostack, preserves_flags));
        }
        value
    }

    /// `ld.shared.v4.b32`
    ///
    /// # Safety
    /// As [`Shared::load_u32`], for 16 bytes aligned to 16.
    #[inline(always)]
    pub unsafe fn load_u32x4(self) -> [u32; 4] {
        let (a, b, c, d): (u32, u32, u32, u32);
        // SAFETY: the caller's promise.
        unsafe {
            asm!("ld.shared.v4.b32 {{{}, {}, {}, {}}}, [{}];",
                out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in(reg32) self.0,
                options(readonly, nostack, preserves_flags));
        }
        [a, b, c, d]
    }

    /// `ld.shared.v2.b32`
    ///
    /// # Safety
    /// As [`Shared::load_u32`], for 8 bytes aligned to 8.
    #[inline(always)]
    pub unsafe fn load_u32x2(self) -> [u32; 2] {
        let (a, b): (u32, u32);
        // SAFETY: the caller's promise.
        unsafe {
            asm!("ld.shared.v2.b32 {{{}, {}}}, [{}];", out(reg32) a, out(reg32) b, in(reg32) self.0,
                options(readonly, nostack, preserves_flags));
        }
        [a, b]
    }

    /// `st.shared.b32`
    ///
    /// # Safety
    /// The four bytes are aligned, within the launch's shared memory, and no other lane touches them before a barrier.
    #[inline(always)]
    pub unsafe fn store_u32(self, value: u32) {
        // SAFETY: the caller's promise.
        unsafe {
            asm!("st.shared.b32 [{}], {};", in(reg32) self.0, in(reg32) value, options(nostack, preserves_flags));
        }
    }

    /// `st.shared.v2.b32`
    ///
    /// # Safety
    /// As [`Shared::store_u32`], for 8 bytes aligned to 8.
    #[inline(always)]
    pub unsafe fn store_u32x2(self, [a, b]: [u32; 2]) {
        // SAFETY: the caller's promise.
        unsafe {
            asm!("st.shared.v2.b32 [{}], {{{}, {}}};", in(reg32) self.0, in(reg32) a, in(reg32) b,
                options(nostack, preserves_flags));
        }
    }

    /// `st.shared.v4.b32`
    ///
    /// # Safety
    /// As [`Shared::store_u32`], for 16 bytes aligned to 16.
    #[inline(always)]
    pub unsafe fn store_u32x4(self, [a, b, c, d]: [u32; 4]) {
        // SAFETY: the caller's promise.
        unsafe {
            asm!("st.shared.v4.b32 [{}], {{{}, {}, {}, {}}};",
                in(reg32) self.0, in(reg32) a, in(reg32) b, in(reg32) c, in(reg32) d, options(nostack, preserves_flags));
        }
    }

    /// [`Shared::load_u32`] of a float.
    ///
    /// # Safety
    /// As [`Shared::load_u32`].
    #[inline(always)]
    pub unsafe fn load_f32(self) -> f32 {
        // SAFETY: the caller's promise.
        f32::from_bits(unsafe { self.load_u32() })
    }

    /// [`Shared::store_u32`] of a float.
    ///
    /// # Safety
    /// As [`Shared::store_u32`].
    #[inline(always)]
    pub unsafe fn store_f32(self, value: f32) {
        // SAFETY: the caller's promise.
        unsafe { self.store_u32(value.to_bits()) }
    }
}

/// `red.shared.or.b32`: sets bits of a word that other threads of the CTA may set as well
/// ([PTX ISA, `red`](https://docs.nvidia.com/cuda/parallel-thread-execution/#parallel-synchronization-and-communication-instructions-red)).
///
/// # Safety
/// The word lies in the launch's shared memory and is aligned to 4 bytes; between two barriers it is touched in no other way.
#[inline(always)]
pub unsafe fn or_u32(word: Shared, bits: u32) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!("red.shared.or.b32 [{}], {};", in(reg32) word.address(), in(reg32) bits, options(nostack, preserves_flags));
    }
}
