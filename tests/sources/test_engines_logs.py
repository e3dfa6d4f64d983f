"""Real logs of vLLM, SGLang and llama.cpp: the right answer to each, and the same one live and from a file."""

from __future__ import annotations

import gzip
import tomllib
from pathlib import Path

import pytest

from ddtop.inspect import inspect_files
from ddtop.sources.log.diagnosis import scan_bytes
from ddtop.sources.log.file_lines import read_log
from ddtop.sources.log.first_cause import going_down
from ddtop.sources.log.scan_snapshot import Hit, LogEntry, ScanSnapshot
from ddtop.sources.log.scanner import LogScanner
from ddtop.sources.log.verdict import judge
from ddtop.sweep.start.evidence.log import cause_of

TESTS = Path(__file__).parents[1]
FOLDER = TESTS / "data" / "engines-logs"
EXPECT = tomllib.loads((FOLDER / "expect.toml").read_text("utf-8"))
ALL = sorted(
    [p for p in FOLDER.iterdir() if p.name != "expect.toml"]
    + [p for p in (TESTS / "data" / "strangers").iterdir() if p.name != "expect.toml"]
    + [p for p in (TESTS / "cases").glob("[BCE]*/input*") if p.suffix in (".log", ".txt", ".jsonl", ".json")]
)
"""Every log in the repository."""


def content(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data


def test_every_log_has_an_answer() -> None:
    assert {p.name for p in FOLDER.iterdir()} - {"expect.toml"} == set(EXPECT)


@pytest.mark.parametrize("name", sorted(EXPECT))
def test_real_log(name: str) -> None:
    want = EXPECT[name]
    got = inspect_files("log", {"input.log": content(FOLDER / name)})
    told = {key: got.get(key) for key in ("verdict", "cause", "retryable")}
    assert told == {key: want[key] for key in told}
    assert want["says"] in got["evidence"][0]["text"]


@pytest.mark.parametrize("name", sorted(n for n in EXPECT if EXPECT[n]["verdict"] == "failed"))
def test_evidence_is_no_source_code(name: str) -> None:
    got = inspect_files("log", {"input.log": content(FOLDER / name)})
    assert not any(item["text"].lstrip().startswith("raise ") for item in got["evidence"][:2])


def live(entries: list[LogEntry], engine: str | None, pid: int | None) -> ScanSnapshot:
    """Lines as a start feeds them: unnumbered, with the host's time."""
    scanner = LogScanner(engine)
    for at, entry in enumerate(entries):
        scanner.feed(
            LogEntry(
                entry.line,
                realtime=1e9 + at,
                cursor=f"c{at}",
                pid=entry.pid if entry.pid is not None else pid,
                from_systemd=entry.from_systemd,
            )
        )
    return scanner.snapshot()


def told(scan: ScanSnapshot) -> tuple[object, ...]:
    cause, judged = cause_of(scan), judge(scan)
    named = (cause.slug, cause.kind, cause.evidence[0].text) if cause else None
    return named, judged.verdict, judged.slug, [text for _, text in judged.evidence]


@pytest.mark.parametrize("path", ALL, ids=lambda p: f"{p.parent.name}-{p.name}")
def test_live_and_offline_give_the_same(path: Path) -> None:
    data = content(path)
    read = read_log(data)
    entries = [entry for entry, _ in read.chosen]
    _, offline = scan_bytes(data)
    assert told(live(entries, None, None)) == told(offline)
    if read.journal or offline.engine is None:
        return
    numbered = LogScanner(offline.engine)
    for entry, times in read.chosen:
        numbered.feed(entry, times=times)
    # the plan names the engine; the journal may name the unit's main process for every line
    assert told(live(entries, offline.engine, None)) == told(numbered.snapshot())
    assert told(live(entries, offline.engine, 4711))[:3] == told(numbered.snapshot())[:3]


@pytest.mark.parametrize("name", sorted(EXPECT))
def test_an_end_is_named_before_the_process_ends_and_no_healthy_start_is_going_down(name: str) -> None:
    """At no line of a healthy start, or of a stop on request, is a server called lost; of a dead part's log it is."""
    scanner, ever = LogScanner(), False
    for entry, _ in read_log(content(FOLDER / name)).chosen[:400]:
        if any(isinstance(told, Hit) for told in scanner.feed(entry)) or entry.number % 20 == 0:
            ever = going_down(scanner.snapshot()) or ever
    healthy = EXPECT[name]["verdict"] in ("ready", "starting", "degraded")
    if healthy or EXPECT[name]["cause"] in ("stopped-by-request", "engine-core-died"):
        assert not ever
    if name in (
        "sglang-truncated.log.gz",
        "sglang-port-in-use.log.gz",
        "vllm-noshard.log.gz",
        "vllm-lfs.log.gz",
    ):
        assert going_down(scanner.snapshot())
