"""Writes the reference of the Python package from its docstrings: Markdown, a page for each public name.

    python3 python/reference.py FOLDER

The sources are parsed, not imported, so that neither torch nor the extension module is needed. Faults of docstrings are listed, and the
exit status is then 1: a public name without one, an argument that it does not name, an operator without an example.

``FOLDER/contents.txt`` has the pages as lines of a table of contents.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

PACKAGE = Path(__file__).parent / "halfgnn"

#: The parts of the reference: title, module, and names; no names for all of the module's ``__all__``.
PARTS: list[tuple[str, str, list[str]]] = [
    ("Graphs", "halfgnn", ["Graph"]),
    ("Operators", "halfgnn", ["spmm", "sddmm", "edge_softmax", "gat_attention", "gatv2_attention", "message_sum", "message_reduce", "attention"]),
    ("Models of PyG", "halfgnn.nn", ["replace", "Replaced", "accelerate", "Accelerated", "restore"]),
    ("Layers of PyG", "halfgnn.nn", []),
    ("Layers of DGL", "halfgnn.dgl", []),
    ("Batches", "halfgnn", ["Loader", "Batch", "NeighborLoader", "LinkLoader", "HGTLoader"]),
    ("Training", "halfgnn", ["Trainer", "train", "Run", "Epoch"]),
    ("Metrics", "halfgnn.metrics", []),
    ("Settings", "halfgnn", ["set_num_threads", "get_num_threads", "show_config", "emulated", "FallbackWarning"]),
]

#: Parts whose every name has an example.
WITH_EXAMPLES = ("Graphs", "Operators", "Models of PyG", "Batches", "Training", "Metrics")

PYG = "https://pytorch-geometric.readthedocs.io/en/latest/generated/torch_geometric.nn"
#: Of PyG's layers those that are models of label propagation, with pages elsewhere.
PYG_MODELS = ("LabelPropagation",)

Definition = ast.ClassDef | ast.FunctionDef


@dataclass
class Name:
    """A public name."""

    module: str
    name: str
    node: Definition
    path: Path
    #: The page of the name, from the folder of the reference.
    page: str
    part: str
    faults: list[str] = field(default_factory=list)

    @property
    def full(self) -> str:
        """With its module."""
        return f"{self.module}.{self.name}"

    def fault(self, node: ast.AST, what: str) -> None:
        """Notes what is wrong with a docstring."""
        self.faults.append(f"{self.path.relative_to(PACKAGE.parent)}:{getattr(node, 'lineno', 1)}: {what}")


def source_of(module: str) -> Path:
    """The file of a module."""
    folder = PACKAGE.joinpath(*module.split(".")[1:])
    return folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")


def listed(tree: ast.Module) -> list[str]:
    """``__all__`` of a module."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    return [node.name for node in tree.body if isinstance(node, Definition) and not node.name.startswith("_")]


def find(module: str, name: str) -> tuple[Definition, Path] | None:
    """Where a name is defined: in its module, or in one that this imports it from."""
    path = source_of(module)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, Definition) and node.name == name:
            return node, path
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 1 and name in (alias.name for alias in node.names):
            package = module if path.name == "__init__.py" else module.rpartition(".")[0]
            return find(f"{package}.{node.module}", name)
    return None


def names() -> list[Name]:
    """All public names, in the order of the parts."""
    found: list[Name] = []
    for part, module, chosen in PARTS:
        of_module = chosen or [
            name for name in listed(ast.parse(source_of(module).read_text(encoding="utf-8"))) if name not in {of.name for of in found if of.module == module}
        ]
        for name in of_module:
            definition = find(module, name)
            if definition is None:
                raise SystemExit(f"{module} has no {name}; python/reference.py lists it")
            folder = module.replace("halfgnn.", "").replace("halfgnn", "")
            page = f"{folder}/{name}.md" if folder else f"{name}.md"
            found.append(Name(module, name, *definition, page, part))
    missing = set(listed(ast.parse(source_of("halfgnn").read_text(encoding="utf-8")))) - {of.name for of in found} - {"__version__", "dgl", "metrics", "nn"}
    if missing:
        raise SystemExit(f"halfgnn: {', '.join(sorted(missing))}: python/reference.py has no part for it")
    return found


def signature(of: Name, function: ast.FunctionDef, name: str, method: bool) -> str:
    """A function as it is called, a parameter a line where it is long."""
    arguments = ast.unparse(function.args)
    if method:
        arguments = re.sub(r"^(self|cls)(: [\w.]+)?(, |$)", "", arguments)
    returns = "" if function.returns is None or function.name == "__init__" else f" -> {ast.unparse(function.returns)}"
    line = f"{name}({arguments}){returns}"
    if len(line) <= 100:
        return line
    parts = re.split(r", (?![^\[(]*[\])])", arguments)
    return f"{name}(\n    " + ",\n    ".join(parts) + f",\n){returns}"


