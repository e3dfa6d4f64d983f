"""`diagnose_gpu`: the verdict on any nvidia-smi output, or on `ps` and kernel lines about GPUs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ddtop.sources.gpu.host_signs import host_signs, judge_signs
from ddtop.sources.gpu.process_rows import judge_apps, judge_pmon
from ddtop.sources.gpu.sample import GpuSample, GpuTrouble, sample_dict
from ddtop.sources.gpu.smi.dmon import dmon_columns, dmon_head, parse_dmon
from ddtop.sources.gpu.smi.error_texts import EXIT_CAUSES, find_trouble
from ddtop.sources.gpu.smi.processes import is_apps_header
from ddtop.sources.gpu.smi.q_text import parse_q_text
from ddtop.sources.gpu.smi.q_xml import parse_xml
from ddtop.sources.gpu.smi.query_csv import fields_of_command, is_header, parse_query_csv
from ddtop.sources.gpu.smi.table import parse_table
from ddtop.sources.gpu.verdict import Finding, judge_samples, shape

_INPUT = re.compile(r"^input(?P<n>\d{0,3})(?:\.|$)")
_REMEDY = {
    "driver-library-version-mismatch": "driver package was upgraded under a running kernel module: "
    "reload modules or reboot",
}


def diagnose_gpu(files: Mapping[str, bytes]) -> dict[str, Any]:
    """The verdict on one or several outputs.

    files: name → content. `input.*` is judged; `input2.*` and later add their own fields with the suffix `_input2`
    (readings as `gpu2`, a bus id as `bus_id2`). `cmd.txt` may hold the command line, `rc.txt` the exit status. Any other
    single name is taken for the input.

    Keys: verdict (ok, partial, degraded, down), cause, severity, advice, evidence, and what applies of gpu (list of
    readings, unknown values left out, with absent_fields and error_fields), gpus_reported, driver_version,
    cuda_version, bus_id, rc, processes, mig_devices …
    Raises ValueError if nothing in it is output of nvidia-smi.
    """
    inputs = _inputs(files)
    command = _text(files.get("cmd.txt", b""))
    results = {n: (name, _one(_text(data), command, name)) for n, (name, data) in inputs.items()}
    judged = {n: got for n, got in results.items() if got[1] is not None}
    rc = _text(files.get("rc.txt", b"")).strip()
    status = int(rc) if re.fullmatch(r"-?\d{1,5}", rc) else None
    if not judged and status in EXIT_CAUSES:
        cause, severity, advice = EXIT_CAUSES[status]
        proof = [{"text": f"exit status {status}, no readings", "file": "rc.txt", "line": 1}]
        verdict = "degraded" if severity == "warn" else "down"
        return shape(Finding(verdict, cause, severity, advice), proof, rc=status, gpus_reported=0)
    if not judged:
        raise ValueError("this is not output of nvidia-smi, or it cannot be read")
    first = min(judged)
    name, base = judged[first]
    assert base is not None
    out: dict[str, Any] = dict(base)
    if len(judged) > 1:
        out["evidence"] = [{**item, "file": name} for item in out["evidence"]]
    for n, (other, got) in judged.items():
        if n == first or got is None:
            continue
        for key, value in got.items():
            if key == "evidence":
                out["evidence"] += [{**item, "file": other} for item in value]
            elif key == "gpu":
                out[f"gpu{n}"] = value
            elif key == "bus_id":
                out[f"bus_id{n}"] = value
            else:
                out[f"{key}_input{n}"] = value
        for key in ("xid", "xids", "blocked_tasks"):
            if key in got:
                out.setdefault(key, got[key])
    if status is not None:
        out["rc"] = status
    return out


def _inputs(files: Mapping[str, bytes]) -> dict[int, tuple[str, bytes]]:
    """Number → (name, content). Successive reads of one stream (`input.read1.csv` …) are joined in order."""
    found: dict[int, tuple[str, bytes]] = {}
    reads: dict[int, list[tuple[int, bytes]]] = {}
    for name in sorted(files):
        base = name.rsplit("/", 1)[-1]
        match = _INPUT.match(base)
        if match:
            n = int(match["n"]) if match["n"] else 1
            found.setdefault(n, (name, files[name]))
            if read := re.search(r"\.read(\d{1,4})\.", base):
                reads.setdefault(n, []).append((int(read[1]), files[name]))
    for n, parts in reads.items():
        found[n] = (found[n][0], _join_reads([data for _, data in sorted(parts)]))
    if not found:
        rest = [n for n in sorted(files) if n not in {"cmd.txt", "rc.txt", "expect.toml", "source.txt"}]
        found = {i: (n, files[n]) for i, n in enumerate(rest, 1)}
    return found


_BEGINS = re.compile(
    rb"\s*(?:<\?xml|\+-{5}|#|={5}|timestamp\b|index\b|name\b|(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)\s)"
)


def _join_reads(parts: list[bytes]) -> bytes:
    """Successive reads of one stream; one may end within a row. A read that begins a new output begins a new line."""
    out = b""
    for part in parts:
        if out and not out.endswith(b"\n") and _BEGINS.match(part):
            out += b"\n"
        out += part
    return out


def _text(data: bytes) -> str:
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", "replace")  # PowerShell's redirection writes UTF-16
    return data.decode("utf-8-sig", "replace").replace("\x00", "")


_GENERAL = {
    "no-devices-found",
    "driver-not-loaded",
    "nvml-init-failed",
    "nvml-unknown-error",
    "gpu-not-readable",
    "nvidia-smi-missing",
}
"""What nvidia-smi says without knowing why: kernel lines beside it decide."""
_TIMED_OUT = re.compile(
    r"timeout \S.{0,60}nvidia-smi[^\n]*\n(?:[^\n]{0,200}\n){0,3}?(?:[^\n]*\$\?[^\n]*\n)?\s*(?:rc=)?(?P<rc>124|137)\s*$"
)
_KERNEL_LINE = re.compile(
    r"NVRM: |Xid|blocked for more than|fallen off the bus|nvidia\S*: |Lockdown: |nouveau "
)
_VERDICTS = {"down": 0, "degraded": 1, "partial": 2, "ok": 3}


def _one(text: str, command: str, name: str) -> dict[str, Any] | None:
    """The verdict on one output, and on the kernel lines that were pasted with it; None if it is neither."""
    got = _by_form(text, command, name)
    if got is None and (late := _TIMED_OUT.search(text)):
        cause, severity, advice = EXIT_CAUSES[int(late["rc"])]
        line = text.count("\n", 0, late.start()) + 1
        proof = [{"text": f"nvidia-smi ended with {late['rc']}: its time limit passed", "line": line}]
        return shape(Finding("down", cause, severity, advice), proof, rc=int(late["rc"]), gpus_reported=0)
    if got is None or not _KERNEL_LINE.search(text) or got["cause"] == "nvidia-smi-hung":
        return got
    signs = host_signs(text)
    if not (signs.xids or signs.lost or signs.failed):
        return got
    kernel = judge_signs(signs)
    if kernel["cause"] == got["cause"]:
        return {**got, "evidence": [*got["evidence"], *kernel["evidence"]][:12]}
    graver = _VERDICTS[kernel["verdict"]] < _VERDICTS[got["verdict"]]
    if got["cause"] in _GENERAL or graver:
        head = ("verdict", "cause", "severity", "advice")
        return {
            **kernel,
            **got,
            **{k: kernel[k] for k in head},
            "evidence": [*kernel["evidence"], *got["evidence"]][:12],
        }
    more = {k: v for k, v in kernel.items() if k in ("xid", "xids", "blocked_tasks")}
    return {**more, **got, "evidence": [*got["evidence"], *kernel["evidence"]][:12]}


def _by_form(text: str, command: str, name: str) -> dict[str, Any] | None:
    """The verdict on one output, by its form; None if it is not nvidia-smi's."""
    body = text.strip()
    if not body:
        return None
    if "<nvidia_smi_log" in body[:4000]:
        return _xml(text)
    lines = text.splitlines()
    trouble = find_trouble(text)
    if any(is_apps_header(line) for line in lines[:50]) or "--query-compute-apps" in command:
        return judge_apps(lines, fields_of_command(command) if "compute-apps" in command else None)
    if "NVSMI LOG" in text[:2000] and (logged := parse_q_text(text)):
        versions = re.findall(r"^(?:Driver|KMD) Version\s{0,60}: (\d\S{0,40})$", text, re.M)
        return _samples(
            logged,
            lines,
            trouble=trouble,
            driver_version=versions[0] if versions else None,
            gpu_count=len(logged),
        )
    samples = _query(lines, command)
    if samples:
        return _samples(samples, lines, trouble=trouble)
    if trouble is not None:
        return _trouble(trouble)
    if (table := parse_table(text)) is not None:
        return _table(table, lines)
    if (running := judge_pmon(text, lines)) is not None:
        return running
    signs = host_signs(text)
    if signs.hung or signs.xids or signs.blocked or signs.lost or signs.running or signs.failed:
        return judge_signs(signs)
    if (
        any(dmon_head(line) for line in lines[:50])
        or "dmon" in command
        or "dmon" in name
        or _dmon_like(lines)
    ):
        rows = parse_dmon(text, dmon_columns(command) if "dmon" in command else None)
        if rows:
            return _samples(_latest(rows), lines, rows=len(rows))
    return None


