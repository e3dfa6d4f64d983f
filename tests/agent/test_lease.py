"""The lease as files that every login sees: two real users, links and other things put in its place, dead holders."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from ddtop.agent.errors import OpError
from ddtop.agent.host import lease as room
from ddtop.agent.host.lease import Me, Now, answer, decide, read_claims, shared_folder, state_of
from tests.agent.helpers import agent

UID = os.geteuid()


def now(
    mono_s: float = 1000.0, *, boot: str = "b/1", living: tuple[int, ...] = (1, 2), jobs: str = ""
) -> Now:
    return Now(boot, mono_s, 1e9 + mono_s, lambda pid, _: pid in living, lambda run: run == jobs)


def me(pid: int) -> Me:
    return Me(UID, "root", "10.0.0.5", pid, 7)


def ask(folder: Path, action: str, run: str, pid: int, at: Now | None = None, **more: Any) -> dict[str, Any]:
    args = {"action": action, "run": run, "who": f"person{pid}", "grace_s": 900, **more}
    return answer(str(folder), args, me(pid), at or now())


def test_one_has_it_and_the_other_is_told_who(tmp_path: Path) -> None:
    assert ask(tmp_path, "take", "a", 1, plan="p")["held"]
    refused = ask(tmp_path, "take", "b", 2, now(1060.0))
    assert not refused["held"]
    holder = refused["holder"]
    assert (holder["who"], holder["run"], holder["plan"], holder["from"]) == ("person1", "a", "p", "10.0.0.5")
    assert (holder["held_s"], holder["state"], holder["uid"]) == (60.0, "live", UID)
    ask(tmp_path, "release", "a", 1)
    assert ask(tmp_path, "take", "b", 2)["held"]


@pytest.mark.parametrize(
    ("at", "state"),
    [
        (now(1000.0), "live"),
        (now(9000.0), "live"),  # its agent lives: that is enough
        (now(1100.0, living=()), "away"),
        (now(1899.0, living=()), "away"),
        (now(1901.0, living=()), "stale"),
        (now(99000.0, living=(), jobs="a"), "away"),
        (now(99000.0, living=(), jobs="b"), "stale"),
        (now(1000.0, boot="b/2"), "stale"),
        (now(1001.0, boot="c/1", living=(1,), jobs="a"), "stale"),
        (Now("b/1", 1030.0, 0.0, lambda *_: None, lambda _: False), "live"),  # hidepid
        (Now("b/1", 1100.0, 0.0, lambda *_: None, lambda _: False), "away"),
        (Now("b/1", 3000.0, 0.0, lambda *_: None, lambda _: False), "stale"),
        (now(10.0, living=()), "away"),  # a clock that goes back is no age
    ],
)
def test_when_a_holder_is_dead(tmp_path: Path, at: Now, state: str) -> None:
    ask(tmp_path, "take", "a", 1)
    (claim,) = read_claims(str(tmp_path), room.HOLD)
    assert state_of(claim, at)[0] == state
    assert ask(tmp_path, "take", "b", 2, at)["held"] is (state == "stale")


def test_renewing_keeps_since_and_the_place_in_line(tmp_path: Path) -> None:
    ask(tmp_path, "take", "a", 1)
    ask(tmp_path, "take", "a", 2, now(1500.0))  # the same run over another connection
    shown = ask(tmp_path, "show", "", 3, now(1600.0, living=(2,)))["holder"]
    assert shown["held_s"] == 600.0 and shown["state"] == "live"


def test_the_lease_is_written_for_all_to_read_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        ask(tmp_path, "take", "a", 1)
    finally:
        os.umask(before)
    files = {p.name: p.stat().st_mode & 0o777 for p in tmp_path.iterdir()}
    assert files == {f"ddtop-lease.{UID}": 0o644, "ddtop-lease.lock": 0o644}


@pytest.mark.parametrize("what", ["link", "dangling", "pipe", "folder"])
def test_something_else_in_the_lock_s_place_is_refused_and_not_followed(tmp_path: Path, what: str) -> None:
    folder, victim = tmp_path / "f", tmp_path / "victim"
    folder.mkdir()
    victim.write_text("keep me")
    lock = folder / room.LOCK
    if what in ("link", "dangling"):
        lock.symlink_to(victim if what == "link" else tmp_path / "nothing")
    elif what == "pipe":
        os.mkfifo(lock)
    else:
        lock.mkdir()
    with pytest.raises(OpError):
        ask(folder, "take", "a", 1)
    assert victim.read_text() == "keep me" and not (tmp_path / "nothing").exists()


def test_a_link_in_a_lease_s_place_is_replaced_and_not_followed(tmp_path: Path) -> None:
    folder, victim = tmp_path / "f", tmp_path / "victim"
    folder.mkdir()
    victim.write_text(json.dumps({"run": "evil"}))
    (folder / f"ddtop-lease.{UID}").symlink_to(victim)
    assert ask(folder, "take", "a", 1)["held"]
    assert json.loads(victim.read_text()) == {"run": "evil"}
    assert not (folder / f"ddtop-lease.{UID}").is_symlink()


@pytest.mark.parametrize(
    "text",
    ["", "null", "[]", "{", '{"run": 5}', '{"run": "x"}', '{"run": "x", "pid": "y"}', "x" * 70000, "\0" * 10,
     '{"run":"x","pid":1e999,"start_ticks":1,"since_mono_s":0,"renewed_mono_s":0,"grace_s":0,"since_at_s":0}'],
)  # fmt: skip
def test_what_is_no_claim_is_skipped(tmp_path: Path, text: str) -> None:
    (tmp_path / f"ddtop-lease.{UID}").write_text(text)
    (tmp_path / f"ddtop-line.{UID}.x").write_text(text)
    assert ask(tmp_path, "take", "a", 1)["held"]


@pytest.mark.skipif(UID != 0, reason="giving a file to another user needs root")
def test_a_claim_in_another_users_name_is_not_believed(tmp_path: Path) -> None:
    ask(tmp_path, "take", "a", 1)
    forged = tmp_path / "ddtop-lease.1234"
    (tmp_path / f"ddtop-lease.{UID}").rename(forged)  # root's file in the name of 1234
    assert ask(tmp_path, "take", "b", 2)["held"]
    os.chown(forged, 1234, 1234)
    assert not ask(tmp_path, "take", "c", 2)["held"], "two claims: nobody else may come"


def test_a_claim_for_ever_lasts_an_hour(tmp_path: Path) -> None:
    ask(tmp_path, "take", "a", 1, grace_s=1e12)
    assert not ask(tmp_path, "take", "b", 2, now(4500.0, living=(2,)))["held"]
    assert ask(tmp_path, "take", "b", 2, now(4700.0, living=(2,)))["held"]


def test_of_many_at_once_one_has_it(tmp_path: Path) -> None:
    got: list[str] = []
    go = threading.Barrier(8)

    def take(n: int) -> None:
        go.wait()
        if ask(tmp_path, "take", f"run{n}", n, now(living=tuple(range(20))))["held"]:
            got.append(f"run{n}")

    threads = [threading.Thread(target=take, args=(n,)) for n in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 1


def test_the_lock_held_by_a_stranger_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "LOCK_S", 0.1)
    with room.locked(str(tmp_path)), pytest.raises(OpError, match="held by another process"):
        ask(tmp_path, "take", "a", 1)


def test_only_a_folder_that_is_everybodys_is_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(room.FOLDER_ENV, raising=False)
    root = os.stat("/").st_uid
    mine, sticky, link = tmp_path / "mine", tmp_path / "sticky", tmp_path / "link"
    mine.mkdir(mode=0o755)
    sticky.mkdir()
    sticky.chmod(0o1777)
    link.symlink_to(sticky)
    loose = tmp_path / "loose"
    loose.mkdir()
    loose.chmod(0o777)  # there anybody may delete another's file
    monkeypatch.setattr(room, "FOLDERS", tuple(map(str, (tmp_path / "none", mine, link, loose, sticky))))
    expected = (str(sticky), True) if root == UID else ("/state", False)
    assert shared_folder("/state") == expected
    monkeypatch.setattr(room, "FOLDERS", (str(mine),))
    assert shared_folder("/state") == ("/state", False)
    with pytest.raises(OpError):
        shared_folder(None)


def test_decide_is_pure() -> None:
    held = [
        {"run": "a", "boot": "b/1", "pid": 1, "start_ticks": 1, "renewed_mono_s": 1000.0, "since_mono_s": 1.0}
    ]
    assert decide("b", held, [], now())[0] is False
    assert decide("a", held, [], now())[0] is True
    assert decide("b", [{**held[0], "released": True}], [], now())[0] is True


TAKE = """
import json, sys
sys.path.insert(0, sys.argv[1])
import os, encodings.idna
from ddtop.agent.host.lease import Me, answer, _now
from ddtop.agent.host.facts import read_text, start_ticks_of
os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))  # after the imports: ours may not be readable
ticks = start_ticks_of(read_text("/proc/self/stat"))
me = Me(os.geteuid(), "u%d" % os.geteuid(), "", os.getpid(), ticks)
for line in sys.stdin:
    args = json.loads(line)
    try:
        print(json.dumps(answer(sys.argv[3], {"who": me.login, "grace_s": 900, **args}, me, _now())), flush=True)
    except Exception as error:
        print(json.dumps({"error": getattr(error, "what", repr(error))}), flush=True)
