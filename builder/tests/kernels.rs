//! Kernels crates from source to PTX, on the device toolchain of the machine.

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::{HEAD, builder, toolchain, write_crate};
use halfgnn_builder::manifest::Manifest;
use halfgnn_builder::ptx::Module;
use halfgnn_builder::ptxas;
use halfgnn_builder::{BuildError, LaunchBounds, PtxBuilder};

const SUM: &str = r#"
#[unsafe(no_mangle)]
pub static CONTRACT: u64 = 7;

unsafe extern "C" {
    #[link_name = "llvm.nvvm.shfl.sync.bfly.f32"]
    fn shuffle_xor(mask: u32, value: f32, lane: u32, clamp: u32) -> f32;
}

#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn sum_warp(x: *const f32, y: *mut f32, n: u32) {
    unsafe {
        let at = _thread_idx_x() as usize;
        let mut value = if (at as u32) < n { *x.add(at) } else { 0.0 };
        let mut distance = 16;
        while distance > 0 {
            value += shuffle_xor(!0, value, distance, 31);
            distance /= 2;
        }
        _syncthreads();
        *y.add(at) = value;
    }
}
"#;

const SUM_METADATA: &str = r#"
[package.metadata.ptx.launch-bounds]
"sum_*" = { max-threads = 128, min-ctas = 8 }

[package.metadata.ptx.checks]
"sum_*" = { barriers = 1, shuffles = 5 }
"#;

/// From its source to its manifest, and the second time nothing to do, and after a change something to do.
#[test]
fn a_crate_becomes_ptx_and_stays_until_it_changes() {
    let Some(toolchain) = toolchain() else { return };
    let directory = write_crate("life", SUM_METADATA, SUM);
    let builder = builder(&directory, toolchain).arch("sm_90").name("life");

    let first = builder.clone().build().expect("the crate compiles");
    assert!(first.rebuilt);
    let names: Vec<_> = first
        .files
        .iter()
        .filter_map(|file| file.path.file_name()?.to_str())
        .collect();
    assert_eq!(names, ["life-sm_80.ptx", "life-sm_90.ptx"]);
    for file in &first.files {
        let text = fs::read_to_string(&file.path).expect("the PTX was written");
        let module = Module::parse(&text).expect("it is PTX");
        assert_eq!(module.source.target, file.arch);
        assert_eq!(
            module.source.files.values().next().map(String::as_str),
            Some("life/src/lib.rs"),
            "no path of this machine"
        );
        assert!(
            module
                .source
                .variables
                .iter()
                .any(|global| global.name == "CONTRACT" && global.visible && global.size == 8)
        );
        let entry = module.source.entries().next().expect("an entry");
        assert_eq!((entry.max_threads, entry.min_ctas), (Some(128), Some(8)));
        let shuffle = entry
            .body
            .iter()
            .find(|i| i.opcode.starts_with("shfl"))
            .expect("a shuffle");
        let line = HEAD.lines().count()
            + SUM[..SUM.find("shuffle_xor(!0").expect("is there")]
                .lines()
                .count();
        let source = module.place(shuffle).expect("a source line").to_string();
        assert!(
            source.starts_with(&format!("life/src/lib.rs:{line}:")),
            "{source} is not line {line}"
        );
    }
    let record = &first.manifest.modules["life"];
    assert_eq!(record.globals["CONTRACT"].size, 8);
    assert_eq!(
        record.globals["CONTRACT"].init.as_deref(),
        Some("0700000000000000")
    );
    let entry = &record.entries["sum_warp"];
    let sizes: Vec<(u32, u32)> = entry
        .params
        .iter()
        .map(|param| (param.size, param.align))
        .collect();
    assert_eq!(sizes, [(8, 8), (8, 8), (4, 4)]);
    assert_eq!(
        entry.launch_bounds,
        Some(LaunchBounds {
            max_threads: 128,
            min_ctas: Some(8)
        })
    );

    let written = |path: &std::path::Path| {
        fs::metadata(path)
            .and_then(|meta| meta.modified())
            .expect("is there")
    };
    let before = written(&first.files[0].path);
    let second = builder.clone().build().expect("still compiles");
    assert!(!second.rebuilt, "nothing changed");
    assert_eq!(written(&second.files[0].path), before);
    assert_eq!(second.manifest, first.manifest);

    fs::write(&first.files[1].path, "not PTX").expect("can be written");
    assert!(
        builder.clone().build().expect("compiles").rebuilt,
        "a damaged file is replaced"
    );

    fs::write(
        directory.join("src/lib.rs"),
        format!("{HEAD}{}", SUM.replace("= 7", "= 8")),
    )
    .expect("can be written");
    let changed = builder.build().expect("compiles");
    assert!(changed.rebuilt);
    assert_ne!(
        changed.manifest.modules["life"].fingerprint,
        first.manifest.modules["life"].fingerprint
    );
}

