"""The publication bundle of a kept run: whole, checked by its sums, without secrets; and its plan run again."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
import tomli
from msgspec.structs import replace

from ddtop.commands.plans.again import NO_SAME_IDS, plan_again
from ddtop.errors import UsageError
from ddtop.events import (
    CellsPlanned,
    Event,
    LogLine,
    LogRead,
    PlanSource,
    RestartStarted,
    RunStarted,
    SelftestDone,
)
from ddtop.journal.read.reader import JournalReader, read_state
from ddtop.journal.write.writer import JournalWriter
from ddtop.plan import InvalidPlanError, check_plan, expand, parse_plan
from ddtop.plan.again import with_warm_up
from ddtop.plan.refine import further
from ddtop.redact import HIDDEN
from ddtop.report.bundle.write import RECORDING, write_bundle
from tests.commands.record_demo import EVENTS, write_recording
from tests.plan.test_plan import SMALL

KEY = "s3cr3t-k3y-of-the-host"
FORM = "hf_" + "Ab1" * 10


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = tmp_path / "run.ddtop"
    write_recording(path)
    return path


def names_of(bundle: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(bundle) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def test_a_bundle_is_whole(run: Path, tmp_path: Path) -> None:
    checks, removed = write_bundle(run, tmp_path / "out.zip")
    assert removed == 0
    found = names_of(tmp_path / "out.zip")
    assert set(found) == {
        "README.md",
        "CHECKLIST.md",
        "checklist.json",
        "report.html",
        "report.md",
        "report.json",
        "plan.toml",
        RECORDING,
        "SHA256SUMS",
    }
    sums = dict(reversed(line.split("  ", 1)) for line in found["SHA256SUMS"].decode().splitlines())
    assert sums == {n: hashlib.sha256(d).hexdigest() for n, d in found.items() if n != "SHA256SUMS"}
    (tmp_path / "copy.ddtop").write_bytes(found[RECORDING])
    assert len(read_state(tmp_path / "copy.ddtop").cells) == 6
    told = json.loads(found["checklist.json"])
    assert told["of"] == sum(c.met != "n/a" for c in checks) and told["met"] == sum(
        c.met == "met" for c in checks
    )
    by_id = {c["id"]: c for c in told["checks"]}
    assert by_id["real"]["met"] == "not met" and "SIMULATED" in found["README.md"].decode()
    assert by_id["token-counts"]["met"] == "met"
    assert by_id["starts"]["why"].startswith("fewer than 3 starts")
    assert json.loads(found["report.json"])["run"]["file"] is None


def with_secrets(event: Event) -> Event:
    """The same event of a run whose server was given keys."""
    if isinstance(event, RestartStarted):
        return replace(event, argv=(*event.argv, "--api-key", KEY))
    if isinstance(event, LogRead) and event.lines:
        line = LogLine(text=f"server_args=ServerArgs(api_key='{KEY}', hf_token='{FORM}')", at_s=event.at_s)
        return replace(event, lines=(line, *event.lines))
    if isinstance(event, RunStarted) and event.plan_toml:
        return replace(event, plan_toml=event.plan_toml + f"# curl -H 'Authorization: Bearer {KEY}'\n")
    return event


def test_no_secret_is_in_any_file_of_it(tmp_path: Path) -> None:
    from ddtop.events import decode_event

    source = tmp_path / "run.ddtop"
    with JournalWriter.open(source) as writer:
        writer.extend(with_secrets(decode_event(line)) for line in EVENTS.read_text().splitlines())
    assert KEY.encode() in source.read_bytes()
    _, removed = write_bundle(source, tmp_path / "out.zip")
    assert removed == 2
    found = names_of(tmp_path / "out.zip")
    for name, data in found.items():
        assert KEY.encode() not in data, name
        assert FORM.encode() not in data, name
    assert HIDDEN in found["plan.toml"].decode()
    assert "2 secrets were left out" in found["README.md"].decode()
    assert KEY.encode() in source.read_bytes()  # the run itself is as it was


def test_the_same_run_gives_the_same_bundle(run: Path, tmp_path: Path) -> None:
    write_bundle(run, tmp_path / "a.zip")
    write_bundle(run, tmp_path / "b.zip")
    first, second = names_of(tmp_path / "a.zip"), names_of(tmp_path / "b.zip")
    assert first == second


def test_a_selftest_is_attached(run: Path, tmp_path: Path) -> None:
    result = {
        "fit": True,
        "problems": [],
        "itl_error_us": {"p50": 3.0},
        "ttft_error_ms": {"p50": 0.2},
        "load": {"streams": 8},
    }
    with JournalWriter.open(run) as writer:
        writer.append(SelftestDone(at_s=1.0, mono_s=1.0, result=result))
    checks, _ = write_bundle(run, tmp_path / "out.zip")
    assert json.loads(names_of(tmp_path / "out.zip")["selftest.json"]) == result
    assert next(c for c in checks if c.id == "client-error").met == "met"


def test_it_overwrites_nothing(run: Path, tmp_path: Path) -> None:
    (tmp_path / "out.zip").write_text("mine")
    with pytest.raises(UsageError, match="already exists"):
        write_bundle(run, tmp_path / "out.zip")
    assert (tmp_path / "out.zip").read_text() == "mine"


# ---- plan from


def recorded(path: Path, text: str, folder: Path, environ: dict[str, str], **changes: Any) -> list[str]:
    """A recording of a run of the plan `text`; the ids of its cells."""
    plan, _ = parse_plan(text, folder=folder, environ=environ)
    cells = tuple(c.spec for c in expand(plan))
    stamp = {"at_s": 1.0, "mono_s": 1.0, "host": "gpu"}
    with JournalWriter.open(path) as writer:
        writer.append(
            RunStarted(
                **stamp,
                run_id="r",
                name=plan.name,
                mode="sweep",
                segment=0,
                plan_toml=changes.get("text", text),
                simulated=changes.get("simulated", False),
            )
        )
        if changes.get("source", True):
            writer.append(PlanSource(**stamp, files=plan.files, env=plan.env))
        writer.append(CellsPlanned(**stamp, cells=cells))
    return [c.id for c in cells]


PROMPTED = SMALL.replace('prompts = ["Fibonacci"]', 'prompts_file = "{env.PLACE}/my prompts.jsonl"')


def test_a_plan_with_prompt_files_and_variables_runs_again_from_its_bundle(tmp_path: Path) -> None:
    """On a machine that has neither: the same cells, by ids."""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    (here / "my prompts.jsonl").write_text('{"prompt": "one"}\n"zwei ü"\n', encoding="utf-8")
    ids = recorded(tmp_path / "run.ddtop", PROMPTED, here, {"PLACE": str(here)})
    write_bundle(tmp_path / "run.ddtop", tmp_path / "out.zip")
    (here / "my prompts.jsonl").unlink()
    text, code = plan_again(str(tmp_path / "out.zip"), there / "again.toml")
    assert code == 0, text
    assert "1 prompt file" in text
    plan, _ = check_plan(there / "again.toml", environ={})
    assert [c.spec.id for c in expand(plan)] == ids
    assert (there / "again-prompts").is_dir()


@pytest.mark.parametrize("simulated", [True, False])
def test_what_ran_on_a_simulated_host_is_run_again_by_the_demo(tmp_path: Path, simulated: bool) -> None:
    recorded(tmp_path / "run.ddtop", SMALL, tmp_path, {}, simulated=simulated)
    text, code = plan_again(str(tmp_path / "run.ddtop"), tmp_path / "again.toml")
    assert code == 0
    assert ("ddtop demo" in text, "ddtop connect" in text) == (simulated, not simulated)


@pytest.mark.parametrize("end", ["unit", "path"])
def test_variables_stand_for_their_values(tmp_path: Path, end: str) -> None:
    old = {"path": 'path = "/m"', "unit": '"srv"'}[end]
    assert old in SMALL
    text = SMALL.replace(old, old.replace("/m", "{env.WHERE}").replace("srv", "{env.WHERE}"))
    ids = recorded(tmp_path / "run.ddtop", text, tmp_path, {"WHERE": '/opt/"odd" \\ place'})
    done, code = plan_again(str(tmp_path / "run.ddtop"), tmp_path / "again.toml")
    assert code == 0, done
    plan, _ = check_plan(tmp_path / "again.toml", environ={})
    assert [c.spec.id for c in expand(plan)] == ids


@pytest.mark.parametrize("bench", ["", "\n[bench]   # how\nnonce = false\n"])
def test_a_run_begun_when_the_warm_up_was_one_request_runs_again_with_it(tmp_path: Path, bench: str) -> None:
    """Its plan says nothing of a warm-up: the cells of today's default would be others."""
    text = SMALL + bench
    old, _ = parse_plan(text + ("" if bench else "\n[bench]\n") + "warmup = 1\n")
    stamp = {"at_s": 1.0, "mono_s": 1.0, "host": "gpu"}
    with JournalWriter.open(tmp_path / "run.ddtop") as writer:
        writer.append(RunStarted(**stamp, run_id="r", name="x", mode="sweep", segment=0, plan_toml=text))
        writer.append(CellsPlanned(**stamp, cells=tuple(c.spec for c in expand(old))))
    done, code = plan_again(str(tmp_path / "run.ddtop"), tmp_path / "again.toml")
    assert code == 0, done
    assert "warmup = 1" in (tmp_path / "again.toml").read_text()


