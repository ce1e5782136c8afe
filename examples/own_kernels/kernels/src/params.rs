//! What host and kernel must agree on, compiled into both.

/// The parameter of the kernel `leaky_relu`.
#[derive(Clone, Copy)]
#[cfg_attr(not(target_arch = "nvptx64"), derive(bytemuck::NoUninit))] // the host passes it as bytes
#[repr(C)]
pub struct LeakyRelu {
    /// Device address of the floats.
    pub values: u64,
    /// How many there are.
    pub len: u64,
    /// Factor of those below zero.
    pub slope: f32,
    /// No byte is left undefined.
    pub padding: u32,
}
