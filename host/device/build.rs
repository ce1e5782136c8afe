//! Embeds the kernels' PTX where the package has it: see `src/ptx.rs`.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::PathBuf;

fn main() -> io::Result<()> {
    // Relative to the package, which is a build script's current folder. It always exists: a folder that did not would
    // make cargo run this anew at every build.
    const FOLDER: &str = "ptx";
    println!("cargo::rerun-if-changed={FOLDER}");

    let mut files: Vec<(u32, PathBuf)> = Vec::new();
    for entry in fs::read_dir(FOLDER)? {
        let path = entry?.path();
        if let Some(arch) = architecture(&path) {
            files.push((arch, path.canonicalize()?));
        }
    }
    files.sort_unstable();

    let mut list = String::from("&[\n");
    for (arch, path) in files {
        // A path in quotes, as `{:?}` writes it, is a string literal.
        writeln!(list, "    ({arch}, include_str!({path:?})),").map_err(io::Error::other)?;
    }
    list.push_str("]\n");
    let out = env::var_os("OUT_DIR").ok_or_else(|| io::Error::other("OUT_DIR is not set"))?;
    fs::write(PathBuf::from(out).join("embedded_ptx.rs"), list)
}

/// `90` of `halfgnn-sm_90.ptx`.
fn architecture(path: &std::path::Path) -> Option<u32> {
    path.file_name()?
        .to_str()?
        .strip_prefix("halfgnn-sm_")?
        .strip_suffix(".ptx")?
        .parse()
        .ok()
}
