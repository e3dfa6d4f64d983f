"""Every group D case: a recorded response and the right answer to it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from ddtop.bench.judge.response import diagnose_sse
from ddtop.inspect.inputs import join_reads

CASES = Path(__file__).parent.parent / "cases"
META = {"id", "group", "origin", "kind", "notes", "check"}


def case_times(folder: Path) -> list[float] | None:
    file = folder / "times.txt"
    return [float(word) for word in file.read_text().split(":")[1].split()] if file.exists() else None


def diagnose(folder: Path) -> dict[str, Any]:
    (data,) = join_reads({file.name: file.read_bytes() for file in folder.glob("input.*")}).values()
    return diagnose_sse(data, times=case_times(folder))


def mismatches(expect: dict[str, Any], got: dict[str, Any]) -> list[str]:
    wrong = []
    for key, value in expect.items():
        if key in META:
            continue
        if key == "absent":
            wrong += [
                f"{name} should be absent, is {got[name]!r}" for name in value if got.get(name) is not None
            ]
        elif value == "absent":
            if got.get(key) is not None:
                wrong.append(f"{key} should be absent, is {got[key]!r}")
        elif isinstance(value, float):
            if got.get(key) is None or abs(got[key] - value) > 1e-3 * max(1, abs(value)):
                wrong.append(f"{key}: {got.get(key)!r} is not {value!r}")
        elif got.get(key) != value:
            wrong.append(f"{key}: {got.get(key)!r} is not {value!r}")
    return wrong


@pytest.mark.parametrize("folder", sorted(CASES.glob("D*")), ids=lambda folder: folder.name)
def test_case(folder: Path) -> None:
    expect = tomllib.loads((folder / "expect.toml").read_text())
    assert mismatches(expect, diagnose(folder)) == []


def test_there_are_cases() -> None:
    assert len(list(CASES.glob("D*"))) >= 12


PIECE = 'data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}\n\n'


@pytest.mark.parametrize(
    ("text", "verdict", "cause"),
    [
        (PIECE + 'data: {"error":{"message":"boom"}}\n\ndata: [DONE]\n\n', "failed", "in-band-error"),
        (PIECE + "event: error\ndata: Internal server error\n\n", "failed", "in-band-error"),
        (
            PIECE + 'data: {"choices":[{"index":0,"delta":{},"finish_reason":"content_filter"}]}\n\n',
            "failed",
            "aborted",
        ),
        ("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n", "failed", "no-tokens"),
        (
            'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n',
            "truncated",
            "stream-ended-without-finish",
        ),
        ("data: [DONE]\n\n", "failed", "no-tokens"),
        ("", "failed", "no-answer"),
        ("HTTP/1.1 503 Busy\r\nRetry-After: 5\r\n\r\nloading", "failed", "http-503"),
        ("SSH-2.0-OpenSSH_9.2\r\n", "failed", "not-http"),
    ],
)
def test_other_ends(text: str, verdict: str, cause: str) -> None:
    got = diagnose_sse(text.encode())
    assert (got["verdict"], got["cause"]) == (verdict, cause) and got["advice"]