SPELLED = [
    "name = 'x'\n[bench]",
    "name = 'x'\n[ bench ]  # how\r\nnonce = true\r\n",
    "name = 'x'\n['bench']\nnonce = true\n",
    "bench = { nonce = true }\nname = 'x'\n",
    "bench = {}\n",
    "name = 'x'\nbench.nonce = true\n",
    "[bench.slo]\nttft_ms = 1\n",
    'prompt = """\n[bench]\nhello"""\n',
]


@pytest.mark.parametrize("text", SPELLED)
def test_a_warm_up_is_written_into_every_spelling_of_its_table_and_into_no_prompt(text: str) -> None:
    before = tomli.loads(text)
    bench = {**before.get("bench", {}), "warmup": 1}
    assert tomli.loads(with_warm_up(text, 1)) == {**before, "bench": bench}


def test_a_refined_run_that_was_resumed_runs_again_with_its_ids(tmp_path: Path) -> None:
    """A resume plans the refining cells with the others; the plan written again asks for them by itself."""
    text = SMALL.replace("concurrency = [1, 8]", 'concurrency = [1, 8]\nrefine = "break-even"')
    plan, _ = parse_plan(text)
    more = further(plan)
    assert more
    stamp = {"at_s": 1.0, "mono_s": 1.0, "host": "gpu"}
    with JournalWriter.open(tmp_path / "run.ddtop") as writer:
        writer.append(RunStarted(**stamp, run_id="r", name="x", mode="sweep", segment=1, plan_toml=text))
        writer.append(CellsPlanned(**stamp, cells=tuple(c.spec for c in (*expand(plan), *more))))
    done, code = plan_again(str(tmp_path / "run.ddtop"), tmp_path / "again.toml")
    assert code == 0, done


