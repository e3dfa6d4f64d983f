"""What the panels say, as pure functions of state, size and time."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest

from ddtop import events as ev
from ddtop.dashboard.draw.columns import layout
from ddtop.dashboard.draw.grid import Cursor
from ddtop.dashboard.draw.paint import crop, line, pad, plain, spread, width_of, wrap_text
from ddtop.dashboard.draw.text import bar, duration, size, sparkline, times
from ddtop.dashboard.panels.cell.page import cell_lines
from ddtop.dashboard.panels.footer import Hint, footer_line
from ddtop.dashboard.panels.gpus import bucketed, gpu_lines, gpu_title, throttle_word
from ddtop.dashboard.panels.header import Recording, allocation_role, header_line
from ddtop.dashboard.panels.history import history_items
from ddtop.dashboard.panels.hosts import host_lines
from ddtop.dashboard.panels.moment.face import face_of
from ddtop.dashboard.panels.moment.found import found_lines
from ddtop.dashboard.panels.moment.panel import moment_lines, moment_title
from ddtop.dashboard.panels.moment.standing import connecting_lines
from ddtop.dashboard.panels.moment.starting import starting_lines, starting_title
from ddtop.dashboard.panels.plan import plan_head, plan_items
from ddtop.dashboard.panels.results import Sort, sorted_cells
from ddtop.dashboard.panels.sweep import matrix_lines
from ddtop.dashboard.panels.timeline.typed import parse_time
from ddtop.journal.fold.apply import apply, fold
from ddtop.journal.fold.state import State
from ddtop.journal.results.matrix import matrix
from tests.dashboard import story

LIVE = Recording(live=True, size_b=3_100_000)


def texts(lines: object) -> list[str]:
    return [plain(row).rstrip() for row in lines]  # type: ignore[attr-defined]


def gpu_state(*readings: ev.GpuReading, at_s: float = 100.0) -> State:
    return fold([ev.GpuSampled(at_s=at_s, mono_s=0, host="h", gpus=readings)])


# ------------------------------------------------------------------------------------------------ words


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "–"), (-3, "0s"), (3.9, "3s"), (252, "4m12s"), (7980, "2h13m"), (180_000, "2d02h")],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(None, "–"), (12, "12 B"), (3_100_000, "3.1 MB"), (512_000_000, "512 MB"), (2e12, "2.0 TB")],
)
def test_sizes(count: float | None, text: str) -> None:
    assert size(count) == text


def test_a_bar_is_exact_to_an_eighth_and_an_unknown_one_is_not_empty() -> None:
    assert bar(0.5, 4) == ("██", "░░")
    assert bar(1 / 32, 4) == ("▏", "░░░")
    assert bar(7.0, 3) == ("███", "")
    assert bar(None, 3) == ("", "╌╌╌")


def test_gaps_stay_gaps_in_a_sparkline() -> None:
    assert sparkline([0, None, 600], 600) == "▁ █"
    points = [(2.0, 1.0), (4.0, 3.0), (10.0, 5.0)]
    assert bucketed(points, 11.0, 5, span_s=10) == [1.0, 3.0, None, None, 5.0]


def test_points_older_than_the_strip_are_left_out() -> None:
    assert bucketed([(0.0, 9.0), (100.0, 1.0)], 101.0, 4, span_s=8) == [None, None, None, 1.0]


def test_speed_ups_keep_their_width() -> None:
    assert [times(v) for v in (None, 3.76, 9.94, 9.996, 127.0)] == ["", "3.76×", "9.94×", "10.0×", "127×"]
    assert [times(v, 1) for v in (3.76, 9.96, 10.2)] == ["3.8×", "10.0×", "10×"]


def test_lines_are_cut_and_padded_by_cells() -> None:
    wide = line("日本語", "abc")
    assert width_of(crop(wide, 5)) <= 5
    assert plain(crop(wide, 5)).endswith("…")
    assert width_of(pad(wide, 12)) == 12
    assert plain(spread(line("left"), line("right"), 12)) == "left   right"
    assert width_of(spread(line("left" * 9), line("right"), 12)) == 12
    assert wrap_text("one two three four", 8, 2) == ["one two", "three f…"]


# ------------------------------------------------------------------------------------------------- GPUs


def test_what_a_gpu_does_not_say_is_never_zero() -> None:
    state = gpu_state(ev.GpuReading(index=0, mem_used_mib=1024.0, mem_total_mib=20480.0))
    (row,) = texts(gpu_lines(state, 100, 80, 1))
    assert "–/– W" in row
    assert "1.0/20.0 G" in row
    assert "0%" not in row
    assert "╌" in row


def test_a_gpu_with_an_error_shows_it() -> None:
    state = gpu_state(ev.GpuReading(index=3, error="GPU requires reset"))
    assert texts(gpu_lines(state, 100, 60, 1)) == [" 3 ✗ GPU requires reset"]


def test_stale_readings_keep_their_values_and_say_their_age() -> None:
    state = gpu_state(ev.GpuReading(index=0, power_w=412.0, power_limit_w=600.0))
    fresh, stale = (texts(gpu_lines(state, now, 80, 1))[0] for now in (103.0, 160.0))
    assert "ago" not in fresh
    assert "412/600 W" in stale
    assert "1m00s ago" in stale
    assert "stale 1m00s" in gpu_title(state, 160)


@pytest.mark.parametrize(("window_s", "span"), [(2.0, "2 s to {at}"), (None, "at {at}")])
def test_the_sentence_on_the_gpus_names_its_time(window_s: float | None, span: str) -> None:
    """Its 103 W are a median of seconds gone by; the row above it has the 245 W of now."""
    state = gpu_state(ev.GpuReading(index=0, power_w=245.0, power_limit_w=600.0))
    said = "util.gpu 7%, 103 of 600 W (17%)"
    state.bound = ev.BoundDiagnosed(
        at_s=90.0, mono_s=0, host="h", verdict="latency-bound", why=said, window_s=window_s
    )
    words = " ".join(texts(gpu_lines(state, 100.0, 140, 3)))
    assert (
        f"latency-bound, {span.format(at=time.strftime('%H:%M:%S', time.localtime(90.0)))} · {said}" in words
    )


def test_idle_neighbours_share_a_row_and_anything_else_stands_alone() -> None:
    eight = list(story.gpus(100.0, 1.0))
    eight[5] = msgspec.structs.replace(eight[5], mem_used_mib=60_000.0)  # somebody's model
    rows = texts(gpu_lines(gpu_state(*eight), 101.0, 80, 4))
    assert [row.split()[0] for row in rows] == ["0", "1–4", "5", "6–7"]
    assert "idle · 34–40 W each" in rows[1]
    assert "58.6" in rows[2]
    stale = texts(gpu_lines(gpu_state(*eight), 160.0, 80, 4))
    assert all(row.endswith("1m00s ago") for row in stale)
    unread = [msgspec.structs.replace(g, util_gpu_pct=None) for g in story.gpus(100.0, 0.0)]
    assert len(gpu_lines(gpu_state(*unread), 101.0, 80, 9)) == 8, "what is not known is not called idle"
    warm = [msgspec.structs.replace(g, throttle=("hw_thermal_slowdown",)) for g in story.gpus(100.0, 0.0)]
    assert len(gpu_lines(gpu_state(*warm), 101.0, 80, 9)) == 8, "a GPU that is throttled is shown"


@pytest.mark.parametrize(("width", "height"), [(36, 9), (40, 5), (52, 10), (88, 22), (30, 3)])
def test_eight_gpus_fit_wherever_they_are_put(width: int, height: int) -> None:
    readings = [msgspec.structs.replace(g, util_gpu_pct=50.0) for g in story.gpus(100.0, 1.0)]
    rows = gpu_lines(gpu_state(*readings), 101.0, width, height)
    assert len(rows) <= height
    assert all(width_of(row) <= width for row in rows)
    shown = "\n".join(texts(rows))
    wanted = range(8) if height >= 5 else range(4)
    assert all(f" {index}" in shown for index in wanted)


def test_throttling_is_named_unless_it_is_idleness() -> None:
    assert throttle_word(("gpu_idle",)) == ""
    assert throttle_word(("gpu_idle", "sw_thermal_slowdown")) == "sw thermal slowdown"


# ----------------------------------------------------------------------------------------------- header


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_the_header_fits_and_keeps_what_matters(width: int) -> None:
    script = story.running()
    row = header_line(fold(script.out), script.now, width, LIVE)
    assert width_of(row) == width
    shown = plain(row)
    assert "SIMULATED" in shown
    assert "ct200 ● up" in shown
    assert "12 of 40" in shown
    assert "REC 3.1 MB" in shown


def test_the_header_says_what_is_wrong_with_the_link() -> None:
    script = story.running()
    script.add(ev.HostLost, what="cut")
    shown = plain(header_line(fold(script.out), script.now + 12, 120, LIVE))
    assert "ct200 ✗ lost 12s" in shown
    script.add(ev.HostConnecting, attempt=3, target="x", retry_in_s=4)
    assert "◌ connecting try 3" in plain(header_line(fold(script.out), script.now, 120, LIVE))
    script.add(ev.HostConnected, agent="a", python="3", uid=0, user="root", boot="b2/1")
    script.add(ev.HostRebooted, boot_before="b1/1", boot_now="b2/1")
    assert "! rebooted" in plain(header_line(fold(script.out), script.now, 120, LIVE))


def test_the_header_of_a_replay() -> None:
    script = story.running()
    playing = Recording(live=False, speed=4.0, position_s=script.now)
    assert "REPLAY 4×" in plain(header_line(fold(script.out), script.now, 120, playing))


# ---------------------------------------------------------------------------------------------- restart


def test_a_load_shows_its_share_eta_and_what_is_to_come() -> None:
    script = story.Script()
    story.begin(script)
    story.restart(script, "b15", "inv", ready=False)
    state = fold(script.out)
    shown = "\n".join(texts(starting_lines(state, script.now, 60, 9)))
    assert starting_title(state) == "Starting · b15 tp1"
    assert "▶ starting" in shown
    assert "of about 4m12s" in shown
    assert "▶ load 64 % · ETA 57s" in shown
    assert "· capture" in shown
    assert "✓ generation" in shown
    assert "InvocationID inv is new" in shown


def test_slow_is_said_calmly_and_quiet_with_its_limit() -> None:
    script = story.Script()
    story.begin(script)
    story.restart(script, "b15", "inv", ready=False)
    script.add(
        ev.PhaseSeen,
        attempt_id="start-b15",
        phase="loading",
        state="running",
        elapsed_s=400.0,
        quiet_s=70.0,
        limit_s=90.0,
    )
    script.now += 400
    shown = "\n".join(texts(starting_lines(fold(script.out), script.now, 80, 9)))
    assert "slower than usual, still making progress" in shown
    assert "quiet 1m10s of 1m30s" in shown


def test_nothing_soothing_is_said_while_an_alert_is_open() -> None:
    script = story.Script()
    story.begin(script)
    story.restart(script, "b16", "inv", ready=False)
    script.now += 900
    calm = "\n".join(texts(starting_lines(fold(script.out), script.now, 80, 9)))
    script.add(ev.AlertRaised, **story.alert_fields(script.now))
    troubled = "\n".join(texts(starting_lines(fold(script.out), script.now, 80, 9)))
    assert "still making progress" in calm
    assert "still making progress" not in troubled


def test_a_start_that_failed_does_not_go_on_while_a_person_is_asked() -> None:
    script = story.Script()
    story.begin(script)
    attempt = story.restart(script, "b16", "inv", ready=False)
    script.add(ev.PhaseSeen, attempt_id=attempt, phase="loading", state="failed", elapsed_s=1.0)
    ended = script.now
    script.add(ev.AlertRaised, **story.alert_fields(script.now))
    script.now += 30
    state = fold(script.out)
    rows = texts(starting_lines(state, script.now, 80, 9))
    took = duration(ended - state.restarts[-1].started_at_s)
    assert rows[0].rstrip() == f"✗ failed after {took} · nccl-system-error"
    assert "✗ load 1s" in "\n".join(rows) and "· ready" not in "\n".join(rows)
    assert "✗ not started" in plain(header_line(state, script.now, 120, LIVE))
    script.add(
        ev.PhaseSeen, attempt_id=attempt, phase="loading", state="running", elapsed_s=2.0
    )  # wait longer
    assert texts(starting_lines(fold(script.out), script.now, 80, 9))[0].startswith("▶ starting")


def test_a_gate_part_that_cannot_be_known_is_told_from_one_that_fails() -> None:
    script = story.Script()
    story.begin(script)
    attempt = story.restart(script, "b15", "inv", ready=False)
    unknown = ev.Evidence(source="rule", text="port owners cannot be seen: connect as root")
    script.add(ev.GateSeen, attempt_id=attempt, part="listener", ok=None, evidence=unknown)
    script.add(ev.RestartFailed, attempt_id=attempt, verdict="wrong-arguments", cause="args", kind="config")
    no = ev.Evidence(source="http", text="speculative_num_steps is 1, the cell wants 8")
    script.add(ev.GateSeen, attempt_id=attempt, part="arguments", ok=False, evidence=no)
    shown = "\n".join(texts(starting_lines(fold(script.out), script.now, 80, 9)))
    assert "? listener" in shown
    assert "connect as root" in shown
    assert "✗ arguments" in shown


def test_staging_shows_bytes_rate_and_eta() -> None:
    script = story.Script()
    story.begin(script)
    script.add(
        ev.StageProgress,
        target="/dev/shm/Q",
        source="/data/Q",
        state="copying",
        bytes_done=26_000_000_000,
        bytes_total=52_000_000_000,
        rate_mib_s=410.0,
        eta_s=63.0,
    )
    state = fold(script.out)
    face = face_of(state, script.now)
    assert moment_title(face, state) == "Staging · ct200"
    shown = "\n".join(texts(moment_lines(face, state, script.now, 100, 9)))
    assert "26.0 GB of 52.0 GB · 410 MiB/s · ETA 1m03s" in shown
    assert "/dev/shm/Q ← /data/Q" in shown


# ------------------------------------------------------------------------------------------------ sweep


@pytest.mark.parametrize("width", [38, 60, 110])
@pytest.mark.parametrize("column", range(-1, 5))
def test_the_cursors_column_is_always_in_sight(width: int, column: int) -> None:
    found = matrix(fold(story.running().out))
    view = layout(found, width, Cursor(0, column))
    assert max(0, column) in view.columns


@pytest.mark.parametrize("row", range(8))
@pytest.mark.parametrize("height", [5, 8, 14])
def test_the_cursors_row_is_always_in_sight(row: int, height: int) -> None:
    found = matrix(fold(story.running().out))
    shown = texts(matrix_lines(found, Cursor(row, 0), 60, height, 0.0))
    assert len(shown) <= height
    assert any(f" {story.CONFIGS[row]} " in f"{line_} " for line_ in shown)


def test_every_state_is_a_glyph_and_a_word() -> None:
    script = story.Script()
    story.begin(script)
    states: tuple[ev.CellState, ...] = ("running", "failed", "broken", "skipped", "interrupted")
    for column, state in enumerate(states):
        script.add(ev.CellStateSet, cell_id=story.cell_id("auto", column), state=state)
    found = matrix(fold(script.out))
    shown = texts(matrix_lines(found, Cursor(1, 0), 110, 12, 0.0))
    (row,) = [text for text in shown if " auto " in text]
    for word in ("⠋ running", "✗ failed", "✗ broken", "– skipped", "‖ interrupted"):
        assert word in row


def test_an_invalid_result_gets_no_speed_up() -> None:
    script = story.Script()
    story.begin(script)
    story.measure(script, "auto", 0)
    name = story.cell_id("b15", 0)
    script.add(
        ev.CellMeasured,
        cell_id=name,
        attempt=1,
        validity="INVALID",
        reasons=("client-bound",),
        metrics=story.metrics("b15", 0),
    )
    script.add(ev.CellStateSet, cell_id=name, state="done")
    shown = texts(matrix_lines(matrix(fold(script.out)), Cursor(4, 0), 110, 12, 0.0))
    (row,) = [text for text in shown if text.startswith("  b15 ")]
    assert "✗inval" in row
    assert "×" not in row
    assert "INVALID: the load generator was the limit" in "\n".join(shown)


# ------------------------------------------------------------------------------------------------ footer


def test_help_is_never_dropped_from_the_bottom_line() -> None:
    hints = [Hint(key, "something long") for key in "abcdefgh"]
    hints.insert(7, Hint("?", "Help", always=True))
    row = footer_line(hints, 40)
    assert "? Help" in plain(row)
    assert width_of(row) <= 40


# ------------------------------------------------------------------------------------- lists and plots


def test_the_plan_says_what_is_left_and_why_something_is_not_run() -> None:
    script = story.failed()
    state = fold(script.out)
    head = "\n".join(texts(plan_head(state, script.now)))
    assert "left: 15 cells, 3 restarts" in head
    shown = "\n".join(plain(item.line) for item in plan_items(state))
    assert "b16 tp1  ✗ failed: nccl-system-error" in shown
    assert "✗ broken      fib@256" in shown
    assert "0 tok/s twice" in shown


def test_results_are_sorted_best_first_whatever_is_better() -> None:
    state = fold(story.failed().out)
    fastest = sorted_cells(state, Sort("output_tok_s"), {})
    assert [c.spec.config for c in fastest[:2]] == ["b15", "linear"]
    lowest = sorted_cells(state, Sort("itl_ms.p50"), {})
    assert lowest[0].spec.config == "b15"
    assert lowest[-1].metrics == {}


def test_the_history_tells_the_alert_with_its_evidence() -> None:
    script = story.failed()
    script.add(ev.AlertResolved, alert_id=story.ALERT, how="one retry", by="policy")
    script.add(
        ev.CommandSeen,
        command_id="c",
        viewer="me",
        command="skip",
        outcome="refused",
        reason="it runs",
        args={"config": "b16"},
    )
    shown = "\n".join(plain(item.line) for item in history_items(fold(script.out), 100))
    assert "NOT STARTING?" in shown
    assert "resolved after 0s by policy: one retry" in shown
    assert "log: torch.distributed.DistBackendError" in shown
    assert "✗ skip b16  refused: it runs · me" in shown
    assert "✗ restart for b16 tp1  failed" in shown


# ----------------------------------------------------------------------------------- sizes and times


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("+10m", 600), ("-90s", -90), ("+1h", 3600), ("-5", -5), ("soon", None), ("25:00", None), ("+m", None)],
)
def test_times_that_are_told_from_here(text: str, seconds: float | None) -> None:
    found = parse_time(text, 1000.0, 0.0)
    assert found == (None if seconds is None else 1000.0 + seconds)


def test_a_time_of_day_is_the_first_one_after_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    start = 1_795_000_000.0  # 2026-11-18 11:06:40
    assert parse_time("12:00", start + 99, start) == start + 53 * 60 + 20
    assert parse_time("02:00:01", start + 99, start) == start + 53_601
    assert parse_time("2026-11-18 11:06:41", 0, None) == start + 1


def test_a_host_without_a_plan_shows_what_was_found_and_what_cannot_be_seen() -> None:
    probe = {
        "servers": [
            {"engine": "sglang", "port": 30000, "unit": "sglang-bench.service", "pid": 4711, "model": "/m/Q"}
        ],
        "disks": {"/dev/shm": {"fs": "tmpfs", "size_b": 540e9, "free_b": 480e9, "tmpfs": True}},
        "memory": {"total_b": 1_000_000_000_000, "available_b": 900_000_000_000},
        "model": {"verdict": "incomplete", "path": "/dev/shm/Q"},
        "unknown": ["port owners"],
    }
    state = fold(
        [
            ev.RunStarted(at_s=1, mono_s=0, host="h", run_id="r", name="h", mode="monitor", segment=0),
            ev.ProbeTaken(at_s=2, mono_s=1, host="h", probe=probe),
            ev.ServiceSeen(
                at_s=2, mono_s=1, host="h", status=ev.ServiceStatus(unit="x.service", active=None)
            ),
        ]
    )
    shown = "\n".join(texts(found_lines(state, 12.0, 80, 20)))
    assert "● sglang on port 30000 · sglang-bench · pid 4711" in shown
    assert "/m/Q" in shown
    assert "480 GB free of 540 GB tmpfs" in shown
    assert "! model incomplete" in shown
    assert "Unknown: port owners: it could not be read" in shown
    assert "? x cannot be read" in shown
    assert "ddtop plan new --from h" in shown
    short = texts(found_lines(state, 12.0, 40, 4))
    assert len(short) == 4
    assert "plan" in short[-1]


def test_a_section_of_the_probe_that_failed_says_so() -> None:
    state = fold([ev.ProbeTaken(at_s=2, mono_s=1, host="h", probe={"servers": {"error": "timeout"}})])
    assert "! servers: timeout" in "\n".join(texts(found_lines(state, 3.0, 80, 20)))


def test_a_cell_shows_its_burst_apart_and_a_tail_as_far_as_it_is_known() -> None:
    state = fold(story.running().out)
    cell = next(c for c in state.plan_cells if c.metrics)
    ttft = {"n": 50, "mean": 23.0, "p50": 22.5, "p90": 30.0, "p90_bound": 35.25, "max": 35.25}
    burst = {
        "by": "settled",
        "requests": 23,
        "seconds": 1.5,
        "requests_failed": 0,
        "ttft_ms": {"p50": 80.0, "max": 171.5},
    }
    cell.metrics = {"ttft_ms": ttft, "burst": burst}
    shown = [plain(row) for row in cell_lines(state, cell, matrix(state), 100)]
    tail = next(row for row in shown if row.startswith("  p90"))
    assert tail.endswith(" ≤ 35.2 ms") and not any(row.startswith("  p99") for row in shown)
    found = next(row for row in shown if row.startswith("  burst"))
    assert "23 requests in 1.5 s, TTFT p50 80.00, max 171.5 ms; then the load had settled" in found
    cell.metrics = {"ttft_ms": {**ttft, "n": 70}}
    assert any(plain(row).endswith(" 30.0 ms") for row in cell_lines(state, cell, matrix(state), 100))


def test_a_cell_shows_where_its_answers_part_from_the_baselines() -> None:
    state = fold(story.running().out)
    measured = [c for c in state.plan_cells if c.metrics]
    base, cell = measured[0], measured[-1]
    cell.metrics = {
        **cell.metrics,
        "accuracy": {
            "baseline": base.id,
            "compared": 6,
            "equal_share": 0.5,
            "why": "50% of 6 outputs equal the baseline's",
            "first_divergence_chars": 60,
            "differences": [
                {"request": "2", "at": 60, "baseline": "return a\n + b", "other": "\x1b[31mreturn None"}
            ],
        },
    }
    shown = [plain(row) for row in cell_lines(state, cell, matrix(state), 100)]
    at = next(n for n, row in enumerate(shown) if row.startswith("Responses · compared with "))
    assert "50% of 6 outputs equal the baseline's" in shown[at + 1]
    assert shown[at + 2].strip() == "first difference at character 60 (median)"
    assert shown[at + 3].strip() == "request 2 from character 60"
    assert shown[at + 4].split() == ["baseline", "return", "a", "+", "b"]
    assert shown[at + 5].split() == [cell.spec.config, "return", "None"]
    assert all("\x1b" not in row for row in shown)


@pytest.mark.parametrize("width", [80, 100, 120, 160, 200])
def test_the_header_contradicts_itself_nowhere(width: int) -> None:
    """No ETA and no service where nobody runs the sweep or reads the host; what failed is never left out; no `0 of 0`."""
    gone = Recording(live=True, held=False, size_b=3_100_000)
    running = fold(story.running().out)
    orphan = plain(header_line(running, story.running().now, width, gone))
    assert "no runner" in orphan and "‖ interrupted" in orphan and "not connected" in orphan
    assert "ETA" not in orphan and "ready" not in orphan and "● up" not in orphan
    lost = story.running()
    lost.add(ev.HostLost, what="timed out")
    shown = plain(header_line(fold(lost.out), lost.now, width, Recording(live=True)))
    assert "✗ lost" in shown and "ready" not in shown
    ended = plain(header_line(fold(story.finished().out), story.finished().now, width, gone))
    assert "finished" in ended and "✗ 10" in ended and "some-failed" not in ended and "…" not in ended
    assert "✗ 10" in plain(header_line(running, story.running().now, width, Recording(live=True)))
    begun = story.Script()
    begun.add(ev.RunStarted, run_id="r1", name="n", mode="sweep", segment=0)
    assert "no cells yet" in plain(header_line(fold(begun.out), begun.now, width, Recording(live=True)))
    begun.add(ev.RunEnded, outcome="host-lost", exit_code=11, reason="no route")
    assert "host lost" in plain(header_line(fold(begun.out), begun.now, width, gone))


def test_a_slurm_allocation_in_the_header_and_beside_other_hosts() -> None:
    """Queued with reason and estimate, then how long it still lasts; a warning once that is little."""
    at = time.mktime((2026, 12, 1, 14, 0, 0, 0, 0, -1))
    base: dict[str, Any] = {"at_s": at, "mono_s": 0.0, "host": "h200"}
    state = fold(
        [
            ev.HostConnecting(**base, attempt=1, target="Slurm on me@login1"),
            ev.AllocationSeen(**base, job="7", state="PENDING", reason="Resources", start_estimate=at + 1200),
        ]
    )
    text = "".join(span.text for span in header_line(state, at, 120, Recording(live=True)))
    assert "h200 ◌ queued" in text and "7 PENDING (Resources), est. 14:20" in text
    assert "waiting for Slurm" in "".join(s.text for s in connecting_lines(state, at, 80, 10)[0])
    apply(state, ev.AllocationSeen(**base, job="7", state="RUNNING", nodes=("n1",), ends_at=at + 1339))
    rows = ["".join(s.text for s in row) for row in host_lines(state, at, 1, None, 120)]
    assert "   allocation ends in 22 min" in rows
    assert (allocation_role(state, at), allocation_role(state, at + 900)) == ("label", "warn")
