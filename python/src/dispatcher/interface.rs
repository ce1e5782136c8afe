//! Torch's stable C interface (`torch/csrc/inductor/aoti_torch/c/shim.h` and `torch/csrc/stable`), as much as operators
//! want of it. Each function returns 0, or something else where torch threw an exception, which it keeps to itself.

use super::operator::Definition;
use halfgnn::tensor::Precision;
use std::collections::HashMap;
use std::ffi::{CString, c_char, c_void};
use std::ptr;

type Handle = *mut c_void;
type Code = i32;

/// A kernel: its arguments, a word each, how many there are, and how many results it writes over them.
pub type Kernel = unsafe extern "C" fn(*mut u64, u64, u64);

type Number = unsafe extern "C" fn() -> i32;
type Read<T> = unsafe extern "C" fn(Handle, *mut T) -> Code;

/// The functions.
pub struct Interface {
    get_data_ptr: Read<*mut c_void>,
    get_dim: Read<i64>,
    get_sizes: Read<*const i64>,
    get_strides: Read<*const i64>,
    get_dtype: Read<i32>,
    get_device_type: Read<i32>,
    get_device_index: Read<i32>,
    get_storage_offset: Read<i64>,
    get_storage_size: Read<i64>,
    new_tensor_handle: Read<Handle>,
    clone: Read<Handle>,
    delete_tensor_object: unsafe extern "C" fn(Handle) -> Code,
    empty_strided:
        unsafe extern "C" fn(i64, *const i64, *const i64, i32, i32, i32, *mut Handle) -> Code,
    reinterpret_tensor:
        unsafe extern "C" fn(Handle, i64, *const i64, *const i64, i64, *mut Handle) -> Code,
    delete_word: unsafe extern "C" fn(*mut u64),
    library_init_fragment:
        unsafe extern "C" fn(*const c_char, *const c_char, u32, *mut Handle) -> Code,
    library_init_impl:
        unsafe extern "C" fn(*const c_char, *const c_char, *const c_char, u32, *mut Handle) -> Code,
    library_def: unsafe extern "C" fn(Handle, *const c_char) -> Code,
    library_impl: unsafe extern "C" fn(Handle, *const c_char, Kernel) -> Code,
    cuda: Option<Cuda>,
    /// Torch's numbers of half, bfloat16 and float, and of 32-bit integers.
    formats: [i32; 3],
    words: i32,
    /// And of the CPU and of GPUs.
    devices: [i32; 2],
}

/// What a torch without CUDA lacks.
struct Cuda {
    get_current_stream: unsafe extern "C" fn(i32, *mut *mut c_void) -> Code,
    create_guard: unsafe extern "C" fn(i32, *mut Handle) -> Code,
    delete_guard: unsafe extern "C" fn(Handle) -> Code,
}

/// The type of a tensor's elements, and where they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kind {
    /// Of the elements; None of 32-bit integers.
    pub format: Option<Precision>,
    pub device: Device,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Device {
    Cpu,
    Cuda(i32),
}

impl Kind {
    /// Floats on the CPU.
    pub fn host() -> Self {
        Self {
            format: Some(Precision::Float),
            device: Device::Cpu,
        }
    }
}

/// The function that has this name.
///
/// # Safety
/// It is of the type `F`, a pointer to a function.
unsafe fn find<F: Copy>(functions: &HashMap<String, usize>, name: &str) -> Result<F, String> {
    const { assert!(size_of::<F>() == size_of::<*const c_void>()) };
    let address = functions.get(name).filter(|address| **address != 0);
    let address = *address.ok_or_else(|| format!("torch has no {name}"))?;
    let pointer = ptr::with_exposed_provenance::<c_void>(address);
    // SAFETY: as large; that it is one is what this function asks of its caller.
    Ok(unsafe { std::mem::transmute_copy::<*const c_void, F>(&pointer) })
}

