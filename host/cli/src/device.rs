//! `halfgnn device`: what a command could run on, and why a device cannot be used.

use crate::args::DeviceArgs;
use crate::failure::Failure;
use crate::json::JsonLines;
use crate::machine::{Card, Machine};
use crate::screen::{Page, bytes};
use halfgnn::backend::Backend;
use halfgnn::backend::gpu::ModuleState;
use halfgnn::device::{self, Choice, Device, Task};
use halfgnn::kernels::Kernels;
use serde::Serialize;
use std::time::Instant;

/// What came of opening a device as a command would.
#[derive(Debug, Serialize)]
struct Tried {
    event: &'static str,
    /// What `--device` takes.
    device: &'static str,
    /// Whether it works.
    usable: bool,
    /// What it calls itself.
    name: Option<String>,
    /// Where its kernels are, and in which form.
    kernels: Option<String>,
    /// The modules of kernels that it runs, with -v.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    modules: Vec<Module>,
    /// Bytes of its memory that are free.
    free_memory_bytes: Option<u64>,
    /// Milliseconds that it took to open it and to load the kernels.
    ms: f64,
    /// Why it does not work.
    reason: Option<String>,
    /// Whether `--device auto` takes it.
    auto: bool,
}

/// One module of kernels.
#[derive(Debug, Serialize)]
struct Module {
    name: String,
    /// Kernels in it.
    entries: usize,
    /// The form that the device loads; absent where the package does not carry the module.
    form: Option<String>,
}

/// Looks at what there is, and tries each device. With `modules` it lists the modules of kernels.
pub fn run(args: &DeviceArgs, modules: bool) -> Result<(), Failure> {
    let mut json = JsonLines::open(args.json.as_deref())?;
    let mut page = Page::new(json.is_stdout());
    let machine = Machine::survey();
    describe(&mut page, &machine);

    let mut tried = [
        attempt("cuda", Choice::Cuda, &machine),
        attempt("emulator", Choice::Emulator, &machine),
        attempt("cpu", Choice::Cpu, &machine),
    ];
    let chosen = if tried[0].usable { 0 } else { 2 };
    tried[chosen].auto = true;

    page.line(&"");
    if !modules {
        tried.iter_mut().for_each(|device| device.modules.clear());
    }
    for device in &tried {
        let name = device.name.as_deref().unwrap_or("");
        let verdict = match (&device.reason, &device.kernels) {
            (Some(reason), _) => format!("no: {reason}"),
            (None, Some(kernels)) => format!("yes: {name}, kernels in {kernels}"),
            (None, None) => format!("yes: {name}"),
        };
        page.line(&format_args!("--device {:<9} {verdict}", device.device));
        for module in &device.modules {
            let form = module.form.as_deref().unwrap_or("not in this package");
            page.line(&format_args!(
                "    {:<28} {:>3} kernels, {form}",
                module.name, module.entries
            ));
        }
    }
    page.line(&format_args!(
        "--device auto      takes --device {}",
        tried[chosen].device
    ));
    for device in &tried {
        json.write(device)?;
    }
    json.finish()
}

