"""The collector of message templates, on source of each language it reads, and what it asks of the catalogue."""

from __future__ import annotations

from tests.sources.coverage import answer, as_markdown, covered, open_ones
from tests.sources.templates import collect

PYTHON = """
def load(path, n, free):
    if n > 2:
        raise ValueError(f"Unknown quantization method: {path}. Must be one of {n}.")
    assert free > 0, "Torch not compiled with CUDA enabled"
    logger.error("Failed to load NCCL library from %s. It is expected", path)
    logger.warning("a warning of %d words", n)
    raise RuntimeError("the loader met {} things it had never met".format(n))
    raise HTTPException("not of a start")
"""


def test_templates_of_every_language(tmp_path) -> None:
    files = {
        "loader/weights.py": PYTHON,
        "tests/test_loader.py": 'raise RuntimeError("a test is never started")',
        "unrelated/thing.py": 'raise RuntimeError("no code of a start")',
        "src/loader.cpp": 'throw std::runtime_error(format("missing tensor \'%s\'", n)); LOG_ERR("%s: failed to open %d files\\n", f, n);',
        "llm/sched.go": 'return fmt.Errorf("timed out waiting for llama runner to start: %w", err)\nslog.Error("could not load", "x", 1)',
        "launcher/main.rs": '#[error("not enough cuda devices: {0}")]\ntracing::warn!("Not enough VRAM {a} {b}");',
        "loader/broken.py": "def (",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = {(t.kind, t.line): answer(t) for t in collect(tmp_path)}
    assert found == {
        ("raise", "ValueError: Unknown quantization method: value. Must be one of value."): "entry",
        ("raise", "AssertionError: Torch not compiled with CUDA enabled"): "entry",
        ("error", "Failed to load NCCL library from value. It is expected"): "entry",
        ("warning", "a warning of 7 words"): "none",
        ("raise", "RuntimeError: the loader met 7 things it had never met"): "none",
        ("raise", "missing tensor 'value'"): "none",
        ("error", "value: failed to open 7 files"): "none",
        ("raise", "timed out waiting for llama runner to start: %w"): "entry",
        ("error", "could not load"): "none",
        ("raise", "not enough cuda devices: 7"): "entry",
        ("warning", "Not enough VRAM 7 7"): "none",
    }
    assert [t.kind for t in open_ones(collect(tmp_path))] == [
        "raise",
        "raise",
        "error",
        "error",
        "warning",
        "warning",
    ]
    assert "| engine | raise | 6 | 4 | 0 | 2 |" in as_markdown({"engine": covered(collect(tmp_path))})


def test_the_own_words_of_a_refused_setting_are_an_answer(tmp_path) -> None:
    (tmp_path / "config.py").write_text('raise ValueError("--frobnicate must be even")\n')
    (template,) = collect(tmp_path)
    assert answer(template) == "own words"
