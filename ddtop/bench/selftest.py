"""`ddtop selftest`: the load generator's own error on this machine, against a server that stamps what it sends.

Returns data in the shape that docs/measuring.md fixes; `render.selftest_text` makes plain text of it.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from ddtop.agent.loadgen.selftest import self_test

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class SelftestOptions:
    """The planned load: streams, ms between chunks, tokens a chunk. `server`: auto (C if there is a compiler), python, c."""

    streams: int = 64
    dt_ms: float = 20.0
    tokens_per_chunk: int = 1
    tokens: int = 100
    rounds: int = 3
    aligned: bool = True
    processes: int = 0
    server: str = "auto"


def run_selftest(options: SelftestOptions) -> dict[str, Any]:
    """The generator's own error at that load on this machine: figures, and `fit` with the reasons why not.
    Raises OSError if no stamping server can be started."""
    asked = {
        "streams": options.streams,
        "dt_ms": options.dt_ms,
        "tokens_per_chunk": options.tokens_per_chunk,
        "tokens": options.tokens,
        "rounds": options.rounds,
        "aligned": options.aligned,
        "processes": options.processes,
    }
    with tempfile.TemporaryDirectory(prefix="ddtop-") as folder:
        binary = build_stampd(Path(folder)) if options.server in ("auto", "c") else None
        if binary is None and options.server == "c":
            raise OSError("no C compiler here (cc, gcc or clang), or it failed; use the Python server")
        result = self_test(asked, [str(binary)] if binary is not None else None)
    return selftest_result(result, options.dt_ms)


def selftest_result(result: Mapping[str, Any], dt_ms: float) -> dict[str, Any]:
    """The figures of a self test with what they say: fit for that load or not, and why not."""
    problems = selftest_problems(result, dt_ms)
    return {"schema": SCHEMA, "fit": not problems, "problems": problems, **result}


def build_stampd(folder: Path) -> Path | None:
    """Compile the C stamping server into `folder`; None where there is no compiler or it fails."""
    compiler = next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)
    if compiler is None:
        return None
    source = folder / "stampd.c"
    source.write_bytes(resources.files("ddtop.bench").joinpath("stampd.c").read_bytes())
    binary = folder / "stampd"
    done = subprocess.run(
        [compiler, "-O2", "-o", str(binary), str(source)], capture_output=True, timeout=120, check=False
    )
    return binary if done.returncode == 0 and binary.exists() else None


def selftest_problems(result: Mapping[str, Any], dt_ms: float) -> list[str]:
    """Why the generator is not fit for that load, in words; [] if it is."""
    problems = []
    if result.get("error"):
        problems.append(str(result["error"]))
    if result["token_mismatches"] or result["chunk_mismatches"]:
        problems.append(
            f"{result['token_mismatches']} token and {result['chunk_mismatches']} chunk counts are wrong"
        )
    if (result.get("utilisation") or 0) > 0.8:
        problems.append(f"utilisation {result['utilisation']:.2f}: one process cannot carry this load")
    itl, ttft = result["itl_error_us"], result["ttft_error_ms"]
    if itl and itl["p50"] > 0.05 * dt_ms * 1e3:
        problems.append(
            f"the gaps are wrong by {itl['p50'] / 1e3:.2f} ms (p50), more than 5% of {dt_ms:g} ms"
        )
    if ttft and ttft["p50"] > 2.0:
        problems.append(f"TTFT is {ttft['p50']:.1f} ms too high (p50)")
    if (result.get("delivered_share") or 1.0) < 0.95:
        problems.append(f"only {result['delivered_share']:.0%} of the load was delivered")
    if not itl and not problems:
        problems.append("nothing was measured")
    return problems
