"""The checklist's rules on what was measured on: commands, engines, images, GPUs, topology, models. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from ddtop.report.bundle.seen import Seen, names

Answer = tuple[Literal["met", "not met", "n/a"], str]
Facts = Mapping[str, Any]


def _lacking(seen: Seen, lack: Callable[[Facts, Mapping[str, str]], str]) -> Answer | None:
    """What the starts lack, in words; None where each has all."""
    if not seen.starts:
        return "not met", "no start of a server with a result is recorded"
    found: dict[str, list[str]] = {}
    for name, told in seen.provenance():
        if told is None or "all" in told.unknown:
            why = "not recorded" if told is None else told.unknown["all"]
        else:
            why = lack(told.facts, told.unknown)
        if why:
            found.setdefault(why, []).append(name)
    if not found:
        return None
    return "not met", "; ".join(f"{why}: {names(starts)}" for why, starts in found.items())


def commands(seen: Seen) -> Answer:
    """The command of each server, and its environment."""

    def lack(facts: Facts, unknown: Mapping[str, str]) -> str:
        if not facts.get("command"):
            return f"command not known ({unknown.get('command', 'not read')})"
        return f"environment not known ({unknown['environment']})" if "environment" in unknown else ""

    return _lacking(seen, lack) or (
        "met",
        "the command line and the engine's variables of every server, as its process had them; secrets left out",
    )


PACKAGES = {"sglang": "sglang", "vllm": "vllm"}


def engines(seen: Seen) -> Answer:
    """Version and git revision: of a package from git, or in the version itself."""
    bare = [f"{r.config} tp{r.tp}" for r in seen.starts if not r.engine_version]
    if not seen.starts or bare:
        return (
            "not met",
            f"version not known: {names(bare)}" if bare else "no start with a result is recorded",
        )
    versions = sorted({f"{r.engine} {r.engine_version}" for r in seen.starts})
    without: list[str] = []
    for start in seen.starts:
        packages = (start.provenance.facts.get("packages") or {}) if start.provenance is not None else {}
        package = packages.get(PACKAGES.get(start.engine, ""), {})
        version = f"{start.engine_version} {package.get('version', '')}"
        told = package.get("revision") or "+g" in version or (start.engine == "llamacpp" and "-" in version)
        if not told and not _released(str(start.engine_version)):
            without.append(f"{start.config} tp{start.tp}")
    if without:
        return "not met", f"{', '.join(versions)}: git revision not known: {names(without)}"
    return "met", ", ".join(versions)


def _released(version: str) -> bool:
    """Whether a version names one release, and so one revision."""
    return bool(version) and all(
        part.isdigit() or part.startswith("post") for part in version.lstrip("v").split(".")
    )


def images(seen: Seen) -> Answer:
    """The digest of the image, where the server runs in a container."""
    held = [
        (n, p.facts.get("image") or {})
        for n, p in seen.provenance()
        if p is not None and "image" not in p.unknown
    ]
    if held and len(held) == len(seen.starts) and not any(image for _, image in held):
        return "n/a", "no server runs in a container"

    def lack(facts: Facts, unknown: Mapping[str, str]) -> str:
        if "image" in unknown:
            return unknown["image"]
        image = facts.get("image") or {}
        return (
            "no digest of its image" if image and not (image.get("digest") or image.get("image_id")) else ""
        )

    found = sorted({str(i.get("digest") or i.get("image_id")) for _, i in held if i})
    return _lacking(seen, lack) or ("met", ", ".join(found))


GPU_FIELDS = {
    "driver_version": "driver",
    "power.limit": "power limit",
    "ecc.mode.current": "ECC",
    "clocks.max.sm": "clocks",
}


def gpu_settings(seen: Seen) -> Answer:
    """Driver, CUDA, clocks, power limits and ECC of the GPUs, and which of them the server held."""

    def lack(facts: Facts, unknown: Mapping[str, str]) -> str:
        if "gpu" in unknown:
            return unknown["gpu"]
        gpu = facts.get("gpu") or {}
        rows = gpu.get("gpus") or []
        gone = [
            word for field, word in GPU_FIELDS.items() if not rows or any(field not in row for row in rows)
        ]
        gone += [] if gpu.get("cuda") else ["CUDA"]
        if "held" in unknown:
            gone.append(f"which GPUs it holds ({unknown['held']})")
        return f"not known: {', '.join(gone)}" if gone else ""

    kinds = {
        f"{row.get('name')} ({row.get('power.limit', '?')}, ECC {row.get('ecc.mode.current', '?')})"
        for _, told in seen.provenance()
        if told is not None
        for row in (told.facts.get("gpu") or {}).get("gpus") or ()
    }
    return _lacking(seen, lack) or ("met", names(sorted(kinds)))


def topology(seen: Seen) -> Answer:
    """How CPUs, memory and GPUs are connected, and which CPUs the server may use."""

    def lack(facts: Facts, unknown: Mapping[str, str]) -> str:
        machine = facts.get("machine") or {}
        gone = [] if machine.get("numa_nodes") else ["NUMA nodes"]
        gone += [] if machine.get("server_cpus") else ["CPUs of the server"]
        gone += [] if (facts.get("gpu") or {}).get("topology") else ["GPU topology"]
        return f"not known: {', '.join(gone)}" if gone else ""

    return _lacking(seen, lack) or (
        "met",
        "nvidia-smi topo -m, NUMA nodes, and the CPUs that each server may use",
    )


def models(seen: Seen) -> Answer:
    """Revision and hash of what was served."""

    def lack(facts: Facts, unknown: Mapping[str, str]) -> str:
        model = facts.get("model")
        if not model:
            return f"not known ({unknown.get('model', 'the plan names no [model] path')})"
        if not model.get("revision"):
            return f"revision not known; SHA-256 {model['sha256'][:12]} of {model['covers']}"
        return ""

    shown = {
        f"{m['path']} at {str(m.get('revision'))[:12]}, SHA-256 {m['sha256'][:12]} of {m['covers']}"
        for _, told in seen.provenance()
        if told is not None and (m := told.facts.get("model"))
    }
    return _lacking(seen, lack) or ("met", names(sorted(shown)))