def _dmon_like(lines: Sequence[str]) -> bool:
    """Rows of bare numbers, as dmon prints them without a header."""
    rows = [line for line in lines[:20] if line.strip()]
    return bool(rows) and all(re.fullmatch(r"[\d\s:,.\-]{20,400}", row) for row in rows)


def _query(lines: Sequence[str], command: str) -> list[tuple[int, GpuSample]]:
    fields = fields_of_command(command) if "--query-gpu" in command else None
    if fields is None and not any(is_header(line.split(",")) for line in lines[:200]):
        return []
    return parse_query_csv(lines, fields)


def _latest(rows: Sequence[tuple[int, GpuSample]]) -> list[tuple[int, GpuSample]]:
    """The last row of each GPU in a stream."""
    last: dict[str, tuple[int, GpuSample]] = {}
    for at, sample in rows:
        last.pop(sample.key, None)
        last[sample.key] = (at, sample)
    return sorted(last.values(), key=lambda row: (row[1].index is None, row[1].index or 0))


def _samples(
    samples: Sequence[tuple[int, GpuSample]],
    lines: Sequence[str],
    *,
    trouble: GpuTrouble | None = None,
    **fields: Any,
) -> dict[str, Any]:
    latest = _latest(samples) if len({s.key for _, s in samples}) < len(samples) else list(samples)
    finding = judge_samples([s for _, s in latest])
    if trouble is not None and finding.severity in {"info", "warn"} and trouble.cause != "gpu-requires-reset":
        finding = Finding(trouble.verdict, trouble.cause, trouble.severity, trouble.advice)
    at_fault = [(at, s) for at, s in latest if s.fault or s.error_fields] or latest
    proof = [{"text": lines[at - 1].strip()[:400], "line": at} for at, _ in at_fault[:4] if at <= len(lines)]
    if trouble is not None:
        proof.insert(0, {"text": trouble.text, "line": trouble.line})
        fields = {**trouble.fields, **fields}
    driver = next((s.driver_version for _, s in latest if s.driver_version), None)
    gpus = [sample_dict(s) for _, s in latest]
    return shape(
        finding, proof, **{"gpu": gpus, "gpus_reported": len(gpus), "driver_version": driver, **fields}
    )


