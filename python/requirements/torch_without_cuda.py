"""Lets the torch that is installed, a build for CUDA, start where there are no CUDA libraries.

PyPI has no build of torch for CPUs alone, and that for CUDA is linked with libraries of 3 GB. Here each of them becomes a library of the
same name whose functions all fail, so that torch finds no GPU: what torch then does on the CPU is what it does anywhere. For tests;
made with the C compiler and binutils, in the environment of the interpreter that runs this, which must have no such libraries.
"""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import tempfile
from collections import defaultdict
from pathlib import Path

CUDA = re.compile(
    r"lib(cudart|cublas|cudnn|cufft|curand|cusparse|cusolver|cufile|nccl|nvshmem|cupti|nvrtc|nvJitLink|nvToolsExt)"
)

#: Whose a function is where the version of its symbol does not say: the first library whose pattern fits.
OWNERS = [
    ("libcurand", r"curand"),
    ("libcufile", r"cuFile"),
    ("libcusparseLt", r"cusparseLt"),
    ("libnccl", r"p?nccl"),
    ("libnvshmem", r"nvshmem"),
    ("libcudnn", r"cudnn"),
    ("libcupti", r"cupti|ActivityKind"),
    ("libcufft", r"cufft"),
    ("libcusolver", r"cusolver"),
    ("libcusparse", r"cusparse"),
    ("libcublasLt", r"cublasLt"),
    ("libcublas", r"cublas"),
    ("libcudart", r"cuda|__cuda"),
    ("libnvrtc", r"nvrtc"),
]

#: Functions that do more than to fail: there is no GPU, and errors have names.
BODIES = [
    (r"cudaGetDeviceCount$", "int {name}(int *count) {{ *count = 0; return 100; }}"),
    (r".*(GetErrorString|GetErrorName|GetError)$", 'const char *{name}(int error) {{ return "no CUDA library"; }}'),
    (r"", "long {name}(void) {{ return 100; }}"),
]


def output(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def wanted(libraries: list[Path]) -> tuple[set[str], dict[str, set[tuple[str, str]]]]:
    """The libraries that are missing, and the functions of each with the versions of their symbols."""
    missing: set[str] = set()
    undefined: set[str] = set()
    defined: set[str] = set()
    own = {library.name for library in libraries}
    for library in libraries:
        needed = re.findall(r"NEEDED.*\[(.*)\]", output("readelf", "-d", library))
        missing |= {name for name in needed if CUDA.match(name) and name not in own}
        for line in output("nm", "-D", "--with-symbol-versions", library).splitlines():
            *_, kind, symbol = line.split()
            if kind == "U":
                undefined.add(symbol)
            elif kind not in "vw":
                defined.add(symbol.partition("@")[0])
    functions: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for symbol in undefined:
        name, _, version = symbol.partition("@")
        version = version.lstrip("@")
        if name in defined:
            continue
        if version in missing:
            functions[version].add((name, version))
            continue
        for owner, pattern in OWNERS:
            if version == "NVSHMEM" and owner != "libnvshmem":
                continue
            library = next((each for each in sorted(missing) if re.match(rf"{owner}(_host)?\.so", each)), None)
            if library is not None and (version == "NVSHMEM" or re.match(pattern, name)):
                functions[library].add((name, version))
                break
    return missing, functions


def make(library: str, functions: set[tuple[str, str]], folder: Path) -> None:
    """A library of functions that fail."""
    versions = sorted({version for _, version in functions if version})
    with tempfile.TemporaryDirectory() as temporary:
        source, script = Path(temporary, "stub.c"), Path(temporary, "versions")
        lines = ["int halfgnn_stub(void) { return 0; }"]
        for name, _ in sorted(functions):
            body = next(body for pattern, body in BODIES if re.match(pattern, name))
            lines.append(body.format(name=name))
        source.write_text("\n".join(lines) + "\n")
        command = ["cc", "-w", "-fno-builtin", "-shared", "-fPIC", f"-Wl,-soname,{library}"]
        if versions:
            parts = []
            for version in versions:
                names = " ".join(f"{name};" for name, of in sorted(functions) if of == version)
                parts.append(f"{version} {{ global: {names} }};")
            script.write_text("\n".join(parts) + "\n")
            command.append(f"-Wl,--version-script={script}")
        subprocess.run([*command, "-o", str(folder / library), str(source)], check=True)


def main() -> None:
    packages = Path(sysconfig.get_path("platlib"))
    libraries = sorted(packages.glob("torch/lib/*.so*"))
    if not libraries:
        sys.exit(f"no torch in {packages}: install it with pip install --no-deps torch")
    missing, functions = wanted(libraries)
    major = max((match[1] for name in missing if (match := re.match(r"libcudart\.so\.(\d+)", name))), default="13")
    folder = packages / "nvidia" / f"cu{major}" / "lib"
    folder.mkdir(parents=True, exist_ok=True)
    for library in sorted(missing):
        make(library, functions[library], folder)
    print(f"{len(missing)} libraries stand in for CUDA's in {folder}")


if __name__ == "__main__":
    main()
