//! The device: memory and launches.

use crate::exec::Env;
use crate::ir::Constant;
use crate::memory::{Heap, MemoryError};
use crate::module::{Entry, Module};
use crate::options::{DeviceOptions, LaunchError, LaunchOptions, LaunchReport};
use crate::schedule::{Order, replay, run_blocks, unnamed_race};
use crate::shadow::EPOCHS;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Limits of the hardware that launches are held to.
const MAX_THREADS: u32 = 1024;
const MAX_SHARED: u32 = 227 << 10;

/// A simulated GPU: memory, and launches one at a time.
///
/// All methods take `&self`: a device can be shared among threads, and its launches then follow one another.
pub struct Device {
    heap: Heap,
    /// Addresses of the variables of each module, by module and index.
    variables: Mutex<HashMap<u64, HashMap<u32, u64>>>,
    /// Number of the last launch, modulo [`EPOCHS`]; held during a launch.
    epoch: Mutex<u32>,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device")
            .field("bytes_in_use", &self.bytes_in_use())
            .finish_non_exhaustive()
    }
}

impl Default for Device {
    fn default() -> Self {
        Self::new(DeviceOptions::default())
    }
}

impl Device {
    /// An empty device.
    pub fn new(options: DeviceOptions) -> Device {
        Device {
            heap: Heap::new(options.memory),
            variables: Mutex::default(),
            epoch: Mutex::new(0),
        }
    }

    /// Allocates `bytes` bytes, aligned to 256, with a gap to every other allocation; nothing in them is written yet.
    ///
    /// # Errors
    /// [`MemoryError::OutOfMemory`].
    pub fn alloc(&self, bytes: u64) -> Result<u64, MemoryError> {
        self.heap.alloc(bytes, None)
    }

    /// Frees an allocation; its addresses are never used again.
    ///
    /// # Errors
    /// [`MemoryError::NotAllocated`].
    pub fn free(&self, address: u64) -> Result<(), MemoryError> {
        self.heap.free(address)
    }

    /// Writes bytes from the host.
    ///
    /// # Errors
    /// [`MemoryError::OutOfBounds`].
    pub fn write(&self, address: u64, data: &[u8]) -> Result<(), MemoryError> {
        self.heap.write(address, data)
    }

    /// Reads bytes to the host; bytes that nothing wrote read as 0xCD.
    ///
    /// # Errors
    /// [`MemoryError::OutOfBounds`].
    pub fn read(&self, address: u64, out: &mut [u8]) -> Result<(), MemoryError> {
        self.heap.read(address, out)
    }

    /// Writes `len` times the same byte.
    ///
    /// # Errors
    /// [`MemoryError::OutOfBounds`].
    pub fn fill(&self, address: u64, byte: u8, len: u64) -> Result<(), MemoryError> {
        self.heap.fill(address, byte, len)
    }

    /// Whether each of these bytes was written, by the host or a kernel.
    ///
    /// # Errors
    /// [`MemoryError::OutOfBounds`].
    pub fn is_initialised(&self, address: u64, len: u64) -> Result<bool, MemoryError> {
        self.heap.is_initialised(address, len)
    }

    /// Gives the allocation that holds `address` a name for reports.
    ///
    /// # Errors
    /// [`MemoryError::OutOfBounds`].
    pub fn name_allocation(&self, address: u64, name: &str) -> Result<(), MemoryError> {
        self.heap.name(address, name)
    }

    /// Bytes of all live allocations, variables of modules included.
    pub fn bytes_in_use(&self) -> u64 {
        self.heap.in_use()
    }

    /// The most bytes that were ever in use.
    pub fn peak_bytes(&self) -> u64 {
        self.heap.peak()
    }

    /// Makes the present use the peak.
    pub fn reset_peak(&self) {
        self.heap.reset_peak();
    }

