"""Signs of a hung driver or a broken GPU in `ps` lines and kernel lines, and the verdict on them."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from ddtop.sources.gpu.verdict import Finding, shape
from ddtop.sources.kernel.log_lines import XIDS as KERNEL_XIDS
from ddtop.sources.kernel.log_lines import asked_action

MAX_CONCURRENT_NVIDIA_SMI = 1
"""ddtop starts no second one-shot nvidia-smi while one has not returned: hung ones would pile up."""

_STATE = re.compile(r"^[DRSTZXI][<NLsl+]{0,5}$")
_XID = re.compile(
    r"NVRM: Xid \((?P<where>[^)]{0,60})\):\s{0,3}(?:\d{1,4}\b.{0,200}caused by previous Xid )?(?P<xid>\d{1,4})\b"
)
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


INIT_CAUSES: dict[str, tuple[re.Pattern[str], str, str]] = {
    "gsp-error": (
        re.compile(
            r"NVRM: .*(?:GSP firmware|GFW_BOOT|GFW boot|kgsp\w*(?:Boot|WaitFor|Init)|WPR2 already up|GSP-CrashCat)"
        ),
        "critical",
        "The GPU's own firmware (GSP) does not start. Power the host off and on (a reboot may not be enough); if it stays, update the driver and the card's VBIOS, or replace the card.",
    ),
    "nvswitch-error": (
        re.compile(r"nvswitch\d*: SXid \(.{3,40}\): \d+, (?:Fatal|Non-fatal, .{0,40}fatal)"),
        "critical",
        "A fatal error of the NVSwitch: run no cells on more than one GPU, restart nvidia-fabricmanager, and reboot the host if it stays.",
    ),
    "open-kernel-module-required": (
        re.compile(r"requires use of the NVIDIA open kernel modules"),
        "error",
        "This GPU needs the open kernel modules: install the driver's open variant (`nvidia-open`, `nvidia-driver-…-open`), then reboot.",
    ),
    "gpu-not-supported-by-driver": (
        re.compile(
            r"NVRM: .*(?:is not supported by|ignored by) (?:the )?.*(?:driver|NVIDIA)|NVRM: .*legacy .{0,40}[Dd]river"
        ),
        "error",
        "This driver does not support the GPU: install the driver branch that does (`nvidia-smi` there shows which), then reboot.",
    ),
    "external-power-missing": (
        re.compile(r"power cables? connected|not powered|PWR_BRK|insufficient (?:external )?power"),
        "critical",
        "Connect the GPU's external power cable, then power the host off and on.",
    ),
    "driver-library-version-mismatch": (
        re.compile(r"NVRM: API mismatch"),
        "error",
        "The driver was upgraded while its old kernel module stayed loaded. Reload the nvidia kernel modules or reboot.",
    ),
    "driver-not-signed": (
        re.compile(
            r"(?:Key was rejected by service|Required key not available|Lockdown: .{0,40}unsigned module)"
        ),
        "error",
        "Secure Boot refuses the unsigned nvidia module: enrol its key (`mokutil --import`), or switch Secure Boot off.",
    ),
    "driver-module-mismatch": (
        re.compile(r"nvidia\S*: (?:disagrees about version of symbol|Unknown symbol|version magic)"),
        "error",
        "The nvidia module was built for another kernel: `dkms autoinstall`, or install the headers of this kernel and reinstall the driver.",
    ),
    "gpu-taken-by-other-driver": (
        re.compile(
            r"already bound to (?:nouveau|vfio-pci)|probe routine was not called|nouveau \S{5,20}: (?:NVIDIA|DRM)"
        ),
        "error",
        "Another driver (nouveau or vfio-pci) holds the GPU: blacklist nouveau, or give the GPU back from the virtual machine, then reboot.",
    ),
    "gpu-init-failed": (
        re.compile(
            r"RmInitAdapter failed|rm_init_adapter failed|NVRM: .*(?:PCI I/O region .* is invalid|BAR\d is \d+M @ 0x0)|nvidia.*probe .*failed with error"
        ),
        "critical",
        "The driver cannot initialise the GPU. Read the lines above these, then power the host off and on; if it stays, check the slot, the BIOS (Above 4G Decoding) and the card.",
    ),
}
"""Cause → (the kernel's line, severity, advice) where the driver cannot start a GPU; the particular before the general."""


class HostSigns(NamedTuple):
    """What `ps` and the kernel log say about the GPUs; line numbers are 1-based."""

    hung: tuple[tuple[int, str, int], ...]  # (line, text, pid) of nvidia-smi in state D
    running: int  # nvidia-smi processes of any state
    xids: tuple[tuple[int, str, int, str], ...]  # (line, text, xid, PCI address)
    blocked: tuple[tuple[int, str], ...]  # hung-task lines
    lost: tuple[tuple[int, str], ...]  # "fallen off the bus" without an Xid
    failed: tuple[
        tuple[int, str, str], ...
    ] = ()  # (line, text, cause of INIT_CAUSES): the driver cannot start a GPU


def host_signs(text: str, *, limit_lines: int = 200_000) -> HostSigns:
    """Signs of a hung driver or a broken GPU in `ps` lines or a kernel log."""
    hung: list[tuple[int, str, int]] = []
    xids: list[tuple[int, str, int, str]] = []
    blocked: list[tuple[int, str]] = []
    lost: list[tuple[int, str]] = []
    failed: list[tuple[int, str, str]] = []
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
        elif cause := next((c for c, (p, *_) in INIT_CAUSES.items() if p.search(shown)), None):
            failed.append((at, shown.strip()[:300], cause))
        if "blocked for more than" in shown and (task := _BLOCKED.search(shown)):
            blocked.append((at, shown.strip()[:300]))
            name, _, pid = task["task"].rpartition(":")
            if name == "nvidia-smi" and pid.isascii() and pid.isdigit():
                hung.append((at, shown.strip()[:300], int(pid)))
    return HostSigns(tuple(hung), running, tuple(xids), tuple(blocked), tuple(lost), tuple(failed))


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
    154: ("recovery-action-changed", "critical", "down"),
}


