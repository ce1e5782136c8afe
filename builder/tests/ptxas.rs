//! ptxas on PTX that passes, that it rejects, and that does not fit the registers.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use halfgnn_builder::ptxas::{self, Ptxas};

#[path = "../../tests/src/skip.rs"]
mod skip;

/// The machine's ptxas; `None`, with a line that says why, where there is none.
fn ptxas() -> Option<Ptxas> {
    ptxas::find(&[])
        .map_err(|reasons| skip::skip("PTXAS", &reasons.join("; ")))
        .ok()
}

/// Writes the entry `k` with this head and body to a file of the test's own.
fn write(name: &str, directives: &str, body: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ptxas");
    fs::create_dir_all(&folder).expect("the tests' folder can be written");
    let path = folder.join(name).with_extension("ptx");
    let text = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 p)\n{directives}\n{{\n.reg .b32 %r<100>;\n\
         .reg .b64 %rd<2>;\n.shared .align 4 .b8 tile[512];\nld.param.u64 %rd1, [p];\n{body}\nret;\n}}\n"
    );
    fs::write(&path, text).expect("the PTX can be written");
    path
}

#[test]
fn a_sound_entry_has_its_registers_and_shared_memory_counted() {
    let Some(ptxas) = ptxas() else { return };
    let ptx = write(
        "sound",
        "",
        "ld.global.u32 %r1, [%rd1];\nst.shared.u32 [tile], %r1;\nbar.sync 0;",
    );
    for arch in ptxas::ARCHS.into_iter().filter(|arch| ptxas.knows(arch)) {
        let usages = ptxas
            .assemble(&ptx, arch, &ptx.with_extension("cubin"))
            .expect("it is sound");
        let usage = usages["k"];
        assert!((1..=40).contains(&usage.registers), "{arch}: {usage:?}");
        // From sm_90 on the driver keeps 1 KiB of its own.
        assert!(matches!(usage.shared, 512 | 1536), "{arch}: {usage:?}");
    }
}

#[test]
fn a_rejected_file_shows_ptxass_own_message() {
    let Some(ptxas) = ptxas() else { return };
    let ptx = write("rejected", "", "add.u32 %r1, %rd1, %r2;");
    let message = ptxas
        .assemble(&ptx, "sm_80", &ptx.with_extension("cubin"))
        .expect_err("a type error")
        .to_string();
    for part in ["rejected.ptx", "sm_80", "line 11"] {
        assert!(message.contains(part), "no {part:?} in {message}");
    }
}

/// 90 values that are all alive at a time, in the 32 registers that 2,048 threads leave to each.
#[test]
fn an_entry_that_spills_is_refused() {
    let Some(ptxas) = ptxas() else { return };
    let mut body = String::new();
    for i in 0..90 {
        writeln!(body, "ld.volatile.global.u32 %r{i}, [%rd1+{}];", 4 * i)
            .expect("a string takes all");
    }
    for i in 0..90 {
        writeln!(
            body,
            "st.volatile.global.u32 [%rd1+{}], %r{};",
            4 * i,
            (i * 7) % 90
        )
        .expect("a string takes all");
    }
    let ptx = write("spills", ".maxntid 1024\n.minnctapersm 2", &body);
    let message = ptxas
        .assemble(&ptx, "sm_80", &ptx.with_extension("cubin"))
        .expect_err("it spills")
        .to_string();
    for part in ["k on sm_80: spills", "32 registers", "launch bounds"] {
        assert!(message.contains(part), "no {part:?} in {message}");
    }
}
