"""What nvidia-smi prints instead of readings, and what it means.

Exit codes do not help: a wedged GPU may print with exit 0, and most of these texts come on standard output,
where a CSV parser would take them for rows.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from ddtop.sources.gpu.sample import GpuTrouble


class _Rule(NamedTuple):
    pattern: re.Pattern[str]
    cause: str
    verdict: str
    severity: str
    advice: str


_BUS = r"(?P<bus_id>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-9a-fA-F])?)"


def _rule(pattern: str, cause: str, severity: str, advice: str, verdict: str = "down") -> _Rule:
    return _Rule(re.compile(pattern, re.IGNORECASE), cause, verdict, severity, advice)


# First match wins: the particular before the general.
TEXT_RULES: tuple[_Rule, ...] = (
    _rule(
        rf"Unable to determine the device handle for (?:GPU|gpu)?\s{{0,3}}\d{{0,3}}:?\s{{0,3}}{_BUS}",
        "gpu-lost-from-bus",
        "critical",
        "One card has dropped off the PCIe bus, and it hides all others: ask per card with `nvidia-smi -i "
        "N`, read "
        "`journalctl -k | grep -i xid`, and reboot the host (power-cycle it if the card stays away).",
    ),
    _rule(
        r"(?:GPU is lost|has fallen off the bus|Unable to determine the device handle)",
        "gpu-lost-from-bus",
        "critical",
        "The GPU has dropped off the PCIe bus: reboot the host, "
        "power-cycle it if that does not bring it back.",
    ),
    _rule(
        r"Driver/library version mismatch",
        "driver-library-version-mismatch",
        "error",
        "The driver package was upgraded while the old kernel module stayed loaded. Running CUDA processes "
        "usually "
        "go on, so let the present cell end; then reload the nvidia modules or reboot.",
    ),
    _rule(
        r"communicate with the NVIDIA driver",
        "driver-not-loaded",
        "critical",
        "The kernel module is not loaded, typically after a reboot into a new kernel: `dkms status`, "
        "`modprobe nvidia`, reinstall the driver for this kernel.",
    ),
    _rule(
        r"(?:Driver Not Loaded|NVIDIA driver is not loaded|driver is not installed)",
        "driver-not-loaded",
        "critical",
        "Load the kernel module (`modprobe nvidia`), or install the driver for the running kernel.",
    ),
    _rule(
        r"Failed to initialize NVML: (?:Insufficient Permissions|No Permission)",
        "nvml-no-permission",
        "error",
        "This login may not open /dev/nvidia*: check the device nodes' mode and the container's devices.",
    ),
    _rule(
        r"Failed to initialize NVML: GPU access blocked",
        "gpu-access-blocked",
        "error",
        "The operating system blocks the GPU (WSL without GPU support): update the Windows driver and WSL.",
    ),
    _rule(
        r"Failed to initialize NVML: Unknown Error",
        "nvml-unknown-error",
        "error",
        "Inside a container this means that it lost its device access, typically after `systemctl "
        "daemon-reload` "
        "on the host: restart the container. On bare metal read the kernel log for Xid lines.",
    ),
    _rule(
        r"Failed to initialize NVML",
        "nvml-init-failed",
        "error",
        "NVML does not start: check that the driver's library matches the loaded module, "
        "then the kernel log.",
    ),
    _rule(
        r"No devices were found",
        "no-devices-found",
        "error",
        "The driver is up but shows no GPU: a wrong -i, CUDA devices hidden from the container, or a card "
        "that "
        "failed to initialise (`lspci | grep -i nvidia`, `journalctl -k | grep -i nvrm`).",
    ),
    _rule(
        r"(?:GPU requires reset|GPU Reset Required)",
        "gpu-requires-reset",
        "critical",
        "The GPU is wedged: stop the sweep on this host and reset it (`nvidia-smi -r -i N`) or reboot.",
    ),
    _rule(
        r"infoROM is corrupted(?: at gpu (?P<bus_id>[0-9a-fA-F:.]{7,20}))?",
        "inforom-corrupted",
        "warn",
        "The card's own configuration store is damaged: the GPU works, but have it reflashed or exchanged.",
        "degraded",
    ),
    _rule(
        r"Field \"(?P<field>[^\"\n]{1,100})\" is not a valid field to query",
        "unknown-query-field",
        "warn",
        "This driver does not know the field: leave it out and ask again.",
        "partial",
    ),
    _rule(
        r"(?:nvidia-smi: (?:command )?not found|nvidia-smi[’'\"]?: No such file|"
        r"(?:Unknown command|command not found)"
        r"[^\n]{0,30}nvidia-smi|is not recognized as)",
        "nvidia-smi-missing",
        "error",
        "There is no nvidia-smi in PATH: install the driver's utilities, or mount them into the container.",
    ),
    _rule(
        r"(?:couldn.t|could not|cannot|unable to) find (?:the )?(?:libnvidia-ml|nvml)"
        r"|libnvidia-ml[^\n]{0,60}not found"
        r"|NVML Shared Library Not Found|error while loading shared libraries: libnvidia",
        "nvml-library-missing",
        "error",
        "The NVML library is not installed here: install the driver's libraries or mount them into the "
        "container.",
    ),
)
EXIT_CAUSES: dict[int, tuple[str, str, str]] = {
    # nvidia-smi(1) RETURN VALUE; 124 and 137 are timeout(1)'s: the call never came back.
    4: ("nvml-no-permission", "error", "This login may not ask: check the modes of /dev/nvidia*."),
    6: ("no-devices-found", "error", "The query found no GPU: a wrong -i, or a card that failed to start."),
    8: ("external-power-missing", "critical", "A power cable of a GPU is not connected."),
    9: ("driver-not-loaded", "critical", "Load the kernel module (`modprobe nvidia`)."),
    10: (
        "interrupt-problem",
        "critical",
        "The kernel found a GPU interrupt problem: read the kernel log, reboot.",
    ),
    12: ("nvml-library-missing", "error", "The NVML library is not installed here."),
    14: ("inforom-corrupted", "warn", "The card's own configuration store is damaged."),
    15: ("gpu-lost-from-bus", "critical", "A GPU has dropped off the bus: reboot the host."),
    124: (
        "nvidia-smi-hung",
        "critical",
        "nvidia-smi did not come back: read the kernel log, reboot the host.",
    ),
    127: ("nvidia-smi-missing", "error", "There is no nvidia-smi in PATH."),
    137: (
        "nvidia-smi-hung",
        "critical",
        "nvidia-smi did not come back: read the kernel log, reboot the host.",
    ),
}
_LIBRARY = re.compile(r"NVML library version:\s{0,4}(?P<v>[0-9][0-9.]{0,20})", re.IGNORECASE)
_KERNEL = re.compile(r"kernel (?:module|version)[^0-9\n]{0,40}(?P<v>[0-9]{3}[0-9.]{1,20})", re.IGNORECASE)


def find_trouble(text: str, *, limit: int = 200_000) -> GpuTrouble | None:
    """The first error nvidia-smi reports in `text` (its first `limit` characters), or None if it reports
    none.

    >>> find_trouble("Unable to determine the device handle for GPU0000:65:00.0: Unknown Error").fields
    {'bus_id': '0000:65:00.0'}
    """
    text = text[:limit]
    for rule in TEXT_RULES:
        found = rule.pattern.search(text)
        if not found:
            continue
        line = text.count("\n", 0, found.start()) + 1
        fields: dict[str, Any] = {k: v for k, v in found.groupdict().items() if v}
        library = _LIBRARY.search(text)
        if library and "NVML" in text[found.start() : found.end()] + text[: found.end()]:
            fields["nvml_library_version"] = library["v"].rstrip(".")
        kernel = _KERNEL.search(text)
        if kernel and rule.cause == "driver-library-version-mismatch":
            fields["kernel_module_version"] = kernel["v"].rstrip(".")
        shown = text.splitlines()[line - 1].strip() if text.splitlines() else found[0]
        return GpuTrouble(
            cause=rule.cause,
            verdict=rule.verdict,
            severity=rule.severity,
            text=shown[:400],
            advice=rule.advice,
            line=line,
            fields=fields,
        )
    return None


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