    /// The address of a module's variable on this device, which it is placed on if it was not.
    ///
    /// # Errors
    /// [`MemoryError::OutOfMemory`].
    pub fn global_address(&self, module: &Module, name: &str) -> Result<Option<u64>, MemoryError> {
        let addresses = self.place_variables(module)?;
        Ok(module
            .variables
            .iter()
            .find(|v| v.name == name)
            .and_then(|v| addresses.get(&v.index).copied()))
    }

    /// Forgets a module's variables and frees their memory.
    pub fn unload(&self, module: &Module) {
        let mut placed = self
            .variables
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for address in placed
            .remove(&module.id)
            .into_iter()
            .flat_map(HashMap::into_values)
        {
            // Placed by this device and freed only here.
            let _ = self.heap.free(address);
        }
    }

    fn place_variables(&self, module: &Module) -> Result<HashMap<u32, u64>, MemoryError> {
        let mut placed = self
            .variables
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(addresses) = placed.get(&module.id) {
            return Ok(addresses.clone());
        }
        let mut addresses = HashMap::new();
        for v in module.variables.iter() {
            addresses.insert(
                v.index,
                self.heap
                    .alloc(v.bytes.len() as u64, Some(v.name.clone()))?,
            );
        }
        for v in module.variables.iter() {
            let mut bytes = v.bytes.clone();
            for (at, other, offset) in &v.relocations {
                let address = addresses[other].wrapping_add(*offset as u64);
                bytes[*at as usize..*at as usize + 8].copy_from_slice(&address.to_le_bytes());
            }
            self.heap.write(addresses[&v.index], &bytes)?;
        }
        placed.insert(module.id, addresses.clone());
        Ok(addresses)
    }

    /// Runs a kernel to its end.
    ///
    /// `params` is the buffer of parameters as the driver takes it: each at its [`Param::offset`](crate::Param), so
    /// [`Entry::param_bytes`] bytes (a struct's tail padding may follow). Blocks run on rayon's threads, unless the
    /// kernel uses global atomics whose order shows: then one after the other.
    ///
    /// # Errors
    /// [`LaunchError`]: the first fault in the order of blocks, else the race between blocks at the lowest address.
    /// After a fault, memory that the kernel writes is undefined.
    #[allow(clippy::too_many_arguments)]
    pub fn launch(
        &self,
        module: &Module,
        entry: &str,
        grid: [u32; 3],
        block: [u32; 3],
        dynamic_shared: u32,
        params: &[u8],
        options: &LaunchOptions,
    ) -> Result<LaunchReport, LaunchError> {
        let entry = module
            .entry(entry)
            .ok_or_else(|| LaunchError::UnknownEntry {
                name: entry.to_owned(),
                available: list_entries(module),
            })?;
        check_configuration(entry, grid, block, dynamic_shared, params)?;
        let addresses = self.place_variables(module)?;
        let mut epoch = self.epoch.lock().unwrap_or_else(PoisonError::into_inner);
        let program = entry.program();
        let constants = program.constants.iter().map(|c| match c {
            Constant::Value(v) => [*v; 32],
            Constant::Global(index, offset) => {
                [addresses
                    .get(index)
                    .copied()
                    .unwrap_or(0)
                    .wrapping_add(*offset as u64); 32]
            }
        });
        let mut env = Env {
            module,
            kernel: &entry.name,
            program,
            grid,
            block,
            dynamic_shared,
            params,
            constants: constants.collect(),
            memory: self.heap.snapshot(),
            epoch: self.next_epoch(&mut epoch),
            check_uninitialised: options.checks.uninitialised,
            check_races: options.checks.races,
            step_limit: options.step_limit,
            seed: options.seed,
            watch: None,
        };
        let order = Order::new(grid, options.seed);
        let races = AtomicU64::new(u64::MAX);
        let outcome = run_blocks(&env, &order, &races);
        let fault = match outcome {
            Ok(counts) if races.load(Ordering::Relaxed) == u64::MAX => {
                return Ok(LaunchReport { counts });
            }
            Ok(_) => {
                // Who raced is found by running the blocks again, one after the other, with an eye on that address.
                env.watch = Some(races.load(Ordering::Relaxed));
                env.epoch = self.next_epoch(&mut epoch);
                replay(&env, &order, None).unwrap_or_else(|| unnamed_race(&env))
            }
            Err(failure) => match failure.watch {
                Some(address) => {
                    env.watch = Some(address);
                    env.epoch = self.next_epoch(&mut epoch);
                    replay(&env, &order, Some(failure.position)).unwrap_or(failure.fault)
                }
                None => failure.fault,
            },
        };
        Err(LaunchError::Fault(fault))
    }

