"""Verdicts on the other outputs about GPUs: process rows, `ps` lines, kernel lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ddtop.sources.gpu.smi.dmon import parse_apps, parse_pmon
from ddtop.sources.gpu.smi.error_texts import HostSigns
from ddtop.sources.gpu.verdict import Finding
from ddtop.sources.kernel.log_lines import XIDS as KERNEL_XIDS

MAX_CONCURRENT_NVIDIA_SMI = 1
"""ddtop starts no second one-shot nvidia-smi while one has not returned: hung ones would pile up."""


def shape(finding: Finding, proof: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    """The result that all GPU verdicts share, without the fields that are None."""
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
    """The verdict on rows of a compute-apps query; None if its columns are unknown."""
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
            "Rows without a readable pid were left out: they belong to another user, or are truncated. As root all are shown.",
        )
        proof = [{"text": text[:400], "line": at} for at, text in apps.skipped[:4]]
        return shape(finding, proof, **out)
    proof = [{"text": lines[at - 1].strip()[:400], "line": at} for at, _ in apps.rows[:4]]
    cause = "processes-listed" if rows else "no-processes"
    return shape(Finding("ok", cause, "info", "Nothing to do."), proof, **out)


def judge_pmon(text: str, lines: Sequence[str]) -> dict[str, Any] | None:
    """The verdict on the output of `nvidia-smi pmon`; None for other text."""
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
