"""Commands on recordings, plans and files: no host is reached."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from ddtop import __version__
from ddtop.commands.recordings import export_results
from ddtop.events import CellMeasured
from ddtop.journal.read.reader import JournalReader
from ddtop.journal.write.writer import JournalWriter
from ddtop.paths import shipped
from tests.terminal import Terminal
from tests.waiting import HANG_S

from .conftest import Cli


def test_version_and_help(ddtop: Cli) -> None:
    assert ddtop("--version").out == f"ddtop {__version__}\n"
    assert ddtop("-h").rc == 0
    shown = ddtop().out + ddtop().err
    for name in [
        "connect",
        "demo",
        "replay",
        "report",
        "runs",
        "stop",
        "bench",
        "selftest",
        "inspect",
        "import",
        "export",
        "paths",
        "plan",
        "config",
    ]:
        assert f"\n  {name} " in shown, name


def test_report_in_all_forms(ddtop: Cli, recording: Path, tmp_path: Path) -> None:
    table = ddtop("report", recording)
    assert table.rc == 0 and "auto (baseline)" in table.out and "×" in table.out
    data = json.loads(ddtop("report", recording, "--json").out)
    assert data["schema"] == 1
    assert set(data) >= {"run", "cells", "restarts", "alerts", "steps"}
    assert data["run"]["simulated"] is True and len(data["cells"]) == 6
    assert {
        "id",
        "config",
        "tp",
        "workload",
        "concurrency",
        "context",
        "output_tokens",
        "repeat",
        "state",
    } <= set(data["cells"][0])
    assert data["alerts"][0]["verdict"] == "failed" and data["alerts"][0]["resolved_s"] is not None
    rows = list(csv.DictReader(io.StringIO(ddtop("report", recording, "--csv").out)))
    assert len(rows) == 6 and {row["config"] for row in rows} == {"auto", "linear", "b16"}
    assert ddtop("report", recording, "--md").out.lstrip().startswith("#")
    page = tmp_path / "report.html"
    assert ddtop("report", recording, "--html", page).rc == 0
    text = page.read_text()
    assert "<svg" in text and "SIMULATED" in text
    assert "http://" not in text.replace("http://www.w3.org", "") and "<script src" not in text
    two = ddtop("report", recording, recording, "--json")
    assert two.rc == 0 and len(json.loads(two.out)["reports"]) == 2
    assert ddtop("report", recording, "--baseline", "linear").rc == 0
    assert ddtop("report", recording, "--md", "--csv").rc == 2
    assert ddtop("report", recording, "--html", tmp_path / "no" / "such.html").rc == 2


def test_runs_are_listed_found_and_exported(ddtop: Cli, recording: Path, tmp_path: Path) -> None:
    assert "6/6" in ddtop("runs").out and "demo" in ddtop("runs").out
    (row,) = json.loads(ddtop("runs", "--json").out)
    assert row["starts_ready"] == 3 and row["start_s_median"] > 0
    assert row["cells_done"] == 6 and row["simulated"] and row["state"] == "done"
    copy = tmp_path / "copy.ddtop"
    done = ddtop("runs", "export", row["run"], copy)
    assert done.rc == 0 and "wrote" in done.out
    assert ddtop("report", copy).out == ddtop("report", recording).out
    assert ddtop("report", "demo").rc == 0, "a host's name finds its last recording"
    assert ddtop("runs", "export", row["run"]).rc == 2
    assert ddtop("stop", row["run"]).rc == 12
    assert ddtop("runs", "export", "nothing", tmp_path / "y").rc == 2


def test_other_tools_results_go_out_and_come_in(ddtop: Cli, recording: Path, tmp_path: Path) -> None:
    for form in ("sglang", "vllm"):
        out = ddtop("export", recording, "--format", form)
        assert out.rc == 0, out.err
        rows = [json.loads(line) for line in out.out.splitlines()]
        assert len(rows) == 6
        path = tmp_path / f"{form}.jsonl"
        path.write_text(out.out if form == "sglang" else json.dumps(rows[0]))
        back = ddtop("import", path)
        assert back.rc == 0, back
        assert "output" in back.out
    rows = [
        json.loads(line) for line in ddtop("export", recording, "--format", "inferencex").out.splitlines()
    ]
    assert {(r["framework"], r["tp"], r["conc"], r["osl"]) for r in rows} == {
        ("sglang", 1, 1, 24),
        ("sglang", 1, 1, 48),
    }
    assert {r["spec_decoding"] for r in rows} == {"none", "dflash", "ddtree"}
    assert {r["hw"] for r in rows} == {"rtx-pro-6000-blackwell"}
    assert ddtop("export", recording, "--format", "other").rc == 2
    assert ddtop("import", tmp_path / "nothing.json").rc == 2


def test_a_result_that_was_doubted_later_goes_out_with_its_figures(recording: Path) -> None:
    with JournalReader(recording) as reader:
        found = [e for _, e in reader.kinds(("cell-measured",)) if isinstance(e, CellMeasured)]
    before = json.loads(export_results(recording, "vllm").splitlines()[-1])
    with JournalWriter.open(recording) as writer:
        writer.append(replace(found[-1], validity="SUSPECT", reasons=("host-fault",), raw={}))
    after = json.loads(export_results(recording, "vllm").splitlines()[-1])
    assert after == {**before, "ddtop_validity": "SUSPECT", "ddtop_reasons": ["host-fault"]}


def test_a_replay_on_a_terminal(ddtop: Cli, recording: Path) -> None:
    terminal = Terminal(ddtop.argv("replay", recording, "--speed", "8"), env=ddtop.environ())
    try:
        terminal.wait_for(
            "SIMULATED", "fib@24", seconds=HANG_S
        )  # also at its end, where a slow machine may be
        terminal.press("q")
        assert terminal.wait_end(HANG_S) == 0
        assert b"Traceback" not in terminal.raw.rpartition(b"\x1b[?1049l")[2]
    finally:
        terminal.close()
    assert ddtop("replay", recording, "--speed", "0").rc == 2


@pytest.mark.parametrize("name", ["ct200-qwen3.6-27b", "b300-kimi-k2.6", "quick"])
def test_shipped_plans_are_in_order_and_shown(ddtop: Cli, name: str) -> None:
    path = shipped("plans") / f"{name}.toml"
    checked = ddtop("plan", "check", path)
    assert checked.rc == 0 and "no errors" in checked.out, checked
    shown = ddtop("plan", "show", path)
    assert shown.rc == 0 and "cells" in shown.out


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("[service]", "[servise]", "servise"),
        ('kind = "process"', 'kind = "slurm"', "slurm"),
        ("port = 31997", 'port = "high"', "port"),
        ("requests_per_stream = 5", "requests_per_stream = -1", "requests_per_stream"),
        ("[matrix]", "[matrix", "TOML"),
        ('baseline = "auto"', 'baseline = "nope"', "nope"),
        ("{model.path}", "{model.pth}", "model.pth"),
    ],
)
def test_what_is_wrong_in_a_plan_is_named(ddtop: Cli, tmp_path: Path, old: str, new: str, says: str) -> None:
    text = (shipped("plans") / "demo.toml").read_text()
    assert old in text
    path = tmp_path / "wrong.toml"
    path.write_text(text.replace(old, new))
    ddtop.env["DDTOP_DEMO_DIR"] = str(tmp_path)
    for words in (
        ["plan", "check", path],
        ["plan", "show", path],
        ["connect", "local", "--plan", path, "--record", "x"],
    ):
        done = ddtop(*words)
        assert done.rc == 2, done
        assert says in done.err and str(path) in done.err
    assert not (tmp_path / "x").exists()


def test_settings_and_places(ddtop: Cli) -> None:
    places = ddtop("paths")
    assert places.rc == 0 and str(ddtop.home) in places.out
    assert "# default" in ddtop("config", "show").out
    config = ddtop.home / "config" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('theme = "ddtop-light"\n')
    assert f'theme = "ddtop-light"  # {config}' in ddtop("config", "show").out
    config.write_text("them = 1\n")
    done = ddtop("config", "show")
    assert done.rc == 2 and "did you mean `theme`" in done.err


def test_inspect_reads_a_log_from_standard_input(ddtop: Cli) -> None:
    log = "Load weight begin. avail mem=94.50 GB\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.50 GiB.\n"
    done = ddtop("inspect", "log", "-", "--json", stdin=log)
    found = json.loads(done.out)
    assert found["verdict"] == "failed" and "oom" in found["cause"], found
    assert ddtop("inspect", "log", "/no/such").rc == 2
    assert ddtop("inspect", "tea", "/no/such").rc == 2
    assert ddtop("inspect", "a", "b", "c").rc == 2


def test_plot_in_the_terminal_and_as_a_file(ddtop: Cli, recording: Path, tmp_path: Path) -> None:
    shown = ddtop("plot", recording, "--what", "budget", "--width", "80", "--height", "20")
    assert shown.rc == 0 and "SIMULATED" in shown.out and "\x1b" not in shown.out
    assert len(shown.out.splitlines()) <= 20 and max(len(line) for line in shown.out.splitlines()) <= 80
    target = tmp_path / "p.svg"
    written = ddtop("plot", recording, "--what", "energy", "--out", target, "--width", "500")
    assert written.rc == 0 and written.out.startswith(f"wrote {target}: Throughput and energy")
    assert target.read_text().startswith('<svg width="500" height="520"')
    for arguments, said in (
        (["--what", "nope"], "choose one of: throughput, speedup"),
        (["--x", "nope"], "x is one of:"),
        (["--where", "tp"], "--where NAME=VALUE"),
        (["--what", "search"], "--what throughput, "),
        (["--baseline", "nope"], "--baseline is one of auto"),
        (["--out", tmp_path / "no" / "p.svg"], "name another file"),
    ):
        refused = ddtop("plot", recording, *arguments)
        assert refused.rc == 2 and said in refused.err and not refused.out, arguments


@pytest.mark.parametrize("no_color", ["", "1"])
def test_plot_in_a_terminal_has_colours_unless_they_are_not_wanted(
    ddtop: Cli, recording: Path, no_color: str
) -> None:
    argv = ddtop.argv("plot", recording, "--what", "energy")
    terminal = Terminal(argv, env=ddtop.environ() | {"NO_COLOR": no_color})
    try:
        assert terminal.wait_end(HANG_S) == 0
        assert "energy (J/token)" in terminal.text()
        assert (b"38;5;" in terminal.raw) == (not no_color)
    finally:
        terminal.close()
