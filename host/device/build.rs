//! Embeds the kernels' archive where the package has it: see `src/kernels.rs`.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

fn main() -> io::Result<()> {
    // Relative to the package, which is a build script's current folder. The folder always exists: one that did not
    // would make cargo run this again at every build.
    println!("cargo::rerun-if-changed=ptx");
    let archive = Path::new("ptx/halfgnn.kernels.zip");
    let constant = match archive.is_file() {
        // A path in quotes, as `{:?}` writes it, is a string literal.
        true => format!("Some(include_bytes!({:?}))\n", archive.canonicalize()?),
        false => "None\n".to_owned(),
    };
    let out = env::var_os("OUT_DIR").ok_or_else(|| io::Error::other("OUT_DIR is not set"))?;
    fs::write(PathBuf::from(out).join("embedded_kernels.rs"), constant)
}
