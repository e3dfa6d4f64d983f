"""Every cause that `inspect gpu`, `model` and `ssh` can name, with its verdict, severity and advice, for the
docs.

Taken from the rules themselves: tables where there are tables, else by putting one example of each situation
through the judge. So the documentation cannot say anything else than the program.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ddtop.agent.model.judge import judge
from ddtop.agent.model.shards import Entry
from ddtop.agent.model.weight_files import Head
from ddtop.hosts.ssh.causes import CAUSES, fill
from ddtop.hosts.ssh.target import Note, SshTarget
from ddtop.inspect.ssh import config_cause
from ddtop.sources.gpu.host_signs import INIT_CAUSES, XIDS
from ddtop.sources.gpu.sample import GpuSample
from ddtop.sources.gpu.smi.error_texts import EXIT_CAUSES, TEXT_RULES
from ddtop.sources.gpu.verdict import judge_samples


class Word(NamedTuple):
    """One cause of one kind."""

    kind: str
    cause: str
    verdict: str
    severity: str
    advice: str


_GPU_EXAMPLES = (
    GpuSample(index=0, fault="requires-reset"),
    GpuSample(index=0, fault="lost"),
    GpuSample(index=0, error_fields=("power_w", "temp_c")),
    GpuSample(index=0, recovery_action="Node Reboot"),
    GpuSample(index=0, recovery_action="Drain P2P"),
    GpuSample(index=0, recovery_action="another"),
    GpuSample(index=0, fabric_state="In Progress"),
    GpuSample(index=0, remap_failure=True),
    GpuSample(index=0, remap_pending=True),
    GpuSample(index=0, ecc_uncorrected=1),
    GpuSample(index=0, throttle_reasons=("sw_thermal_slowdown",)),
    GpuSample(index=0, throttle_reasons=("hw_power_brake_slowdown",)),
    GpuSample(index=0, throttle_reasons=("hw_slowdown",)),
    GpuSample(index=0, util_gpu_pct=99, error_fields=("power_default_limit_w",)),
    GpuSample(index=0, mig=True, absent_fields=("util_gpu_pct",)),
    GpuSample(index=0, absent_fields=("util_gpu_pct",)),
    GpuSample(index=0, absent_fields=("mem_used_mib",)),
    GpuSample(index=0, absent_fields=("power_limit_w",)),
    GpuSample(index=0, absent_fields=("power_w",)),
    GpuSample(index=0, denied_fields=("mem_used_mib",)),
    GpuSample(index=0, throttle_reasons=("sw_power_cap",), util_gpu_pct=99),
    GpuSample(index=0, util_gpu_pct=99),
    GpuSample(index=0, util_gpu_pct=99, pstate="P8"),
    GpuSample(index=0, util_gpu_pct=99, power_w=110, power_limit_w=700),
    GpuSample(index=0, util_gpu_pct=0),
    GpuSample(index=0, util_gpu_pct=0, mem_used_mib=0),
    GpuSample(index=0, mem_used_mib=50_000),
    GpuSample(index=0, temp_c=40),
)

_CONFIG = Entry("m/config.json", size=9)
_ONE, _TWO = "m/model-00001-of-00002.safetensors", "m/model-00002-of-00002.safetensors"


def _shards(**second: object) -> list[Entry]:
    whole = Entry(_ONE, size=100, head=Head(None, need=100, data=90))
    return [_CONFIG, whole, whole._replace(path=_TWO, **second)]  # type: ignore[arg-type]


def _model_examples() -> Iterable[dict[str, object]]:
    yield judge(_shards())
    yield judge([_CONFIG])
    yield judge([_CONFIG, Entry(_ONE, size=100)])
    yield judge(_shards(size=50))
    yield judge(_shards(head=Head("zero-head")))
    yield judge(_shards(head=Head("lfs-pointer", pointed=5)))
    yield judge(_shards(size=900_000, head=Head(None, need=900_000), blocks=0))
    yield judge(_shards(size=101))
    yield judge(_shards(), source_sizes={_TWO[2:]: 99})
    yield judge([*_shards(), Entry("m/x.incomplete", size=1, age_s=1e6)])
    yield judge([*_shards(), Entry("m/x.incomplete", size=1, age_s=1.0)])
    yield judge(_shards()[1:])
    yield judge(_shards(size=50), no_space="No space left on device")
    mixed = [
        Entry(f"m/model-{i:05d}-of-{n:05d}.safetensors", size=9) for n in (1, 2) for i in range(1, n + 1)
    ]
    yield judge([_CONFIG, *mixed])
    yield judge([Entry(_ONE, "l", target="../../blobs/a")])
    yield judge(_shards(), small_faults={"model.safetensors.index.json": "no JSON"})
    yield judge(_shards(), small_faults={"config.json": "empty"})


def _target(**more: object) -> SshTarget:
    return SshTarget(alias="HOST", hostname="HOST", user="USER", **more)  # type: ignore[arg-type]


def _ssh_examples() -> Iterable[SshTarget]:
    jump = _target()
    yield _target()
    yield _target(jumps=(jump,), proxy_jump="HOST", nested_jump=True)
    yield _target(jumps=(jump,), proxy_jump="HOST")
    yield _target(jumps=(jump,), proxy_jump="HOST", proxy_from="f", included=("f",))
    yield _target(missing_identity_files=("~/.ssh/key",))
    yield _target(notes=(Note("host-key-not-checked", "The host key is not checked"),))
    yield _target(proxy_command=("PROXY",))
    yield _target(notes=(Note("remotecommand-ignored", ""),))
    yield _target(notes=(Note("config-option-unknown", "", "hostnam"),))
    yield _target(notes=(Note("match-exec-not-run", ""),))
    yield _target(used_match=True)


def vocabulary() -> list[Word]:
    """All causes of gpu, model and ssh, each once, sorted by kind and cause."""
    words: dict[tuple[str, str], Word] = {}

    def add(kind: str, cause: str, verdict: str, severity: str, advice: str) -> None:
        words.setdefault((kind, cause), Word(kind, cause, verdict, severity, " ".join(advice.split())))

    for rule in TEXT_RULES:
        add("gpu", rule.cause, rule.verdict, rule.severity, rule.advice)
    for cause, severity, advice in EXIT_CAUSES.values():
        add("gpu", cause, "degraded" if severity == "warn" else "down", severity, advice)
    for cause, severity, verdict, advice in XIDS.values():
        add("gpu", cause, verdict, severity, advice)
    for cause, (_, severity, advice) in INIT_CAUSES.items():
        add("gpu", cause, "down", severity, advice)
    for sample in _GPU_EXAMPLES:
        finding = judge_samples([sample])
        add("gpu", finding.cause, finding.verdict, finding.severity, finding.advice)
    for got in _model_examples():
        add("model", *(str(got[key]) for key in ("cause", "verdict", "severity", "advice")))
    add(
        "model",
        "tmpfs-lost-by-reboot",
        "restage-needed",
        "warn",
        "Copy the model from the disk again, else download it.",
    )
    add("model", "model-absent", "restage-needed", "warn", "Copy the model from a disk, else download it.")
    add("model", "tmpfs-empty", "restage-needed", "warn", "Copy the model from a disk, else download it.")
    add(
        "model",
        "files-missing",
        "incomplete",
        "error",
        "Copy the files that the source has and this place has not.",
    )
    for known in CAUSES.values():
        add(
            "ssh",
            known.cause,
            known.verdict,
            known.severity,
            fill(
                known.do,
                alias="HOST",
                host="HOST",
                port="PORT",
                ssh="`ssh HOST true`",
                key="KEY",
                forget="`ssh-keygen -R HOST`",
                user="USER",
            ),
        )
    for target in _ssh_examples():
        verdict, cause, severity, advice = config_cause(target, "")
        add("ssh", cause, verdict, severity, advice)
    return [words[key] for key in sorted(words)]


def as_markdown() -> str:
    """The vocabulary as Markdown tables, one a kind."""
    out: list[str] = []
    words = vocabulary()
    for kind in sorted({w.kind for w in words}):
        out += [f"## {kind}", "", "| cause | verdict | severity | what to do |", "|---|---|---|---|"]
        out += [
            f"| `{w.cause}` | {w.verdict} | {w.severity} | {w.advice.replace('|', chr(92) + '|')} |"
            for w in words
            if w.kind == kind
        ]
        out.append("")
    return "\n".join(out)
