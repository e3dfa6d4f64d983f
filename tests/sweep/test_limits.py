"""How long a start may be quiet: phase × history × evidence → limit. No quick start makes the next slow one an alarm."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ddtop.events import PHASES, Phase
from ddtop.journal.history.store import History
from ddtop.sweep.shared.learned_limits import Limits, for_start, learn, patience
from ddtop.sweep.shared.limits import FLOOR_S, TABLE_S
from ddtop.sweep.start.evidence.progress import begin, evidence
from ddtop.sweep.start.silence import quiet_limit_s
from ddtop.sweep.start.watchdog import judge
from tests.sweep.test_watchdog import BASE

NONE: dict[str, float] = {}
QUICK = dict.fromkeys(TABLE_S, 0.4)
MIDDLE = dict.fromkeys(TABLE_S, 40.0)
COLD = {**QUICK, "capturing": 200.0}

ROWS: list[tuple[Phase, dict[str, float], dict[str, Any], float]] = [
    # nothing known: the table
    ("launching", NONE, {}, 180.0),
    ("initialising", NONE, {}, 120.0),
    ("loading", NONE, {}, 600.0),
    ("loading", NONE, {"moved": True}, 600.0),
    ("kv", NONE, {}, 180.0),
    ("capturing", NONE, {}, 900.0),
    ("listening", NONE, {}, 60.0),
    ("listening", NONE, {"http_live": True}, 240.0),
    ("warming", NONE, {}, 600.0),
    ("answering", NONE, {}, 120.0),
    ("capturing", NONE, {"jit": True}, 1800.0),
    ("loading", NONE, {"compile": True}, 1200.0),
    ("initialising", NONE, {"patience": 2.0}, 240.0),
    # quick starts before: never under the floor
    ("launching", QUICK, {}, 90.0),
    ("initialising", QUICK, {}, 90.0),
    ("loading", QUICK, {}, 90.0),
    ("loading", QUICK, {"moved": True}, 30.0),
    ("loading", QUICK, {"storage_wait": True}, 300.0),
    ("loading", QUICK, {"moved": True, "storage_wait": True}, 300.0),
    ("loading", NONE, {"storage_wait": True}, 600.0),
    ("kv", QUICK, {"storage_wait": True}, 90.0),
    ("kv", QUICK, {}, 90.0),
    ("capturing", QUICK, {}, 180.0),
    ("warming", QUICK, {}, 180.0),
    ("warming", QUICK, {"http_live": True}, 240.0),
    ("listening", QUICK, {}, 60.0),
    ("answering", QUICK, {}, 120.0),
    ("capturing", QUICK, {"jit": True}, 1800.0),
    ("capturing", QUICK, {"compile": True}, 1200.0),
    ("loading", QUICK, {"moved": True, "patience": 2.0}, 60.0),
    ("initialising", QUICK, {"patience": 4.0}, 360.0),
    # a factor of what was seen, where that is more
    ("initialising", MIDDLE, {}, 120.0),
    ("loading", MIDDLE, {"moved": True}, 120.0),
    ("warming", MIDDLE, {"http_live": True}, 240.0),
    ("capturing", COLD, {}, 600.0),
    ("capturing", COLD, {"patience": 2.0}, 1200.0),
]


@pytest.mark.parametrize(("phase", "history", "seen", "limit"), ROWS)
def test_phase_history_evidence_limit(
    phase: Phase, history: dict[Phase, float], seen: dict[str, Any], limit: float
) -> None:
    assert Limits(learned=history, **seen).quiet_limit_s(phase) == limit
    at = replace(BASE, phase=phase, limits=Limits(learned=history, **seen), progress=begin(0.0))
    assert quiet_limit_s(at, limit) == limit
    assert not judge(at, limit - 0.1).alarm and judge(at, limit + 0.1).verdict == "stalled"


def test_every_phase_has_a_floor_and_history_never_lengthens_by_being_short() -> None:
    assert set(FLOOR_S) == set(TABLE_S) and set(FLOOR_S) < set(PHASES)
    assert all(FLOOR_S[phase] <= TABLE_S[phase] for phase in FLOOR_S)


@pytest.mark.parametrize(
    ("what", "phase", "quiet", "seen"),
    [
        ("70 s of silent capture", "capturing", 70.0, {}),
        ("75 s of warming with /health 503", "warming", 75.0, {"http_live": True}),
        ("45 s of pause before the ranks meet", "initialising", 45.0, {}),
        ("60 s of imports from a cold disk", "launching", 60.0, {}),
        ("60 s until a mount gives the first weights", "loading", 60.0, {}),
        (
            "250 s of a file server that stumbles in the load",
            "loading",
            250.0,
            {"moved": True, "storage_wait": True},
        ),
        ("70 s of the first request, which compiles", "answering", 70.0, {}),
        ("a second warm-up of 170 s without an answer", "warming", 170.0, {}),
        ("200 s of warm-up, alive", "warming", 200.0, {"http_live": True}),
        ("150 s of capture with new shapes", "capturing", 150.0, {}),
        ("80 s of KV cache over pinned memory", "kv", 80.0, {}),
        ("load after the port, 60 s, llama.cpp", "loading", 60.0, {"http_live": True}),
        ("500 s while DeepGEMM compiles", "capturing", 500.0, {"jit": True}),
        ("45 s of first words after the port", "listening", 45.0, {}),
    ],
)
def test_a_healthy_slow_start_after_two_quick_ones(
    what: str, phase: Phase, quiet: float, seen: dict[str, Any]
) -> None:
    limits = Limits(learned=QUICK, **seen)
    assert not judge(replace(BASE, phase=phase, limits=limits), quiet).alarm, what


def start(config: str, outcome: str, gap: float = 0.4, verdict: str | None = None, tp: int = 1) -> Any:
    phases = {"capturing": SimpleNamespace(state="done", quiet_s=gap, elapsed_s=2 * gap)}
    return SimpleNamespace(config=config, tp=tp, outcome=outcome, verdict=verdict, phases=phases)


def test_the_next_try_of_a_hang_has_twice_the_time() -> None:
    hung = [start("a", "failed", verdict="stalled")]
    assert patience([], ("a", 1)) == 1.0
    assert patience(hung, ("a", 1)) == 2.0
    assert patience(hung * 2, ("a", 1)) == 4.0
    assert patience(hung * 9, ("a", 1)) == 8.0
    assert patience(hung, ("b", 1)) == patience(hung, ("a", 8)) == 1.0, "of this configuration alone"
    assert patience([*hung, start("a", "ready")], ("a", 1)) == 1.0, "until it was ready again"
    assert patience([start("a", "failed", verdict="failed")], ("a", 1)) == 1.0, "a crash is no hang"
    first, second = (for_start(past, None, config="a", tp=1) for past in ([], hung))
    assert second.quiet_limit_s("loading") == 2 * first.quiet_limit_s("loading")


def test_what_a_configuration_taught_goes_before_what_the_host_did() -> None:
    past = [start("a", "ready", 150.0), start("b", "ready", 1.0), start("b", "ready", 0.5)]
    assert for_start(past, None, config="a", tp=1).quiet_limit_s("capturing") == 450.0
    assert for_start(past, None, config="b", tp=1).quiet_limit_s("capturing") == 180.0
    assert for_start(past, None, config="new", tp=1).quiet_limit_s("capturing") == 450.0
    prior = Limits(learned={"capturing": 100.0})
    assert for_start(past, prior, config="b", tp=1).quiet_limit_s("capturing") == 300.0
    assert learn([start("a", "failed", 80.0)]).learned == {}, "a start that failed teaches nothing"


def test_the_history_remembers_its_longest_gap_for_good(tmp_path: Path) -> None:
    """One cold start, then many quick ones: what it taught stays."""
    with History(tmp_path / "h.db") as history:
        columns = [r[1] for r in history._db.execute("PRAGMA table_info(phases)")]
        values = {"run_id": "r", "host": "h", "model": "m", "engine": "sglang", "phase": "capturing"}
        for n in range(60):
            full = {
                **values,
                "at_s": float(n),
                "tp": 8,
                "seconds": 300.0,
                "quiet_s": 250.0 if n == 0 else 0.4,
            }
            names = [c for c in columns if c in full]
            sql = f"INSERT INTO phases ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
            history._db.execute(sql, [full[c] for c in names])
        asked = {"host": "h", "model": "m", "engine": "sglang"}
        assert history.longest_quiet_s("capturing", tp=8, **asked) == 250.0
        assert history.longest_quiet_s("capturing", tp=4, **asked) == 250.0, (
            "of the host, where TP 4 has none"
        )
        assert history.longest_quiet_s("kv", tp=8, **asked) is None


def test_a_real_hang_is_still_told() -> None:
    at = replace(BASE, phase="loading", limits=Limits(learned=QUICK, moved=True))
    at = replace(at, progress=evidence(begin(0.0), 5.0, "GPU memory"))
    assert not judge(at, 34.9).alarm and judge(at, 35.1).cause == "hang-asleep"