def test_a_plan_that_lost_a_secret_says_that_its_ids_are_others(tmp_path: Path) -> None:
    text = SMALL.replace('"--port", "{port}"', f'"--api-key", "{KEY}", "--port", "{{port}}"')
    assert KEY in text
    recorded(tmp_path / "run.ddtop", text, tmp_path, {})
    write_bundle(tmp_path / "run.ddtop", tmp_path / "out.zip")
    done, code = plan_again(str(tmp_path / "out.zip"), tmp_path / "again.toml")
    assert code == NO_SAME_IDS
    assert "secrets were left out of it" in done
    assert KEY not in (tmp_path / "again.toml").read_text()


def test_what_cannot_be_run_again_is_said(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DDTOP_DEMO_DIR", raising=False)  # a test of the demo in the same process sets it
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("x", "y")
    with pytest.raises(UsageError, match="no bundle of ddtop"):
        plan_again(str(tmp_path / "other.zip"), None)
    (tmp_path / "there.toml").write_text("")
    recorded(tmp_path / "small.ddtop", SMALL, tmp_path, {})
    with pytest.raises(UsageError, match="already exists"):
        plan_again(str(tmp_path / "small.ddtop"), tmp_path / "there.toml")
    with pytest.raises(InvalidPlanError, match="DDTOP_DEMO_DIR is not set here"):  # it was not recorded then
        plan_again(str(run), tmp_path / "old.toml")
    watch = tmp_path / "watch.ddtop"
    with JournalWriter.open(watch) as writer:
        writer.append(RunStarted(at_s=1.0, mono_s=1.0, run_id="r", name="", mode="monitor", segment=0))
    with pytest.raises(UsageError, match="had no plan"):
        plan_again(str(watch), tmp_path / "x.toml")
    write_bundle(run, tmp_path / "cut.zip")
    data = (tmp_path / "cut.zip").read_bytes()
    (tmp_path / "cut.zip").write_bytes(data[: len(data) // 2] + data[len(data) // 2 + 500 :])
    with pytest.raises(UsageError, match="cannot be read"):
        plan_again(str(tmp_path / "cut.zip"), tmp_path / "y.toml")


def test_the_reader_of_a_copy_finds_what_the_run_has(run: Path, tmp_path: Path) -> None:
    """Without secrets nothing of the events changes."""
    write_bundle(run, tmp_path / "out.zip")
    (tmp_path / "copy.ddtop").write_bytes(names_of(tmp_path / "out.zip")[RECORDING])
    with JournalReader(run) as mine, JournalReader(tmp_path / "copy.ddtop") as copy:
        assert list(mine.since()) == list(copy.since())