#[test]
fn registers_go_into_the_manifest_for_every_architecture() {
    let Some(toolchain) = toolchain() else { return };
    let ptxas = match ptxas::find(&[]) {
        Ok(ptxas) => ptxas,
        Err(reasons) => return common::skip::skip("PTXAS", &reasons.join("; ")),
    };
    let directory = write_crate("assembled", SUM_METADATA, SUM);
    let builder = builder(&directory, toolchain).arch("sm_90");
    let plain = builder.clone().build().expect("compiles");
    assert!(
        plain.manifest.modules["assembled"].entries["sum_warp"]
            .registers
            .is_empty()
    );
    let built = builder
        .assemble(ptxas, ["sm_80", "sm_86", "sm_90"])
        .build()
        .expect("assembles");
    assert!(!built.rebuilt, "the PTX is the same");
    let record = &built.manifest.modules["assembled"];
    let archs: Vec<&String> = record.entries["sum_warp"].registers.keys().collect();
    assert_eq!(archs, ["sm_80", "sm_86", "sm_90"]);
    for (arch, source) in [("sm_80", "sm_80"), ("sm_86", "sm_80"), ("sm_90", "sm_90")] {
        let code = &record.machine_code[arch];
        assert_eq!(code.ptx, record.ptx[source].fingerprint, "{arch}");
        let folder = built.manifest_path.parent().expect("a folder");
        assert!(folder.join(&code.code.file).is_file(), "{arch}");
    }
    let text = fs::read(&built.manifest_path).expect("was written");
    assert_eq!(
        Manifest::parse("the manifest", &text).expect("is one"),
        built.manifest
    );
}

/// A kernel that is not asked for traps, so that a program finds it; and the whole stays as it was.
#[test]
fn a_part_is_built_apart() {
    const MORE: &str = r#"
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn fill(y: *mut f32) {
    unsafe { *y = 1.0 }
}
"#;
    let Some(toolchain) = toolchain() else { return };
    let directory = write_crate("part", SUM_METADATA, &format!("{SUM}{MORE}"));
    let builder = builder(&directory, toolchain).name("part");
    let text = |builder: PtxBuilder| {
        let built = builder.build().expect("the crate compiles");
        let text = fs::read_to_string(&built.files[0].path).expect("the PTX was written");
        let module = Module::parse(&text).expect("it is PTX");
        let global = module.source.variable("CONTRACT");
        assert!(global.is_some_and(|global| global.visible));
        let mut entries: Vec<&str> = module.source.entries().map(|entry| entry.name).collect();
        entries.sort_unstable();
        assert_eq!(entries, ["fill", "sum_warp"]);
        text
    };
    let does = |text: &str| (text.contains("st.global"), text.contains("shfl.sync"));
    let traps = |text: &str| text.matches("trap;").count();
    let (whole, fill) = (text(builder.clone()), text(builder.clone().only("fi*")));
    let sum = text(builder.clone().only("sum_*"));
    assert_eq!((does(&whole), traps(&whole)), ((true, true), 0));
    assert_eq!((does(&fill), traps(&fill)), ((true, false), 1));
    assert_eq!((does(&sum), traps(&sum)), ((true, true), 1));
    assert!(!builder.clone().build().expect("it is there").rebuilt);
    let none = builder.only("fill").only("gemm_*").build();
    let told = none.expect_err("no such kernel").to_string();
    assert!(
        told.contains("gemm_*") && told.contains("no kernel"),
        "{told}"
    );
}

/// A library and the root of its entries, in two modules.
const LIBRARY: &str = "
/// Adds a constant to a float.
#[inline(always)]
pub unsafe fn add(x: *mut f32, constant: f32) {
    unsafe { *x += constant }
}

/// Multiplies a float by a constant.
#[inline(always)]
pub unsafe fn scale(x: *mut f32, constant: f32) {
    unsafe { *x *= constant }
}
";

const ROOT: &str = "#![no_std]
#![feature(abi_ptx)]
#![allow(unexpected_cfgs)]

