"""`python -m tests.campaign.table FILE…`: what the trials of a campaign came to, as the tables of docs/reliability.md.

Seconds lost are estimated: each trial lasted as long as its sweep without a fault, and for each fault so much longer as its
kind costs (least squares, no kind below 0).
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROUNDS = 400


def costs(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Kind, or `shape NAME` → seconds.

    >>> lasted = [("plain", [], 30), ("plain", ["cut"], 40), ("race", ["cut", "cut"], 80)]
    >>> rows = [{"shape": s, "faults": [{"kind": k} for k in kinds], "seconds": t} for s, kinds, t in lasted]
    >>> {name: round(s) for name, s in costs(rows).items()}
    {'shape plain': 30, 'cut': 10, 'shape race': 60}
    """
    terms = [Counter([f"shape {r.get('shape', 'plain')}", *(f["kind"] for f in r["faults"])]) for r in rows]
    found = dict.fromkeys((name for t in terms for name in t), 0.0)
    for _ in range(ROUNDS):
        for name in found:
            mine = [(t[name], r["seconds"] - sum(n * found[k] for k, n in t.items() if k != name)) for t, r in zip(terms, rows, strict=True) if t[name]]  # fmt: skip
            found[name] = max(0.0, sum(n * rest for n, rest in mine) / sum(n * n for n, _ in mine))
    return found


def table(rows: Iterable[Mapping[str, Any]]) -> str:
    """Markdown: a line for each kind, and what all of it came to."""
    judged = [r for r in rows if "harness" not in r]
    lost, phases, count = costs(judged), defaultdict[str, Counter[str]](Counter), Counter[str]()
    for row in judged:
        for fault in row["faults"]:
            count[fault["kind"]] += 1
            if fault.get("phase"):
                phases[fault["kind"]][fault["phase"]] += 1
    lines = ["| kind | faults | phases | seconds lost |", "|---|---|---|---|"]
    for kind, n in count.most_common():
        where = ", ".join(f"{name} {many}" for name, many in phases[kind].most_common())
        lines.append(f"| {kind} | {n} | {where} | {lost[kind]:.0f} |")
    size = Counter(len(r["faults"]) for r in judged)
    shapes = Counter(r.get("shape", "plain") for r in judged)
    bad = Counter(v[0] for r in judged for v in r["violations"])
    lines += [
        "",
        f"{count.total()} faults in {len(judged)} sweeps ({dict(shapes)}); by faults a sweep: {dict(sorted(size.items()))}",
        f"cells done {sum(r['done'] for r in judged)}, begun anew {sum(r['anew'] for r in judged)}; violations {dict(bad)}",
        f"at most {max(r.get('descriptors', 0) for r in judged)} descriptors, {max(r.get('resident_mib', 0) for r in judged):.0f} MiB",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(json.loads(line) for name in sys.argv[1:] for line in Path(name).read_text().splitlines()))
