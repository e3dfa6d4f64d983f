"""Faults of a plan that only its cells show."""

from __future__ import annotations

import zlib

import msgspec

from ddtop.events import CellSpec
from ddtop.plan.cells import all_cells, matches
from ddtop.plan.model import Plan
from ddtop.plan.problems import Problems

MAX_CELLS = 20_000
MAX_PACKED = 800_000
"""Characters of all prompts, packed as they are sent (sweep/cell/measure.py)."""


def count_cells(plan: Plan) -> int:
    """How many cells `expand` would make, without making them."""
    matrix = plan.matrix
    loads = sum(len(w.output_tokens) for w in plan.workloads)
    arms = (len(plan.configs) + matrix.aa) * len(matrix.tp) * matrix.starts
    size = len(matrix.points) * len(matrix.context) * loads * matrix.repeats * len(plan.samplings)
    return arms * (size + (matrix.starts > 1))


def check_cells(plan: Plan, problems: Problems) -> None:
    """Faults that only the cells show: too many, two that are the same, a skip rule that skips nothing."""
    count = count_cells(plan)
    if count > MAX_CELLS:
        problems.fault(("matrix",), f"makes {count} cells", f"allowed: at most {MAX_CELLS}")
        return
    cells = all_cells(plan)
    seen: dict[str, CellSpec] = {}
    for cell in cells:
        other = seen.setdefault(cell.spec.id, cell.spec)
        if other is not cell.spec:
            _explain_twins(plan, problems, other, cell.spec)
    for index, rule in enumerate(plan.matrix.skip):
        if not any(matches(rule, cell.spec) for cell in cells):
            problems.warn(("matrix", "skip", index), "skips nothing", "no cell of this plan matches it")
    if cells and all(cell.spec.skip_reason is not None for cell in cells):
        problems.fault(("matrix", "skip"), "skips every cell", "leave some to run")
    rules = plan.matrix.rounds
    if rules is not None and rules.rule == "race" and all(p.rate is not None for p in plan.matrix.points):
        problems.warn(
            ("matrix", "race"),
            "has rates alone to judge by",
            "servers that keep up with a rate have the same tok/s, whatever their latency: add a concurrency or a search",
        )
    if plan.bench.kind == "builtin":
        _check_prompts(plan, problems)
        _check_size(plan, problems)
        if not plan.bench.warmup_written:
            problems.warn(
                ("bench",),
                "has no warmup: each load is handed over to its window when it has settled",
                'to say so: warmup = "handover"; warmup = 1 measures as earlier versions did, with the ids of their cells',
            )


def _explain_twins(plan: Plan, problems: Problems, first: CellSpec, second: CellSpec) -> None:
    """Why two cells reach server and client alike: say which key has no effect."""
    script = plan.service.kind == "command"
    if first.config != second.config:
        problems.fault(
            ("configs",),
            f"{first.config} and {second.config} start exactly the same server",
            "their cells would be duplicates: use their values in args, command or env"
            if not script
            else "their cells would be duplicates: use their values in service.configure",
        )
    elif first.tp != second.tp:
        where = "service.configure" if script else "command or args"
        problems.warn(
            ("configs", first.config),
            f"{first.config} does not use {{tp}}: its cells at TP {second.tp} would be those at TP {first.tp}",
            f"put {{tp}} into its {where}; as it is, they are left out",
        )
    elif first.workload != second.workload:
        problems.fault(
            ("workload",),
            f"{first.workload} and {second.workload} send exactly the same requests",
            "change prompts or output_tokens, or remove one of the two",
        )
    else:
        keys = ("output_tokens", "context", "concurrency", "rate", "repeat")
        key = next((k for k in keys if getattr(first, k) != getattr(second, k)), "repeat")
        problems.fault(
            ("bench", "argv"),
            f"does not use {{{key}}}",
            f"its values would give the same cell: add {{{key}}}",
        )


def _check_size(plan: Plan, problems: Problems) -> None:
    """The prompts of one start travel to the host in one line."""
    texts = {w.base: "" for w in plan.workloads}
    for workload in plan.workloads:
        texts[workload.base] += msgspec.json.encode(workload.prompts).decode()
    if sum(map(len, texts.values())) <= MAX_PACKED:
        return
    sizes = {name: len(zlib.compress(text.encode(), 1)) * 4 // 3 for name, text in texts.items()}
    if sum(sizes.values()) > MAX_PACKED:
        largest = max(sizes, key=sizes.__getitem__)
        problems.fault(
            ("workload", list(sizes).index(largest)),
            f"the prompts of all workloads take {sum(sizes.values()) // 1000:,} kB packed, {largest} most of it",
            f"allowed: {MAX_PACKED // 1000} kB; fewer prompts (sample), or a plan for each workload",
        )


def _check_prompts(plan: Plan, problems: Problems) -> None:
    flat = next((one.endpoint for one in plan.samplings if one.endpoint != "chat"), None)
    if flat is None:
        return
    places = {name: n for n, name in enumerate(dict.fromkeys(w.base for w in plan.workloads))}
    for workload in plan.workloads:
        if any(isinstance(p, dict) and "messages" in p for p in workload.prompts):
            problems.fault(
                (
                    "workload",
                    places[workload.base],
                    "dataset" if workload.dataset is not None else "prompts_file",
                ),
                f'holds messages, but sampling.endpoint is "{flat}"',
                'endpoint = "chat", or plain prompts',
            )
