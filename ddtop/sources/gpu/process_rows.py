"""Verdicts on what is no reading of a GPU: process rows, `ps` lines, kernel lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ddtop.sources.gpu.smi.dmon import parse_apps, parse_pmon
from ddtop.sources.gpu.smi.error_texts import HostSigns
from ddtop.sources.gpu.verdict import Finding

MAX_CONCURRENT_NVIDIA_SMI = 1
"""ddtop never starts a second one-shot nvidia-smi while one has not returned: hung ones pile up."""


def shape(finding: Finding, proof: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    """The result all GPU inspections share; fields that are None are left out."""
    out: dict[str, Any] = {
        "verdict": finding.verdict,
        "cause": finding.cause,
        "severity": finding.severity,
        "advice": finding.advice,
        "evidence": proof,
    }
    out.update({k: v for k, v in fields.items() if v is not None})
    return out


def judge_apps(lines: Sequence[str], fields: Sequence[str] | None) -> dict[str, Any] | None:
    """Rows of a compute-apps query; None when its columns cannot be known."""
    apps = parse_apps(lines, fields)
    if apps is None:
        return None
    rows = [row for _, row in apps.rows]
    out: dict[str, Any] = {
        "rows_ok": len(rows),
        "rows_skipped": len(apps.skipped),
        "pids": [row["pid"] for row in rows],
        "mem_absent_pids": [row["pid"] for row in rows if "used_mib" not in row],
        "sum_used_mib": sum(row.get("used_mib", 0) for row in rows),
        "processes": rows,
    }
    out.update({f"name_of_{row['pid']}": row["name"] for row in rows if "name" in row})
    if apps.skipped:
        finding = Finding(
            "partial",
            "some-process-rows-unreadable",
            "info",
            "Rows without a readable pid were left out (another user's, or a cut line): as root all would "
            "show.",
        )
        proof = [{"text": text[:400], "line": at} for at, text in apps.skipped[:4]]
        return shape(finding, proof, **out)
    proof = [{"text": lines[at - 1].strip()[:400], "line": at} for at, _ in apps.rows[:4]]
    cause = "processes-listed" if rows else "no-processes"
    return shape(Finding("ok", cause, "info", "Nothing to do."), proof, **out)


def judge_pmon(text: str, lines: Sequence[str]) -> dict[str, Any] | None:
    """Processes of `nvidia-smi pmon`; None when the text is none."""
    running = parse_pmon(text)
    if running is None:
        return None
    proof = [{"text": lines[at - 1].strip()[:400], "line": at} for at, _ in running[:4]]
    return shape(
        Finding("ok", "processes-listed" if running else "no-processes", "info", "Nothing to do."),
        proof or [{"text": lines[0].strip()[:400], "line": 1}],
        processes=[row for _, row in running],
        pids=[row["pid"] for _, row in running],
    )


# Xid → (cause, severity, verdict, advice); NVIDIA's Xid catalogue, see docs. Others are shown and warned
# about.
XIDS: dict[int, tuple[str, str, str, str]] = {
    48: ("double-bit-ecc", "critical", "down", "Take the host out: an uncorrectable memory error."),
    63: (
        "row-remap-pending",
        "warn",
        "degraded",
        "Let the cell end, then reset the GPU: a row remap is pending.",
    ),
    64: ("row-remap-failure", "critical", "down", "Take the host out: a memory row could not be remapped."),
    74: (
        "nvlink-error",
        "critical",
        "degraded",
        "Run no cells over several GPUs here; reset or reboot the host.",
    ),
    79: (
        "gpu-lost-from-bus",
        "critical",
        "down",
        "The GPU fell off the bus: reboot, power-cycle if it stays away.",
    ),
    92: (
        "many-corrected-ecc",
        "warn",
        "degraded",
        "Many corrected memory errors: watch it, reset when idle.",
    ),
    94: (
        "contained-ecc",
        "error",
        "degraded",
        "The process died of a contained memory error: restart it once.",
    ),
    95: (
        "uncontained-ecc",
        "critical",
        "down",
        "All processes are affected by a memory error: reset the GPU.",
    ),
    119: (
        "gsp-timeout",
        "critical",
        "down",
        "The GPU's own processor does not answer: reset the GPU or reboot.",
    ),
    120: ("gsp-error", "critical", "down", "The GPU's own processor failed: reset the GPU or reboot."),
    140: ("unrecovered-ecc", "critical", "down", "Take the host out: an unrecovered memory error."),
    154: ("recovery-action-changed", "error", "degraded", "Follow the recovery action that the line names."),
}
APP_XIDS = {13, 31, 43, 45}


def judge_signs(signs: HostSigns) -> dict[str, Any]:
    """`ps` lines and kernel lines: is nvidia-smi hung, which Xids were there."""
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
        advice = (
            "nvidia-smi hangs in the driver and cannot be killed. Start no second one, show the age of the "
            "last good "
            "sample, read the kernel log for Xid lines, and reboot the host when the running cell has ended."
        )
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
        advice = "A process's own fault on the GPU (or its end by a kill): the cell failed, the host is fine."
    elif signs.xids:
        cause, severity, verdict = "xid", "error", "degraded"
        advice = (
            "Look the Xid up in NVIDIA's catalogue; `nvidia-smi -q | grep -i recovery` says what it asks for."
        )
    elif signs.blocked:
        cause, severity, verdict = "tasks-blocked-in-kernel", "error", "degraded"
        advice = (
            "Processes wait in the kernel, often for the GPU driver or a file system: see the kernel log."
        )
    else:
        cause, severity, verdict, advice = (
            "nvidia-smi-running",
            "info",
            "ok",
            "nvidia-smi runs and is not hung.",
        )
    return shape(Finding(verdict, cause, severity, advice), proof, **fields)
