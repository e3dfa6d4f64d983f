"""The texts of alerts: from a verdict to title, cause, evidence, advice and actions. Pure.

The first action is the advised one; for a config cause it is never a retry. A key means the same in every alert: `r` retry or
resume, `x` skip, `b` broken, `s` re-stage, `w` wait.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddtop.events import Action, CauseKind, CellSpec, Evidence, Step, Verdict
from ddtop.sources.kernel.fault import Fault
from ddtop.sweep.model.stage_causes import stage_cause
from ddtop.sweep.shared.policy import RESTAGE_CAUSES
from ddtop.sweep.shared.verdict import Judgement

HOST_FAULT = "HOST FAULT"
TITLES: dict[Verdict, str] = {
    "failed": "NOT STARTING?",
    "crash-loop": "NOT STARTING?",
    "never-began": "NOT STARTING?",
    "refused": "NOT STARTING?",
    "old-server": "OLD SERVER ANSWERS",
    "wrong-arguments": "WRONG ARGUMENTS",
    "stalled": "NOT STARTING?",
    "hung-gpu": "NOT STARTING?",
    "no-tokens": "NO TOKENS",
    "lost-host": "HOST LOST",
    "rebooted": "REBOOTED",
    "foreign": "FOREIGN PROCESS",
    "model-missing": "MODEL MISSING",
    "staging-failed": "STAGING FAILED",
    "measuring-failed": "MEASURING FAILED",
    "interrupted": "INTERRUPTED",
    "unknown": "ATTENTION",
    "slow": "SLOW",
}

CELL_TITLES: dict[Verdict, str] = {
    "failed": "SERVER DIED",
    "crash-loop": "SERVER DIED",
    "never-began": "SERVER DIED",
    "refused": "SERVER DIED",
    "stalled": "SERVER HUNG",
    "hung-gpu": "SERVER HUNG",
}
"""What happened to a server that was ready and is measured; the other verdicts have the titles above."""

ADVICE: dict[CauseKind, str] = {
    "transient": "start it again once",
    "config": "fix the arguments, or skip this configuration: the same arguments fail again",
    "bug": "start it again once; a second time means it is broken",
    "host": "repair the host first; then resume",
    "slow": "wait",
    "unknown": "read the log; start it again once",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class AlertText:
    """The parts of an alert that its cause decides."""

    title: str
    verdict: Verdict
    cause: str
    cause_text: str
    kind: CauseKind
    advice: str
    evidence: tuple[Evidence, ...]
    actions: tuple[Action, ...]
    signature_id: str | None = None


def alert_id(run_id: str, *parts: str) -> str:
    """A stable id: the same cause in the same run is the same alert, notified once."""
    return hashlib.sha256("\0".join((run_id, *parts)).encode()).hexdigest()[:12]


def placed(host: str, unit: str, text: str) -> str:
    """The sentence of a cause, with host and unit named once each.

    >>> placed("ct200", "sglang-bench.service", "sglang-bench failed 2 s after its restart")
    'ct200: sglang-bench failed 2 s after its restart'
    >>> placed("ct200", "sglang-bench.service", "No port is left.")
    'ct200, sglang-bench: No port is left.'
    """
    stem = unit.removesuffix(".service")
    where = [w for w in (host, stem) if w and w not in text]
    return f"{', '.join(where)}: {text}" if where else text


def start_alert(j: Judgement, config: str, alert: str, *, host: str, unit: str = "") -> AlertText:
    """The alert for a start that failed or stalls."""
    return _failure_alert(j, start_actions(j, config, alert), host, unit)


def cell_alert(j: Judgement, cell: CellSpec, alert: str, *, host: str, unit: str = "") -> AlertText:
    """The alert for a cell that gave no usable result, or whose server failed while it was measured."""
    name = cell.label
    actions = (
        _act("r", f"retry {name}", "retry", alert_id=alert, cell_id=cell.id),
        _act("x", f"skip {name}", "skip", alert_id=alert, cell_id=cell.id),
        _act("b", f"mark {name} broken", "mark-broken", alert_id=alert, cell_id=cell.id),
    )
    return _failure_alert(j, actions, host, unit, CELL_TITLES)


def _failure_alert(
    j: Judgement,
    actions: tuple[Action, ...],
    host: str,
    unit: str,
    titles: Mapping[Verdict, str] = TITLES,
) -> AlertText:
    assert j.verdict is not None
    return AlertText(
        title=j.title or titles.get(j.verdict, TITLES[j.verdict]),
        verdict=j.verdict,
        cause=j.cause,
        cause_text=placed(host, unit, j.text),
        kind=j.kind,
        advice=j.advice or ADVICE[j.kind],
        evidence=j.evidence[:8],
        actions=actions,
        signature_id=j.signature_id,
    )


def _act(key: str, label: str, command: str, **args: Any) -> Action:
    return Action(key=key, label=label, command=command, args=args)


def start_actions(j: Judgement, config: str, alert: str) -> tuple[Action, ...]:
    """Actions after a failed start; the first is the advised one."""
    retry = _act("r", f"retry {config}", "retry", alert_id=alert, config=config)
    skip = _act("x", f"skip {config}", "skip", alert_id=alert, config=config)
    broken = _act("b", f"mark {config} broken", "mark-broken", alert_id=alert, config=config)
    wait = _act("w", "wait longer", "wait", alert_id=alert)
    anyway = Action(key="r", label="retry anyway", command="retry", args=retry.args)
    if j.cause in RESTAGE_CAUSES or (j.cause == "condition-not-met" and "stage" in j.advice):
        return (_act("s", f"re-stage and retry {config}", "restage", alert_id=alert), skip, anyway)
    if j.kind == "config":
        return (skip, anyway, broken)
    if j.verdict in ("stalled", "hung-gpu"):
        return (retry, wait, skip, broken)
    return (retry, skip, broken)


def lost_alert(host: str, what: str, means: str, do: str) -> AlertText:
    return AlertText(
        title=TITLES["lost-host"],
        verdict="lost-host",
        cause="lost-host",
        kind="transient",
        cause_text=f"{host}: {what}" if host not in what else what,
        advice=do or "ddtop reconnects by itself; jobs on the host go on",
        evidence=(
            Evidence(source="link", text=what),
            *((Evidence(source="link", text=means),) if means else ()),
        ),
        actions=(_act("r", "reconnect now", "resume"),),
    )


def rebooted_alert(host: str, consequences: Sequence[str], at: str, alert: str) -> AlertText:
    return AlertText(
        title=TITLES["rebooted"],
        verdict="rebooted",
        cause="rebooted",
        kind="host",
        cause_text=f"{host} was rebooted: " + "; ".join(consequences),
        advice="check the steps, then resume",
        evidence=tuple(Evidence(source="probe", text=c) for c in consequences),
        actions=(
            _act("r", f"resume at {at}", "resume", alert_id=alert),
            _act("s", "re-stage", "restage", alert_id=alert),
        ),
    )


def interrupted_alert(host: str, why: str, at: str, alert: str) -> AlertText:
    return AlertText(
        title=TITLES["interrupted"],
        verdict="interrupted",
        cause="interrupted",
        kind="transient",
        cause_text=f"{host}: {why}",
        advice="check the steps, then resume",
        evidence=(Evidence(source="journal", text=why),),
        actions=(_act("r", f"resume at {at}", "resume", alert_id=alert),),
    )


def disk_full_alert(path: Path, what: str) -> AlertText:
    """The alert for a full disk of this machine, on which the recording lies."""
    return AlertText(
        title="DISK FULL HERE",
        verdict="unknown",
        cause="client-disk-full",
        kind="host",
        cause_text=f"this machine: {what}",
        advice=f"free space on the disk of {path.parent} (df -h {path.parent}); nothing is lost, and nothing need be done in ddtop",
        evidence=(Evidence(source="journal", text=what),),
        actions=(),
    )


HOST_TROUBLES = ("HOST DISK FULL", "HOST IN TROUBLE")


def trouble_alert(host: str, what: str, do: str, *, full: bool) -> AlertText:
    """The alert for an agent that cannot do its work on the host now."""
    return AlertText(
        title=HOST_TROUBLES[0 if full else 1],
        verdict="unknown",
        cause="disk-full" if full else "agent-failed",
        kind="host",
        cause_text=f"{host}: {what}",
        advice=do
        or (
            "free space there (`df -h`); the run goes on by itself"
            if full
            else "look at the host: its load, its disks, `dmesg`"
        ),
        evidence=(Evidence(source="agent", text=what),),
        actions=(),
    )


def host_alert(host: str, units: Sequence[str], fault: Fault) -> AlertText:
    """The alert for a fault of the host itself: an Xid, an OOM kill, a GPU that asks for a reset."""
    serves = f" (served there: {', '.join(u.removesuffix('.service') for u in units)})" if units else ""
    return AlertText(
        title=HOST_FAULT,
        verdict="unknown",
        cause=fault.fact.cause or fault.fact.what,
        kind="host",
        cause_text=f"{host}: {fault.text}{serves}",
        advice=fault.advice,
        evidence=fault_evidence(fault),
        actions=(),
    )


def fault_evidence(fault: Fault) -> tuple[Evidence, ...]:
    """The kernel's line, and what the driver asks for."""
    line = Evidence(
        source="gpu" if fault.fact.what == "recovery-action" else "kernel",
        text=fault.fact.text[:500],
        at_s=fault.at_s,
    )
    if fault.asked is None:
        return (line,)
    return (line, Evidence(source="gpu", text=f"gpu_recovery_action of {fault.fact.bus}: {fault.asked}"))


