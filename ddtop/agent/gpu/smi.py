"""nvidia-smi: one long-lived process for a stream, one-shot calls one at a time, none beside a hung one."""

from __future__ import annotations

import asyncio
import re
import shutil
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

from ..context import Context
from ..errors import OpError
from ..host.pidfd import alive
from ..programs import LineStream, kill_group, spawn

FIELDS = (
    "index uuid name pci.bus_id driver_version persistence_mode power.draw power.draw.instant enforced.power.limit"
    " memory.total memory.used memory.reserved utilization.gpu utilization.memory temperature.gpu temperature.memory"
    " clocks.sm clocks.mem clocks.max.sm pstate clocks_event_reasons.active gpu_recovery_action"
    " ecc.errors.uncorrected.volatile.total mig.mode.current"
).split()
APP_FIELDS = ["gpu_uuid", "pid", "process_name", "used_gpu_memory"]
FRESH_S = 2.0
SMI_S = 8.0
DYING_S = 1.0
"""A killed process may still be on its way out: only one that is there after this time hangs."""
BACKOFF_S = (1, 2, 5, 10, 30)
_BAD_FIELD = re.compile("[Ff]ield [\"'`\u201c]([^\"'`\u201d\\n]{1,120})[\"'`\u201d] is not a valid field")
_OLDER = {
    "clocks_event_reasons.active": "clocks_throttle_reasons.active",
    "power.draw.instant": "power.draw",
    "clocks.current.sm": "clocks.sm",
    "clocks.current.memory": "clocks.mem",
    "pci.bus_id": "gpu_bus_id",
    "enforced.power.limit": "power.limit",
}
"""A field's name → the one that older drivers know. In one direction only, or two names could be swapped without end."""


def missing() -> OpError:
    return OpError(
        "not-found", "there is no nvidia-smi on this host", "install NVIDIA's driver tools for GPU readings"
    )


def without_bad_fields(fields: List[str], complaint: str) -> Optional[List[str]]:
    """The fields without those nvidia-smi has just refused, or with their older names in place; None when it refused none.

    >>> without_bad_fields(["index", "x.y"], 'Field "x.y" is not a valid field to query.')
    ['index']
    >>> without_bad_fields(["index", "clocks_event_reasons.active"], 'Field "clocks_event_reasons.active" is not a valid field to query.')
    ['index', 'clocks_throttle_reasons.active']
    """
    bad = set(_BAD_FIELD.findall(complaint))
    left = []  # type: List[str]
    for field in fields:
        name = _OLDER.get(field) if field in bad else field
        if name and name not in bad and name not in left and (field == name or name not in fields):
            left.append(name)
    return left if left and left != list(fields) else None