#[cfg(add_two)]
#[unsafe(no_mangle)]
pub unsafe extern \"ptx-kernel\" fn add_two(x: *mut f32) {
    unsafe { modular::add(x, 2.0) }
}

#[cfg(add_four)]
#[unsafe(no_mangle)]
pub unsafe extern \"ptx-kernel\" fn add_four(x: *mut f32) {
    unsafe { modular::add(x, 4.0) }
}

#[cfg(scale_by_two)]
#[unsafe(no_mangle)]
pub unsafe extern \"ptx-kernel\" fn scale_by_two(x: *mut f32) {
    unsafe { modular::scale(x, 2.0) }
}
";

const LIBRARY_METADATA: &str = r#"
[package.metadata.ptx]
entries = "entries.rs"
unpackaged = ["scales"]

[package.metadata.ptx.modules]
"*" = "sums"
"scale_*" = "scales"

[package.metadata.ptx.launch-bounds]
"scale_*" = { max-threads = 64 }
"#;

#[test]
fn a_library_becomes_modules_and_a_change_builds_its_own_again() {
    let Some(toolchain) = toolchain() else { return };
    let directory = write_crate("modular", LIBRARY_METADATA, LIBRARY);
    let manifest = directory.join("Cargo.toml");
    let text = fs::read_to_string(&manifest).expect("the manifest");
    fs::write(&manifest, text.replace("cdylib", "rlib")).expect("the manifest can be written");
    fs::write(directory.join("entries.rs"), ROOT).expect("the root can be written");
    let builder = builder(&directory, toolchain).name("modular");
    let named = builder
        .clone()
        .entries(["add_two", "add_four", "scale_by_two"]);

    let first = named.clone().build().expect("the library compiles");
    let entries = |module: &str| -> Vec<String> {
        first.manifest.modules[module]
            .entries
            .keys()
            .cloned()
            .collect()
    };
    assert_eq!(first.manifest.modules.len(), 2);
    assert_eq!(entries("sums"), ["add_four", "add_two"]);
    assert_eq!(entries("scales"), ["scale_by_two"]);
    assert!(first.manifest.modules["sums"].packaged && !first.manifest.modules["scales"].packaged);
    let written = |file: &halfgnn_builder::PtxFile| {
        let meta = fs::metadata(&file.path).expect("the PTX was written");
        (file.module.clone(), meta.modified().expect("a time"))
    };
    let before: Vec<_> = first.files.iter().map(written).collect();
    for file in &first.files {
        let text = fs::read_to_string(&file.path).expect("the PTX was written");
        let module = Module::parse(&text).expect("it is PTX");
        assert_eq!(module.source.entries().count(), entries(&file.module).len());
        assert_eq!(
            text.contains(".maxntid"),
            file.module == "scales",
            "launch bounds by entry"
        );
    }
    assert!(!named.clone().build().expect("it is there").rebuilt);

    // A line of one kernel, in its place: the other module stays.
    let changed = LIBRARY.replace("*x *= constant", "*x /= constant");
    fs::write(directory.join("src/lib.rs"), format!("{HEAD}{changed}")).expect("a file");
    let second = named.clone().build().expect("the library compiles");
    assert!(second.rebuilt);
    for ((module, before), (again, after)) in before.iter().zip(second.files.iter().map(written)) {
        assert_eq!(*module, again);
        assert_eq!(*before == after, module == "sums", "{module}");
    }

    let part = named
        .clone()
        .only("add_two")
        .build()
        .expect("one kernel compiles");
    assert!(part.manifest.partial);
    let names: Vec<&String> = part.manifest.modules["sums"].entries.keys().collect();
    assert_eq!(names, ["add_two"], "the others are left out");
    assert_eq!(part.manifest.modules.len(), 1);

    let error = named
        .entries(["subtract"])
        .build()
        .expect_err("the root has no such entry");
    assert!(error.to_string().contains("subtract"), "{error}");
}

#[test]
fn copies_go_to_a_folder_or_to_one_file() {
    let Some(toolchain) = toolchain() else { return };
    let directory = write_crate("copies", "", SUM);
    let to = directory.join("out");
    let build = builder(&directory, toolchain);
    build
        .clone()
        .copy_to(&to)
        .copy_to(directory.join("one.ptx"))
        .build()
        .expect("compiles");
    for copy in [
        "out/copies-sm_80.ptx",
        "out/copies.manifest.json",
        "one.ptx",
    ] {
        assert!(directory.join(copy).is_file(), "{copy}");
    }
    let error = build
        .arch("sm_90")
        .copy_to(directory.join("one.ptx"))
        .build()
        .expect_err("two files, one name");
    assert!(
        error.to_string().contains("one.ptx") && error.to_string().contains("2 PTX files"),
        "{error}"
    );
}

