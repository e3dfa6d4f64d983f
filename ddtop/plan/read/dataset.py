"""The keys of a `[[workload]]` that take prompts from a dataset, and end an answer where the model ends it."""

from __future__ import annotations

import re
from pathlib import Path as FilePath
from typing import Any

import msgspec

from ddtop.datasets.choose import SAMPLE
from ddtop.datasets.item import Item, items_of, lines_of
from ddtop.datasets.store import About, Dataset, load
from ddtop.datasets.use import Use
from ddtop.errors import UsageError
from ddtop.plan.model import Config, Service, Workload
from ddtop.plan.problems import Problems, shown, suggest
from ddtop.plan.read.fields import Fields

STOPS = ("length", "eos")
KEYS = ("groups", "sample", "seed", "group_cells")
PER_REQUEST = ("sglang", "llamacpp")
"""Engines that say with each response how many verification steps it took."""
VLLM_FLAG = "--per-request-spec-decode-metrics"
"""With it vLLM says so too."""
VLLM_SERVES = frozenset(("serve", "vllm.entrypoints.openai.api_server"))
SPECULATES = re.compile(r"--spec(?!ialize)|-sc\b|--config\b|.*speculative", re.IGNORECASE | re.DOTALL)
"""A word of a command, or a value for one, with which a vLLM may speculate. The flag above is not one."""
MAX_SAMPLE = 100_000


def read_dataset(fields: Fields, folder: FilePath | None) -> tuple[tuple[Any, ...], Use | None]:
    """(the prompts as the load generator takes them, what they are of); ((), None) where the workload names no dataset."""
    name = fields.text("dataset")
    groups = fields.texts("groups", one=True)
    sample = fields.whole("sample", SAMPLE, 1, MAX_SAMPLE)
    seed = fields.whole("seed", 1, 0, 2**31 - 1)
    if name is None:
        for key in KEYS:
            if fields.has(key):
                fields.problems.fault((*fields.path, key), "stands without a dataset", 'dataset = "…"')
        return (), None
    both = {"prompts": fields.texts("prompts", one=True), "prompts_file": fields.text("prompts_file")}
    for key in both:
        if fields.has(key):
            fields.problems.fault(fields.path, f"has both dataset and {key}", "one of the two")
    found = _found(fields, name, folder)
    if found is None:
        return (), None
    known = found.groups
    for index, group in enumerate(groups or ()):
        if group not in known:
            fields.problems.fault(
                (*fields.path, "groups", index),
                f"{name} has no prompts in {shown(group)}",
                suggest(group, known),
            )
    if groups is not None and not groups:
        fields.problems.fault((*fields.path, "groups"), "is an empty list", suggest("", known))
    use = Use(name=name, groups=tuple(g for g in groups or known if g in known), sample=sample, seed=seed)
    items = use.of(found.items)
    _keep(fields, found, items)
    return tuple(item.asked(turns=fields.data.get("turns", 1) != 1) for item in items), use


def read_stop(fields: Fields) -> str | None:
    """Where an answer ends: `length`, `eos`, or as `[sampling]` says (None)."""
    return fields.choice("stop", STOPS, None)


def _found(fields: Fields, name: str, folder: FilePath | None) -> Dataset | None:
    """The dataset: as the recording has it, else from this machine; its SHA-256 is that of the recording, if there is one."""
    problems, where = fields.problems, (*fields.path, "dataset")
    told = problems.given_datasets.get(name)
    try:
        if told is not None and name in problems.given:
            return Dataset(msgspec.convert(told, About), items_of(problems.given[name], name))
        found = load(name, folder)
    except UsageError as error:
        problems.fault(where, error.what, error.do)
        return None
    except msgspec.ValidationError as error:
        problems.fault(where, f"its record is damaged: {error}", "run the plan anew")
        return None
    if told is not None and told.get("sha256") != found.about.sha256:
        problems.fault(
            where,
            f"{name} here is not the one that was measured: SHA-256 {found.about.sha256[:12]}, "
            f"recorded {str(told.get('sha256'))[:12]}",
            "fetch that one, or begin a new run",
        )
        return None
    return found


def _keep(fields: Fields, found: Dataset, items: tuple[Item, ...]) -> None:
    """What is used goes into the recording, where its licence lets it; several workloads of one dataset share a file."""
    problems, about = fields.problems, found.about
    problems.datasets[about.name] = msgspec.to_builtins(about)
    if about.shareable:
        lines = (problems.files.get(about.name, "") + lines_of(items)).splitlines(keepends=True)
        problems.files[about.name] = "".join(dict.fromkeys(lines))


def by_group(
    fields: Fields, workload: Workload, service: Service, configs: tuple[Config, ...]
) -> tuple[Workload, ...]:
    """The workload, or one for each of its groups: where some configuration's server speculates and has counters for all
    requests together only, a group's acceptance can be told only if the group is a cell of its own."""
    own = fields.flag("group_cells", not all(_tells_each(service, config) for config in configs))
    if workload.dataset is None or not own:
        return (workload,)
    return tuple(
        msgspec.structs.replace(
            workload,
            name=f"{workload.name}:{group}",
            group=group,
            prompts=tuple(p for p in workload.prompts if p["group"] == group),
        )
        for group in dict.fromkeys(p["group"] for p in workload.prompts)
    )


def _tells_each(service: Service, config: Config) -> bool:
    """Whether this configuration's server says each response's verification steps, or has none to say."""
    flag = _vllm_flag(service, config)
    return (
        (config.engine or service.engine) in PER_REQUEST or flag or (flag is None and _plain(service, config))
    )


def _words(service: Service, config: Config) -> tuple[str, ...]:
    return (*(service.command if config.command is None else config.command), *config.args)


def _vllm_flag(service: Service, config: Config) -> bool | None:
    """Whether the last of the flags says `summary` or `detailed`; None: there is none."""
    words = _words(service, config)
    places = [n for n, word in enumerate(words) if word.partition("=")[0].replace("_", "-") == VLLM_FLAG]
    if not places:
        return None
    last = places[-1]
    return (words[last].partition("=")[2] or "".join(words[last + 1 : last + 2])) != "none"


def _plain(service: Service, config: Config) -> bool:
    """Whether it is a vLLM that is known not to speculate: its whole command stands in the plan."""
    words = _words(service, config)
    named = (*words, *map(str, config.values.values()))
    return not VLLM_SERVES.isdisjoint(words) and not any(SPECULATES.match(word) for word in named)


def warn_of_vllm_flag(problems: Problems, service: Service, configs: tuple[Config, ...]) -> None:
    """A vLLM without speculation refuses the flag: as one for all configurations it would end the baseline's start."""
    for config in configs:
        if _vllm_flag(service, config) and _plain(service, config):
            problems.warn(
                ("configs", config.name),
                f"{config.name} has {VLLM_FLAG} and no speculation, with which vLLM does not start",
                "name the flag in the args of the configurations that speculate; this one needs none",
            )
