//! Where the driver's library is, and whether this system has one: the one file that asks for which system it is built.

#[cfg(all(any(target_os = "linux", windows), target_arch = "x86_64"))]
mod bound;
#[cfg(all(target_os = "linux", target_arch = "aarch64"))]
mod bound;

/// The library's name, for the dynamic linker to find (`ldconfig`, `LD_LIBRARY_PATH`; on Windows the folder of the
/// system).
#[cfg(not(windows))]
pub(crate) const USUAL_NAME: &str = "libcuda.so.1";
/// The library's name: NVIDIA's driver puts it into the folder of the system.
#[cfg(windows)]
pub(crate) const USUAL_NAME: &str = "nvcuda.dll";

/// Where it is on two systems that do not say so to the dynamic linker: WSL and NixOS.
#[allow(dead_code, reason = "elsewhere there are no trampolines")]
const UNUSUAL_PLACES: [&str; 2] = [
    "/usr/lib/wsl/lib/libcuda.so.1",
    "/run/opengl-driver/lib/libcuda.so.1",
];

/// Opens the driver's library and binds the entry points to it, where there are trampolines for this system.
pub(crate) fn find_and_bind() -> Result<crate::CudaDriver, crate::LoadError> {
    halfgnn_platform::support::Feature::Cuda.expect()?;
    #[cfg(all(any(target_os = "linux", windows), target_arch = "x86_64"))]
    return bound::find_and_bind();
    #[cfg(all(target_os = "linux", target_arch = "aarch64"))]
    return bound::find_and_bind();
    #[allow(unreachable_code)] // Where one of the two above is there.
    {
        unreachable!("a system without trampolines is refused")
    }
}

/// Assembly of ELF, for `define!`: a section of data that is writable and relocated when the program is loaded, as the
/// slots hold addresses of functions; and what makes a symbol hidden, so that neither the real driver nor another
/// library in the process binds to it.
#[cfg(not(windows))]
#[allow(unused_macros, reason = "elsewhere there are no trampolines")]
macro_rules! directives {
    (data) => {
        ".pushsection .data.rel.halfgnn_cuda_slots,\"aw\",@progbits"
    };
    (text) => {
        ".pushsection .text.halfgnn_cuda_trampolines,\"ax\",@progbits"
    };
    (symbol $kind:literal $name:expr) => {
        concat!(
            ".hidden ",
            $name,
            "\n.globl ",
            $name,
            "\n.type ",
            $name,
            ",@",
            $kind,
            "\n",
            $name,
            ":"
        )
    };
    (end $name:expr) => {
        concat!(".size ", $name, ", . - ", $name)
    };
}
/// Assembly of COFF, for `define!`: a symbol of a program is its own unless it is exported.
#[cfg(windows)]
macro_rules! directives {
    (data) => {
        ".pushsection .data$halfgnn,\"dw\""
    };
    (text) => {
        ".pushsection .text$halfgnn,\"xr\""
    };
    (symbol $kind:literal $name:expr) => {
        concat!(".globl ", $name, "\n", $name, ":")
    };
    (end $name:expr) => {
        ""
    };
}
#[allow(unused_imports, reason = "elsewhere there are no trampolines")]
use directives;

/// The body of a trampoline.
#[cfg(not(target_arch = "aarch64"))]
#[allow(unused_macros, reason = "elsewhere there are no trampolines")]
macro_rules! jump_through {
    ($slot:expr) => {
        concat!("jmp qword ptr [rip + ", $slot, "]\n")
    };
}
/// The body of a trampoline. x16 is the register that the AArch64 calling convention leaves to such veneers.
#[cfg(target_arch = "aarch64")]
#[allow(unused_macros, reason = "elsewhere there are no trampolines")]
macro_rules! jump_through {
    ($slot:expr) => {
        concat!(
            "adrp x16, ",
            $slot,
            "\nldr x16, [x16, :lo12:",
            $slot,
            "]\nbr x16\n"
        )
    };
}
#[allow(unused_imports, reason = "elsewhere there are no trampolines")]
use jump_through;
