//! Hashes the sources of this crate, so that host and kernels can tell whether they were built from the same ones.

use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=src");
    let folder = env::var_os("CARGO_MANIFEST_DIR").ok_or_else(|| io::Error::other("no folder"))?;
    let mut paths = Vec::new();
    for entry in fs::read_dir(Path::new(&folder).join("src"))? {
        paths.push(entry?.path());
    }
    paths.sort();
    // 64-bit FNV-1a over names and contents. The name's end and the content's length keep files apart.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |bytes: &[u8]| {
        for &byte in bytes {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    };
    for path in paths {
        let content = fs::read(&path)?;
        add(path.file_name().unwrap_or_default().as_encoded_bytes());
        add(&(content.len() as u64).to_le_bytes());
        add(&content);
    }
    println!("cargo::rustc-env=HALFGNN_CONTRACT={hash}");
    Ok(())
}
