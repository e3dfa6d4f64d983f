"""No input makes a parser raise or hang: random text, and the shipped cases cut, doubled, shuffled and sprinkled."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ddtop.engines import ENGINES
from ddtop.engines.log.grammar import guess_engine, parse_line
from ddtop.engines.log.server_args import is_complete, parse_server_args
from ddtop.services.causes import load_causes
from ddtop.services.journald.entries import parse_journal_json
from ddtop.services.unit.diagnosis import diagnose_unit
from ddtop.services.unit.systemctl_show import parse_units, span_s
from ddtop.sources.figures.diagnosis import log_metrics
from ddtop.sources.kernel.log_lines import parse_kernel_line
from ddtop.sources.log.diagnosis import diagnose_log
from ddtop.sources.log.scan_snapshot import LogEntry
from ddtop.sources.log.scanner import LogScanner
from ddtop.sources.log.signatures import load_catalogue, match_line
from tests.sources.case_files import files, folders
from tests.sources.healthy import LOGS

SAMPLES = [s.sample for s in load_catalogue()] + [line for log in LOGS.values() for line in log.splitlines()]
QUICK = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
LINES = st.one_of(
    st.text(max_size=300),
    st.sampled_from(SAMPLES),
    st.tuples(st.sampled_from(SAMPLES), st.integers(0, 200), st.text(max_size=6)).map(
        lambda t: t[0][: t[1]] + t[2] + t[0][t[1] :]
    ),
    st.tuples(st.sampled_from(SAMPLES), st.sampled_from(SAMPLES)).map("".join),
    st.tuples(st.sampled_from(SAMPLES), st.sampled_from(SAMPLES)).map("\r".join),
)


@QUICK
@given(LINES)
def test_lines(line: str) -> None:
    for engine in (None, *ENGINES):
        for fact in parse_line(engine, line):
            assert fact.kind and isinstance(fact.values, dict)
    match_line(line)
    parse_kernel_line(line)
    guess_engine(line)
    parse_server_args("server_args=ServerArgs(" + line)
    is_complete("non-default args: {" + line)


@QUICK
@given(st.lists(LINES, max_size=12))
def test_scans(lines: list[str]) -> None:
    scanner = LogScanner()
    for number, line in enumerate(lines):
        scanner.feed(LogEntry(line, realtime=float(number), number=number + 1))
    scanner.snapshot()
    got = diagnose_log("\n".join(lines).encode())
    assert got["cause"] in load_causes().by_slug and got["evidence"]


@QUICK
@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                [
                    "MainPID",
                    "ActiveState",
                    "Result",
                    "ExecMainStatus",
                    "ExecMainCode",
                    "NRestarts",
                    "InvocationID",
                    "Id",
                    "TimeoutStopUSec",
                ]
            ),
            st.text(max_size=20),
        ),
        max_size=20,
    ),
    st.text(max_size=60),
)
def test_shows(pairs: list[tuple[str, str]], noise: str) -> None:
    text = "\n".join(f"{k}={v}" for k, v in pairs) + "\n" + noise
    parse_units(text)
    span_s(noise)
    assert (
        diagnose_unit({"input.show": text.encode(), "input.journal": noise.encode()})["cause"]
        in load_causes().by_slug
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-300, 300) | st.text(max_size=20),
    lambda c: (
        st.lists(c, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                [
                    "MESSAGE",
                    "_PID",
                    "PRIORITY",
                    "UNIT",
                    "data",
                    "choices",
                    "usage",
                    "meta_info",
                    "timings",
                    "id",
                    "error",
                ]
            ),
            c,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@QUICK
@given(JSON)
def test_json(value: Any) -> None:
    import json

    text = json.dumps(value)
    parse_journal_json(text.encode())
    for engine in ENGINES.values():
        engine.tokens_of_answer(text)
        engine.served_model(text)
        engine.version(text)
        engine.resolved_args(text, ["x", "--a"])
    log_metrics(text.encode())


@QUICK
@given(
    st.lists(
        st.text(max_size=12)
        | st.sampled_from(["--tp", "--tp=", "-m", "serve", "--", "-", "--no-", "--x={", "-1", "true"]),
        max_size=10,
    ),
    st.lists(st.text(max_size=12), max_size=6),
)
def test_command_lines(argv: list[str], other: list[str]) -> None:
    for engine in ENGINES.values():
        engine.is_engine_cmdline(argv)
        engine.compare_args(argv, engine.resolved_args(None, other), other)
        engine.acceptance_counters("\n".join(argv))


def mutated(data: bytes, pick: random.Random) -> bytes:
    """One of: cut, bytes deleted, bytes replaced, a part doubled, lines shuffled, lines doubled, noise put in."""
    if not data:
        return data
    a, b = sorted((pick.randrange(len(data) + 1), pick.randrange(len(data) + 1)))
    lines = data.split(b"\n")
    match pick.randrange(8):
        case 0:
            return data[:b]
        case 1:
            return data[:a] + data[min(b, a + 40) :]
        case 2:
            return data[:a] + bytes(pick.randrange(256) for _ in range(pick.randrange(1, 9))) + data[a + 4 :]
        case 3:
            return data[:b] + data[a:]
        case 4:
            pick.shuffle(lines)
            return b"\n".join(lines)
        case 5:
            return b"\n".join(line for line in lines for _ in range(pick.randrange(3)))
        case 6:
            return data.replace(b"\n", b"\r\n")
        case _:
            return data.replace(
                bytes([data[a % len(data)]]), pick.choice([b"", b"\x00", b"\xff", b"((", b"%", b"\r"])
            )


@pytest.mark.parametrize(
    ("group", "judge"), [("B", diagnose_log), ("C", log_metrics), ("E", diagnose_unit)], ids="BCE"
)
def test_mutated_cases(group: str, judge: Callable[[dict[str, bytes]], dict[str, Any]]) -> None:
    pick = random.Random(20261130)
    causes = load_causes().by_slug
    for folder in folders(group):
        given_files = files(folder)
        for _ in range(25):
            spoilt = {
                name: mutated(mutated(data, pick), pick) if pick.random() < 0.8 else data
                for name, data in given_files.items()
            }
            begin = time.process_time()
            got = judge(spoilt)
            assert time.process_time() - begin < 2
            assert (
                got["cause"] in causes
                and got["verdict"]
                and got["severity"]
                and got["advice"]
                and got["evidence"]
            )
