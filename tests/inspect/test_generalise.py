"""The kind is solved, not the file: cases with other orders, names, versions and shells give the same
answer."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from ddtop.inspect import inspect_files, read_folder
from ddtop.sources.gpu.smi.query_csv import field_name

CASES = Path(__file__).parents[1] / "cases"


def answer(kind: str, files: dict[str, bytes]) -> tuple[str, str, str]:
    got = inspect_files(kind, files)
    return got["verdict"], got["cause"], got["severity"]


def table(path: Path) -> tuple[list[str], list[list[str]]] | None:
    rows = [r.split(", ") for r in path.read_text().splitlines() if r.strip()]
    return (rows[0], rows[1:]) if "name" in rows[0] or "index" in rows[0] else None


def text_of(rows: list[list[str]]) -> bytes:
    return "\n".join(", ".join(r) for r in rows).encode() + b"\n"


def readings(files: dict[str, bytes]) -> list[dict[str, Any]]:
    """Readings; which fields are missing is a set: their order follows the columns."""
    return [
        {k: sorted(v) if isinstance(v, list) else v for k, v in gpu.items()}
        for gpu in inspect_files("gpu", files)["gpu"]
    ]


CSV = [
    p
    for p in sorted(CASES.glob("A*/input*.csv"))
    if "compute-apps" not in p.parent.name and ".read" not in p.name and table(p)
]


@pytest.mark.parametrize("path", CSV, ids=lambda p: f"{p.parent.name}-{p.stem}")
@pytest.mark.parametrize("seed", range(3))
def test_csv_in_any_order_without_units_and_without_head(path: Path, seed: int) -> None:
    found = table(path)
    assert found is not None
    head, rows = found
    want_answer = answer("gpu", {"input.csv": path.read_bytes()})
    want = readings({"input.csv": path.read_bytes()})
    order = list(range(len(head)))
    random.Random(seed).shuffle(order)
    turned = [[r[i] for i in order] for r in (head, *rows)]
    bare = [
        [
            c.removesuffix(u)
            for c in r
            for u in [next((u for u in (" W", " %", " MiB", " MHz") if c.endswith(u)), "")]
        ]
        for r in turned[1:]
    ]
    command = (
        "nvidia-smi --query-gpu="
        + ",".join(field_name(c) for c in turned[0])
        + " --format=csv,noheader,nounits"
    )
    forms = (
        {"input.csv": text_of(turned)},
        {"input.csv": text_of(turned).replace(b"\n", b"\r\n")},
        {"input.csv": text_of(bare), "cmd.txt": command.encode()},
        {"input.csv": text_of([turned[0], *bare])},
    )
    for files in forms:
        assert readings(files) == want and answer("gpu", files) == want_answer


@pytest.mark.parametrize("old", ["[N/A]", "N/A"])
def test_the_older_word_for_absent_is_the_same(old: str) -> None:
    for folder in (
        CASES / "A03-h100-mig-load-util-na",
        CASES / "A04-gb10-nounits-mem-na",
        CASES / "A07-laptop-power-na",
    ):
        files = read_folder(folder)
        older = {n: d.replace(old.encode(), b"[Not Supported]") for n, d in files.items()}
        assert answer("gpu", older) == answer("gpu", files)


def test_throttle_reasons_by_their_older_name() -> None:
    files = read_folder(CASES / "A02-h100-idle-csv-units")
    older = {n: d.replace(b"clocks_event_reasons", b"clocks_throttle_reasons") for n, d in files.items()}
    assert inspect_files("gpu", older)["gpu"] == inspect_files("gpu", files)["gpu"]


def test_eight_gpus_from_one() -> None:
    head, *rows = (CASES / "A01-h200-load-csv-units" / "input.csv").read_text().splitlines()
    many = "\n".join([head, *[rows[0].replace("0, ", f"{i}, ", 1) for i in range(8)]])
    got = inspect_files("gpu", {"input.csv": many.encode()})
    assert [g["index"] for g in got["gpu"]] == list(range(8)) and got["cause"] == "busy"


MODELS = [p for p in sorted(CASES.glob("G*")) if "reboot" not in p.name]
NAMES = (
    (b"model-0", b"pytorch_model-0"),
    (b"model-Q4_K_M", b"Kimi-K2.6-UD-Q2_K_XL"),
    (b"model.safetensors-", b"consolidated-"),
    (b"snapshots/842da379", b"snapshots/0123456789abcdef0123456789abcdef01234567"),
)


@pytest.mark.parametrize("folder", MODELS, ids=lambda p: p.name)
def test_models_under_other_names_and_in_another_order(folder: Path) -> None:
    files = read_folder(folder)
    want = answer("model", files)
    for old, new in NAMES:
        renamed = {
            n.replace(old.decode(), new.decode()): d.replace(old, new) if b"\0\0\0\0" not in d else d
            for n, d in files.items()
        }
        assert answer("model", renamed) == want, old
    if "input.lst" not in files:
        return
    turned = dict(files)
    head, *rows = files["input.lst"].decode().splitlines()
    turned["input.lst"] = "\n".join([head, *reversed(rows)]).encode()
    assert answer("model", turned) == want


@pytest.mark.parametrize("folder", sorted(CASES.glob("F*")), ids=lambda p: p.name)
def test_ssh_with_other_host_names(folder: Path) -> None:
    files = read_folder(folder)
    want = answer("ssh", files)
    for new in (b"gpu-ct200", b"gpu.b300.lab.example", b"gpu100"):
        assert answer("ssh", {n: d.replace(b"gpu1", new) for n, d in files.items()}) == want, new


@pytest.mark.parametrize(
    "noise",
    [
        "Bienvenue\n",
        "警告: 未授权访问\n",
        "\x1b]0;title\x07\n",
        "stty: 'standard input': Inappropriate ioctl\n",
    ],
)
def test_frames_in_other_shells(noise: str) -> None:
    files = read_folder(CASES / "F16-banner-and-rc-noise")
    old = files["input.stdout"]
    got = inspect_files("ssh", {**files, "input.stdout": noise.encode() + old.replace(b"7f3a", b"c0ffee")})
    assert got["payload"] == '{"up": true, "gpus": 8}' and got["noise_lines"] == 4
