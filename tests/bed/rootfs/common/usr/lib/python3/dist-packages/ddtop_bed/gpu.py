"""Claims on the made-up GPUs: one file a process in /run/ddtop-bed-gpu, void once the process is gone."""
import json, os
from pathlib import Path

CONF, CLAIMS = Path("/etc/ddtop-bed"), Path("/run/ddtop-bed-gpu")


def card():
    return json.loads((CONF / "gpu.json").read_text())


def started(pid):
    """Start time of a process in clock ticks: with the pid it names one process for ever. None: gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        fields = stat[stat.rindex(")") + 2:].split()
        return None if fields[0] == "Z" else int(fields[19])
    except (OSError, ValueError, IndexError):
        return None


def claims():
    """The claims of live processes: [{"pid", "gpus", "mib", "phase", "name", …}]."""
    out = []
    try:
        files = sorted(CLAIMS.iterdir())
    except OSError:
        return out
    for path in files:
        try:
            claim = json.loads(path.read_text())
        except (OSError, ValueError):
            continue
        if path.suffix == ".json" and started(claim["pid"]) == claim["started"]:
            out.append(claim)
    return out


def claim(gpus, mib, phase, name="sglang::scheduler", **more):
    """Hold `mib` on each of `gpus`; phase: idle | load | capture | decode | spin | compute."""
    pid = os.getpid()
    try:
        CLAIMS.mkdir(exist_ok=True)
        CLAIMS.chmod(0o1777)
    except OSError:
        pass
    tmp, path = CLAIMS / f"{pid}.tmp", CLAIMS / f"{pid}.json"
    tmp.write_text(json.dumps({"pid": pid, "started": started(pid), "gpus": list(gpus), "mib": int(mib),
                               "phase": phase, "name": name, **more}))
    tmp.rename(path)


def visible():
    """GPU indices this process may use, in order."""
    count, wanted = card()["count"], os.environ.get("CUDA_VISIBLE_DEVICES")
    if wanted is None:
        return list(range(count))
    return [int(i) for i in wanted.split(",") if i.strip().isdigit() and int(i) < count]


def free_mib(index):
    """Memory of one GPU that no other process holds, and who holds the rest."""
    others = [c for c in claims() if index in c["gpus"] and c["pid"] != os.getpid()]
    return card()["mib"] - sum(c["mib"] for c in others), others
