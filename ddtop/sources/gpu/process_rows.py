"""The verdict on process rows: who holds memory on the GPUs, and which rows could not be read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ddtop.sources.gpu.smi.processes import parse_apps, parse_pmon
from ddtop.sources.gpu.verdict import Finding, shape


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
