"""The op `provenance`: what a result was measured on, in one bounded look for each start.

The GPUs that the server's processes hold, its packages and their git revisions, image, environment (names that matter, never secrets),
GPU settings, CPUs and NUMA, kernel, model. Each section has its own time limit; what cannot be read is in `unknown`, with why.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
from typing import Any, Awaitable, Dict, List, Optional

from .context import Context
from .errors import OpError
from .gpu.settings import gpu_settings
from .gpu.smi import smi_of
from .host.facts import cgroup_of, memory, read_text
from .host.processes import all_pids, cmdline, descendants, pids_of_cgroup, pids_of_unit
from .model.identity import model_identity
from .programs import run

APP_FIELDS = ["gpu_uuid", "pid"]
ENV = re.compile(
    r"(CUDA|NCCL|NVIDIA_(?!REQUIRE)\w+|NVTE|NVSHMEM|VLLM|SGLANG|SGL|LLAMA|GGML|TORCH|PYTORCH|TORCHINDUCTOR|TRITON|FLASHINFER|TRTLLM|OMP|MKL|"
    r"OPENBLAS|HF|TRANSFORMERS|TOKENIZERS|UCX|GLOO|RAY|XLA|HSA|ROCR|HIP|AMD)_|(LD_LIBRARY_PATH|LD_PRELOAD|CUDA_HOME)\Z"
)
SECRET = re.compile(
    r"(?i)(^|_)(token|secret|passw(or)?d|passphrase|(\w+_)?pass|pwd|\w*key|credentials?|authorization|auth)(_|$)"
)
PACKAGES = re.compile(
    r"(sglang|sgl[_-]kernel|vllm|torch|triton|flashinfer.*|flash[_-]attn.*|transformers|xformers|tensorrt[_-]llm|"
    r"nvidia[_-](?:nccl|cuda[_-]runtime|cublas|cudnn)(?:[_-]cu\d+)?|llama[_-]cpp[_-]python|deep[_-]?gemm|numpy)-([^-]+)\.dist-info\Z",
    re.I,
)
_SITE = re.compile(r"\s(/\S*?/(?:site|dist)-packages)/")
_CONTAINER = re.compile(r"(?:docker-|libpod-|cri-containerd-|/docker/|/)([0-9a-f]{64})(?:\.scope|/|$)")
VALUE_B = 400


def environment(pid: int) -> Dict[str, str]:
    """Variables of a process that change how an engine runs; those whose names say secret are left out."""
    text = read_text("/proc/%d/environ" % pid, 1 << 20)
    if text is None:
        raise OSError("this login may not read the environment of process %d" % pid)
    found = {}
    for word in text.split("\0"):
        name, equals, value = word.partition("=")
        if equals and ENV.match(name) and not SECRET.search(name):
            found[name] = value[:VALUE_B]
    return found


def site_folders(pids: List[int]) -> List[str]:
    """Python's package folders of these processes: from what they have mapped, and their PYTHONPATH."""
    found: Dict[str, None] = {}
    for pid in pids[:16]:
        root = "/proc/%d/root" % pid
        for word in (read_text("/proc/%d/environ" % pid, 1 << 20) or "").split("\0"):
            if word.startswith("PYTHONPATH="):
                found.update(dict.fromkeys(p for p in word[len("PYTHONPATH=") :].split(":") if p))
        for match in _SITE.finditer(read_text("/proc/%d/maps" % pid, 8 << 20) or ""):
            there = match.group(1) if os.path.isdir(match.group(1)) else root + match.group(1)
            found[there] = None
    return list(found)


def revision_of(folder: str) -> Optional[str]:
    """The git commit that a package was installed from (PEP 610), or of the tree that it is linked to."""
    try:
        told = json.loads(read_text(os.path.join(folder, "direct_url.json"), 64 << 10) or "{}")
    except ValueError:
        return None
    commit = (told.get("vcs_info") or {}).get("commit_id")
    url = str(told.get("url") or "")
    if commit or not url.startswith("file://"):
        return commit
    return git_head(url[len("file://") :])