def fault_judgement(fault: Fault, unit: str, what: str, evidence: Sequence[Evidence] = ()) -> Judgement:
    """Why `unit` failed (`what`, in words), by the kernel. It goes before the log's cause, which stays as evidence."""
    kinds: dict[str, CauseKind] = {"host": "host", "bug": "bug"}
    return Judgement(
        verdict="failed",
        cause=fault.fact.cause or fault.fact.what,
        kind=kinds.get(fault.kind, "unknown"),
        text=f"{unit.removesuffix('.service')} {what}: {fault.text}",
        advice=fault.advice,
        evidence=(*fault_evidence(fault), *evidence)[:8],
    )


def stage_alert(host: str, path: str, error: str, alert: str) -> AlertText:
    why = stage_cause(error)
    return AlertText(
        title=TITLES["staging-failed"],
        verdict="staging-failed",
        cause=why.slug,
        kind=why.kind,
        cause_text=f"{host}: {path} could not be staged: {error}",
        advice=why.advice,
        evidence=(Evidence(source="job", text=error[:500]),),
        actions=(_act("s", "re-stage again", "restage", alert_id=alert),),
    )


def wait_alert(host: str, step: Step, alert: str, *, port: int) -> AlertText:
    """The alert for a step that waits for something on the host to be put right by somebody."""
    what = step.id.partition(":")[2]
    model = what == "model"
    on_port = what.startswith("port")
    verdict: Verdict = "model-missing" if model else "foreign"
    who = step.title.removeprefix("wait for ").partition(" to leave ")[0]
    where = f"port {port}" if on_port else "the GPUs"
    text = f"{step.title}: {step.reason}" if model else f"{who} is on {where}: {step.reason}"
    advice = (
        "put a whole copy there, or name one in [model] sources; the sweep goes on by itself then"
        if model
        else f"stop {who} if it is yours, or resume (r) to go on beside it; the sweep goes on by itself once it is gone"
    )
    return AlertText(
        title=TITLES[verdict],
        verdict=verdict,
        cause="model-weights-damaged"
        if model
        else "port-in-use"
        if on_port
        else "gpu-memory-held-by-other-process",
        kind="host",
        cause_text=f"{host}: {text}",
        advice=advice,
        evidence=(
            Evidence(
                source="probe" if model else "ss" if on_port else "gpu",
                text=f"{step.title}: {step.reason}"[:400],
            ),
        ),
        actions=(_act("r", "go on now", "resume", alert_id=alert),),
    )


def held_by_other(unit: str, who: str, mib: float, before: Judgement) -> Judgement:
    """A start that ran out of GPU memory while a foreign process held some."""
    return Judgement(
        verdict="foreign",
        cause="gpu-memory-held-by-other-process",
        kind="host",
        text=f"{unit.removesuffix('.service')} found too little GPU memory: {who} holds {mib:.0f} MiB",
        advice=f"stop {who} if it is yours, then retry",
        signature_id=before.signature_id,
        evidence=(Evidence(source="gpu", text=f"{who}: {mib:.0f} MiB"), *before.evidence)[:8],
    )
