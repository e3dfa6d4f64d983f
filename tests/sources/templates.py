"""Message templates of an engine's own source: what its start-up code can say when it fails.

Python is read by `ast` (raise and assert statements, log calls), C++, Go and Rust by regular expressions. Each template
is rendered with dummy values, so that the catalogue can be asked for it as for a line of a log. Pure, but for reading
the folder; standard library only. The texts stay in memory: nothing of an engine's source is copied into the project.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

STARTUP = re.compile(
    r"(?:^|/)[\w\-]*(?:arg|config|load|engine|executor|worker|scheduler|distributed|parallel|bootstrap|"
    r"kv_?cache|mem|pool|graph|entrypoint|launch|serve|cli|platform|quant|tokeniz|attention|spec_?dec|speculative|eagle|"
    r"ngram|lora|tool_pars|reasoning|template|model_runner|envs|env|device|cuda|numa|rank|ray|hub|weight|gguf|common|arg|main|"
    r"router|download|sched|discover|llama-)[\w\-]*",
    re.IGNORECASE,
)
"""Paths (relative to the package) whose code runs while a server starts."""

SKIP = re.compile(
    r"(?:^|/)(?:tests?|benchmarks?|examples?|bench_\w+|docs?|third_party|multimodal_gen|integration-tests|testdata|"
    r"client|convert|agent|app|cmd/(?!runner))(?:/|$)|_test\.go$|(?:^|/)test_\w+\.py$"
)
"""Paths that no server runs when it starts."""

_LEVELS = {
    "error": "error",
    "exception": "error",
    "critical": "error",
    "fatal": "error",
    "warning": "warning",
    "warning_once": "warning",
    "warn": "warning",
}
_TEXT = r'(?:\s*(?:format|fmt)\()?\s*(?P<text>"(?:[^"\\\n]|\\.)*"(?:\s*"(?:[^"\\\n]|\\.)*")*)'
_OTHERS = (
    # C and C++
    (".cpp .cc .cu .h .hpp .cuh", "raise", r"throw std::\w+\(" + _TEXT),
    (".cpp .cc .cu .h .hpp .cuh", "raise", r"\b(?:GGML_ABORT|TLLM_THROW)\(" + _TEXT),
    (".cpp .cc .cu .h .hpp .cuh", "raise", r"\bTLLM_CHECK_WITH_INFO\([^\"]{1,200}," + _TEXT),
    (".cpp .cc .cu .h .hpp .cuh", "error", r"\b(?:\w+_LOG_ERROR|LOG_ERR|SRV_ERR|SLT_ERR)\(" + _TEXT),
    (".cpp .cc .cu .h .hpp .cuh", "warning", r"\b(?:\w+_LOG_WARN(?:ING)?|LOG_WRN|SRV_WRN)\(" + _TEXT),
    # Go
    (".go", "raise", r"\b(?:fmt\.Errorf|errors\.New|log\.Fatalf?)\(" + _TEXT),
    (".go", "error", r"\bslog\.Error(?:Context)?\(" + _TEXT),
    (".go", "warning", r"\bslog\.Warn(?:Context)?\(" + _TEXT),
    # Rust
    (".rs", "raise", r"#\[error\(" + _TEXT),
    (".rs", "error", r"\b(?:tracing::)?error!\(" + _TEXT),
    (".rs", "warning", r"\b(?:tracing::)?warn!\(" + _TEXT),
)
_PATTERNS = tuple((suffixes.split(), kind, re.compile(rule)) for suffixes, kind, rule in _OTHERS)


@dataclass(frozen=True, slots=True)
class Template:
    """One message of an engine's source.

    kind   ``raise`` (also assert, throw), ``error`` or ``warning`` (log calls)
    name   the exception's name; ``""`` of a log call
    text   the message with dummy values in its holes, on one line
    where  file and line in the package
    """

    kind: str
    name: str
    text: str
    where: str

    @property
    def line(self) -> str:
        """The message as it stands in a log."""
        return f"{self.name}: {self.text}" if self.name else self.text


def collect(package: Path) -> list[Template]:
    """Every template of the package's start-up code, by file. Files that cannot be read or parsed are left out."""
    found: list[Template] = []
    for path in sorted(package.rglob("*")):
        inner = path.relative_to(package).as_posix()
        if not path.is_file() or SKIP.search(inner) or not STARTUP.search(inner):
            continue
        text = path.read_text("utf-8", "replace") if path.suffix in _SUFFIXES else ""
        found += list(_python(text, inner) if path.suffix == ".py" else _other(text, inner, path.suffix))
    return list({(t.kind, t.line): t for t in found if len(t.text.strip()) > 8}.values())


_SUFFIXES = {".py", *(suffix for suffixes, _, _ in _PATTERNS for suffix in suffixes)}


def _python(text: str, where: str) -> Iterator[Template]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
            name = ast.unparse(node.exc.func).rsplit(".", 1)[-1]
            message = rendered(node.exc.args[0])
            if message and name not in _NOT_OF_A_START:
                yield Template("raise", name, message, f"{where}:{node.lineno}")
        elif isinstance(node, ast.Assert) and node.msg is not None and (message := rendered(node.msg)):
            yield Template("raise", "AssertionError", message, f"{where}:{node.lineno}")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            kind = _LEVELS.get(node.func.attr)
            logs = "log" in ast.unparse(node.func.value).lower()
            if kind and logs and (message := rendered(node.args[0])):
                yield Template(kind, "", message, f"{where}:{node.lineno}")


_NOT_OF_A_START = {"HTTPException", "StopIteration", "StopAsyncIteration"}


def rendered(node: ast.expr) -> str:
    """The text that an expression makes, with dummy values for what only a running program knows."""
    if isinstance(node, ast.Constant):
        return _filled(node.value) if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        parts = [p.value if isinstance(p, ast.Constant) else _dummy(p) for p in node.values]
        return " ".join("".join(str(p) for p in parts).split())
    if isinstance(node, ast.BinOp):
        if isinstance(node.op, ast.Mod):
            return rendered(node.left)
        return f"{rendered(node.left)}{rendered(node.right)}" if isinstance(node.op, ast.Add) else ""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        return re.sub(r"\{[^{}]*\}", "7", rendered(node.func.value))
    return ""


def _dummy(part: ast.expr) -> str:
    """A value for one hole of an f-string: a number where its name or format asks for one, else a word."""
    source = ast.unparse(part)
    number = re.search(
        r":\.?\d*[dfgx%]|size|num|len|count|rank|port|gb|gib|bytes|max|min|free|total|idx", source.lower()
    )
    return "7" if number else "value"


def _filled(text: str) -> str:
    text = re.sub(r"%[-+ #0]*\d*(?:\.\d+)?(?:l|ll|z|h)?[diuxXfeEgG]", "7", text)
    text = re.sub(r"%[-\d]*[srqvpT]|%\+?v", "value", text)
    return " ".join(text.split())


def _other(text: str, where: str, suffix: str) -> Iterator[Template]:
    for suffixes, kind, rule in _PATTERNS:
        if suffix not in suffixes:
            continue
        for match in rule.finditer(text):
            parts = re.findall(r'"((?:[^"\\\n]|\\.)*)"', match["text"])
            message = "".join(parts).replace("\\n", " ").replace('\\"', '"')
            message = _filled(re.sub(r"\{[^{}]*\}", "7", message) if suffix == ".rs" else message)
            line = text.count("\n", 0, match.start()) + 1
            yield Template(kind, "", message, f"{where}:{line}")
