"""How the GPUs are set: clocks, power limits, ECC, MIG, links, and how they are connected. Read once for each start."""

from __future__ import annotations

import re
import shutil
from typing import Any, Dict, List

from ..context import Context
from ..errors import OpError
from ..programs import run
from .smi import smi_of

FIELDS = (
    "index uuid name driver_version vbios_version pci.bus_id power.limit power.default_limit power.max_limit"
    " clocks.applications.graphics clocks.applications.memory clocks.max.sm clocks.max.mem ecc.mode.current"
    " persistence_mode compute_mode mig.mode.current pcie.link.gen.max pcie.link.width.max"
).split()
_EMPTY = re.compile(r"^\[?(N/A|Not Supported|Unknown Error|Requested functionality has been deprecated)\]?$")
_CUDA = re.compile(r"CUDA (?:UMD )?Version\s*:\s*([\d.]+)")
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
TOPOLOGY_B = 6_000


def table_of(csv: str, fields: List[str]) -> List[Dict[str, str]]:
    """Rows of an answer of `--format=csv`; what a GPU does not say is left out.

    >>> table_of("index, power.limit [W]\\n0, 700.00 W\\n1, [N/A]\\n", ["index", "power.limit"])
    [{'index': '0', 'power.limit': '700.00 W'}, {'index': '1'}]
    """
    rows = []
    for line in csv.splitlines()[1:]:
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == len(fields):
            rows.append({f: c for f, c in zip(fields, cells) if c and not _EMPTY.match(c)})  # noqa: B905
    return rows


async def gpu_settings(context: Context, timeout_s: float) -> Dict[str, Any]:
    """{"gpus": [{field: text}], "driver", "cuda", "topology"}. Raises OpError where nvidia-smi says nothing."""
    if "nvidia-smi" not in context.rights.can:
        raise OpError("not-found", "there is no nvidia-smi on this host")
    answer = await smi_of(context).query("gpu", FIELDS, timeout_s)
    if "error" in answer:
        raise OpError("failed", str(answer["error"]))
    gpus = table_of(answer["csv"], answer["fields"])
    out: Dict[str, Any] = {"gpus": gpus}
    drivers = sorted({gpu["driver_version"] for gpu in gpus if "driver_version" in gpu})
    if drivers:
        out["driver"] = ", ".join(drivers)
    for name, words in (("cuda", ["nvidia-smi", "--version"]), ("cuda", ["nvidia-smi"]), ("topology", _TOPO)):
        if name in out or not shutil.which(words[0]):
            continue
        try:
            done = await run(words, timeout_s=timeout_s, max_b=64 << 10)
        except OpError:
            continue
        if name == "topology" and done.rc == 0 and "GPU0" in done.out:
            out[name] = _ANSI.sub("", done.out).partition("Legend:")[0].strip("\n ")[:TOPOLOGY_B]
        elif name == "cuda":
            found = _CUDA.search(done.out)
            if found:
                out[name] = found.group(1)
    return out


_TOPO = ["nvidia-smi", "topo", "-m"]
