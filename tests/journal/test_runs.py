"""Lists of recordings, network file systems they may not lie on, thinning of logs, and what outlives a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddtop import events as ev
from ddtop import paths
from ddtop.errors import JournalError, RefusedError, UsageError
from ddtop.journal import network_disks
from ddtop.journal.fold.apply import apply, fold
from ddtop.journal.history.store import History
from ddtop.journal.read.reader import JournalReader
from ddtop.journal.read.runs import (
    check_continues,
    find_run,
    list_runs,
    new_path,
    newest_run,
    remember,
    resolve_run,
    run_info,
)
from ddtop.journal.write.thin import LogRef, Mark, choose
from ddtop.journal.write.writer import JournalWriter
from tests.journal.made import Clock, spec, sweep

PLAN = 'name = "demo"\n[model]\nname = "Qwen3.6-27B"\n'
LOAD = {"host": "ct200", "model": "Qwen3.6-27B", "tp": 1, "engine": "sglang"}


def record(
    path: Path, run_id: str = "r1", host: str = "ct200", ended: bool = True, name: str = "demo"
) -> Path:
    events = [
        ev.RunStarted(
            at_s=1.7e9,
            mono_s=0.0,
            host=host,
            run_id=run_id,
            name=name,
            mode="sweep",
            segment=0,
            plan_toml=PLAN,
        ),
        *sweep()[1:],
    ]
    if ended:
        events.append(ev.RunEnded(at_s=1.7e9 + 900, mono_s=900.0, outcome="some-failed", exit_code=10))
    with JournalWriter.open(path) as journal:
        journal.extend(events)
    return path


def test_a_recording_elsewhere_is_listed_and_named_but_never_gone_on_with(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="plot: no recording is named, and there are none here yet"):
        newest_run("plot")
    there = record(tmp_path / "demo.ddtop", "r9", host="demo", name="elsewhere")
    for _ in range(2):
        remember(there)
    remember(tmp_path / "gone.ddtop")
    assert list_runs() == [] and find_run("demo", "elsewhere") is None
    assert [r.path for r in list_runs(elsewhere=True)] == [there]
    assert newest_run("plot").path == there
    for words in ("r9", "demo", "elsewhere", "demo.ddtop"):
        assert resolve_run(words).path == there
    here = record(new_path("demo", "elsewhere"), "r10", host="demo", name="elsewhere")
    remember(here)
    assert resolve_run("demo").path == here, "where ddtop keeps them goes first"
    assert resolve_run("r9").path == there and len(list_runs(elsewhere=True)) == 2


def test_recordings_are_listed_found_and_named() -> None:
    first = record(new_path("ct200", "demo"), "r1")
    second = record(new_path("ct200", "demo"), "r2", ended=False)
    assert first != second and first.parent == paths.runs_dir()
    (paths.runs_dir() / "bad.ddtop").write_text("nonsense")
    runs = {r.path.name: r for r in list_runs()}
    assert runs[first.name].state == "some-failed" and runs[second.name].state == "interrupted"
    assert runs["bad.ddtop"].state == "unreadable" and "not a ddtop recording" in str(
        runs["bad.ddtop"].problem
    )
    info = runs[first.name]
    assert (info.host, info.name, info.counts.done, info.counts.total) == ("ct200", "demo", 3, 5)
    assert find_run("ct200", "other") is None and find_run("b300", "demo") is None
    assert resolve_run("r2").path == second and resolve_run(str(first)).path == first
    for words in ("ct200-demo", "demo", "ct200"):
        with pytest.raises(UsageError, match="matches 2 recordings"):
            resolve_run(words)
    third = record(new_path("b300", "other"), "r3", host="b300", name="other")
    assert resolve_run("other").path == third
    with pytest.raises(UsageError, match="no recording `ct2000`") as caught:
        resolve_run("ct2000")
    assert first.stem in str(caught.value) or second.stem in str(caught.value)


def test_the_living_recording_is_the_one_to_go_on_with() -> None:
    record(new_path("ct200", "demo"), "old")
    path = new_path("ct200", "demo")
    record(path, "new", ended=False)
    with JournalWriter.open(path, host="ct200"):
        found = find_run("ct200", "demo")
        assert found is not None and found.path == path and found.live and found.pid
        assert resolve_run("ct200").path == path, "a living run is found by its host"


def test_a_record_file_is_continued_only_by_its_own_plan(tmp_path: Path) -> None:
    path = record(tmp_path / "mine.ddtop")
    assert check_continues(tmp_path / "new.ddtop", "ct200", "demo") is None
    info = check_continues(path, "ct200", "demo")
    assert info is not None and info.run_id == "r1"
    for host, name in (("b300", "demo"), ("ct200", "other"), ("ct200", None)):
        with pytest.raises(RefusedError, match="is a recording of plan demo on ct200") as caught:
            check_continues(path, host, name)
        assert caught.value.exit_code == 12
    (tmp_path / "notes.txt").write_text("my notes")
    with pytest.raises(JournalError, match="not a ddtop recording"):
        check_continues(tmp_path / "notes.txt", "ct200", "demo")


def test_run_info_of_what_is_not_there_does_not_raise(tmp_path: Path) -> None:
    assert run_info(tmp_path / "none.ddtop").state == "unreadable"


MOUNTS = r"""22 27 0:21 / /proc rw - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 27 0:40 / /home rw shared:1 - nfs4 fs:/home rw,vers=4.2
31 27 0:41 / /home/me/scratch\040disk rw - xfs /dev/nvme0n1 rw
32 27 0:42 / /mnt/c rw - 9p drvfs rw,aname=drvfs;path=C:\;uid=1000
33 27 0:43 / /work rw - 9p host rw,trans=virtio
34 27 0:44 / /s rw - fuse.sshfs me@x:/ rw
35 27 0:45 / /s rw - ext4 /dev/vdb rw
"""


@pytest.mark.parametrize(
    ("path", "kind", "network"),
    [
        ("/var/x", "ext4", False),
        ("/home/me/a.ddtop", "nfs4", True),
        ("/home/me/scratch disk/a", "xfs", False),
        ("/homeless/a", "ext4", False),
        ("/mnt/c/Users/a", "drvfs", True),
        ("/work/a", "9p", False),
        ("/s/a", "ext4", False),
    ],
)
def test_file_systems_are_told_by_the_deepest_mount(path: str, kind: str, network: bool) -> None:
    assert network_disks.mount_type(MOUNTS, path) == kind
    assert (kind in network_disks.NETWORK) is network


def test_file_systems_on_a_mac() -> None:
    text = "/dev/disk3s1 on / (apfs, sealed, local)\n//u@nas/My Share on /Volumes/My Share (smbfs, nodev)\n"
    assert network_disks.mac_mount_type(text, "/Users/u/a") == "apfs"
    assert network_disks.mac_mount_type(text, "/Volumes/My Share/a") == "smbfs"


def test_a_network_file_system_is_refused_and_a_local_place_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        network_disks, "file_system", lambda p: "nfs4" if tmp_path / "nfs" in p.parents else "ext4"
    )
    with pytest.raises(JournalError, match=r"network file system \(nfs4\)") as caught:
        JournalWriter.open(tmp_path / "nfs" / "a.ddtop")
    assert f"--record {paths.runs_dir() / 'a.ddtop'}" in str(caught.value)
    assert not (tmp_path / "nfs").exists()


def test_thinning_drops_the_oldest_and_keeps_starts_alerts_and_ends() -> None:
    logs = [LogRef(i * 2, "u", 10, 1) for i in range(1000)]
    marks = [
        Mark(101, "restart-started"),
        Mark(141, "restart-ready"),
        Mark(601, "cell-measured"),
        Mark(1001, "alert"),
    ]
    dropped = {log.seq // 2 for log in choose(logs, marks, limit=8000)}
    assert len(logs) - len(dropped) == 600
    assert not dropped & set(range(51, 71)), "the start"
    assert not dropped & set(range(281, 301)), "before the end of a cell"
    assert not dropped & set(range(401, 551)), "around the alert"
    assert max(dropped) < 800, "the newest part"
    assert choose(logs, marks, limit=20_000) == []
    assert choose(logs, [Mark(0, "restart-started")], limit=100) == [], "all of it is one start"


def test_a_thinned_log_says_so_and_nothing_else_is_touched(tmp_path: Path) -> None:
    path = tmp_path / "a.ddtop"
    clock = Clock()
    with JournalWriter.open(path, log_mib=0.05) as journal:
        journal.extend(sweep())
        for number in range(300):
            for unit in ("u", "w"):
                lines = tuple(ev.LogLine(text=f"{number} {'x' * 80}") for _ in range(2))
                journal.append(ev.LogRead(**clock(), unit=unit, lines=lines))
    with JournalReader(path) as reader:
        back = [event for _seq, event in reader.since()]
    others = [e for e in back if not isinstance(e, ev.LogRead | ev.LogGap)]
    assert others == [e for e in sweep() if not isinstance(e, ev.LogRead)]
    gaps = [e for e in back if isinstance(e, ev.LogGap)]
    assert {g.unit for g in gaps} == {"u", "w"} and "log_mib = 0.05" in gaps[0].reason
    kept = [e for e in back if isinstance(e, ev.LogRead) and e.unit == "u"]
    assert kept[-1].lines[0].text.startswith("299 ")
    left_out = sum(int(g.reason.split()[0]) for g in gaps)
    assert left_out + sum(len(e.lines) for e in back if isinstance(e, ev.LogRead)) == 1201


def test_history_teaches_durations_and_remembers_what_broke_and_what_helped(tmp_path: Path) -> None:
    state = fold([*sweep()])
    state.run.plan_toml = PLAN
    state.cells["b1"].state = "broken"
    state.cells["b1"].signature_id = "zero-tokens"
    with History() as history:
        history.learn(state)
        history.learn(state)  # the same run again changes nothing
        assert history.expected_start_s(**LOAD) == 55.0
        assert history.expected_start_s(**{**LOAD, "tp": 8}) == 55.0, (
            "of another TP, where this one is unknown"
        )
        assert history.expected_start_s(**{**LOAD, "model": "other"}) is None
        assert history.expected_phase_s("loading", **LOAD) == 51.0
        assert history.longest_quiet_s("loading", **LOAD) == 0.0
        assert history.longest_quiet_s("capturing", **LOAD) is None
        cell = spec("x", "b64", output_tokens=1024)
        assert history.expected_cell_s(cell, host="ct200", model="Qwen3.6-27B", engine="sglang") == 90.0
        broken = history.broken("ct200")
        assert broken["b1"].engine_version == "0.5.9" and broken["b1"].signature_id == "zero-tokens"
        seen = history.cause_seen("ct200", "nccl-unhandled")
        assert seen is not None and seen.sentence == (
            "seen once on this host (with sglang 0.5.9); last time fixed by starting it again"
        )
        assert history.cause_seen("b300", "nccl-unhandled") is None
        prior = history.prior(host="ct200", model="Qwen3.6-27B", engine="sglang")
        assert prior.restart_s("b15", 1) == 55.0 and prior.cell_s(cell) == 90.0


def test_history_is_rebuilt_from_the_recordings() -> None:
    record(new_path("ct200", "demo"))
    (paths.runs_dir() / "bad.ddtop").write_text("nonsense")
    with History() as history:
        other = fold(
            [
                ev.RunStarted(
                    at_s=1.0, mono_s=1.0, host="ct200", run_id="gone", name="x", mode="sweep", segment=0
                )
            ]
        )
        apply(
            other,
            ev.AlertRaised(
                at_s=2.0,
                mono_s=2.0,
                alert_id="a",
                title="t",
                verdict="failed",
                cause="c",
                cause_text="",
                kind="bug",
                advice="",
            ),
        )
        history.learn(other)
        assert history.cause_seen("ct200", "c") is not None
        problems = history.rebuild()
        assert len(problems) == 1 and "bad.ddtop" in problems[0]
        assert history.cause_seen("ct200", "c") is None and history.expected_start_s(**LOAD) == 55.0


def test_a_history_that_is_no_history_gets_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "history.db").write_text("nonsense" * 100)
    with pytest.raises(JournalError, match=r"history\.db"):
        History(tmp_path / "history.db")