/// Program, CPU, driver, GPUs.
fn describe(page: &mut Page, machine: &Machine) {
    page.line(&format_args!(
        "halfgnn {}, for {} on {}, built {} CUDA",
        machine.version,
        machine.system,
        machine.architecture,
        if machine.built_with_cuda {
            "with"
        } else {
            "without"
        }
    ));
    let memory = match (machine.memory_bytes, machine.free_memory_bytes) {
        (Some(total), Some(free)) => {
            format!(", {} of memory, {} free", bytes(total), bytes(free))
        }
        _ => String::new(),
    };
    page.line(&format_args!(
        "CPU      {}{}, {} threads, {}{memory}",
        machine.architecture,
        machine
            .cpu
            .as_ref()
            .map(|model| format!(", {model}"))
            .unwrap_or_default(),
        machine.threads,
        machine.cpu_instructions.join(", ")
    ));
    if let Some(library) = &machine.driver_library {
        let release = machine.driver.as_deref().unwrap_or("of unknown release");
        let cuda = machine
            .cuda
            .as_ref()
            .map(|version| format!(", CUDA {version}"))
            .unwrap_or_default();
        page.line(&format_args!("driver   {release}{cuda}, {library}"));
    }
    page.line(&format_args!(
        "visible  {}",
        match std::env::var_os("CUDA_VISIBLE_DEVICES") {
            Some(value) => format!(
                "the GPUs that CUDA_VISIBLE_DEVICES=\"{}\" leaves",
                value.to_string_lossy()
            ),
            None => "every GPU (CUDA_VISIBLE_DEVICES is not set)".to_owned(),
        }
    ));
    for (ordinal, card) in machine.gpus.iter().enumerate() {
        page.line(&format_args!("GPU {ordinal}    {}", in_words(card)));
    }
}

fn in_words(card: &Card) -> String {
    let rate = card
        .memory_tb_per_s
        .map(|rate| format!(" at {rate:.2} TB/s"))
        .unwrap_or_default();
    format!(
        "{}: compute capability {}, {} SMs, {} of memory{rate}, {} of L2",
        card.name,
        card.compute_capability,
        card.multiprocessors,
        bytes(card.memory_bytes),
        bytes(card.l2_bytes)
    )
}

/// Opens a device, as every other command does. Kernels are loaded when they are launched.
fn attempt(name: &'static str, choice: Choice, machine: &Machine) -> Tried {
    let start = Instant::now();
    let opened = device::open(choice, Opened);
    let mut tried = Tried {
        event: "device",
        device: name,
        usable: opened.is_ok(),
        name: None,
        kernels: None,
        modules: Vec::new(),
        free_memory_bytes: None,
        ms: start.elapsed().as_secs_f64() * 1e3,
        reason: None,
        auto: false,
    };
    match opened {
        Ok((name, memory, modules)) => {
            tried.name = Some(name);
            tried.free_memory_bytes = memory.map(|(free, _)| free);
            tried.kernels = kernels(choice, machine, &modules);
            tried.modules = modules.into_iter().map(Module::from).collect();
        }
        Err(error) => tried.reason = Some(Failure::from(error).to_string()),
    }
    tried
}

impl From<ModuleState> for Module {
    fn from(state: ModuleState) -> Self {
        Self {
            form: state.form.map(|form| form.to_string()),
            name: state.name,
            entries: state.entries,
        }
    }
}

/// Where a device's kernels are, and in which forms: `/home/me/target/ptx: 46 modules, PTX for sm_80`.
fn kernels(choice: Choice, machine: &Machine, modules: &[ModuleState]) -> Option<String> {
    let capability = match choice {
        Choice::Cuda => {
            let (major, minor) = machine.gpus.first()?.compute_capability.split_once('.')?;
            Some((major.parse().ok()?, minor.parse().ok()?))
        }
        Choice::Emulator => None,
        Choice::Auto | Choice::Cpu => return None,
    };
    let found = Kernels::find(capability).ok()?;
    let mut forms: Vec<String> = Vec::new();
    for state in modules {
        let form = state
            .form
            .map_or_else(|| "not in this package".to_owned(), |form| form.to_string());
        if !forms.contains(&form) {
            forms.push(form);
        }
    }
    Some(format!(
        "{}: {} modules, {}",
        found.store(),
        modules.len(),
        forms.join(" or ")
    ))
}

/// Says what was opened: its name, free and total memory, and its modules of kernels.
struct Opened;

impl Task for Opened {
    type Output = (String, Option<(u64, u64)>, Vec<ModuleState>);

    fn run<B: Backend>(self, device: &Device<B>) -> Self::Output {
        (
            device.backend.name(),
            device.memory,
            device.backend.modules(),
        )
    }
}
