"""A long hunt for inputs that make a parser raise, hang or go quadratic: `make fuzz` (10 minutes; not part of CI).

    python -m tests.fuzz [--minutes 10] [--seed N] [--keep FOLDER]

Every case of tests/cases is spoilt again and again and judged as its own kind, as a wrong kind and as a guessed one;
single lines go through the parsers of the live streams. An input is found guilty when a parser raises anything but
its documented refusal, takes more than 4 s of CPU, or takes more than 12 times as long for four times the lines. A
guilty input is written to FOLDER (default: build/fuzz) and the exit status is 1.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ddtop.engines import ENGINES
from ddtop.engines.log.grammar import guess_engine, parse_line
from ddtop.engines.log.server_args import parse_server_args
from ddtop.inspect import GROUP_KINDS, KINDS, NotJudgedError, inspect_files, read_folder, render_text, to_json
from ddtop.services.journald.entries import parse_entry, parse_journal_json
from ddtop.services.unit.systemctl_show import parse_status, parse_units
from ddtop.sources.gpu.smi.dmon import dmon_head, guess_columns, parse_dmon
from ddtop.sources.gpu.smi.processes import parse_apps, parse_pmon
from ddtop.sources.gpu.smi.query_stream import parse_loop_line
from ddtop.sources.kernel.log_lines import parse_kernel_line
from ddtop.sources.log.scan_snapshot import LogEntry
from ddtop.sources.log.scanner import LogScanner
from ddtop.sources.log.signatures import load_catalogue, match_line
from tests.sources.case_files import QUERY_FIELDS
from tests.sources.test_fuzz import mutated

CASES = Path(__file__).parent / "cases"
CPU_S = 4.0
HANG_S = 15
"""Of CPU time, so that a busy machine finds nobody guilty."""
GROWTH = 12.0
ODD = (
    b"\xff\xfe",
    b"\x00" * 64,
    b"\r" * 200,
    b"(" * 3000,
    b"[" * 3000,
    b"{" * 3000,
    b'{"a":' * 800,
    b"-" * 5000,
    b"\xe2\x96\x88" * 900,
    b"1" * 4000,
    b"\x1b[31m" * 300,
    b", " * 2000,
    b"= " * 2000,
    b"0x" * 2000,
    b"1e999999",
    b"\n" * 5000,
    b"NaN, Infinity, -0",
    b"%" * 3000,
    b"a" * 100_000,
    "\u202e\u0661\u0662".encode(),
)
LINES: tuple[tuple[str, Callable[[str], Any]], ...] = (
    ("parse_line", lambda t: [parse_line(e, t) for e in (None, *ENGINES)]),
    ("match_line", match_line),
    ("parse_kernel_line", parse_kernel_line),
    ("guess_engine", guess_engine),
    ("parse_server_args", lambda t: parse_server_args("server_args=ServerArgs(" + t)),
    ("parse_loop_line", lambda t: parse_loop_line(QUERY_FIELDS, t)),
    ("dmon", lambda t: (dmon_head(t), guess_columns(t.split()), parse_dmon("# gpu sm mem\n" + t))),
    ("apps", lambda t: (parse_apps(["pid, process_name, used_memory [MiB]", t]), parse_pmon(t))),
    ("parse_entry", parse_entry),
    ("show", lambda t: (parse_units(t), parse_status(t))),
    ("journal", lambda t: parse_journal_json(t.encode())),
    ("tokens", lambda t: [e.tokens_of_answer(t) for e in ENGINES.values()]),
    ("scan", lambda t: LogScanner().feed(LogEntry(t, number=1))),
)


class GuiltyError(Exception):
    """An input did what none may do."""


def spoil(data: bytes, pick: random.Random) -> bytes:
    """One to four changes; now and then something odd in the middle."""
    for _ in range(pick.randrange(1, 5)):
        data = mutated(data, pick)
    if pick.random() < 0.3:
        at = pick.randrange(len(data) + 1)
        data = data[:at] + pick.choice(ODD) + data[at:]
    return data[: 4 << 20]


def watch(seconds: float) -> None:
    """Ends what has taken so much CPU time; 0: nothing is watched."""
    signal.setitimer(signal.ITIMER_PROF, seconds)


def judge(kind: str | None, files: dict[str, bytes]) -> float:
    """CPU seconds of one verdict, with both renderings. Raises GuiltyError."""
    begin = time.process_time()
    watch(HANG_S)
    try:
        got = inspect_files(kind, files)
        missing = [k for k in ("verdict", "cause", "severity", "advice", "evidence") if got.get(k) is None]
        if missing:
            raise GuiltyError(f"{kind}: a verdict without {', '.join(missing)}")
        to_json(got)
        render_text(got)
    except NotJudgedError:
        pass
    finally:
        watch(0)
    spent = time.process_time() - begin
    if spent > CPU_S:
        raise GuiltyError(f"{kind}: {spent:.1f} s of CPU")
    return spent


def one_round(
    cases: list[tuple[str, dict[str, bytes]]], samples: list[str], pick: random.Random
) -> dict[str, bytes]:
    """One spoilt case and some lines. Returns what was tried last, for the report."""
    kind, files = pick.choice(cases)
    spoilt = {n: spoil(d, pick) if pick.random() < 0.8 else d for n, d in files.items()}
    for name in [n for n in spoilt if pick.random() < 0.1 and len(spoilt) > 1]:
        del spoilt[name]
    one_round.last = spoilt  # type: ignore[attr-defined]
    judge(pick.choice([kind, kind, kind, None, pick.choice(KINDS)]), spoilt)
    if pick.random() < 0.05:
        grow(kind, spoilt)
    for name, parse in LINES:
        text = pick.choice(samples).encode()
        line = spoil(text, pick)[: pick.choice([300, 5_000, 1_000_000])].decode("utf-8", "replace")
        one_round.last = {f"line-{name}.txt": line.encode()}  # type: ignore[attr-defined]
        begin = time.process_time()
        watch(HANG_S)
        parse(line)
        watch(0)
        if (spent := time.process_time() - begin) > CPU_S / 2:
            raise GuiltyError(f"{name}: {spent:.1f} s of CPU for {len(line)} characters")
    return spoilt


def grow(kind: str, files: dict[str, bytes]) -> None:
    """The same input four times as long must not take sixteen times the time."""
    base = {n: d * (1 + 400_000 // (len(d) + 1)) if n.startswith("input") else d for n, d in files.items()}
    begin = judge_quietly(kind, base)
    after = judge_quietly(kind, {n: d * 4 if n.startswith("input") else d for n, d in base.items()})
    if begin > 0.15 and after > GROWTH * begin:
        raise GuiltyError(f"{kind}: {begin:.2f} s, four times as long {after:.2f} s")


def judge_quietly(kind: str, files: dict[str, bytes]) -> float:
    begin = time.process_time()
    watch(HANG_S * 3)
    try:
        inspect_files(kind, files)
    except NotJudgedError:
        pass
    finally:
        watch(0)
    return time.process_time() - begin


def on_alarm(*_: object) -> None:
    raise GuiltyError(f"no answer within {HANG_S} s of CPU or more")


def main() -> int:
    parser = argparse.ArgumentParser(
        description="hunt for inputs that make a parser raise, hang or go quadratic"
    )
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9))
    parser.add_argument("--keep", type=Path, default=Path("build/fuzz"))
    given = parser.parse_args()
    os.nice(10)
    signal.signal(signal.SIGPROF, on_alarm)
    pick = random.Random(given.seed)
    cases = [
        (GROUP_KINDS[f.parent.name[0]], read_folder(f.parent)) for f in sorted(CASES.glob("*/expect.toml"))
    ]
    samples = [s.sample for s in load_catalogue()]
    for _, files in cases:
        samples += [
            x for d in files.values() for x in d[:60_000].decode("utf-8", "replace").splitlines()[:80]
        ]
    until, rounds, found = time.monotonic() + 60 * given.minutes, 0, Counter[str]()
    while time.monotonic() < until:
        rounds += 1
        try:
            one_round(cases, samples, pick)
        except Exception as error:
            watch(0)
            where = traceback.extract_tb(error.__traceback__)[-1]
            what = f"{type(error).__name__}: {error} at {Path(where.filename).name}:{where.lineno}"
            found[what.rsplit(" at ", maxsplit=1)[-1] if not isinstance(error, GuiltyError) else what] += 1
            folder = given.keep / f"{given.seed}-{rounds}"
            folder.mkdir(parents=True, exist_ok=True)
            for name, data in one_round.last.items():  # type: ignore[attr-defined]
                (folder / name.replace("/", "_")).write_bytes(data)
            print(f"round {rounds}: {what}\n  kept in {folder}", flush=True)
    print(
        f"seed {given.seed}: {rounds} rounds, {rounds * (1 + len(LINES))} inputs, {sum(found.values())} found"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