"""


class User:
    """A process of another user."""

    def __init__(self, uid: int, folder: Path) -> None:
        repo = Path(__file__).resolve().parents[2]
        argv = [sys.executable, "-c", TAKE, str(repo), str(uid), str(folder)]
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, action: str, run: str) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps({"action": action, "run": run}) + "\n")
        self.process.stdin.flush()
        found: dict[str, Any] = json.loads(self.process.stdout.readline())
        return found

    def end(self) -> None:
        self.process.kill()
        self.process.wait(10)


@pytest.mark.skipif(UID != 0, reason="becoming other users needs root")
def test_root_and_two_users_see_one_another() -> None:
    folder = (
        Path("/dev/shm") / f"ddtop-test-{os.getpid()}"
    )  # as /run/lock is: everybody's, sticky, on a tmpfs
    folder.mkdir()
    folder.chmod(0o1777)
    users = [User(uid, folder) for uid in (1201, 1202, 0)]
    anna, ben, root = users
    try:
        assert anna.ask("take", "a")["held"]
        for other, run in ((ben, "b"), (root, "r")):
            refused = other.ask("take", run)
            assert not refused["held"] and refused["holder"]["who"] == "u1201"
        assert not ben.ask("wait", "b")["held"]
        assert anna.ask("take", "a")["line"][0]["who"] == "u1202"
        anna.ask("release", "a")
        assert not root.ask("take", "r")["held"], "ben waited first"
        assert ben.ask("wait", "b")["held"]
        assert anna.ask("take", "a2")["holder"]["uid"] == 1202
        ben.end()
        shown = root.ask("show", "")["holder"]
        assert shown["state"] == "away", shown
        assert not root.ask("take", "r")["held"], "it may come back"
    finally:
        for user in users:
            user.end()
        subprocess.run(["rm", "-rf", str(folder)], check=True)


async def test_over_real_agents(state_dir: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    env = {**os.environ, room.FOLDER_ENV: str(shared), "SSH_CONNECTION": "192.0.2.7 50000 10.0.0.1 22"}
    async with agent(state_dir, env=env) as other:
        async with agent(state_dir, env=env) as host:
            args = {"run": "1a2b", "plan": "p", "who": "anna@laptop", "grace_s": 900}
            taken = await host.call("lease", action="take", **args)
            assert taken["held"] and taken["shared"] and taken["line"] == []
            shown = (await other.call("probe", timeout_s=10))["lease"]["holder"]
            assert (shown["who"], shown["from"], shown["state"]) == ("anna@laptop", "192.0.2.7", "live")
            refused = await other.call("lease", action="take", run="3c4d", who="ben@desk", grace_s=900)
            assert not refused["held"] and refused["holder"]["run"] == "1a2b"
        until = time.monotonic() + 10
        while (await other.call("lease", action="show"))["holder"]["state"] != "away":
            assert time.monotonic() < until, "its agent has ended"
        again = await other.call("lease", action="take", **args)
        assert again["held"], "the same run over another connection"


@pytest.mark.parametrize("name", ["ddtop-lease.\u00b2", "ddtop-line.\u00b2.x", "ddtop-lease.-1"])
def test_a_name_that_is_no_user_s_is_skipped(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("{}")
    assert ask(tmp_path, "take", "a", 1)["held"]


def test_a_claim_nested_without_end_is_skipped(tmp_path: Path) -> None:
    (tmp_path / f"ddtop-lease.{UID}").write_text("[" * 60_000)
    assert ask(tmp_path, "take", "a", 1)["held"]


def test_a_login_that_cannot_see_pid_1_knows_the_same_boot(tmp_path: Path) -> None:
    """With hidepid, a plain user does not see when pid 1 began; root does. Their leases are of one boot."""
    ask(tmp_path, "take", "a", 1, now(boot="b/?"))
    assert not ask(tmp_path, "take", "b", 2, now(boot="b/1"))["held"], "root after a plain user"
    ask(tmp_path, "release", "a", 1)
    ask(tmp_path, "take", "b", 2, now(boot="b/1"))
    assert not ask(tmp_path, "take", "c", 1, now(boot="b/?"))["held"], "a plain user after root"


FORMER = {
    "s.service": {
        "unit": "s.service",
        "kind": "systemd",
        "active": True,
        "was": "active",
        "user": False,
        "argv": [],
        "generation": "g",
        "boot": "b/1",
        "run": "a",
    }
}


def test_what_a_dead_run_found_outlives_a_second_one_that_died_before_it_touched_anything(
    tmp_path: Path,
) -> None:
    ask(tmp_path, "take", "a", 1, former=FORMER)
    later = now(9000.0, living=(2,))
    assert ask(tmp_path, "take", "b", 2, later)["before"]["former"] == FORMER
    assert ask(tmp_path, "take", "b", 2, now(9020.0, living=(2,)))["held"]  # renewed: nothing is touched yet
    third = ask(tmp_path, "take", "c", 3, now(99_000.0, living=(3,)))
    assert third["held"] and third["before"]["run"] == "b" and third["before"]["former"] == FORMER
    ask(tmp_path, "release", "c", 3, now(99_010.0, living=(3,)))
    assert ask(tmp_path, "take", "d", 4, now(99_020.0, living=(4,)))["before"] is None


def test_an_answer_that_was_lost_is_given_again(tmp_path: Path) -> None:
    """The link is cut after the lease is taken: the next `take` of the same run hears of the dead one too."""
    ask(tmp_path, "take", "a", 1, former=FORMER)
    later = now(9000.0, living=(2,))
    ask(tmp_path, "take", "b", 2, later)
    assert ask(tmp_path, "take", "b", 2, later)["before"]["former"] == FORMER
    mine = {"s.service": {**FORMER["s.service"], "active": False}}
    assert ask(tmp_path, "take", "b", 2, later, former=mine)["before"] is None, "it has noted that by now"


@pytest.mark.skipif(UID != 0, reason="giving a file to another user needs root")
def test_no_command_of_another_user_is_put_back_as_ours(tmp_path: Path) -> None:
    """A plain user leaves a dead lease that names a command: root's run, which takes over, must not start it."""
    evil = {"p": {**FORMER["s.service"], "unit": "p", "kind": "process", "argv": ["/tmp/evil"]}}
    ask(tmp_path, "take", "a", 1, former={**evil, **FORMER})
    mine, his = tmp_path / "ddtop-lease.0", tmp_path / "ddtop-lease.1234"
    mine.rename(his)
    os.chown(his, 1234, 1234)
    assert ask(tmp_path, "take", "b", 2, now(9000.0, living=(2,)))["before"]["former"] == FORMER
    assert ask(tmp_path, "take", "b", 2, now(9001.0, living=(2,)))["before"]["former"] == FORMER