#[test]
fn a_broken_kernel_shows_rustcs_own_message() {
    let Some(toolchain) = toolchain() else { return };
    let directory = write_crate("broken", "", "pub fn f() -> u32 { \"text\" }\n");
    let error = builder(&directory, toolchain)
        .build()
        .expect_err("a type error");
    let message = error.to_string();
    let line = HEAD.lines().count() + 1;
    assert!(matches!(error, BuildError::Compile { .. }));
    for part in [
        "broken does not compile",
        "error[E0308]",
        "mismatched types",
        &format!("src/lib.rs:{line}:"),
    ] {
        assert!(message.contains(part), "no {part:?} in:\n{message}");
    }
}

/// A bounds check that is left in would call the panic machinery; the error says where.
#[test]
fn a_kernel_that_can_panic_is_refused_with_its_line() {
    let Some(toolchain) = toolchain() else { return };
    let body = r#"
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn gather(x: *const [f32; 4], at: u32, y: *mut f32) {
    unsafe {
        *y = (*x)[at as usize];
    }
}
"#;
    let directory = write_crate("panics", "", body);
    let error = builder(&directory, toolchain)
        .build()
        .expect_err("it can panic");
    let line = HEAD.lines().count() + 5;
    let message = error.to_string();
    for part in [
        "gather: can panic",
        "panic_bounds_check",
        &format!("panics/src/lib.rs:{line}:"),
        "rejected-panics-sm_80.ptx",
    ] {
        assert!(message.contains(part), "no {part:?} in:\n{message}");
    }
}

