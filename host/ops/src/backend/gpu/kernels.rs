//! The kernels that the launch contract names: compared with the built ones, and loaded when they are first launched.

use crate::driver::kernels::{Form, Image, Kernels as Built};
use crate::driver::{Driver, DriverError, LaunchConfig};
use crate::error::Error;
use halfgnn_contract::{FINGERPRINT, FINGERPRINT_SYMBOL, Param, entries, param_bytes};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;

/// The kernels of the launch contract on a device.
#[derive(Debug)]
pub struct Kernels<D: Driver> {
    shared: Arc<Shared<D>>,
    /// Whether they are looked up and not launched.
    silent: bool,
}

#[derive(Debug)]
struct Shared<D: Driver> {
    /// Absent for a device that launches nothing.
    built: Option<Built>,
    functions: HashMap<&'static str, OnceLock<D::Function>>,
    modules: BTreeMap<String, OnceLock<Loaded<D>>>,
    /// What was launched on a device that launches nothing.
    wanted: Mutex<KernelSet>,
}

/// A module on the device, in the form that it has there; or why it cannot be loaded.
type Loaded<D> = Result<(Form, <D as Driver>::Module), String>;

/// Some of the kernels of the launch contract.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelSet([u64; Self::WORDS]);

impl KernelSet {
    /// A bit for each kernel of the contract, in its order; a test holds that there are enough.
    const WORDS: usize = 16;

    /// Adds a kernel; nothing where the contract has no such name.
    fn insert(&mut self, name: &str) {
        if let Some(at) = entries().position(|entry| entry.name == name)
            && let Some(word) = self.0.get_mut(at / 64)
        {
            *word |= 1 << (at % 64);
        }
    }

    /// The kernels of both.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] | other.0[word]))
    }

    /// The names, in the contract's order.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let has = move |at: usize| {
            self.0
                .get(at / 64)
                .is_some_and(|word| word >> (at % 64) & 1 == 1)
        };
        entries()
            .enumerate()
            .filter(move |(at, _)| has(*at))
            .map(|(_, entry)| entry.name)
    }
}

/// A module as a device has it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModuleState {
    /// Its name.
    pub name: String,
    /// How many kernels it has.
    pub entries: usize,
    /// The form that it has, or would be loaded in; `None` where a package does not carry it.
    pub form: Option<Form>,
    /// Whether it is loaded.
    pub is_loaded: bool,
}

impl<D: Driver> Kernels<D> {
    /// Compares the built kernels with the contract. Nothing is loaded yet.
    pub fn load(built: Built) -> Result<Self, Error> {
        check(&built)?;
        Ok(Self::of(Some(built)))
    }

    /// What the contract names, for a device that launches nothing and so needs no kernels.
    pub fn of_contract() -> Self {
        Self::of(None)
    }

    fn of(built: Option<Built>) -> Self {
        let modules = built.iter().flat_map(Built::modules);
        Self {
            silent: built.is_none(),
            shared: Arc::new(Shared {
                modules: modules
                    .map(|(name, _)| (name.to_owned(), OnceLock::new()))
                    .collect(),
                functions: entries()
                    .map(|entry| (entry.name, OnceLock::new()))
                    .collect(),
                wanted: Mutex::default(),
                built,
            }),
        }
    }

