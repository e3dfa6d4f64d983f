"""The map of the rooms in docs/architecture.md, made from the code: `python -m tests.house` writes it.

Each folder of ddtop/ is one line: its path and the first sentence of its package's docstring. The order is the order
of imports: a folder imports only from folders above it, and from files of the folder it stands in.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import tomli

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "ddtop"
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- map: python -m tests.house -->\n", "<!-- end of map -->\n"

Edges = Mapping[str, frozenset[str]]


@cache
def modules() -> dict[str, Path]:
    """Dotted name → file, of every module of ddtop."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def folders() -> list[Path]:
    """Every package below ddtop/, as its folder."""
    return [p.parent for p in modules().values() if p.name == "__init__.py" and p.parent != PACKAGE]


@cache
def subject(folder: Path) -> str:
    """The first sentence of the package's docstring, on one line; empty where there is none."""
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    return " ".join(text.split("\n\n")[0].split())


def imports_of(name: str, *, types: bool) -> frozenset[str]:
    """The modules of ddtop that the module `name` imports anywhere; with `types`, also for type checking alone."""
    path = modules()[name]
    found = set()
    nodes: list[ast.AST] = [ast.parse(path.read_text())]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test) and not types:
            nodes += node.orelse
            continue
        nodes += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
                base = ".".join([*package[: len(package) - node.level + 1], *base.split(".")]).rstrip(".")
            found |= {f"{base}.{a.name}" if f"{base}.{a.name}" in modules() else base for a in node.names}
    return frozenset(found & modules().keys() - {name})


@cache
def graph(*, types: bool) -> Edges:
    """Module → the modules it imports."""
    return {name: imports_of(name, types=types) for name in modules()}


def circles(edges: Edges) -> list[list[str]]:
    """Groups of modules that import each other, however far round."""

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        todo = [start]
        while todo:
            new = edges[todo.pop()] - seen
            seen |= new
            todo += new
        return seen

    reach = {name: reached(name) for name in edges}
    groups = {frozenset(n for n in reach[name] if name in reach[n]) for name in edges if name in reach[name]}
    return sorted(sorted(g) for g in groups)


@cache
def layers() -> list[str]:
    """The layers of all contracts in pyproject.toml, the lowest of each first, as paths below ddtop/."""
    contracts = tomli.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    found = []
    for contract in contracts:
        for inside in contract.get("containers", [""]):
            for layer in reversed(contract.get("layers", [])):
                found += [f"{inside}.{one.strip()}".removeprefix(".") for one in re.split("[:|]", layer)]
    return [name.removeprefix("ddtop.").replace(".", "/") for name in found]


def in_order(parent: Path, children: Iterable[Path]) -> list[Path]:
    """`children` of `parent`, each after those it imports from; where the imports leave it open, in the order of the
    contracts, then of the alphabet. Raises ValueError where two import each other."""
    at_layer = {name: number for number, name in enumerate(layers())}
    left = sorted(children, key=lambda f: (at_layer.get(str(f.relative_to(PACKAGE)), 999), f))
    at = {name: path for name, path in modules().items() if path.is_relative_to(parent)}

    def imported(child: Path) -> set[Path]:
        names = {n for m, p in at.items() if p.is_relative_to(child) for n in graph(types=False)[m]}
        return {c for c in left if c != child and any(at[n].is_relative_to(c) for n in names & at.keys())}

    out: list[Path] = []
    while left:
        free = next((c for c in left if not imported(c)), None)
        if free is None:
            raise ValueError(f"folders that import each other: {', '.join(map(str, left))}")
        left.remove(free)
        out.append(free)
    return out


def rows(parent: Path = PACKAGE) -> list[str]:
    """The lines of the map below `parent`."""
    out: list[str] = []
    for folder in in_order(parent, (f for f in folders() if f.parent == parent)):
        name = str(folder.relative_to(PACKAGE)) + "/"
        out.append(f"| {f'**`{name}`**' if parent == PACKAGE else f'`{name}`'} | {subject(folder)} |")
        out += rows(folder)
    return out


def the_map() -> str:
    """The map as Markdown, between its marks."""
    return "\n".join([BEGIN.rstrip(), "| folder of `ddtop/` | its subject |", "|---|---|", *rows(), END])


def with_map(text: str) -> str:
    """The page with the map put where its marks are."""
    before, _, rest = text.partition(BEGIN)
    return before + the_map() + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(with_map(PAGE.read_text()))
    sys.exit(0)