@pytest.mark.parametrize(
    "former",
    [None, [], {"s": 5}, {"s": {}}, {"s": {"unit": "t"}}, {"s.service": {**FORMER["s.service"], "unit": "t"}},
     {"s.service": {**FORMER["s.service"], "was": None}}, {"s.service": {**FORMER["s.service"], "argv": [5]}},
     {"s.service": {**FORMER["s.service"], "active": "yes"}}, {"s.service": {**FORMER["s.service"], "run": None}}],
)  # fmt: skip
def test_what_is_no_state_of_a_unit_is_not_inherited(former: Any) -> None:
    assert room.believed(former, True) == {}
    assert room.believed(FORMER, True) == room.believed(FORMER, False) == FORMER


@pytest.mark.parametrize(
    ("uid", "at", "told", "held"),
    [
        (UID, now(1010.0, living=(2,)), ["a"], True),
        (UID, now(1010.0, living=(2,)), [], False),
        (UID, now(1010.0, living=(2,)), ["x"], False),
        (UID, now(1010.0, living=(1, 2)), ["a"], False),  # its agent lives: it is connected, whatever is said
        (UID, now(1010.0, living=(2,), jobs="a"), ["a"], False),  # its load still runs
        (UID + 1, now(1010.0, living=(2,)), ["a"], False),  # of another login nothing is believed
    ],
)
def test_a_runner_that_its_own_machine_knows_to_be_dead_is_not_waited_for(
    tmp_path: Path, uid: int, at: Now, told: list[str], held: bool
) -> None:
    ask(
        tmp_path,
        "take",
        "a",
        1,
        former={"u": {"unit": "u", "active": True, "kind": "systemd", "was": "active", "run": "a"}},
    )
    asks = Me(uid, "root", "10.0.0.5", 2, 7)
    found = answer(str(tmp_path), {"action": "take", "run": "b", "grace_s": 900, "dead": told}, asks, at)
    assert found["held"] is held
    if held:
        assert found["before"]["run"] == "a" and found["before"]["former"]["u"]["active"]