class Smi:
    """One-shot nvidia-smi for the whole agent: in turn, never while an earlier one hangs, fresh answers reused."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._hung: List[int] = []
        self._last: Dict[str, Tuple[float, Dict[str, Any]]] = {}
        self.refused: Dict[str, List[str]] = {}
        """What this driver knows of a list of fields, once it was found out."""

    async def query(self, what: str, fields: List[str], timeout_s: float = SMI_S) -> Dict[str, Any]:
        """{"csv", "fields"} or {"error"} of --query-WHAT; a reading younger than 2 s serves again."""
        key = what + ":" + ",".join(fields)
        async with self._lock:
            last = self._last.get(key)
            if last is not None and time.monotonic() - last[0] < FRESH_S:
                return last[1]
            answer = await self._ask(what, fields, timeout_s)
            self._last[key] = (time.monotonic(), answer)
            return answer

    async def _ask(self, what: str, fields: List[str], timeout_s: float) -> Dict[str, Any]:
        until = time.monotonic() + DYING_S
        while True:
            self._hung = [pid for pid in self._hung if alive(pid)]
            if not self._hung or time.monotonic() > until:
                break
            await asyncio.sleep(0.02)
        if self._hung:
            return {"error": "nvidia-smi hangs: process %d does not end, even after SIGKILL" % self._hung[0]}
        until = time.monotonic() + timeout_s
        asked = self.refused.get(",".join(fields), fields)
        while True:
            words = ["nvidia-smi", "--query-%s=%s" % (what, ",".join(asked)), "--format=csv"]
            try:
                rc, out, err = await self._run(words, max(0.5, until - time.monotonic()))
            except OpError as error:
                return {"error": error.what}
            fewer = without_bad_fields(asked, out + err) if rc != 0 else None
            if fewer is None:
                break
            asked = self.refused[",".join(fields)] = fewer
        if rc != 0 and not out.count("\n") > 1:
            return {"error": (out + err).strip() or "nvidia-smi ended with rc %d" % rc, "rc": rc}
        answer: Dict[str, Any] = {"csv": out, "fields": asked}
        if rc != 0 or err.strip():
            answer["said"] = "rc %d %s" % (rc, err.strip())
        return answer

    async def _run(self, words: List[str], timeout_s: float) -> Tuple[int, str, str]:
        process = await spawn(words)
        try:
            out, err = await asyncio.wait_for(process.communicate(), timeout_s)
        except (asyncio.TimeoutError, asyncio.CancelledError) as error:
            kill_group(process.pid)
            self._hung.append(process.pid)
            if isinstance(error, asyncio.CancelledError):
                raise
            raise OpError("timeout", "nvidia-smi timed out after %.1f s" % timeout_s) from None
        rc = process.returncode if process.returncode is not None else -1
        return rc, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")


def smi_of(context: Context) -> Smi:
    smi: Smi = context.shared.setdefault("smi", Smi())
    return smi


def app_memory(csv: str) -> Dict[int, float]:
    """pid → MiB over all GPUs, from a compute-apps answer with APP_FIELDS. Unreadable amounts count as 0.

    >>> app_memory("gpu_uuid, pid, process_name, used_gpu_memory [MiB]\\nGPU-1, 42, py, thon, 100 MiB\\nGPU-2, 42, py, 50 MiB\\n")
    {42: 150.0}
    """
    found: Dict[int, float] = {}
    for line in csv.splitlines()[1:]:
        cells = [cell.strip() for cell in line.split(",")]  # a name may hold commas: look from both ends
        if len(cells) < 4 or not cells[1].isdigit():
            continue
        amount = cells[-1].replace("MiB", "").strip()
        number = float(amount) if amount.replace(".", "", 1).isdigit() else 0.0
        found[int(cells[1])] = found.get(int(cells[1]), 0.0) + number
    return found


def line_buffered(words: List[str]) -> List[str]:
    """With stdbuf where it exists: some drivers' nvidia-smi writes into a pipe in blocks."""
    return ["stdbuf", "-oL", *words] if shutil.which("stdbuf") else words


async def gpu_follow(context: Context, args: Dict[str, Any], emit: Callable[[Dict[str, Any]], Any]) -> None:
    """The op `gpu-follow`. Fields this driver refuses are left out, and the list is sent anew."""
    if not shutil.which("nvidia-smi"):
        raise missing()
    every_ms = max(50, int(args.get("every_ms", 1000)))
    wanted = [str(field) for field in args.get("fields") or FIELDS]
    smi = smi_of(context)
    failures = 0
    told: Optional[List[str]] = None
    while True:
        fields = smi.refused.get(",".join(wanted), wanted)
        if fields != told:
            told = fields
            await emit({"fields": fields})
        words = ["nvidia-smi", "--query-gpu=" + ",".join(fields), "--format=csv,noheader,nounits"]
        words.append("--loop-ms=%d" % every_ms)
        said: List[str] = []
        good = await _pump(line_buffered(words), emit, said, max(10.0, every_ms / 200))
        fewer = without_bad_fields(fields, "\n".join(said))
        if fewer is not None and not good:
            smi.refused[",".join(wanted)] = fewer
            continue
        failures = 0 if good else failures + 1
        await emit({"error": "\n".join(said)[-2000:]})
        await asyncio.sleep(BACKOFF_S[min(failures, len(BACKOFF_S) - 1)])


async def _pump(
    words: List[str], emit: Callable[[Dict[str, Any]], Any], said: List[str], quiet_s: float
) -> int:
    """Emits the lines of one run of a program until it ends; `said` gets what it said. Number of data lines.

    Silence of `quiet_s` is one error; no second nvidia-smi is started, it would hang as well.
    """
    count = 0
    async with LineStream(words, limit_b=64 << 10) as stream:
        batches = stream.batches().__aiter__()
        pending: "Optional[asyncio.Task[List[bytes]]]" = None
        told = False
        try:
            while True:
                pending = pending or asyncio.ensure_future(batches.__anext__())
                done, _ = await asyncio.wait([pending], timeout=quiet_s)
                if not done:
                    if not told:
                        told = True
                        await emit({"error": "nvidia-smi has printed nothing for %.0f s" % quiet_s})
                    continue
                try:
                    lines = pending.result()
                except StopAsyncIteration:
                    break
                pending = None
                told = False
                now = time.monotonic()
                for line in lines:
                    text = line.decode("utf-8", "replace").strip()
                    if text.count(",") >= 1 and "not a valid field" not in text:
                        count += 1
                        await emit({"line": text, "mono_s": now})
                    elif text:
                        said.append(text)
        finally:
            if pending is not None:
                pending.cancel()
        said.append(await stream.ended())
    return count