impl Interface {
    /// # Safety
    /// Each function is torch's of that name.
    pub unsafe fn of(functions: &HashMap<String, usize>) -> Result<Self, String> {
        // SAFETY: what this function asks of its caller; types are those of torch's headers, here and below.
        let number = |name: &str| unsafe { find::<Number>(functions, name).map(|f| f()) };
        // SAFETY: as above.
        let cuda = unsafe {
            match find(functions, "aoti_torch_get_current_cuda_stream") {
                Ok(get_current_stream) => Some(Cuda {
                    get_current_stream,
                    create_guard: find(functions, "aoti_torch_create_cuda_guard")?,
                    delete_guard: find(functions, "aoti_torch_delete_cuda_guard")?,
                }),
                Err(_) => None,
            }
        };
        // SAFETY: as above.
        unsafe {
            Ok(Self {
                get_data_ptr: find(functions, "aoti_torch_get_data_ptr")?,
                get_dim: find(functions, "aoti_torch_get_dim")?,
                get_sizes: find(functions, "aoti_torch_get_sizes")?,
                get_strides: find(functions, "aoti_torch_get_strides")?,
                get_dtype: find(functions, "aoti_torch_get_dtype")?,
                get_device_type: find(functions, "aoti_torch_get_device_type")?,
                get_device_index: find(functions, "aoti_torch_get_device_index")?,
                get_storage_offset: find(functions, "aoti_torch_get_storage_offset")?,
                get_storage_size: find(functions, "aoti_torch_get_storage_size")?,
                new_tensor_handle: find(functions, "aoti_torch_new_tensor_handle")?,
                clone: find(functions, "aoti_torch_clone")?,
                delete_tensor_object: find(functions, "aoti_torch_delete_tensor_object")?,
                empty_strided: find(functions, "aoti_torch_empty_strided")?,
                reinterpret_tensor: find(functions, "aoti_torch__reinterpret_tensor")?,
                // What `new` made: before torch 2.13 C++'s own.
                delete_word: find(functions, "torch_delete_stable_ivalue")
                    .or_else(|_| find(functions, "_ZdlPv"))?,
                library_init_fragment: find(functions, "aoti_torch_library_init_fragment")?,
                library_init_impl: find(functions, "aoti_torch_library_init_impl")?,
                library_def: find(functions, "aoti_torch_library_def")?,
                library_impl: find(functions, "aoti_torch_library_impl")?,
                cuda,
                formats: [
                    number("aoti_torch_dtype_float16")?,
                    number("aoti_torch_dtype_bfloat16")?,
                    number("aoti_torch_dtype_float32")?,
                ],
                words: number("aoti_torch_dtype_int32")?,
                devices: [
                    number("aoti_torch_device_type_cpu")?,
                    number("aoti_torch_device_type_cuda")?,
                ],
            })
        }
    }

    /// Defines an operator of the namespace `halfgnn`, with one kernel for the CPU and for GPUs. It stays as long as
    /// the process.
    pub fn define(&self, of: &Definition) -> Result<(), String> {
        let Definition {
            name,
            schema,
            kernel,
        } = of;
        let text = |text: &str| CString::new(text).map_err(|error| error.to_string());
        let (namespace, file, name) = (text("halfgnn")?, text(file!())?, text(name)?);
        let refused = |what: &str| format!("torch refuses {what}");
        let mut library = ptr::null_mut();
        let schema = text(schema)?;
        // SAFETY: strings that end with a zero, and memory for a handle; the kernel is of the type that torch calls.
        unsafe {
            let made = (self.library_init_fragment)(
                namespace.as_ptr(),
                file.as_ptr(),
                line!(),
                &raw mut library,
            );
            check(made).map_err(|()| refused("a library of operators"))?;
            check((self.library_def)(library, schema.as_ptr()))
                .map_err(|()| refused("a schema"))?;
            for key in ["CPU", "CUDA"] {
                let of = text(key)?;
                let made = (self.library_init_impl)(
                    namespace.as_ptr(),
                    of.as_ptr(),
                    file.as_ptr(),
                    line!(),
                    &raw mut library,
                );
                check(made).map_err(|()| refused("a library of kernels"))?;
                check((self.library_impl)(library, name.as_ptr(), *kernel))
                    .map_err(|()| refused("a kernel"))?;
            }
        }
        Ok(())
    }

