//! What host and kernels must agree on, compiled into both.

/// The parameter of the kernels `leaky_relu` and `leaky_relu_backward`.
#[derive(Clone, Copy)]
#[cfg_attr(not(target_arch = "nvptx64"), derive(bytemuck::NoUninit))] // the host passes it as bytes
#[repr(C)]
pub struct LeakyRelu {
    /// Device address of the input, which becomes the output; or of the output, for the gradient.
    pub y: u64,
    /// Device address of the gradient; without one, that of `y`.
    pub d: u64,
    /// How many floats each has.
    pub len: u64,
    /// Factor of those below zero.
    pub slope: f32,
    /// No byte is left undefined.
    pub padding: u32,
}