class Text:
    """Docstrings as Markdown."""

    def __init__(self, all_names: list[Name]) -> None:
        self.pages = {of.full: of.page for of in all_names} | {of.name: of.page for of in reversed(all_names)}

    def inline(self, of: Name, text: str) -> str:
        """A line: roles become links, and literals code."""

        def role(match: re.Match[str]) -> str:
            target = match[1]
            shown = target
            if named := re.fullmatch(r"(.*?) <(.*)>", target):
                shown, target = named[1], named[2]
            target = target.lstrip("~.")
            # In a module its own names come first.
            whole = [f"{of.module}.{target}", target, f"halfgnn.{target}"]
            owner = target.rpartition(".")[0]
            for name in [*whole, f"{of.module}.{owner}", owner]:
                if name in self.pages:
                    return f"[`{shown}`]({relative(of.page, self.pages[name])})"
            return f"`{shown}`"

        text = re.sub(r":(?:class|func|meth|mod|attr):`([^`]+)`", role, text)
        return re.sub(r"``([^`]+)``", r"`\1`", text)

    def body(self, of: Name, docstring: str, depth: int) -> str:
        """A docstring with its sections as headings and its examples as blocks of code."""
        made: list[str] = []
        lines = docstring.splitlines()
        at = 0
        while at < len(lines):
            line = lines[at]
            if match := re.fullmatch(r"(Args|Returns|Raises|Shapes):", line):
                title = {"Args": "Arguments"}.get(match[1], match[1])
                end = at + 1
                while end < len(lines) and (not lines[end].strip() or lines[end].startswith("    ")):
                    end += 1
                made += ["", f"{'#' * depth} {title}", "", *self.section(of, lines[at + 1 : end], match[1])]
                at = end
            elif line.startswith(">>>") or line.startswith(".. code-block:: python"):
                block, at = example(lines, at)
                made += ["", "```python", *block, "```", ""]
            else:
                made.append(self.inline(of, line))
                at += 1
        return re.sub(r"\n{3,}", "\n\n", "\n".join(made)).strip()

    def section(self, of: Name, lines: list[str], kind: str) -> Iterator[str]:
        """The items of ``Args`` and ``Raises`` as a list, and other sections as text."""
        text = [line[4:] for line in lines]
        if kind in ("Returns", "Shapes"):
            yield from (self.inline(of, line) for line in text)
            return
        for line in text:
            if match := re.match(r"(\*{0,2}\w[\w, *]*): (.*)", line):
                yield f"- `{match[1]}`: {self.inline(of, match[2])}"
            elif line.strip():
                yield f"  {self.inline(of, line.strip())}"


def example(lines: list[str], at: int) -> tuple[list[str], int]:
    """An example that begins at a line, and the line behind it."""
    block: list[str] = []
    if lines[at].startswith(">>>"):
        while at < len(lines) and lines[at].strip():
            block.append(re.sub(r"\s+# doctest: .*", "", lines[at]))
            at += 1
        return block, at
    at += 1
    while at < len(lines) and (not lines[at].strip() or lines[at].startswith("    ")):
        block.append(lines[at][4:])
        at += 1
    return "\n".join(block).strip("\n").splitlines(), at


def relative(page: str, other: str) -> str:
    """The link from a page to another."""
    return "../" * page.count("/") + other


def documented(of: Name, function: ast.FunctionDef, docstring: str) -> None:
    """Notes the arguments that a docstring with a list of arguments does not name."""
    section = re.search(r"^Args:\n((?:    .*\n|\n)*)", docstring + "\n", re.MULTILINE)
    if section is None:
        return
    named = {name.strip(" *") for match in re.findall(r"^    (\*{0,2}\w[\w, *]*): ", section[1], re.MULTILINE) for name in match.split(",")}
    arguments = function.args
    given = [argument.arg for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs] if argument.arg not in ("self", "cls")]
    given += [argument.arg for argument in (arguments.vararg, arguments.kwarg) if argument is not None]
    for name in given:
        if name not in named and not name.startswith("_"):
            of.fault(function, f"{of.full}: its docstring does not name the argument `{name}`")
    for name in sorted(named - set(given)):
        # What an argument of any names takes may be listed as well.
        if arguments.kwarg is None:
            of.fault(function, f"{of.full}: its docstring names `{name}`, which is no argument")