    /// The same, which are looked up and not launched.
    pub fn silent(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            silent: true,
        }
    }

    /// Whether nothing is launched.
    pub fn is_silent(&self) -> bool {
        self.silent
    }

    /// The kernels that were launched so far on a device that launches nothing.
    pub fn wanted(&self) -> KernelSet {
        *self
            .shared
            .wanted
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Loads kernels that are known to be launched soon, in parallel. One that cannot be loaded is left to its launch,
    /// which reports why.
    pub fn prefetch(&self, driver: &D, kernels: KernelSet) {
        if self.silent {
            return;
        }
        let is_missing = |name: &&'static str| {
            let function = self.shared.functions.get(*name);
            function.is_some_and(|function| function.get().is_none())
        };
        let missing: Vec<&'static str> = kernels.names().filter(is_missing).collect();
        let threads = thread::available_parallelism()
            .map_or(1, usize::from)
            .min(missing.len());
        let next = AtomicUsize::new(0);
        let take = || {
            while let Some(name) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
                let _ = self.function(driver, name);
            }
        };
        match threads {
            0 => {}
            1 => take(),
            _ => thread::scope(|scope| {
                for _ in 0..threads {
                    // Without a thread the others take its part, or the launches do.
                    let _ = thread::Builder::new().spawn_scoped(scope, take);
                }
            }),
        }
    }

    /// Every module, by name.
    pub fn modules(&self, driver: &D) -> Vec<ModuleState> {
        let machine_code = driver.runs_machine_code();
        let Some(built) = &self.shared.built else {
            return Vec::new();
        };
        let states = built.modules().map(|(name, record)| {
            let loaded = self.shared.modules.get(name).and_then(OnceLock::get);
            let loaded = loaded.and_then(|loaded| loaded.as_ref().ok());
            ModuleState {
                name: name.to_owned(),
                entries: record.entries.len(),
                form: match loaded {
                    Some((form, _)) => Some(*form),
                    None => built.form(record, machine_code),
                },
                is_loaded: loaded.is_some(),
            }
        });
        states.collect()
    }

    /// Launches the entry `name`; nothing where the grid is empty.
    ///
    /// # Safety
    /// Every device address in `params` lies in a buffer that the operator's caller owns, as long as the kernel's
    /// contract asks for.
    pub unsafe fn launch<P: Param>(
        &self,
        driver: &D,
        name: &'static str,
        config: LaunchConfig,
        params: &P,
    ) -> Result<(), Error> {
        if config.grid.contains(&0) {
            return Ok(());
        }
        if self.silent {
            if self.shared.built.is_none() {
                let mut wanted = self
                    .shared
                    .wanted
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                wanted.insert(name);
            }
            return match self.shared.functions.contains_key(name) {
                true => Ok(()),
                false => Err(unnamed(name)),
            };
        }
        let function = self.function(driver, name)?;
        // SAFETY: `check` compared the size of the entry's parameter with the contract's, and the fingerprint its
        // fields; addresses are the caller's promise. Buffers outlive the launch because a driver frees in the order
        // of its stream.
        Ok(unsafe { driver.launch(function, config, param_bytes(params)) }?)
    }

    /// The entry `name`, loaded if it is not yet.
    fn function(&self, driver: &D, name: &'static str) -> Result<&D::Function, Error> {
        let place = self
            .shared
            .functions
            .get(name)
            .ok_or_else(|| unnamed(name))?;
        if let Some(function) = place.get() {
            return Ok(function);
        }
        let built = self.shared.built.as_ref().ok_or_else(|| unnamed(name))?;
        let loaded = built.module_of(name).and_then(|module| {
            let place = self.shared.modules.get(module)?;
            place.get_or_init(|| load(driver, built, module)).into()
        });
        let missing = || Error::Driver(DriverError::Module(built.why_missing(name)));
        let function = match loaded.ok_or_else(missing)? {
            Ok((_, module)) => driver.function(module, name)?,
            Err(reason) => {
                return Err(DriverError::Module(format!("kernel `{name}`: {reason}")).into());
            }
        };
        // Of two threads that come at once, one's is kept; they are the same.
        Ok(place.get_or_init(|| function))
    }
}

