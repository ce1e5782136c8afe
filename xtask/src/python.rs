//! `cargo xtask python`: the wheel as a stranger installs it, its tests, and its types.

use std::fs;
use std::process::Command;

use clap::Args;

use crate::{Failure, wheel, workspace};

/// Set where a machine must be able to: then a missing interpreter or network is a failure.
const REQUIRED: &str = "HALFGNN_REQUIRE_PYTHON";

/// A clone of PyG's repository: its tests are run too, with halfgnn's layers in place of PyG's. They are in no package.
const PYG: &str = "HALFGNN_PYG";

/// Options of `python`.
#[derive(Args, Default)]
#[group(skip)]
pub struct Options {
    #[command(flatten)]
    wheel: wheel::Options,
    /// Goes to pytest
    #[arg(last = true)]
    pytest: Vec<String>,
}

/// Builds the wheel, installs it into a fresh environment, and runs pytest, mypy and stubtest there.
pub fn run(options: &Options) -> Result<(), Failure> {
    if let Some(triple) = options.wheel.target() {
        return Err(format!(
            "--target {triple}: the package is tested on this machine alone; `cargo xtask wheel --target {triple}` builds and checks one"
        )
        .into());
    }
    let root = workspace::root().join("python");
    let folder = workspace::target_dir().join("python");
    let place = folder.join("environment");
    fs::create_dir_all(&folder)?;
    if let Err(missing) = install(&place) {
        if std::env::var_os(REQUIRED).is_some_and(|value| !value.is_empty() && value != "0") {
            return Err(missing);
        }
        eprintln!(
            "SKIPPED: the Python package: {missing}; it wants python3 with venv and pip, and the network ({REQUIRED}=1 fails \
             without)"
        );
        return Ok(());
    }
    let wheel = wheel::build(&options.wheel)?;
    let mut pip = wheel::python_of(&place);
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--force-reinstall",
    ]);
    workspace::run(pip.arg(wheel))?;
    // From elsewhere, so that what is imported is what is installed.
    let from = |command: &mut Command| {
        command.current_dir(&folder);
        workspace::run(command)
    };
    let mut pytest = wheel::python_of(&place);
    pytest.args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "-rs", "-c"]);
    pytest.arg(root.join("pyproject.toml"));
    pytest.arg("--rootdir").arg(&root);
    pytest.arg(root.join("tests")).args(&options.pytest);
    from(&mut pytest)?;
    if let Some(clone) = std::env::var_os(PYG).filter(|value| !value.is_empty()) {
        let mut theirs = wheel::python_of(&place);
        theirs.arg(root.join("tests/run_pyg_tests.py")).arg(clone);
        from(&mut theirs)?;
    }
    let mut mypy = wheel::python_of(&place);
    mypy.args(["-m", "mypy", "--config-file"]);
    mypy.arg(root.join("pyproject.toml"));
    from(mypy.args(["--cache-dir", "mypy-cache", "-p", "halfgnn"]))?;
    let mut stubtest = wheel::python_of(&place);
    stubtest.args(["-m", "mypy.stubtest", "--mypy-config-file"]);
    stubtest.arg(root.join("pyproject.toml"));
    from(stubtest.arg("halfgnn._core"))
}

/// torch and PyG as on a machine without a card, and what tests them.
fn install(place: &std::path::Path) -> Result<(), Failure> {
    wheel::environment(place)?;
    let root = workspace::root().join("python");
    let requirements = |name: &str| root.join("requirements").join(name);
    for (name, options) in [("alone.txt", &["--no-deps"][..]), ("test.txt", &[])] {
        let mut pip = wheel::python_of(place);
        pip.args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ]);
        pip.args(options).arg("-r").arg(requirements(name));
        workspace::run(&mut pip)?;
    }
    let mut stubs = wheel::python_of(place);
    workspace::run(stubs.arg(root.join("requirements/torch_without_cuda.py")))
}