def _trouble(trouble: GpuTrouble) -> dict[str, Any]:
    finding = Finding(trouble.verdict, trouble.cause, trouble.severity, trouble.advice)
    fields = dict(trouble.fields)
    fields.setdefault("remedy", _REMEDY.get(trouble.cause))
    reported = None if trouble.verdict == "partial" else 0
    return shape(finding, [{"text": trouble.text, "line": trouble.line}], gpus_reported=reported, **fields)


def _table(table: Any, lines: Sequence[str]) -> dict[str, Any]:
    samples = list(table.gpus)
    mig = list(table.mig_devices)
    common: dict[str, Any] = {
        "driver_version": table.driver_version,
        "cuda_version": table.cuda_version,
        "processes": [dict(p) for p in table.processes] or None,
    }
    if mig:
        common.update(
            mig_devices=len(mig),
            mig_mem_total_mib=[d["mem_total_mib"] for d in mig],
            mig_mem_used_mib=[d["mem_used_mib"] for d in mig],
        )
    finding = judge_samples([s for _, s in samples]) if samples else None
    if finding is None or (table.new_head and finding.verdict == "ok"):
        cause = "header-format-changed" if table.new_head else "version-read"
        advice = "Nothing to do: the header is that of driver 610 or later, and was read."
        finding = Finding("ok", cause, "info", advice if table.new_head else "Nothing to do.")
    if not samples:
        proof = [
            {"text": line.strip()[:400], "line": at} for at, line in enumerate(lines[:6], 1) if line.strip()
        ]
        return shape(finding, proof, **common)
    got = _samples(samples, lines, **common)
    got.update(verdict=finding.verdict, cause=finding.cause, severity=finding.severity, advice=finding.advice)
    got["gpu_count"] = len(samples)
    return got


def _xml(text: str) -> dict[str, Any]:
    report = parse_xml(text)
    finding = judge_samples(list(report.gpus))
    proof: list[dict[str, Any]] = []
    lines = text.splitlines()
    for at, line in enumerate(lines, 1):
        if any(
            tag in line
            for tag in ("<product_name>", "power_draw>", "<gpu_util>", "requires reset", "Unknown Error")
        ):
            proof.append({"text": line.strip()[:400], "line": at})
    mig = list(report.mig_devices)
    fields: dict[str, Any] = {
        "driver_version": report.driver_version,
        "cuda_version": report.cuda_version,
        "processes": list(report.processes) or None,
        "gpu_count": len(report.gpus),
    }
    if mig:
        fields.update(
            mig_devices=len(mig),
            mig_mem_total_mib=[d["mem_total_mib"] for d in mig],
            mig_mem_used_mib=[d["mem_used_mib"] for d in mig],
        )
    if not report.whole or (report.attached is not None and report.attached > len(report.gpus)):
        finding = Finding(
            "partial",
            "xml-cut-off",
            "warn",
            "The XML is truncated: only the complete GPUs were read. Run `nvidia-smi -q -x` again.",
        )
    gpus = [sample_dict(s) for s in report.gpus]
    return shape(finding, proof[:6], gpu=gpus, gpus_reported=len(gpus), **fields)
