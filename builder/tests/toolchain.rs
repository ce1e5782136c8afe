//! The search for a device toolchain, among made-up ones.
#![cfg(unix)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use halfgnn_builder::toolchain::{PINNED_NIGHTLY, Places, find_in};

/// Held by each test: a program cannot be run while another thread, just starting one of its own, still has it open for
/// writing.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A fresh folder for one test.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("toolchains")
        .join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("the tests' folder can be written");
    folder
}

fn script(path: &Path, body: &str) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("can be made");
    fs::write(path, format!("#!/bin/sh\n{body}\n")).expect("can be written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("can be made executable");
}

/// What stands for a toolchain under `root`, whole.
fn toolchain(root: &Path, release: &str, llvm: &str) {
    let rustc = format!(
        "case $1 in -vV) printf 'rustc {release}\\nhost: made-up\\nrelease: {release}\\nLLVM version: 22.1.8\\n';; *) echo '{}';; esac",
        root.display()
    );
    script(&root.join("bin/rustc"), &rustc);
    script(&root.join("bin/cargo"), "");
    let core = root.join("lib/rustlib/src/rust/library/core/src");
    fs::create_dir_all(&core).expect("can be made");
    fs::write(core.join("lib.rs"), "").expect("can be written");
    for tool in ["llvm-link", "opt", "llc"] {
        script(
            &root.join("lib/rustlib/made-up/bin").join(tool),
            &format!("echo 'LLVM version {llvm}'"),
        );
    }
}

fn rustup(home: &Path) -> Places {
    Places {
        rustup_home: Some(home.to_path_buf()),
        ..Places::default()
    }
}

#[test]
fn the_pinned_nightly_comes_before_newer_ones() {
    let _alone = alone();
    let home = folder("pinned");
    let pinned = format!("{PINNED_NIGHTLY}-made-up");
    for name in [&pinned, "nightly-2026-07-01-made-up", "stable-made-up"] {
        toolchain(
            &home.join("toolchains").join(name),
            "1.97.0-nightly",
            "22.1.8",
        );
    }
    let found = find_in(&rustup(&home)).expect("there are two");
    assert_eq!(
        found.rustc,
        home.join("toolchains").join(&pinned).join("bin/rustc")
    );
    assert_eq!(found.llvm_version, "22.1.8");
    fs::remove_dir_all(home.join("toolchains").join(&pinned)).expect("can be removed");
    let found = find_in(&rustup(&home)).expect("there is one");
    assert!(
        found.rustc.to_string_lossy().contains("2026-07-01"),
        "{found}"
    );
}

#[test]
fn an_unfit_nightly_is_passed_over_and_each_lack_is_named() {
    let _alone = alone();
    let home = folder("unfit");
    let at = |name: &str| home.join("toolchains").join(name);
    toolchain(&at("nightly-a"), "1.97.0-nightly", "22.1.8");
    fs::remove_dir_all(at("nightly-a").join("lib/rustlib/src")).expect("can be removed");
    toolchain(&at("nightly-b"), "1.97.0-nightly", "22.1.8");
    fs::remove_file(at("nightly-b").join("lib/rustlib/made-up/bin/opt")).expect("can be removed");
    toolchain(&at("nightly-c"), "1.90.0-nightly", "22.1.8");
    toolchain(&at("nightly-d"), "1.97.0-nightly", "19.1.0");
    toolchain(&at("nightly-e"), "1.97.0-nightly", "22.1.8");
    fs::remove_file(at("nightly-e").join("bin/cargo")).expect("can be removed");
    let message = find_in(&rustup(&home))
        .expect_err("none will do")
        .to_string();
    for part in [
        "nightly-a: the sources of core",
        "nightly-b: LLVM 22's programs",
        "bin/opt",
        "nightly-c: rustc 1.90.0-nightly is older",
    ] {
        assert!(message.contains(part), "no {part:?} in {message}");
    }
    for part in [
        "nightly-d",
        "is LLVM 19, not 22",
        "nightly-e: there is no",
        "cargo xtask setup",
    ] {
        assert!(message.contains(part), "no {part:?} in {message}");
    }
}

#[test]
fn the_distributions_llvm_makes_a_nightly_whole() {
    let _alone = alone();
    let home = folder("llvm");
    let nightly = home.join("toolchains/nightly-a");
    toolchain(&nightly, "1.97.0-nightly", "22.1.8");
    let (own, system) = (
        nightly.join("lib/rustlib/made-up/bin"),
        home.join("usr/lib/llvm-22/bin"),
    );
    fs::create_dir_all(home.join("usr/lib/llvm-22")).expect("can be made");
    fs::rename(own, &system).expect("can be moved");
    let places = Places {
        system: Some(home.join("usr")),
        ..rustup(&home)
    };
    assert_eq!(find_in(&places).expect("whole").llvm_bin, system);
}

#[test]
fn nothing_at_all_lists_what_was_looked_at() {
    let _alone = alone();
    let home = folder("nothing");
    let places = Places {
        system: Some(home.join("usr")),
        ..rustup(&home)
    };
    let message = find_in(&places).expect_err("nothing is there").to_string();
    for part in [
        "no nightly toolchain in",
        "nothing/usr/bin/rustc",
        "-c rust-src -c llvm-tools",
    ] {
        assert!(message.contains(part), "no {part:?} in {message}");
    }
}

#[test]
fn the_distributions_own_comes_last_and_an_explicit_one_alone() {
    let _alone = alone();
    let home = folder("order");
    toolchain(&home.join("usr"), "1.96.0", "22.1.8");
    toolchain(&home.join("mine"), "1.98.0", "22.1.8");
    let mut places = Places {
        system: Some(home.join("usr")),
        ..rustup(&home)
    };
    assert_eq!(
        find_in(&places).expect("the system's").rustc,
        home.join("usr/bin/rustc")
    );
    places.rustc = Some(home.join("mine/bin/rustc"));
    assert_eq!(
        find_in(&places).expect("mine").cargo,
        home.join("mine/bin/cargo")
    );
    places.rustc = Some(home.join("wrong"));
    let message = find_in(&places)
        .expect_err("a wrong path is not passed over")
        .to_string();
    assert!(
        message.contains("HALFGNN_DEVICE_RUSTC=") && !message.contains("/usr/bin/rustc"),
        "{message}"
    );
}
