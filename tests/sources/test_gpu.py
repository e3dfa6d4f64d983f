"""The long-lived query stream: rows, ticks, refused fields; on the real H200 captures."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddtop.sources.gpu.sample import GpuSample, GpuTrouble, sample_dict
from ddtop.sources.gpu.smi.query_csv import (
    build_sample,
    field_name,
    fields_of_command,
    parse_query_csv,
    split_row,
)
from ddtop.sources.gpu.smi.query_stream import (
    TickGrouper,
    parse_loop_line,
    stamp_ms,
    to_reading,
)
from tests.sources.case_files import QUERY_FIELDS

DATA = Path(__file__).parents[1] / "data" / "nvidia-h200"
FIELDS = [
    "index",
    "uuid",
    "name",
    "pci.bus_id",
    "driver_version",
    "persistence_mode",
    "power.draw",
    "power.draw.average",
    "power.draw.instant",
    "power.limit",
    "enforced.power.limit",
    "power.default_limit",
    "power.max_limit",
    "memory.total",
    "memory.used",
    "memory.free",
    "memory.reserved",
    "utilization.gpu",
    "utilization.memory",
    "temperature.gpu",
    "temperature.memory",
    "clocks.current.sm",
    "clocks.current.memory",
    "clocks.max.sm",
    "pstate",
    "clocks_event_reasons.active",
    "ecc.errors.uncorrected.volatile.total",
    "mig.mode.current",
    "compute_mode",
    "pcie.link.gen.current",
    "pcie.link.width.current",
]


def row(line: str, fields: list[str] | None = None) -> GpuSample:
    got = parse_loop_line(fields or FIELDS, line)
    assert isinstance(got, GpuSample)
    return got


def test_the_same_reading_with_and_without_units() -> None:
    units = parse_query_csv((DATA / "query_units.csv").read_text().splitlines())[0][1]
    plain = row((DATA / "query_nounits.csv").read_text())
    skip = {"power_w", "power_average_w"}  # taken one after the other: 126.49 and 126.51 W
    for name in GpuSample.__struct_fields__:
        if name not in skip:
            assert getattr(units, name) == getattr(plain, name), name
    assert plain.mem_used_mib == 0 and plain.mem_reserved_mib == 616 and plain.mig is False
    assert plain.pstate == "P0" and plain.throttle_reasons == ()


def test_columns_may_come_in_any_order() -> None:
    text = (DATA / "query_nounits.csv").read_text().strip()
    cells = text.split(", ")
    turned = row(", ".join(reversed(cells)), list(reversed(FIELDS)))
    assert turned == row(text)


def test_old_and_new_names_of_the_throttle_field_read_alike() -> None:
    for name in ("clocks_event_reasons.active", "clocks_throttle_reasons.active"):
        assert row("0, 0x0000000000000024", ["index", name]).throttle_reasons == (
            "sw_power_cap",
            "sw_thermal_slowdown",
        )


def test_single_reason_fields_are_gathered() -> None:
    names = ["index", "clocks_throttle_reasons.hw_thermal_slowdown", "clocks_throttle_reasons.sw_power_cap"]
    assert row("0, Active, Not Active", names).throttle_reasons == ("hw_thermal_slowdown",)


def test_an_unknown_reason_bit_keeps_its_number() -> None:
    assert row("0, 0x0000000000000801", ["index", "clocks_event_reasons.active"]).throttle_reasons == (
        "gpu_idle",
        "bit_0x800",
    )


@pytest.mark.parametrize(
    "word",
    [
        "[N/A]",
        "N/A",
        "[Not Supported]",
        "Not Supported",
        "",
        "-",
        "[Insufficient Permissions]",
        "[Unknown Error]",
        "ERR!",
        "[GPU requires reset]",
        "[GPU is lost]",
    ],
)
def test_a_missing_value_is_none_never_zero(word: str) -> None:
    got = row(f"0, {word}, {word}", ["index", "utilization.gpu", "memory.used"])
    assert got.util_gpu_pct is None and got.mem_used_mib is None
    named = {*got.absent_fields, *got.denied_fields, *got.error_fields}
    assert named == {"util_gpu_pct", "mem_used_mib"}


def test_faults_are_told_from_failed_reads() -> None:
    assert row("0, [GPU requires reset]", ["index", "temperature.gpu"]).fault == "requires-reset"
    assert row("0, [GPU is lost]", ["index", "temperature.gpu"]).fault == "lost"
    assert row("0, [Unknown Error]", ["index", "temperature.gpu"]).fault is None


def test_power_falls_back_to_instant_then_average() -> None:
    names = ["index", "power.draw", "power.draw.average", "power.draw.instant"]
    assert (row("0, 5, 6, 7", names).power_w, row("0, 5, 6, 7", names).power_source) == (5, "draw")
    assert (row("0, [N/A], 6, 7", names).power_w, row("0, [N/A], 6, 7", names).power_source) == (7, "instant")
    assert row("0, [N/A], 6, [N/A]", names).power_source == "average"
    lost = row("0, [N/A], [N/A], [N/A]", names)
    assert lost.power_w is None and lost.power_source is None


def test_the_enforced_limit_wins_over_the_requested() -> None:
    assert row("0, 700, 600", ["index", "power.limit", "enforced.power.limit"]).power_limit_w == 600
    assert row("0, 700, [N/A]", ["index", "power.limit", "enforced.power.limit"]).power_limit_w == 700


def test_power_above_the_limit_is_not_clamped() -> None:
    got = row("0, 228.82, 210.00", ["index", "power.draw", "power.limit"])
    assert got.power_fraction is not None and got.power_fraction > 1.08
    assert sample_dict(got)["power_over_limit"] is True


def test_a_name_with_a_comma() -> None:
    assert split_row("0, NVIDIA A, special, 5", 3, ["index", "name", "power.draw"]) == [
        "0",
        "NVIDIA A, special",
        "5",
    ]


def test_blank_cut_and_header_lines_give_nothing() -> None:
    assert parse_loop_line(FIELDS, "") is None
    assert parse_loop_line(FIELDS, "0, GPU-0") is None
    assert parse_loop_line(["index", "name"], "index, name") is None


@pytest.mark.parametrize("fields", [["index"], ["index", "name"], FIELDS])
def test_an_error_text_in_the_stream_is_trouble(fields: list[str]) -> None:
    got = parse_loop_line(fields, "Unable to determine the device handle for GPU0000:65:00.0: Unknown Error")
    assert isinstance(got, GpuTrouble) and got.fields["bus_id"] == "0000:65:00.0"


@pytest.mark.parametrize(("name", "gap"), [("loop200.csv", 200), ("loop50.csv", 50)])
def test_real_streams_are_one_tick_a_line(name: str, gap: int) -> None:
    grouper = TickGrouper(period_ms=gap)
    lines = (DATA / name).read_text().splitlines()
    ticks = [
        t
        for line in lines
        for t in grouper.push(row(line, ["timestamp", "index", "power.draw", "utilization.gpu"]))
    ]
    ticks.append(grouper.flush())
    assert [len(t) for t in ticks] == [1] * len(lines)
    stamps = [stamp_ms(t[0].stamp or "") or 0 for t in ticks]
    assert all(0.5 * gap < b - a < 1.5 * gap for a, b in pairwise(stamps))


def gpu(uuid: str, stamp: str | None = None, count: int | None = None, index: int = 0) -> GpuSample:
    return GpuSample(index=index, uuid=uuid, stamp=stamp, count=count)


def test_ticks_by_count() -> None:
    grouper = TickGrouper()
    out = [grouper.push(gpu(f"g{i % 4}", count=4, index=i % 4)) for i in range(8)]
    assert [len(ticks) for ticks in out] == [0, 0, 0, 1, 0, 0, 0, 1]


def test_ticks_when_a_gpu_comes_again_whatever_its_index() -> None:
    """A stream that starts in the middle of a tick, with GPU 0 missing: indexes never decide."""
    grouper = TickGrouper()
    seen: list[tuple[GpuSample, ...]] = []
    for uuid in ("g2", "g3", "g1", "g2", "g3", "g1", "g2"):
        seen += grouper.push(gpu(uuid, index=int(uuid[1])))
    assert [[s.uuid for s in tick] for tick in seen] == [["g2", "g3", "g1"]] * 2


def test_a_gpu_that_drops_out_ends_the_tick_by_time() -> None:
    grouper = TickGrouper(period_ms=200)
    assert grouper.push(gpu("a", "2026/11/30 23:59:59.950", 2)) == []
    (tick,) = grouper.push(gpu("b", "2026/12/01 00:00:00.150", 2))
    assert [s.uuid for s in tick] == ["a"]


def test_stamps() -> None:
    assert stamp_ms("2026/11/30 06:24:15.182") == pytest.approx(23055182)
    assert stamp_ms("no time") is None


def test_the_queried_fields_are_in_the_drivers_list() -> None:
    known = (DATA / "help_query_gpu.txt").read_text()
    assert [f for f in QUERY_FIELDS if f'"{f}"' not in known] == []
    assert len({field_name(f) for f in QUERY_FIELDS}) == len(QUERY_FIELDS)


def test_fields_of_a_command_line() -> None:
    assert fields_of_command("nvidia-smi --query-gpu=index,name --format=csv -lms 200") == ["index", "name"]
    assert fields_of_command("nvidia-smi '--query-gpu=index,name'") == ["index", "name"]
    assert fields_of_command("nvidia-smi -q -x") is None


def test_to_reading() -> None:
    got = to_reading(row((DATA / "query_nounits.csv").read_text()))
    assert got is not None and got.power_limit_w == 700 and got.error is None
    assert to_reading(GpuSample()) is None
    bad = to_reading(row("0, [GPU requires reset]", ["index", "temperature.gpu"]))
    assert bad is not None and bad.error == "requires-reset" and bad.temp_c is None


cells = st.sampled_from(
    ["0", "12.5 W", "[N/A]", "[Unknown Error]", "0x4", "Enabled", "é", "", "99 %", "1e400", "9" * 30, "-5"]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(cells, min_size=1, max_size=40) | st.text(max_size=200).map(lambda t: [t]))
def test_any_line_is_read_or_passed_over(parts: list[str]) -> None:
    got = parse_loop_line(QUERY_FIELDS, ", ".join(parts))
    assert got is None or isinstance(got, (GpuSample, GpuTrouble))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(QUERY_FIELDS), st.text(max_size=30)), max_size=20))
def test_any_cells_give_a_sample_without_zeros(values: list[tuple[str, str]]) -> None:
    got = build_sample(values)
    if got.power_w == 0:
        assert any("0" in text for _, text in values)