/// Loads a module: machine code where the device runs it and there is some, or else PTX.
fn load<D: Driver>(driver: &D, built: &Built, module: &str) -> Loaded<D> {
    let record = built.manifest().modules.get(module);
    let record = record.ok_or_else(|| format!("there is no module `{module}`"))?;
    let form = |machine_code| {
        built.form(record, machine_code).ok_or_else(|| {
            let entry = record.entries.keys().next();
            built.why_missing(entry.map_or(module, String::as_str))
        })
    };
    let form_of_code = form(driver.runs_machine_code())?;
    let image = |form| built.image(module, form).map_err(|error| error.to_string());
    if let Image::MachineCode(code) = image(form_of_code)? {
        match driver.load_machine_code(&code) {
            Ok(loaded) => return Ok((form_of_code, loaded)),
            Err(error) => {
                tracing::info!(module, %error, "the machine code does not load: PTX is compiled instead");
            }
        }
    } else if driver.runs_machine_code() {
        tracing::info!(
            module,
            "there is no machine code for this GPU: the driver compiles kernels from {form_of_code}"
        );
    }
    let form = form(false)?;
    match image(form)? {
        Image::Ptx(text) => {
            let loaded = driver.load(&text).map_err(|error| error.to_string())?;
            Ok((form, loaded))
        }
        Image::MachineCode(_) => Err(format!("the module `{module}` has no PTX")),
    }
}

fn unnamed(name: &str) -> Error {
    Error::Contract(format!("the launch contract names no kernel `{name}`"))
}

/// Says why built kernels are not what this crate was compiled for.
fn check(built: &Built) -> Result<(), Error> {
    let of_store = |reason: String| Error::Contract(format!("{}: {reason}", built.store()));
    for (module, record) in built.modules() {
        let global = record.globals.get(FINGERPRINT_SYMBOL);
        let found = global.and_then(|global| little_endian(global.init.as_deref()?));
        match found {
            Some(found) if found == FINGERPRINT => {}
            Some(found) => {
                return Err(of_store(format!(
                    "the kernels were built from other sources than this program: the contract of the module `{module}` is \
                     {found:#018x}, the program's is {FINGERPRINT:#018x}"
                )));
            }
            None => {
                return Err(of_store(format!(
                    "the module `{module}` has no `{FINGERPRINT_SYMBOL}`: it is not this crate's"
                )));
            }
        }
    }
    for entry in entries() {
        let record = built.module_of(entry.name).and_then(|module| {
            built
                .manifest()
                .modules
                .get(module)?
                .entries
                .get(entry.name)
        });
        match record.map(|record| &record.params[..]) {
            Some([param]) if param.size as usize == entry.param_bytes => {}
            Some(params) => {
                let sizes: Vec<u32> = params.iter().map(|param| param.size).collect();
                return Err(of_store(format!(
                    "kernel `{}` takes parameters of {sizes:?} bytes, this program passes one of {}",
                    entry.name, entry.param_bytes
                )));
            }
            None if built.manifest().partial => {}
            None => return Err(of_store(format!("there is no kernel `{}`", entry.name))),
        }
    }
    Ok(())
}

