"""What really happened, told by the hosts themselves and read out of band: the judge of ddtop, outside of it.

The ledger lies on each host's disk and is written by the faults and the fake servers at the moment they act
(rootfs/…/ddtop_bed/ledger.py); systemd's own account of failed units comes from the journal. All times are
nanoseconds of CLOCK_REALTIME, which bed, hosts and client share.
"""

import json
import time
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from .client import Bed

LEDGER = "/var/lib/ddtop-bed/ledger.jsonl"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
UNIT_FAILED = "d9b373ed55a64feb8242e02dbe79a49c"  # MESSAGE_ID of "Failed with result '…'" (sd-messages.h)


@dataclass(frozen=True)
class UnitFailure:
    """systemd's own word that a unit failed: when, which start of it, and why (exit-code, signal, timeout…)."""

    t_ns: int
    unit: str
    invocation: str
    result: str
    message: str


class Oracle:
    """Reads ledgers and takes snapshots; never through the network, so also while a link is cut."""

    def __init__(self, bed: Bed) -> None:
        self.bed = bed

    # ---- the ledger

    def ledger(self, host: str, event: str = "", since_ns: int = 0, **equal: Any) -> list[dict[str, Any]]:
        """The host's events in order of time, of one kind or all, with the given fields; [] if none."""
        text = self.bed.sh(host, f"cat {LEDGER} 2>/dev/null || true")
        events = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        chosen = [
            e
            for e in events
            if (not event or e["event"] == event)
            and e["t_ns"] >= since_ns
            and all(e.get(k) == v for k, v in equal.items())
        ]
        return sorted(chosen, key=lambda e: e["t_ns"])

    def wait(
        self, host: str, event: str, timeout_s: float = 30, since_ns: int = 0, **equal: Any
    ) -> dict[str, Any]:
        """The first such event, waiting for it; AssertionError with the ledger's tail if it does not come."""
        deadline = time.monotonic() + timeout_s
        while not (found := self.ledger(host, event, since_ns, **equal)):
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"{host}: no {event} {equal or ''} in {timeout_s} s; ledger: {self.ledger(host)[-8:]}"
                )
            time.sleep(0.1)
        return found[0]

    def faults(self, host: str, since_ns: int = 0) -> list[dict[str, Any]]:
        """The moments at which faults acted: each has `kind` and `t_ns`."""
        return self.ledger(host, "fault", since_ns)

    def requests(self, host: str, since_ns: int = 0) -> list[dict[str, Any]]:
        """The requests served: outcome, prompt_sha, prompt_tokens, tokens, verify, start_ns, end_ns."""
        return self.ledger(host, "request", since_ns)

    # ---- systemd's account

    def failures(self, host: str, unit: str = "", since_ns: int = 0) -> list[UnitFailure]:
        """When systemd itself declared units failed (203/EXEC, exit codes, signals, the start limit)."""
        entries = self.journal(host, f"MESSAGE_ID={UNIT_FAILED}", since_ns=since_ns)
        out = []
        for e in entries:
            name = e.get("UNIT", e.get("USER_UNIT", ""))
            if not unit or name == unit:
                out.append(
                    UnitFailure(
                        int(e["__REALTIME_TIMESTAMP"]) * 1000,
                        name,
                        e.get("INVOCATION_ID", ""),
                        e.get("UNIT_RESULT", ""),
                        str(e.get("MESSAGE")),
                    )
                )
        return out

    def skips(self, host: str, unit: str, since_ns: int = 0) -> list[UnitFailure]:
        """When systemd skipped a start for an unmet condition. Only the journal knows: the unit is unloaded at once,
        and ConditionResult=no is what `systemctl show` says of every unit that is not loaded."""
        return [
            UnitFailure(
                int(e["__REALTIME_TIMESTAMP"]) * 1000,
                unit,
                e.get("INVOCATION_ID", ""),
                "condition",
                str(e["MESSAGE"]),
            )
            for e in self.journal(host, f"UNIT={unit}", "_PID=1", since_ns=since_ns)
            if "skipped because of an unmet condition" in str(e["MESSAGE"])
        ]

    def unit_times(self, host: str, unit: str) -> dict[str, int]:
        """When systemd last did what with the unit: Condition, ActiveEnter, ActiveExit, InactiveEnter,
        InactiveExit, StateChange, ExecMainStart, ExecMainExit → ns (to the microsecond). What never happened is left out, and all
        of it once systemd has unloaded an inactive unit."""
        text = self.bed.sh(host, "systemctl", "show", unit, "--timestamp=us+utc")
        out = {}
        for line in text.splitlines():
            name, _, value = line.partition("=")
            if name.endswith("Timestamp") and not value.endswith("n/a"):
                at = (
                    datetime.strptime(value, "%a %Y-%m-%d %H:%M:%S.%f UTC").replace(tzinfo=UTC)
                    if value
                    else None
                )
                out[name.removesuffix("Timestamp")] = (
                    (at - EPOCH) // timedelta(microseconds=1) * 1000 if at else 0
                )
        return out

    def journal(self, host: str, *matches: str, since_ns: int = 0) -> list[dict[str, Any]]:
        """Journal entries, as `journalctl -o json -a` gives them."""
        since = [f"--since=@{since_ns / 1e9:.6f}"] if since_ns else []
        text = self.bed.sh(host, "journalctl", "-o", "json", "-a", "--no-pager", "-q", *since, *matches)
        return [
            e for e in map(json.loads, text.splitlines()) if int(e["__REALTIME_TIMESTAMP"]) * 1000 >= since_ns
        ]

    # ---- as found

    def snapshot(self, host: str) -> dict[str, Any]:
        """Unit files, drop-ins, active units, processes and model folders, to be compared by `diff`."""
        out: dict[str, Any] = json.loads(self.bed.sh(host, "python3", "-m", "ddtop_bed.snapshot"))
        return out

    def settled(self, host: str, before: dict[str, Any], timeout_s: float = 10) -> list[str]:
        """`diff` against a snapshot taken now; gives what is still going down `timeout_s` to be gone."""
        deadline = time.monotonic() + timeout_s
        while (lines := diff(before, self.snapshot(host))) and time.monotonic() < deadline:
            time.sleep(0.3)
        return lines


def diff(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """One line for each difference of two snapshots; empty: left as found."""
    lines = []
    words = {"unit_files": "unit file", "units": "unit", "processes": "process", "models": "model file"}
    for part, word in words.items():
        a, b = before[part], after[part]
        lines += [
            f"{word} gone: {k}" + (f" (was {a[k]})" if part == "units" else "")
            for k in sorted(a.keys() - b.keys())
        ]
        lines += [
            f"{word} new: {k}" + (f" ({b[k]})" if part != "processes" else "")
            for k in sorted(b.keys() - a.keys())
        ]
        lines += [
            f"{word} changed: {k}: {a[k]} -> {b[k]}" for k in sorted(a.keys() & b.keys()) if a[k] != b[k]
        ]
    lines += [
        f"needs daemon-reload: {u}" for u in sorted(set(after["needs_reload"]) - set(before["needs_reload"]))
    ]
    return lines


def served_once(requests: list[dict[str, Any]]) -> dict[str, int]:
    """How often each prompt was answered whole: a cell that was measured again shows here."""
    return dict(Counter(r["prompt_sha"] for r in requests if r["outcome"] in ("length", "stop")))
