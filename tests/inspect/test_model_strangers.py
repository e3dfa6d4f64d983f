"""Model folders of kinds that are no cases: bad resumes, links without files, split GGUFs, engines, half copies.

Each was written with its right verdict before ddtop was asked.
"""

from __future__ import annotations

import json

import pytest

from ddtop.inspect import NotJudgedError, inspect_files
from ddtop.inspect.model import diagnose_model
from tests.agent.gguf_files import gguf

G = 5_000_000_000
CONFIG = (
    "-rw-r--r-- 1 u u 1204 Jun 12 08:30 config.json\n-rw-r--r-- 1 u u 9084490 Jun 12 08:31 tokenizer.json\n"
)


def row(name: str, size: int = G) -> str:
    return f"-rw-r--r-- 1 u u {size} Jun 12 08:41 {name}\n"


def link(name: str, to: str) -> str:
    return f"lrwxrwxrwx 1 u u 76 Jun 12 08:41 {name} -> {to}\n"


def shards(n: int, of: int | None = None, stem: str = "model", ext: str = "safetensors") -> str:
    return "".join(row(f"{stem}-{i:05d}-of-{of or n:05d}.{ext}") for i in range(1, n + 1))


INDEX = "model.safetensors.index.json"
WHOLE = "total 99\n" + CONFIG + shards(4)
GOOD = json.dumps(
    {"metadata": {}, "weight_map": {f"w{i}": f"model-{i:05d}-of-00004.safetensors" for i in range(1, 5)}}
)
ROWS: list[tuple[str, str, dict[str, bytes], str, str]] = [
    ("whole", WHOLE + row(INDEX, len(GOOD)), {INDEX: GOOD.encode()}, "complete", "all-shards-present"),
    (
        "index appended to",
        WHOLE + row(INDEX, 900),
        {INDEX: GOOD.encode() * 2},
        "incomplete",
        "index-unreadable",
    ),
    ("index of nothing", WHOLE, {INDEX: b'{"weight_map": {}}'}, "incomplete", "index-unreadable"),
    (
        "file(1) says so",
        "model-00001-of-00002.safetensors: broken symbolic link to ../../blobs/0a1b\nconfig.json: broken symbolic link to ../../blobs/5c1d\n",
        {},
        "incomplete",
        "broken-symlink",
    ),
    (
        "in the colours of ls",
        "total 0\n" + link("\x1b[40;31;01mmodel.safetensors\x1b[0m", "\x1b[40;31;01m../../blobs/0a\x1b[0m"),
        {},
        "incomplete",
        "broken-symlink",
    ),
    ("index cut", WHOLE + row(INDEX, 100), {INDEX: GOOD.encode()[:-20]}, "incomplete", "index-unreadable"),
    (
        "index is a web page",
        WHOLE,
        {INDEX: b"<!DOCTYPE html><html>401</html>"},
        "incomplete",
        "index-unreadable",
    ),
    (
        "index is a pointer",
        WHOLE,
        {INDEX: b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 23950\n"},
        "incomplete",
        "index-unreadable",
    ),
    (
        "index of something else",
        WHOLE,
        {INDEX: b'{"error": "Repository not found"}'},
        "incomplete",
        "index-unreadable",
    ),
    ("index of zeros", WHOLE, {INDEX: b"\0" * 300}, "incomplete", "index-unreadable"),
    ("index listed as empty", WHOLE + row(INDEX, 0), {}, "incomplete", "index-unreadable"),
    (
        "torch index",
        "total 9\n" + CONFIG + shards(3, stem="pytorch_model", ext="bin"),
        {"pytorch_model.bin.index.json": b"{}}"},
        "incomplete",
        "index-unreadable",
    ),
    (
        "a bad index beside a model of one file is not used",
        "total 9\n" + CONFIG + row("model.safetensors") + row(INDEX, 40),
        {INDEX: b"not json"},
        "complete",
        "all-shards-present",
    ),
    (
        "config listed as empty",
        "total 9\n" + row("config.json", 0) + shards(2),
        {},
        "incomplete",
        "config-unreadable",
    ),
    (
        "config given is no JSON",
        WHOLE,
        {"config.json": b'{"architectures": ["Q'},
        "incomplete",
        "config-unreadable",
    ),
    (
        "tokenizer is a pointer",
        "total 9\n" + row("config.json", 900) + row("tokenizer.json", 133) + shards(2),
        {},
        "incomplete",
        "config-unreadable",
    ),
    (
        "links with absolute targets that are not listed",
        "/models/m:\ntotal 0\n"
        + "".join(link(f"model-0000{i}-of-00002.safetensors", f"/mnt/nfs/hub/blobs/{i}{i}") for i in (1, 2))
        + link("config.json", "/mnt/nfs/hub/blobs/cc"),
        {},
        "incomplete",
        "broken-symlink",
    ),
    (
        "find: a snapshot without its blobs",
        "d 4096 snap -> \n"
        + "".join(f"l 76 snap/model-0000{i}-of-00002.safetensors -> ../../blobs/a{i}\n" for i in (1, 2))
        + "l 52 snap/config.json -> ../../blobs/c\n",
        {},
        "incomplete",
        "broken-symlink",
    ),
    (
        "one link of a cache leads nowhere, the others do",
        "f 1200 blobs/c\nf 5000000000 blobs/a1\nl 52 snapshots/r/config.json -> ../../blobs/c\n"
        "l 76 snapshots/r/model-00001-of-00002.safetensors -> ../../blobs/a1\n"
        "l 76 snapshots/r/model-00002-of-00002.safetensors -> ../../blobs/a2\n",
        {},
        "incomplete",
        "shard-missing",
    ),
    (
        "rsync was cut",
        "total 9\n" + CONFIG + shards(3, of=4) + row(".model-00004-of-00004.safetensors.Xy12Zz", 99),
        {},
        "incomplete",
        "shard-missing",
    ),
    (
        "rsync with a folder for parts",
        "f 1200 m/config.json\n"
        + "".join(f"f {G} m/model-0000{i}-of-00002.safetensors\n" for i in (1,))
        + "f 77 m/.rsync-partial/model-00002-of-00002.safetensors\n",
        {},
        "incomplete",
        "shard-missing",
    ),
    (
        "aws s3 cp was cut",
        "total 9\n" + CONFIG + shards(3, of=4) + row("model-00004-of-00004.safetensors.6Bc1d2E3", 99),
        {},
        "incomplete",
        "shard-missing",
    ),
    (
        "mistral, one file",
        "total 9\n"
        + row("params.json", 900)
        + row("consolidated.safetensors")
        + row("tekken.json", 16753777),
        {},
        "complete",
        "all-shards-present",
    ),
    (
        "engines of two ranks",
        "total 9\n" + row("config.json", 900) + row("rank0.engine") + row("rank1.engine"),
        {},
        "complete",
        "all-shards-present",
    ),
    (
        "an engine between them is missing",
        "total 9\n" + row("config.json", 900) + row("rank0.engine") + row("rank2.engine"),
        {},
        "incomplete",
        "shard-missing",
    ),
    (
        "ONNX with its data beside it",
        "total 9\n" + row("model.onnx", 99999) + row("model.onnx_data"),
        {},
        "complete",
        "all-shards-present",
    ),
    (
        "GGUF with a vision part",
        "total 9\n" + row("Qwen2.5-VL-7B-Q4_K_M.gguf") + row("mmproj-F16.gguf", 1_354_163_040),
        {},
        "complete",
        "all-shards-present",
    ),
    (
        "GGUF split without its second part",
        "total 9\n" + row("m-00001-of-00002.gguf"),
        {},
        "incomplete",
        "shard-missing",
    ),
    (
        "ollama's half-done blob",
        "total 9\n" + row("sha256-" + "6a" * 32 + "-partial") + row("sha256-" + "6a" * 32 + "-partial-0", 64),
        {},
        "incomplete",
        "partial-files-left",
    ),
    (
        "an adapter alone",
        "total 9\n" + row("adapter_config.json", 700) + row("adapter_model.safetensors"),
        {},
        "incomplete",
        "config-missing",
    ),
    (
        "only the small files are links",
        "total 9\n" + link("config.json", "../../blobs/aa") + row("model.safetensors"),
        {},
        "incomplete",
        "broken-symlink",
    ),
    ("GGUF cut, given itself", "", {"m.gguf": gguf()[:-300]}, "incomplete", "shard-truncated"),
    ("GGUF whole, given itself", "", {"m.gguf": gguf()}, "complete", "all-shards-present"),
    (
        "GGUF of which the first bytes are given: the listed size decides",
        "f 700 m.gguf\nf 40 README.md\n",
        {"m.gguf": gguf()[:6200]},
        "incomplete",
        "shard-truncated",
    ),
]


@pytest.mark.parametrize(
    ("listing", "files", "verdict", "cause"), [r[1:] for r in ROWS], ids=[r[0] for r in ROWS]
)
def test_model_folders_nobody_here_has_seen(
    listing: str, files: dict[str, bytes], verdict: str, cause: str
) -> None:
    got = diagnose_model({**({"input.lst": listing.encode()} if listing else {}), **files})
    assert (got["verdict"], got["cause"]) == (verdict, cause)
    assert got["ready_to_start"] is (verdict == "complete") and got["advice"] and got["evidence"]


def test_the_advice_names_the_file_or_the_kind_of_copy() -> None:
    got = diagnose_model({"input.lst": WHOLE.encode(), INDEX: b"nonsense"})
    assert INDEX in got["advice"] and "fetch" in got["advice"] and got["unreadable_files"] == [INDEX]
    got = diagnose_model(
        {"input.lst": (link("m.gguf", "/x/blobs/1") + link("config.json", "/x/blobs/2")).encode()}
    )
    assert "cp -aL" in got["advice"] and got["broken_links"] == 2


TREE = """models/Qwen2.5-7B-Instruct/
├── config.json              # the model's configuration
├── model-00001-of-00003.safetensors  # weights
├── model-00002-of-00003.safetensors
└── tokenizer.json           # tokenizer
"""


def test_comments_behind_the_names_of_a_tree_are_none_of_them() -> None:
    got = inspect_files(None, {"t.txt": TREE.encode()})
    assert (got["cause"], got["present_shards"], got["expected_shards"]) == ("shard-missing", 2, 3)


@pytest.mark.parametrize("row", ["├── ...", "|-- ...", "…"])
def test_a_listing_with_rows_left_out_shows_nothing_missing(row: str) -> None:
    text = TREE.replace("├── model-00002-of-00003.safetensors", row)
    with pytest.raises(NotJudgedError, match="left out"):
        inspect_files(None, {"t.txt": text.encode()})


def test_checksums_are_a_listing_of_names() -> None:
    rows = "".join(f"{n:064x}  model-0000{n}-of-00004.safetensors\n" for n in (1, 2, 4))
    got = inspect_files(None, {"t.txt": rows.encode()})
    assert (got["kind"], got["cause"], got["expected_shards"]) == ("model", "shard-missing", 4)
