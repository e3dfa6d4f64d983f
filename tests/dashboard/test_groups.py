"""Results by group of prompts: the table, the screen (`G`), the report's heat table, and rows in long form."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest

from ddtop import events as ev
from ddtop.bench.worth.groups import NOTE, group_tables, pays
from ddtop.dashboard.draw.paint import plain
from ddtop.dashboard.panels.groups import NONE, groups_items
from ddtop.journal.fold.apply import fold
from ddtop.journal.fold.state import State
from ddtop.report import group_csv, report_html
from ddtop.report.recording import Recording
from tests.dashboard import story
from tests.dashboard.conftest import Open, session_of, steady
from tests.dashboard.test_snapshots import SIZES, compare

GROUPS = {"coding": (60.0, 3.9), "math": (55.0, 3.4), "roleplay": (30.0, 1.7), "summarization": (44.0, 2.6)}


def figures(config: str, only: str = "", *, said: bool = True) -> dict[str, Any]:
    """`by_group` of a configuration: the baseline decodes 25 tok/s whatever the group."""
    out = {}
    for group, (speed, length) in GROUPS.items():
        if only and group != only:
            continue
        base = config == "auto"
        rate = 25.0 if base else speed * (0.5 if config == "b16" else 1.0)
        out[group] = {
            "n": 20,
            "output_tokens": 20_480,
            "decode_tok_s": {"n": 20, "mean": rate, "p50": rate},
            "tpot_ms": {"n": 20, "mean": 1000 / rate},
            **(
                {}
                if base or not said
                else {"acceptance_length": length, "acceptance_source": "sglang per request"}
            ),
        }
    return out


def script(*, split: bool = False, said: bool = True, streams: tuple[int, ...] = (8,)) -> story.Script:
    made = story.Script()
    made.add(ev.RunStarted, run_id="groups", name="groups", mode="sweep", segment=0, simulated=True)
    about = {"revision": "fd2c1cd7d220", "sha256": "4b6d33e7" * 8, "licence": "Apache-2.0"}
    made.add(ev.PlanSource, datasets={"spec-bench": about})
    names = [f"mixed:{g}" for g in GROUPS] if split else ["mixed"]
    specs = [
        ev.CellSpec(
            id=f"{config}-{name.partition(':')[2] or 'all'}-{start}-{c}", config=config, tp=1, workload=name,
            group=name.partition(":")[2], output_tokens=1024, concurrency=c, context=0,
            restart_key=f"{config}+{start}" if start else config, start=start, baseline=config == "auto",
        )
        for start in (0, 1)
        for config in ("auto", "b15", "b16")
        for name in names
        for c in streams
    ]  # fmt: skip
    made.add(ev.CellsPlanned, cells=tuple(specs), baseline="auto")
    for spec in specs:
        by_group = figures(spec.config, spec.group, said=said)
        if spec.config != "auto":  # as batches grow, what is drafted in vain costs more
            for one in by_group.values():
                one["decode_tok_s"]["mean"] *= (8 / spec.concurrency) ** 0.5
        metrics = {"output_tok_s": 200.0, "by_group": by_group}
        if spec.config != "auto":
            metrics["acceptance_length"] = 2.9
        made.add(ev.CellStarted, cell_id=spec.id, attempt=1)
        made.add(ev.CellMeasured, cell_id=spec.id, attempt=1, validity="VALID", metrics=metrics)
        made.add(ev.CellStateSet, cell_id=spec.id, state="done", attempt=1)
    return made


def state(**how: Any) -> State:
    return fold(script(**how).out)


@pytest.mark.parametrize("split", [False, True])
def test_one_cell_for_all_groups_and_one_for_each_make_the_same_table(split: bool) -> None:
    (table,) = group_tables(state(split=split))
    assert table.groups == tuple(GROUPS)
    assert table.place.label == "mixed@1024 · tp1 · c8"
    rows = {row.config: row for row in table.rows}
    assert rows["auto"].baseline
    for group, field in zip(GROUPS, rows["b15"].fields, strict=True):
        assert field is not None
        assert field.cell.speedup == pytest.approx(GROUPS[group][0] / 25)
        assert field.acceptance == pytest.approx(GROUPS[group][1])
        assert (field.requests, field.cell.starts) == (40, 2)
    assert rows["b16"].fields[2] is not None and rows["b16"].fields[2].cell.speedup == pytest.approx(0.6)


def test_groups_that_do_not_fit_make_another_band() -> None:
    for width in (40, 60, 78, 118):
        shown = [plain(item.line) for item in groups_items(state(), None, width)]
        assert max(map(len, shown[1:])) <= width
        text = "\n".join(shown)
        assert all(group in text for group in GROUPS)
        assert "2.40×" in text and "1.70" in text
        assert text.count("b15") == -(-len(GROUPS) // max(1, (width - 12) // 15))


def test_each_group_has_a_break_even_of_its_own() -> None:
    found = state(streams=(8, 32, 128))
    ((name, by_config),) = pays(group_tables(found))
    assert name == "mixed@1024 · tp1"
    even = by_config["b15"]
    assert even["coding"].verdict == even["roleplay"].verdict == "until"
    for group, (speed, _) in GROUPS.items():  # speed ÷ 25 × √(8 ÷ c) = 1
        assert even[group].at == pytest.approx(8 * (speed / 25) ** 2, rel=1e-6)
    assert by_config["b16"]["roleplay"].verdict == "never"
    text = "\n".join(plain(item.line) for item in groups_items(found, None, 118))
    assert "mixed@1024 · tp1: up to which concurrency a request decodes faster than auto's" in text
    assert "b15: coding until c 46" in text and "roleplay until c 12" in text
    assert "coding until c 46" in report_html([Recording(name="x", state=found)])
    assert pays(group_tables(state())) == [], "one concurrency says nothing"


def test_what_a_server_does_not_say_is_said_to_be_unknown() -> None:
    text = "\n".join(plain(item.line) for item in groups_items(state(said=False), None, 100))
    assert NOTE in text and text.count("n/a") == 1 + 2 * len(GROUPS) and "3.90" not in text
    assert plain(groups_items(fold(story.finished().out), None, 100)[0].line) == NONE


def test_the_page_has_a_heat_table_and_the_csv_is_long() -> None:
    recording = Recording(name="x", state=state())
    page = report_html([recording])
    assert "By group of prompts · mixed@1024, × auto" in page
    assert "spec-bench, revision fd2c1cd7d220, SHA-256 4b6d33e74b6d, Apache-2.0" in page
    assert "3.90 tok/step" in page and "×2.40" in page.replace("2.40×", "×2.40")
    assert "By group of prompts" not in report_html([Recording(name="x", state=fold(story.finished().out))])
    rows = list(csv.DictReader(io.StringIO(group_csv([recording]))))
    assert len(rows) == 6 * 4
    b15 = next(r for r in rows if r["config"] == "b15" and r["group"] == "roleplay")
    assert (b15["workload"], b15["requests"], b15["acceptance_length"], b15["decode_tok_s"]) == (
        "mixed",
        "20",
        "1.7",
        "30",
    )
    assert next(r for r in rows if r["config"] == "auto")["acceptance_length"] == ""


async def test_without_groups_the_key_is_not_offered(open_app: Open) -> None:
    session, now = session_of(story.finished())
    async with open_app(session, now=now, size=(120, 40)) as (_, pilot):
        await pilot.press("v", "G")
        assert "G Groups" not in await steady(pilot)


@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
async def test_the_screen_at_every_size(open_app: Open, size: tuple[int, int]) -> None:
    session, now = session_of(script())
    async with open_app(session, now=now, size=size) as (_, pilot):
        await pilot.press("G")
        shown = await steady(pilot)
        await pilot.press("G")
        listed = await steady(pilot)
    compare(f"groups-{size[0]}x{size[1]}.txt", shown + "\n")
    assert "by group of prompts" in shown and "by group of prompts" not in listed