    /// A list of any content.
    pub fn list(&self, len: usize, kind: Kind) -> Option<Tensor<'_>> {
        self.empty(&[i64::try_from(len).ok()?], &[1], kind)
    }

    /// A matrix of any content, whose rows begin `stride` elements apart, with memory for whole rows.
    pub fn matrix(
        &self,
        rows: usize,
        columns: usize,
        stride: usize,
        kind: Kind,
    ) -> Option<Tensor<'_>> {
        let number = |of: usize| i64::try_from(of).ok();
        let (rows, columns, stride) = (number(rows)?, number(columns)?, number(stride)?);
        let strides = [stride, 1];
        let whole = self.empty(&[rows, stride], &strides, kind)?;
        if stride == columns {
            return Some(whole);
        }
        let shape = [rows, columns];
        self.made(|handle| {
            // SAFETY: as many sizes and strides as are said, a part of what the tensor is of, and memory for a handle.
            unsafe {
                (self.reinterpret_tensor)(
                    whole.handle,
                    2,
                    shape.as_ptr(),
                    strides.as_ptr(),
                    0,
                    handle,
                )
            }
        })
    }

    fn empty(&self, sizes: &[i64], strides: &[i64], kind: Kind) -> Option<Tensor<'_>> {
        let dtype = match kind.format {
            Some(Precision::Half) => self.formats[0],
            Some(Precision::BFloat16) => self.formats[1],
            Some(Precision::Float) => self.formats[2],
            None => self.words,
        };
        let (device, index) = match kind.device {
            Device::Cpu => (self.devices[0], 0),
            Device::Cuda(index) => (self.devices[1], index),
        };
        let (dimensions, sizes, strides) = (sizes.len() as i64, sizes.as_ptr(), strides.as_ptr());
        self.made(|handle| {
            // SAFETY: as many sizes and strides as are said, and memory for a handle.
            unsafe {
                (self.empty_strided)(dimensions, sizes, strides, dtype, device, index, handle)
            }
        })
    }

    fn made(&self, make: impl FnOnce(*mut Handle) -> Code) -> Option<Tensor<'_>> {
        let mut handle = ptr::null_mut();
        check(make(&raw mut handle)).ok()?;
        Some(Tensor {
            handle,
            interface: self,
        })
    }

    /// A tensor that torch gave a kernel.
    ///
    /// # Safety
    /// The word is such an argument, of the type `Tensor`, and has no other owner.
    pub unsafe fn tensor(&self, word: u64) -> Tensor<'_> {
        Tensor {
            handle: ptr::with_exposed_provenance_mut(word as usize),
            interface: self,
        }
    }

    /// One that may be absent.
    ///
    /// # Safety
    /// As of [`Interface::tensor`], of the type `Tensor?`.
    pub unsafe fn optional(&self, word: u64) -> Option<Tensor<'_>> {
        let boxed: *mut u64 = ptr::with_exposed_provenance_mut(word as usize);
        if boxed.is_null() {
            return None;
        }
        // SAFETY: torch made a word for it, which the kernel frees once it has read it.
        let word = unsafe {
            let word = boxed.read();
            (self.delete_word)(boxed);
            word
        };
        // SAFETY: what this function asks of its caller.
        Some(unsafe { self.tensor(word) })
    }

    /// Torch's current stream on a GPU.
    pub fn stream(&self, card: i32) -> Option<u64> {
        let mut stream = ptr::null_mut();
        // SAFETY: memory for a pointer.
        let code = unsafe { (self.cuda.as_ref()?.get_current_stream)(card, &raw mut stream) };
        check(code).ok()?;
        Some(stream.expose_provenance() as u64)
    }

    /// Has a GPU be the current one until the guard is dropped.
    pub fn guard(&self, card: i32) -> Option<Guard<'_>> {
        let cuda = self.cuda.as_ref()?;
        let mut handle = ptr::null_mut();
        // SAFETY: memory for a handle.
        check(unsafe { (cuda.create_guard)(card, &raw mut handle) }).ok()?;
        Some(Guard { handle, cuda })
    }
}

