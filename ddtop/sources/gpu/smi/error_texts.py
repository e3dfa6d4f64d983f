"""What nvidia-smi prints instead of readings, and what it means.

The exit code is no help: a GPU that needs a reset may give exit 0, and most of these texts come on standard output,
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


# The first match wins: specific rules stand before general ones.
TEXT_RULES: tuple[_Rule, ...] = (
    _rule(
        rf"Unable to determine the device handle for (?:GPU|gpu)?\s{{0,3}}\d{{0,3}}:?\s{{0,3}}{_BUS}",
        "gpu-lost-from-bus",
        "critical",
        "A GPU has fallen off the PCIe bus, and its error hides the others. Query each one with `nvidia-smi -i N`, read `journalctl -k -g Xid`, then reboot the host (power-cycle it if the GPU stays away).",
    ),
    _rule(
        r"(?:GPU is lost|has fallen off the bus|Unable to determine the device handle)",
        "gpu-lost-from-bus",
        "critical",
        "The GPU has fallen off the PCIe bus. Reboot the host; power-cycle it if the GPU stays away.",
    ),
    _rule(
        r"Driver/library version mismatch",
        "driver-library-version-mismatch",
        "error",
        "The driver was upgraded while its old kernel module stayed loaded. Running CUDA processes usually go on: let the running cell finish, then reload the nvidia kernel modules or reboot.",
    ),
    _rule(
        r"communicate with the NVIDIA driver",
        "driver-not-loaded",
        "critical",
        "The kernel module is not loaded, often after a reboot into a new kernel. Run `dkms status` and `modprobe nvidia`; if that fails, reinstall the driver for this kernel.",
    ),
    _rule(
        r"(?:Driver Not Loaded|NVIDIA driver is not loaded|driver is not installed)",
        "driver-not-loaded",
        "critical",
        "Run `modprobe nvidia`, or install the driver for the running kernel.",
    ),
    _rule(
        r"Failed to initialize NVML: (?:Insufficient Permissions|No Permission)",
        "nvml-no-permission",
        "error",
        "This login may not open /dev/nvidia*. Check `ls -l /dev/nvidia*`, and in a container its `--gpus` option.",
    ),
    _rule(
        r"Failed to initialize NVML: GPU access blocked",
        "gpu-access-blocked",
        "error",
        "The operating system blocks the GPU (WSL without GPU support). Update the Windows driver and run `wsl --update`.",
    ),
    _rule(
        r"Failed to initialize NVML: Unknown Error",
        "nvml-unknown-error",
        "error",
        "In a container: it lost its GPU devices, often after `systemctl daemon-reload` on the host. Restart the container. Otherwise run `journalctl -k -g Xid`.",
    ),
    _rule(
        r"Failed to initialize NVML",
        "nvml-init-failed",
        "error",
        "NVML cannot be initialised. Compare the version of libnvidia-ml with `cat /proc/driver/nvidia/version`, then read `journalctl -k -g NVRM`.",
    ),
    _rule(
        r"No devices were found",
        "no-devices-found",
        "error",
        "The driver is loaded but shows no GPU: a wrong -i, a container without GPU devices, or a GPU that failed to initialise. Check `lspci | grep -i nvidia` and `journalctl -k -g NVRM`.",
    ),
    _rule(
        r"(?:GPU requires reset|GPU Reset Required(?!\)))",
        "gpu-requires-reset",
        "critical",
        "The GPU needs a reset. Stop the sweep on this host and run `nvidia-smi -r -i N`, or reboot.",
    ),
    _rule(
        r"infoROM is corrupted(?: at gpu (?P<bus_id>[0-9a-fA-F:.]{7,20}))?",
        "inforom-corrupted",
        "warn",
        "The GPU's inforom (its configuration memory) is damaged. It works, but have it reflashed or replaced.",
        "degraded",
    ),
    _rule(
        r"Field \"(?P<field>[^\"\n]{1,100})\" is not a valid field to query",
        "unknown-query-field",
        "warn",
        "This driver does not know the field. Leave it out of the query.",
        "partial",
    ),
    _rule(
        r"(?:nvidia-smi: (?:command )?not found|nvidia-smi[’'\"]?: No such file|"
        r"(?:Unknown command|command not found)"
        r"[^\n]{0,30}nvidia-smi|is not recognized as)",
        "nvidia-smi-missing",
        "error",
        "nvidia-smi is not in PATH. Install the driver's utilities, or give the container `--gpus all`.",
    ),
    _rule(
        r"(?:couldn.t|could not|cannot|unable to) find (?:the )?(?:libnvidia-ml|nvml)"
        r"|libnvidia-ml[^\n]{0,60}not found"
        r"|NVML Shared Library Not Found|error while loading shared libraries: libnvidia",
        "nvml-library-missing",
        "error",
        "libnvidia-ml is not installed. Install the driver's libraries, or give the container `--gpus all`.",
    ),
)
_HUNG = "nvidia-smi did not return. Read `journalctl -k -g NVRM`, then reboot the host."
EXIT_CAUSES: dict[int, tuple[str, str, str]] = {
    # nvidia-smi(1) RETURN VALUE; 124 and 137 are timeout(1)'s: the call did not return.
    4: ("nvml-no-permission", "error", "This login may not query the GPUs. Check `ls -l /dev/nvidia*`."),
    6: (
        "no-devices-found",
        "error",
        "The query found no GPU: a wrong -i, or a GPU that failed to initialise.",
    ),
    8: ("external-power-missing", "critical", "Connect the GPU's external power cable."),
    9: ("driver-not-loaded", "critical", "Run `modprobe nvidia`."),
    10: (
        "interrupt-problem",
        "critical",
        "The kernel reported an interrupt problem of a GPU. Read `journalctl -k -g NVRM`, then reboot.",
    ),
    12: ("nvml-library-missing", "error", "libnvidia-ml is not installed. Install the driver's libraries."),
    14: (
        "inforom-corrupted",
        "warn",
        "The GPU's inforom (its configuration memory) is damaged. Have it reflashed or replaced.",
    ),
    15: ("gpu-lost-from-bus", "critical", "A GPU has fallen off the PCIe bus. Reboot the host."),
    124: ("nvidia-smi-hung", "critical", _HUNG),
    127: ("nvidia-smi-missing", "error", "nvidia-smi is not in PATH. Install the driver's utilities."),
    137: ("nvidia-smi-hung", "critical", _HUNG),
}
_LIBRARY = re.compile(r"NVML library version:\s{0,4}(?P<v>[0-9][0-9.]{0,20})", re.IGNORECASE)
_KERNEL = re.compile(r"kernel (?:module|version)[^0-9\n]{0,40}(?P<v>[0-9]{3}[0-9.]{1,20})", re.IGNORECASE)


def find_trouble(text: str, *, limit: int = 200_000) -> GpuTrouble | None:
    """The first error that nvidia-smi reports in the first `limit` characters of `text`; None if it reports none.

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