def git_head(tree: str) -> Optional[str]:
    """The commit of a git tree, or of one above the folder; read from its files."""
    here = os.path.abspath(tree)
    while not os.path.exists(os.path.join(here, ".git")):
        if here == os.path.dirname(here):
            return None
        here = os.path.dirname(here)
    head = (read_text(os.path.join(here, ".git", "HEAD"), 4096) or "").strip()
    if not head.startswith("ref: "):
        return head if re.match(r"[0-9a-f]{40}\Z", head) else None
    ref = head[5:]
    found = (read_text(os.path.join(here, ".git", ref), 4096) or "").strip()
    if not found:
        packed = read_text(os.path.join(here, ".git", "packed-refs"), 4 << 20) or ""
        found = next((line.split()[0] for line in packed.splitlines() if line.endswith(" " + ref)), "")
    return found or None


def packages(pids: List[int]) -> Dict[str, Any]:
    """{name: {"version", "revision"|absent}} of what decides how an engine runs, as installed for these processes."""
    out: Dict[str, Any] = {}
    for folder in site_folders(pids):
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for name in names:
            match = PACKAGES.match(name)
            if match:
                row = {"version": match.group(2)}
                revision = revision_of(os.path.join(folder, name))
                if revision:
                    row["revision"] = revision
                out.setdefault(match.group(1).replace("_", "-").lower(), row)
    if not out:
        raise OSError("no Python packages of an engine are mapped by the server's processes")
    return out