    /// A number for a launch; when they start over, every old trace is cleared.
    fn next_epoch(&self, epoch: &mut u32) -> u32 {
        *epoch += 1;
        if *epoch == EPOCHS {
            self.heap.clear_shadows();
            *epoch = 1;
        }
        *epoch
    }
}

fn list_entries(module: &Module) -> String {
    let mut names: Vec<&str> = module.entries().map(|e| e.name.as_str()).take(9).collect();
    if names.len() == 9 {
        names[8] = "…";
    }
    if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    }
}

fn check_configuration(
    entry: &Entry,
    grid: [u32; 3],
    block: [u32; 3],
    dynamic_shared: u32,
    params: &[u8],
) -> Result<(), LaunchError> {
    let error = |message: String| {
        Err(LaunchError::InvalidConfiguration {
            kernel: entry.name.clone(),
            message,
        })
    };
    let threads = block.iter().try_fold(1u32, |n, b| n.checked_mul(*b));
    let threads = match threads {
        Some(n @ 1..=MAX_THREADS) => n,
        _ => {
            return error(format!(
                "a block has 1 to {MAX_THREADS} threads, and {block:?} is asked for"
            ));
        }
    };
    if block[2] > 64 {
        return error(format!(
            "a block is at most 64 deep, and {} are asked for",
            block[2]
        ));
    }
    if let Some(max) = entry.max_threads.filter(|max| threads > *max) {
        return error(format!(
            "the text allows {max} threads a block, and {threads} are asked for"
        ));
    }
    if grid.contains(&0) || grid[0] > i32::MAX as u32 || grid[1] > 65_535 || grid[2] > 65_535 {
        return error(format!(
            "a grid is 1 to 2147483647 by 65535 by 65535 blocks, and {grid:?} is asked for"
        ));
    }
    let shared = entry.static_shared as u64 + u64::from(dynamic_shared);
    if shared > u64::from(MAX_SHARED) {
        return error(format!(
            "a block has at most {MAX_SHARED} bytes of shared memory, and {shared} are asked for"
        ));
    }
    let expected = entry.param_bytes();
    let align = entry.params.iter().map(|p| p.align).max().unwrap_or(1);
    if params.len() != expected && params.len() != expected.next_multiple_of(align) {
        return error(format!(
            "it takes {expected} bytes of parameters, and {} are given",
            params.len()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = ".version 8.0 .target sm_80 .address_size 64
        .global .align 4 .b32 total = 5;
        .visible .entry count(.param .u64 out) .maxntid 64, 1, 1 {
            .reg .b32 %r<4>; .reg .b64 %rd<4>;
            ld.param.b64 %rd1, [out];
            mov.u32 %r1, %ctaid.x;
            mul.wide.u32 %rd2, %r1, 4;
            add.s64 %rd1, %rd1, %rd2;
            mov.b64 %rd3, total;
            ld.global.b32 %r2, [%rd3];
            st.global.b32 [%rd1], %r2;
            ret;
        }
        .visible .entry same(.param .u64 out) {
            .reg .b32 %r<4>; .reg .b64 %rd<4>;
            ld.param.b64 %rd1, [out];
            mov.u32 %r1, %ctaid.x;
            st.global.b32 [%rd1], %r1;
            ret;
        }";

    #[test]
    fn configurations_are_checked_with_their_figures() {
        let module = Module::parse(TEXT).unwrap();
        let device = Device::default();
        let launch = |entry, grid, block, shared, params: &[u8]| {
            let error = device
                .launch(
                    &module,
                    entry,
                    grid,
                    block,
                    shared,
                    params,
                    &LaunchOptions::default(),
                )
                .unwrap_err();
            error.to_string()
        };
        let p = [0u8; 8];
        assert!(
            launch("none", [1; 3], [1; 3], 0, &p).contains("no kernel none; it has count, same")
        );
        assert!(
            launch("count", [1; 3], [65, 1, 1], 0, &p)
                .contains("allows 64 threads a block, and 65")
        );
        assert!(launch("same", [1; 3], [32, 32, 2], 0, &p).contains("1 to 1024 threads"));
        assert!(launch("same", [1; 3], [u32::MAX; 3], 0, &p).contains("1 to 1024 threads"));
        assert!(launch("same", [1, 0, 1], [1; 3], 0, &p).contains("grid"));
        assert!(launch("same", [1, 70_000, 1], [1; 3], 0, &p).contains("70000"));
        assert!(
            launch("same", [1; 3], [1; 3], 300_000, &p)
                .contains("232448 bytes of shared memory, and 300000")
        );
        assert!(
            launch("same", [1; 3], [1; 3], 0, &p[..4]).contains("8 bytes of parameters, and 4")
        );
    }

    /// More launches than the race state can number, on memory that they share: none may remember another.
    #[test]
    fn launches_do_not_race_with_each_other() {
        let module = Module::parse(TEXT).unwrap();
        let device = Device::default();
        let out = device.alloc(4).unwrap();
        for i in 0..2 * EPOCHS {
            let params = out.to_le_bytes();
            let report = device.launch(
                &module,
                "same",
                [1; 3],
                [1; 3],
                0,
                &params,
                &LaunchOptions::default(),
            );
            assert!(report.is_ok(), "launch {i}");
        }
    }

    /// Blocks run on several threads; the report is that of one.
    #[test]
    fn a_race_is_reported_alike_every_time() {
        let module = Module::parse(TEXT).unwrap();
        let reports = |threads| {
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .build()
                .unwrap();
            let options = LaunchOptions {
                seed: 3,
                ..LaunchOptions::default()
            };
            (0..20)
                .map(|_| {
                    let device = Device::default();
                    let out = device.alloc(4).unwrap();
                    device.name_allocation(out, "out").unwrap();
                    let launched = pool.install(|| {
                        device.launch(
                            &module,
                            "same",
                            [500, 1, 1],
                            [1; 3],
                            0,
                            &out.to_le_bytes(),
                            &options,
                        )
                    });
                    launched.unwrap_err().to_string()
                })
                .collect::<std::collections::BTreeSet<String>>()
        };
        let one = reports(1);
        assert_eq!(one.len(), 1);
        assert_eq!(one, reports(4));
        assert!(
            one.first()
                .is_some_and(|r| r.starts_with("race between blocks in kernel same")),
            "{one:?}"
        );
    }

    #[test]
    fn variables_are_placed_once_and_freed() {
        let module = Module::parse(TEXT).unwrap();
        let device = Device::default();
        let address = device.global_address(&module, "total").unwrap().unwrap();
        assert_eq!(
            device.global_address(&module, "total").unwrap(),
            Some(address)
        );
        assert_eq!(device.global_address(&module, "other").unwrap(), None);
        device.write(address, &9u32.to_le_bytes()).unwrap();
        let out = device.alloc(400).unwrap();
        let report = device
            .launch(
                &module,
                "count",
                [100, 1, 1],
                [1; 3],
                0,
                &out.to_le_bytes(),
                &LaunchOptions::default(),
            )
            .unwrap();
        let mut bytes = [0; 400];
        device.read(out, &mut bytes).unwrap();
        assert!(bytes.chunks(4).all(|b| b == 9u32.to_le_bytes()));
        assert_eq!(report.counts.global_stores.requests, 100);
        assert_eq!(device.bytes_in_use(), 404);
        device.unload(&module);
        assert_eq!(device.bytes_in_use(), 400);
    }
}
