"""Signs of a hung driver or a broken GPU in `ps` lines and kernel lines, and the verdict on them."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from ddtop.sources.gpu.verdict import Finding, shape
from ddtop.sources.kernel.log_lines import XIDS as KERNEL_XIDS

MAX_CONCURRENT_NVIDIA_SMI = 1
"""ddtop starts no second one-shot nvidia-smi while one has not returned: hung ones would pile up."""

_STATE = re.compile(r"^[DRSTZXI][<NLsl+]{0,5}$")
_XID = re.compile(r"NVRM: Xid \((?P<where>[^)]{0,60})\):\s{0,3}(?P<xid>\d{1,4})\b")
_BLOCKED = re.compile(r"task (?P<task>\S{1,60}) blocked for more than (?P<s>\d{1,6}) seconds")


def _process(line: str) -> tuple[int, str] | None:
    """(pid, state) of an nvidia-smi in one line of ps, whatever columns it shows; None for other lines."""
    words = line.split()[:40]
    at = next((i for i, w in enumerate(words) if w == "nvidia-smi" or w.endswith("/nvidia-smi")), None)
    if at is None or "grep" in words[:at]:
        return None
    state = next((w for w in words[:at] if _STATE.match(w)), None)
    pid = next((w for w in words[:at] if w.isascii() and w.isdigit() and len(w) < 10), None)
    return (int(pid), state) if state and pid else None


class HostSigns(NamedTuple):
    """What `ps` and the kernel log say about the GPUs; line numbers are 1-based."""

    hung: tuple[tuple[int, str, int], ...]  # (line, text, pid) of nvidia-smi in state D
    running: int  # nvidia-smi processes of any state
    xids: tuple[tuple[int, str, int, str], ...]  # (line, text, xid, PCI address)
    blocked: tuple[tuple[int, str], ...]  # hung-task lines
    lost: tuple[tuple[int, str], ...]  # "fallen off the bus" without an Xid


def host_signs(text: str, *, limit_lines: int = 200_000) -> HostSigns:
    """Signs of a hung driver or a broken GPU in `ps` lines or a kernel log."""
    hung: list[tuple[int, str, int]] = []
    xids: list[tuple[int, str, int, str]] = []
    blocked: list[tuple[int, str]] = []
    lost: list[tuple[int, str]] = []
    running = 0
    for at, line in enumerate(text.splitlines()[:limit_lines], 1):
        shown = line[:1000]
        if "nvidia-smi" in shown and (process := _process(shown)):
            running += 1
            if process[1].startswith("D"):
                hung.append((at, shown.strip()[:300], process[0]))
        if "Xid" in shown and (xid := _XID.search(shown)):
            xids.append((at, shown.strip()[:300], int(xid["xid"]), xid["where"].removeprefix("PCI:")))
        elif "fallen off the bus" in shown:
            lost.append((at, shown.strip()[:300]))
        if "blocked for more than" in shown and (task := _BLOCKED.search(shown)):
            blocked.append((at, shown.strip()[:300]))
            name, _, pid = task["task"].rpartition(":")
            if name == "nvidia-smi" and pid.isascii() and pid.isdigit():
                hung.append((at, shown.strip()[:300], int(pid)))
    return HostSigns(tuple(hung), running, tuple(xids), tuple(blocked), tuple(lost))


_XID_VERDICTS = {
    48: ("double-bit-ecc", "critical", "down"),
    63: ("row-remap-pending", "warn", "degraded"),
    64: ("row-remap-failure", "critical", "down"),
    74: ("nvlink-error", "critical", "degraded"),
    79: ("gpu-lost-from-bus", "critical", "down"),
    92: ("many-corrected-ecc", "warn", "degraded"),
    94: ("contained-ecc", "error", "degraded"),
    95: ("uncontained-ecc", "critical", "down"),
    119: ("gsp-timeout", "critical", "down"),
    120: ("gsp-error", "critical", "down"),
    140: ("unrecovered-ecc", "critical", "down"),
    154: ("recovery-action-changed", "error", "degraded"),
}


def _xid_text(code: int) -> str:
    """What happened and what to do, as in the table of the kernel log."""
    row = KERNEL_XIDS[code]
    return f"{row.meaning[0].upper()}{row.meaning[1:]}. {row.advice}"


XIDS = {code: (*words, _xid_text(code)) for code, words in _XID_VERDICTS.items()}
"""Xid → (cause, severity, verdict, advice) of `inspect gpu`; other Xids are shown with a general warning."""
APP_XIDS = {13, 31, 43, 45}


def judge_signs(signs: HostSigns) -> dict[str, Any]:
    """The verdict on `ps` and kernel lines: whether nvidia-smi hangs, and which Xids occurred."""
    proof = [{"text": text, "line": at} for at, text, _ in signs.hung]
    proof += [{"text": text, "line": at} for at, text, _, _ in signs.xids[:6]]
    proof += [{"text": text, "line": at} for at, text in (*signs.blocked[:3], *signs.lost[:3])]
    fields: dict[str, Any] = {}
    if signs.xids:
        fields["xid"] = signs.xids[0][2]
        fields["xids"] = [x for _, _, x, _ in signs.xids]
    if signs.blocked:
        fields["blocked_tasks"] = len(signs.blocked)
    if signs.hung:
        advice = "nvidia-smi hangs in the driver and cannot be killed. Do not start a second one. Run `journalctl -k -g Xid`, and reboot the host when the running cell has ended."
        fields.update(
            hung_pids=[pid for _, _, pid in signs.hung],
            running_nvidia_smi=signs.running,
            max_concurrent_nvidia_smi=MAX_CONCURRENT_NVIDIA_SMI,
            stale_value_shown_as_live=False,
        )
        return shape(Finding("down", "nvidia-smi-hung", "critical", advice), proof, **fields)
    grave = next((x for _, _, x, _ in signs.xids if x in XIDS), None)
    if grave is not None:
        cause, severity, verdict, advice = XIDS[grave]
        fields["xid"] = grave
    elif signs.lost:
        cause, severity, verdict, advice = XIDS[79]
    elif signs.xids and all(x in APP_XIDS for _, _, x, _ in signs.xids) and not signs.blocked:
        cause, severity, verdict = "xid-application", "warn", "degraded"
        advice = "A process failed on the GPU or was killed: its cell failed, the host is fine. Restart the server."
    elif signs.xids:
        cause, severity, verdict = "xid", "error", "degraded"
        advice = "Look up the Xid in NVIDIA's catalogue. `nvidia-smi -q | grep -i recovery` shows what the driver asks for."
    elif signs.blocked:
        cause, severity, verdict = "tasks-blocked-in-kernel", "error", "degraded"
        advice = "Processes are blocked in the kernel, often by the GPU driver or a file system. Read `journalctl -k` around these lines."
    else:
        cause, severity, verdict, advice = (
            "nvidia-smi-running",
            "info",
            "ok",
            "nvidia-smi runs and is not hung.",
        )
    return shape(Finding(verdict, cause, severity, advice), proof, **fields)