#[test]
fn local_memory_and_double_precision_need_leave() {
    let Some(toolchain) = toolchain() else { return };
    let body = r#"
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn histogram(x: *const u32, y: *mut u32) {
    unsafe {
        let mut bins = [0u32; 64];
        let mut i = 0;
        while i < 100 {
            bins[(*x.add(i) & 63) as usize] += 1;
            i += 1;
        }
        *y = bins[(*x & 63) as usize];
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn mean(x: *const f32, y: *mut f32) {
    unsafe {
        *y = (*x as f64 * 1.000_000_1) as f32;
    }
}
"#;
    let directory = write_crate("leave", "", body);
    let message = builder(&directory, toolchain.clone())
        .build()
        .expect_err("neither is allowed")
        .to_string();
    for part in [
        "histogram: keeps 256 bytes in local memory",
        "mean: computes in double precision",
        "leave/src/lib.rs:",
    ] {
        assert!(message.contains(part), "no {part:?} in:\n{message}");
    }
    let leave =
        "[package.metadata.ptx.checks]\nhistogram = { local = true }\n\"me*\" = { f64 = true }";
    let directory = write_crate("leave", leave, body);
    builder(&directory, toolchain)
        .build()
        .expect("both are allowed now");
}

/// A row's offset in 32 bits is right on every small matrix, and the builder says that it is not on a large one.
#[test]
fn a_row_offset_of_32_bits_needs_leave() {
    let Some(toolchain) = toolchain() else { return };
    let body = r#"
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn first_of_row(x: *const f32, stride: u32, y: *mut f32) {
    unsafe {
        let row = _thread_idx_x() as u32;
        *y.add(row as usize) = *x.byte_add(row.wrapping_mul(stride) as usize);
    }
}
"#;
    let directory = write_crate("offsets", "", body);
    let message = builder(&directory, toolchain.clone())
        .build()
        .expect_err("it is cut off")
        .to_string();
    for part in [
        "first_of_row: makes addresses of 1 products",
        "offsets/src/lib.rs:",
    ] {
        assert!(message.contains(part), "no {part:?} in:\n{message}");
    }
    let leave = "[package.metadata.ptx.checks]\nfirst_of_row = { narrow-products = 1 }";
    builder(&write_crate("offsets", leave, body), toolchain.clone())
        .build()
        .expect("declared");
    let wide = body.replace(
        "row.wrapping_mul(stride) as usize",
        "row as usize * stride as usize",
    );
    builder(&write_crate("offsets", "", &wide), toolchain)
        .build()
        .expect("of 64 bits");
}

/// A barrier in inline assembly, between two branches on one condition: LLVM's SimplifyCFG joins the branches and
/// copies the barrier into both arms, unless the builder has marked it convergent.
#[test]
fn a_barrier_in_assembly_stays_whole() {
    let Some(toolchain) = toolchain() else { return };
    let body = r#"
use core::arch::asm;

#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn halves(x: *const u32, y: *mut u32, n: u32) {
    unsafe {
        let lane = _thread_idx_x() as u32;
        let is_odd = lane & 1 == 1;
        if is_odd {
            *y.add(lane as usize) = *x;
        }
        asm!("bar.sync 0;");
        if is_odd {
            *y.add(n as usize) = *x.add(3);
        } else {
            *y.add(lane as usize + 64) = n;
        }
    }
}
"#;
    let declared = "[package.metadata.ptx.checks]\nhalves = { barriers = 1 }";
    let directory = write_crate("assembly", declared, body);
    builder(&directory, toolchain)
        .build()
        .expect("one barrier, as declared");
}

#[test]
fn what_is_no_kernels_crate_is_refused() {
    let Some(toolchain) = toolchain() else { return };
    let message = |builder: PtxBuilder| builder.build().expect_err("refused").to_string();
    let missing = message(builder("does/not/exist".as_ref(), toolchain.clone()));
    assert!(missing.contains("does/not/exist"), "{missing}");

    let directory = write_crate("plain", "", SUM);
    let manifest = fs::read_to_string(directory.join("Cargo.toml")).expect("is there");
    fs::write(
        directory.join("Cargo.toml"),
        manifest.replace("cdylib", "rlib"),
    )
    .expect("can be written");
    let library = message(builder(&directory, toolchain.clone()));
    assert!(library.contains("crate-type = [\"cdylib\"]"), "{library}");

    let misspelled = "[package.metadata.ptx.checks]\nsum_warp = { barrier = 1 }";
    let unknown = message(builder(
        &write_crate("misspelled", misspelled, SUM),
        toolchain.clone(),
    ));
    assert!(
        unknown.contains("metadata.ptx") && unknown.contains("barrier"),
        "{unknown}"
    );

    let unmatched = "[package.metadata.ptx.launch-bounds]\n\"sddmm_*\" = { max-threads = 128 }";
    let unused = message(builder(
        &write_crate("unmatched", unmatched, SUM),
        toolchain.clone(),
    ));
    assert!(
        unused.contains("sddmm_*: [package.metadata.ptx.launch-bounds]"),
        "{unused}"
    );

    let directory = write_crate("bounds", "", SUM);
    let bounds =
        message(builder(&directory, toolchain.clone()).launch_bounds("sum_warp", 2048, None));
    assert!(bounds.contains("max-threads is 2048"), "{bounds}");
    let arch = message(
        PtxBuilder::new(&directory)
            .toolchain(toolchain)
            .arch("sm_20"),
    );
    assert!(arch.contains("sm_20"), "{arch}");
}

/// In a build script's environment a parent cargo's variables are set, and rerun lines are printed.
#[test]
fn a_build_script_can_call_it() {
    let Some(_) = toolchain() else { return };
    let kernels = write_crate("called", "", SUM);
    let package = kernels.join("caller");
    fs::create_dir_all(package.join("src")).expect("can be written");
    let manifest = format!(
        "[package]\nname = \"caller\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n[build-dependencies]\n\
         halfgnn-builder = {{ path = \"{}\" }}\n",
        env!("CARGO_MANIFEST_DIR")
    );
    let script = format!(
        "fn main() {{ halfgnn_builder::PtxBuilder::new({kernels:?}).arch(\"sm_90\").build().unwrap(); }}\n"
    );
    let main = "const PTX: &str = include_str!(concat!(env!(\"OUT_DIR\"), \"/ptx/called-sm_90.ptx\"));\n\
                fn main() { print!(\"{}\", PTX.contains(\".visible .entry sum_warp\")) }\n";
    for (path, text) in [
        ("Cargo.toml", manifest.as_str()),
        ("build.rs", &script),
        ("src/main.rs", main),
    ] {
        fs::write(package.join(path), text).expect("can be written");
    }
    // The versions that this workspace is locked to, so that no other needs to be fetched.
    let lock = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("Cargo.lock");
    fs::copy(lock, package.join("Cargo.lock")).expect("the workspace is locked");
    let output = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--target-dir"])
        .arg(common::target_dir().with_file_name("caller"))
        .current_dir(&package)
        .output()
        .expect("cargo runs");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "true",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