def _xid_text(code: int) -> str:
    """What happened and what to do, as in the table of the kernel log."""
    row = KERNEL_XIDS[code]
    return f"{row.meaning[0].upper()}{row.meaning[1:]}. {row.advice}"


XIDS = {code: (*words, _xid_text(code)) for code, words in _XID_VERDICTS.items()}
for (
    _row
) in KERNEL_XIDS.values():  # the others that are the host's fault, as severe as the kernel's table says
    if _row.kind == "host" and _row.code not in XIDS:
        _link = "NVLink" in _row.meaning
        XIDS[_row.code] = (
            "nvlink-error" if _link else "gpu-hardware-error",
            _row.severity,
            "degraded" if _link or _row.severity == "warn" else "down",
            _xid_text(_row.code),
        )
"""Xid → (cause, severity, verdict, advice) of `inspect gpu`; other Xids are shown with a general warning."""
APP_XIDS = {13, 31, 43, 45}


_ASKED = {
    "reset": (
        "gpu-requires-reset",
        "critical",
        "down",
        "Stop the sweep on this host and run `nvidia-smi -r -i N`, or reboot.",
    ),
    "drain-and-reset": (
        "gpu-requires-reset",
        "critical",
        "down",
        "Let the processes on this GPU end, then run `nvidia-smi -r -i N`.",
    ),
    "reboot": ("node-reboot-required", "critical", "down", "Stop the sweep on this host and reboot it."),
    "drain-p2p": (
        "drain-p2p-required",
        "error",
        "degraded",
        "Run no cells on more than one GPU. Reset this GPU with `nvidia-smi -r -i N` when it is idle.",
    ),
}
"""What the driver asks for in an Xid 154 line → the finding, as for `gpu_recovery_action`."""


def judge_signs(signs: HostSigns) -> dict[str, Any]:
    """The verdict on `ps` and kernel lines: whether nvidia-smi hangs, and which Xids occurred."""
    proof = [{"text": text, "line": at} for at, text, _ in signs.hung]
    proof += [{"text": text, "line": at} for at, text, _, _ in signs.xids[:6]]
    proof += [{"text": text, "line": at} for at, text in (*signs.blocked[:3], *signs.lost[:3])]
    proof += [{"text": text, "line": at} for at, text, _ in signs.failed[:6]]
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
    graves = [(x, text) for _, text, x, _ in signs.xids if x in XIDS and asked_action(text) != "none"]
    grave = next((item for item in graves if item[0] != 154), graves[0] if graves else None)
    if grave is not None:
        cause, severity, verdict, advice = XIDS[grave[0]]
        asked = next((word for _, text in reversed(graves) if (word := asked_action(text))), None)
        if grave[0] == 154 and asked in _ASKED:
            cause, severity, verdict, advice = _ASKED[asked]
        elif asked in _ASKED:
            advice = f"{advice} The driver asks for it too: {_ASKED[asked][3]}"
        fields["xid"] = grave[0]
    elif signs.lost:
        cause, severity, verdict, advice = XIDS[79]
    elif signs.failed:
        order = list(INIT_CAUSES)
        cause = min((c for _, _, c in signs.failed), key=order.index)
        _, severity, advice = INIT_CAUSES[cause]
        verdict = "down"
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