def fields(node: ast.ClassDef, lines: list[str]) -> list[tuple[str, str]]:
    """Annotated fields of a class that have a comment ``#:`` above them."""
    found = []
    for field_of in node.body:
        if not isinstance(field_of, ast.AnnAssign):
            continue
        at, words = field_of.lineno - 2, []
        while lines[at].strip().startswith("#:"):
            words.insert(0, lines[at].strip()[2:].strip())
            at -= 1
        name = ast.unparse(field_of.target)
        if words:
            found.append((f"{name}: {ast.unparse(field_of.annotation)}", " ".join(words)))
        elif not name.startswith("_") and found:
            # Fields below one comment share it.
            found.append((f"{name}: {ast.unparse(field_of.annotation)}", ""))
    return found


def page_of(of: Name, text: Text) -> str:
    """The page of a name."""
    docstring = ast.get_docstring(of.node) or ""
    if not docstring:
        of.fault(of.node, f"{of.full} has no docstring")
    if of.part in WITH_EXAMPLES and not re.search(r"^(>>>|\.\. code-block:: python)", docstring, re.MULTILINE) and not is_record(of.node):
        of.fault(of.node, f"{of.full}: its docstring has no example")
    made = [f"# {of.name}", ""]
    if isinstance(of.node, ast.FunctionDef):
        made += ["```python", signature(of, of.node, of.full, False), "```", "", text.body(of, docstring, 2)]
        documented(of, of.node, docstring)
        return "\n".join(made).rstrip() + "\n"
    methods = [node for node in of.node.body if isinstance(node, ast.FunctionDef)]
    start = next((node for node in methods if node.name == "__init__"), None)
    replaces = next((base for base in map(ast.unparse, of.node.bases) if base.startswith("pyg.")), None)
    if of.part == "Layers of PyG" and replaces:
        kind = "models" if of.name in PYG_MODELS else "conv"
        theirs = f"[PyG's `{of.name}`]({PYG}.{kind}.{of.name}.html)"
        made += [f"`{of.full}` is a subclass of {theirs}. Its arguments, parameters and `state_dict` are the same.", ""]
    elif start is not None:
        made += ["```python", signature(of, start, of.full, True), "```", ""]
        documented(of, start, docstring)
    made += [text.body(of, docstring, 2), ""]
    if own := fields(of.node, of.path.read_text(encoding="utf-8").splitlines()):
        made += ["## Fields", "", *(f"- `{name}`{': ' if words else ''}{text.inline(of, words)}" for name, words in own), ""]
    for method in methods:
        if method.name.startswith("_"):
            continue
        inner = ast.get_docstring(method) or ""
        if not inner:
            of.fault(method, f"{of.full}.{method.name} has no docstring")
        is_property = any(ast.unparse(decorator).endswith("property") for decorator in method.decorator_list)
        called = f"{of.name}.{method.name}" if "classmethod" in map(ast.unparse, method.decorator_list) else method.name
        shown = f"{method.name}: {ast.unparse(method.returns)}" if is_property and method.returns else signature(of, method, called, True)
        made += [f"## {method.name}", "", "```python", shown, "```", "", text.body(of, inner, 3), ""]
        documented(of, method, inner)
    return "\n".join(made).rstrip() + "\n"


def is_record(node: Definition) -> bool:
    """Whether a class is a dataclass, which others make."""
    return any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list)


def summary(of: Name, text: Text, index: str) -> str:
    """The first sentence of a docstring, for a table."""
    first = (ast.get_docstring(of.node) or "").split("\n\n")[0].replace("\n", " ")
    at = Name(of.module, of.name, of.node, of.path, index, of.part)
    sentence = re.split(r"(?<=[.:]) (?=[A-Z])", first)[0]
    return text.inline(at, sentence).replace("|", "\\|")


def main(folder: Path) -> int:
    """Writes the pages; the number of faults."""
    public = names()
    text = Text(public)
    contents: list[str] = []
    index = ["# Python", "", text.body(Name("halfgnn", "", public[0].node, PACKAGE, "README.md", ""), ast.get_docstring(ast.parse(source_of("halfgnn").read_text(encoding="utf-8"))) or "", 2), ""]
    for part in dict.fromkeys(of.part for of in public):
        # A chapter without a page of its own.
        contents.append(f"- [{part}]()")
        index += [f"## {part}", "", "| name | |", "|---|---|"]
        for of in public:
            if of.part != part:
                continue
            page = folder / of.page
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(page_of(of, text), encoding="utf-8")
            index.append(f"| [`{of.full}`]({of.page}) | {summary(of, text, 'README.md')} |")
            contents.append(f"  - [{of.name}]({of.page})")
        index.append("")
    (folder / "README.md").write_text("\n".join(index).rstrip() + "\n", encoding="utf-8")
    (folder / "contents.txt").write_text("\n".join(contents) + "\n", encoding="utf-8")
    faults = [fault for of in public for fault in of.faults]
    print("\n".join(faults), end="\n" if faults else "", file=sys.stderr)
    return len(faults)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    sys.exit(1 if main(Path(sys.argv[1])) else 0)