fn check(code: Code) -> Result<(), ()> {
    if code == 0 { Ok(()) } else { Err(()) }
}

/// A GPU that is the current one.
pub struct Guard<'a> {
    handle: Handle,
    cuda: &'a Cuda,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        // SAFETY: torch's, and freed here alone.
        unsafe { (self.cuda.delete_guard)(self.handle) };
    }
}

/// A reference to a tensor.
pub struct Tensor<'a> {
    handle: Handle,
    interface: &'a Interface,
}

// SAFETY: torch counts references atomically, and what this reads of a tensor does not change meanwhile.
unsafe impl Send for Tensor<'_> {}
// SAFETY: as above.
unsafe impl Sync for Tensor<'_> {}

impl Drop for Tensor<'_> {
    fn drop(&mut self) {
        // SAFETY: torch's, and freed here alone.
        unsafe { (self.interface.delete_tensor_object)(self.handle) };
    }
}

impl Tensor<'_> {
    /// Its word as a result of a kernel, with the reference.
    pub fn into_raw(self) -> u64 {
        let word = self.handle.expose_provenance() as u64;
        std::mem::forget(self);
        word
    }

    /// Another reference.
    pub fn shared<'a>(&self, interface: &'a Interface) -> Option<Tensor<'a>> {
        let handle = self.read(interface.new_tensor_handle)?;
        Some(Tensor { handle, interface })
    }

    /// A copy, of as many elements that lie in the same way.
    pub fn cloned(&self) -> Option<Self> {
        let (handle, interface) = (self.read(self.interface.clone)?, self.interface);
        Some(Self { handle, interface })
    }

    fn read<T: Copy>(&self, what: Read<T>) -> Option<T> {
        let mut value = std::mem::MaybeUninit::uninit();
        // SAFETY: torch's tensor, and memory for what the function writes.
        check(unsafe { what(self.handle, value.as_mut_ptr()) }).ok()?;
        // SAFETY: it was written.
        Some(unsafe { value.assume_init() })
    }

    /// Elements of a format of halfgnn's or 32-bit integers, on the CPU or a GPU; None of all else.
    pub fn kind(&self) -> Option<Kind> {
        let torch = self.interface;
        let dtype = self.read(torch.get_dtype)?;
        let format = match torch.formats.iter().position(|of| *of == dtype) {
            Some(0) => Some(Precision::Half),
            Some(1) => Some(Precision::BFloat16),
            Some(_) => Some(Precision::Float),
            None if dtype == torch.words => None,
            None => return None,
        };
        let device = match self.read(torch.get_device_type)? {
            of if of == torch.devices[0] => Device::Cpu,
            of if of == torch.devices[1] => Device::Cuda(self.read(torch.get_device_index)?),
            _ => return None,
        };
        Some(Kind { format, device })
    }

    /// Address of the first element.
    pub fn address(&self) -> Option<u64> {
        let pointer = self.read(self.interface.get_data_ptr)?;
        Some(pointer.expose_provenance() as u64)
    }

    /// Sizes and strides of as many dimensions.
    pub fn shape<const N: usize>(&self) -> Option<[(usize, usize); N]> {
        if self.read(self.interface.get_dim)? != N as i64 {
            return None;
        }
        let sizes = self.read(self.interface.get_sizes)?;
        let strides = self.read(self.interface.get_strides)?;
        let mut shape = [(0, 0); N];
        for (at, of) in shape.iter_mut().enumerate() {
            // SAFETY: as many as there are dimensions, as long as the tensor lives and is not changed in place.
            let (size, stride) = unsafe { (sizes.add(at).read(), strides.add(at).read()) };
            *of = (usize::try_from(size).ok()?, usize::try_from(stride).ok()?);
        }
        Some(shape)
    }

    /// Elements of its memory from its first on.
    pub fn room(&self, bytes_an_element: usize) -> Option<usize> {
        let bytes = usize::try_from(self.read(self.interface.get_storage_size)?).ok()?;
        let before = usize::try_from(self.read(self.interface.get_storage_offset)?).ok()?;
        (bytes / bytes_an_element).checked_sub(before)
    }
}