def machine(pid: Optional[int]) -> Dict[str, Any]:
    """CPU, NUMA, kernel, memory, and which CPUs and memory nodes the server may use."""
    cpu = read_text("/proc/cpuinfo", 64 << 10) or ""
    model = re.search(r"^(?:model name|Model|cpu model)\s*:\s*(.+)$", cpu, re.M)
    nodes = {}
    for name in sorted(
        os.listdir("/sys/devices/system/node") if os.path.isdir("/sys/devices/system/node") else []
    ):
        if re.match(r"node\d+\Z", name):
            nodes[name] = (read_text("/sys/devices/system/node/%s/cpulist" % name) or "").strip()
    out: Dict[str, Any] = {
        "cpus": os.cpu_count(),
        "numa_nodes": nodes,
        "kernel": os.uname().release,
        "memory_b": memory().get("total_b"),
    }
    if model:
        out["cpu"] = model.group(1).strip()
    pretty = re.search(r'^PRETTY_NAME="?([^"\n]+)', read_text("/etc/os-release", 16 << 10) or "", re.M)
    for name, value in (
        ("os", pretty.group(1) if pretty else None),
        ("governor", read_text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")),
        ("nvidia_module", (read_text("/proc/driver/nvidia/version", 4096) or "").split("\n")[0]),
    ):
        if value and value.strip():
            out[name] = value.strip()
    for line in (read_text("/proc/%d/status" % pid) or "").splitlines() if pid else []:
        for key, name in (("Cpus_allowed_list:", "server_cpus"), ("Mems_allowed_list:", "server_numa_nodes")):
            if line.startswith(key):
                out[name] = line[len(key) :].strip()
    return out


async def held_gpus(context: Context, pids: List[int], timeout_s: float) -> List[str]:
    """UUIDs of the GPUs on which these processes hold memory. Raises OpError where that cannot be told."""
    if "nvidia-smi" not in context.rights.can:
        raise OpError("not-found", "there is no nvidia-smi on this host")
    answer = await smi_of(context).query("compute-apps", APP_FIELDS, timeout_s)
    if "error" in answer:
        raise OpError("failed", str(answer["error"]))
    rows = [[cell.strip() for cell in line.split(",")] for line in answer["csv"].splitlines()[1:]]
    rows = [row for row in rows if len(row) == len(APP_FIELDS) and row[1].isdigit()]
    mine = list(dict.fromkeys(row[0] for row in rows if int(row[1]) in set(pids)))
    alive = {str(pid) for pid in await context.thread(all_pids)}
    strange = [row[1] for row in rows if row[1] not in alive]
    if not mine and strange:
        raise OpError(
            "failed", "nvidia-smi names processes of another namespace (%s)" % ", ".join(strange[:4])
        )
    return mine


async def container_pids(ident: str, timeout_s: float) -> List[int]:
    """The processes of a container; none where it cannot be inspected."""
    for tool in ("docker", "podman"):
        if shutil.which(tool):
            done = await run([tool, "inspect", "--format", "{{.State.Pid}}", ident], timeout_s=timeout_s)
            if done.rc == 0 and done.out.strip().isdigit() and int(done.out) > 0:
                return descendants(int(done.out))
    return []


async def image(pids: List[int], timeout_s: float) -> Dict[str, Any]:
    """The container that the server runs in and its image's digest; {} where it runs in none. Raises OpError."""
    ids = [m.group(1) for pid in pids for m in [_CONTAINER.search(cgroup_of(pid) or "")] if m]
    if not ids:
        return {}
    for tool in ("docker", "podman"):
        if not shutil.which(tool):
            continue
        done = await run(
            [tool, "inspect", "--format", "{{.Image}} {{.Config.Image}}", ids[0]], timeout_s=timeout_s
        )
        if done.rc == 0:
            ident, _, name = done.out.strip().partition(" ")
            out: Dict[str, Any] = {"container": ids[0][:12], "image_id": ident, "image": name}
            shown = await run(
                [tool, "image", "inspect", "--format", "{{json .RepoDigests}}", ident], timeout_s=timeout_s
            )
            digests = json.loads(shown.out) if shown.rc == 0 and shown.out.strip() not in ("", "null") else []
            if digests:
                out["digest"] = str(digests[0])
            return out
    raise OpError("failed", "the container %s cannot be inspected" % ids[0][:12])


async def provenance(context: Context, args: Dict[str, Any]) -> Dict[str, Any]:
    """The op `provenance`."""
    limit_s = max(1.0, float(args.get("timeout_s", 10))) * 0.8
    main: Optional[int] = int(args["main_pid"]) if args.get("main_pid") else None
    if args.get("cgroup"):
        pids = await context.thread(pids_of_cgroup, str(args["cgroup"]))
    elif args.get("unit"):
        pids = await context.thread(pids_of_unit, str(args["unit"]))
    else:
        pids = await context.thread(descendants, int(args["pid"])) if args.get("pid") else []
    if args.get("container"):
        inside = await container_pids(str(args["container"]), limit_s / 4)
        pids, main = [*pids, *inside], inside[0] if inside else main
    first = main or (pids[0] if pids else None)
    sections: Dict[str, Awaitable[Any]] = {
        "held": held_gpus(context, pids, limit_s),
        "gpu": gpu_settings(context, limit_s / 2),
        "machine": context.thread(machine, first),
        "packages": context.thread(packages, pids),
        "image": image(pids, limit_s / 2),
    }
    if first is not None:
        sections["environment"] = context.thread(environment, first)
        sections["command"] = context.thread(cmdline, first)
    if args.get("model"):
        sections["model"] = context.thread(model_identity, str(args["model"]))
    done = await asyncio.gather(
        *[asyncio.wait_for(work, limit_s) for work in sections.values()], return_exceptions=True
    )
    facts: Dict[str, Any] = {}
    unknown: Dict[str, str] = {}
    for name, found in zip(sections, done):  # noqa: B905
        if not isinstance(found, BaseException):
            facts[name] = found
        elif isinstance(found, asyncio.TimeoutError):
            unknown[name] = "no answer within %.0f s" % limit_s
        elif isinstance(found, OpError):
            unknown[name] = found.what
        elif isinstance(found, Exception):
            unknown[name] = str(found) or type(found).__name__
        else:
            raise found
    return {"facts": facts, "unknown": unknown}