/// The number of eight bytes as hexadecimal digits, least significant byte first.
fn little_endian(digits: &str) -> Option<u64> {
    let number = u64::from_str_radix(digits, 16).ok()?;
    (digits.len() == 16).then(|| number.swap_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::dry::Dry;
    use halfgnn_manifest::{
        EntryRecord, FileRecord, GlobalRecord, Manifest, ModuleRecord, Param, Store,
    };

    /// Built kernels as the contract asks for them, or changed by `change`; without PTX that could be read.
    fn built(change: impl FnOnce(&mut Manifest)) -> (tempfile::TempDir, Built) {
        let entry = |bytes: usize| EntryRecord {
            params: vec![Param {
                size: bytes as u32,
                align: 8,
                ty: "b8".to_owned(),
            }],
            static_shared: 0,
            launch_bounds: None,
            registers: BTreeMap::new(),
        };
        let entries = entries().map(|spec| (spec.name.to_owned(), entry(spec.param_bytes)));
        let bytes = FINGERPRINT.to_le_bytes().map(|byte| format!("{byte:02x}"));
        let global = GlobalRecord {
            size: 8,
            init: Some(bytes.concat()),
        };
        let ptx = FileRecord {
            file: "missing.ptx".to_owned(),
            fingerprint: String::new(),
        };
        let module = ModuleRecord {
            packaged: true,
            fingerprint: String::new(),
            entries: entries.collect(),
            globals: BTreeMap::from([(FINGERPRINT_SYMBOL.to_owned(), global)]),
            ptx: BTreeMap::from([("sm_80".to_owned(), ptx)]),
            machine_code: BTreeMap::new(),
        };
        let mut manifest = Manifest {
            package: "halfgnn-kernels".to_owned(),
            rustc: String::new(),
            llvm: String::new(),
            fingerprint: String::new(),
            partial: false,
            modules: BTreeMap::from([("all".to_owned(), module)]),
        };
        change(&mut manifest);
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("halfgnn.manifest.json");
        std::fs::write(path, manifest.to_text()).expect("the folder takes files");
        let store = Store::in_folder(folder.path(), "halfgnn").expect("a manifest");
        let built = Built::open(store, 90).expect("it can be read");
        (folder, built)
    }

    fn message(change: impl FnOnce(&mut ModuleRecord)) -> String {
        let (_folder, built) = built(|manifest| {
            let module = manifest.modules.get_mut("all").expect("the module");
            change(module);
        });
        check(&built)
            .expect_err("the kernels do not fit")
            .to_string()
    }

    #[test]
    fn a_set_holds_every_kernel() {
        assert!(entries().count() <= 64 * KernelSet::WORDS);
        let (mut all, mut one) = (KernelSet::default(), KernelSet::default());
        entries().for_each(|entry| all.insert(entry.name));
        assert!(all.names().eq(entries().map(|entry| entry.name)));
        let last = entries().last().expect("the contract has entries").name;
        one.insert(last);
        one.insert("of no contract");
        assert!(one.names().eq([last]));
        assert_eq!(one.union(all), all);
    }

    #[test]
    fn what_fits_is_accepted() {
        check(&built(|_| {}).1).expect("the contract's own entries");
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let other = message(|module| {
            let global = module
                .globals
                .get_mut(FINGERPRINT_SYMBOL)
                .expect("the contract");
            global.init = Some("00".repeat(8));
        });
        assert!(other.contains("built from other sources"), "{other}");
        let without = message(|module| module.globals.clear());
        assert!(without.contains("not this crate's"), "{without}");
        let victim = entries().last().expect("the contract has entries");
        let missing = message(|module| {
            module.entries.remove(victim.name);
        });
        assert!(
            missing.contains(&format!("no kernel `{}`", victim.name)),
            "{missing}"
        );
        let longer = message(|module| {
            let entry = module.entries.get_mut(victim.name).expect("the entry");
            entry.params[0].size += 8;
        });
        let size = (victim.param_bytes + 8).to_string();
        assert!(
            longer.contains(victim.name) && longer.contains(&size),
            "{longer}"
        );
        assert!(longer.contains("cargo xtask build-ptx"), "{longer}");
    }

    #[test]
    fn a_build_of_some_kernels_opens_and_names_what_it_lacks() {
        let victim = entries().last().expect("the contract has entries").name;
        let (_folder, built) = built(|manifest| {
            manifest.partial = true;
            let module = manifest.modules.get_mut("all").expect("the module");
            module.entries.remove(victim);
        });
        let driver = Dry::new(crate::backend::gpu::counted_device(1));
        let kernels = Kernels::<Dry>::load(built).expect("a part is enough to open");
        let error = kernels
            .function(&driver, victim)
            .expect_err("it is not there");
        assert!(error.to_string().contains(victim), "{error}");
    }

    #[test]
    fn a_module_that_no_package_carries_says_where_it_comes_from() {
        let (_folder, built) = built(|manifest| {
            manifest
                .modules
                .get_mut("all")
                .expect("the module")
                .ptx
                .clear();
        });
        let driver = Dry::new(crate::backend::gpu::counted_device(1));
        let kernels = Kernels::<Dry>::load(built).expect("the contract is kept");
        let name = entries().next().expect("the contract has entries").name;
        let error = kernels
            .function(&driver, name)
            .expect_err("there is no PTX")
            .to_string();
        assert!(
            error.contains(name) && error.contains("cargo xtask build-ptx"),
            "{error}"
        );
        assert!(
            kernels
                .modules(&driver)
                .iter()
                .all(|module| !module.is_loaded)
        );
    }
}
