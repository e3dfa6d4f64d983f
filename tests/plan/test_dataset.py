"""`[[workload]] dataset`: which prompts become which cells, what is recorded, and every way it can be wrong."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import tomli

from ddtop.datasets import store
from ddtop.datasets.sources import source_of
from ddtop.events import PlanSource
from ddtop.plan import Plan, expand, parse_plan, recorded_plan, show
from ddtop.plan.again import plan_files
from tests.plan.test_plan import SMALL, faults

ONE = SMALL.replace("tp = [1, 2]", "tp = [1]").replace("[256, 1024]", "256").replace("[1, 8]", "[1]")


def with_dataset(*lines: str, engine: str = "sglang", file: str = "file:mine.jsonl") -> str:
    keys = "\n".join([f'dataset = "{file}"', *lines])
    return ONE.replace('prompts = ["Fibonacci"]', keys).replace('"sglang"', f'"{engine}"')


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DDTOP_HOME", str(tmp_path / "home"))
    rows = [{"prompt": f"{group} {n}", "group": group} for group in ("code", "prose") for n in range(6)]
    (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return tmp_path


def read(text: str, folder: Path) -> Plan:
    return parse_plan(text, folder=folder)[0]


def test_the_ids_of_plans_without_a_dataset_are_as_they_were() -> None:
    """Written down when datasets came; finished cells of older recordings keep their results by them."""
    assert [c.spec.id for c in expand(parse_plan(ONE)[0])] == IDS


IDS = ["ee98de2f096b", "2576b22f9d8a", "a64cf285486b"]


def test_each_prompt_is_sent_as_often_as_any_other(folder: Path) -> None:
    plan = read(with_dataset("sample = 6", "seed = 3"), folder)
    (cell, *_) = expand(plan)
    prompts = cell.bench.load["prompts"]
    assert [p["group"] for p in prompts] == ["code", "prose"] * 3
    assert Counter(p["group"] for p in prompts) == {"code": 3, "prose": 3}
    assert cell.bench.load["requests"] == 12, "8 a stream, rounded up to whole passes through 6 prompts"
    assert "  fib: 6 prompts of file:mine.jsonl (code 3, prose 3), of your own\n" in show(plan)
    assert cell.spec.group == "" and cell.spec.workload == "fib"
    again = read(with_dataset("sample = 6", "seed = 4"), folder)
    assert expand(again)[0].spec.id != cell.spec.id, "other prompts are another cell"


def test_where_a_server_has_global_counters_alone_each_group_is_a_cell_of_the_same_start(
    folder: Path,
) -> None:
    plan = read(with_dataset("sample = 6", engine="vllm"), folder)
    cells = expand(plan)
    mine = [c for c in cells if c.spec.config == "b16"]
    assert [(c.spec.workload, c.spec.group) for c in mine] == [("fib:code", "code"), ("fib:prose", "prose")]
    assert len({c.launch.restart_key for c in mine}) == 1
    assert {p["group"] for p in mine[0].bench.load["prompts"]} == {"code"}
    assert "fib:code@256" in show(plan)
    one = expand(read(with_dataset("sample = 6", "group_cells = false", engine="vllm"), folder))
    assert len(one) == 3
    told = with_dataset(engine="vllm").replace(
        '"srv"', '"srv", "--per-request-spec-decode-metrics", "summary"'
    )
    assert len(expand(read(told, folder))) == 3
    skipped = with_dataset(engine="vllm").replace(
        "[matrix]", '[matrix]\nskip = [{ workload = "fib", config = "b8", reason = "x" }]'
    )
    assert sum(c.spec.skip_reason == "x" for c in expand(read(skipped, folder))) == 2


FLAG = '"--per-request-spec-decode-metrics", "summary"'
NGRAM = """"--speculative-config", '{"method": "ngram", "num_speculative_tokens": 2}'"""


@pytest.mark.parametrize(
    ("service", "auto", "b8", "cells", "warned"),
    [
        # A real vLLM 0.32.0 refuses the flag without speculation: "requires speculative decoding to be enabled".
        ('"vllm", "serve", "m"', "", f"{NGRAM}, {FLAG}", 1, []),
        ('"python", "-m", "vllm.entrypoints.openai.api_server"', "", f'"--spec-tokens", "2", {FLAG}', 1, []),
        (f'"vllm", "serve", "m", {FLAG}', "", NGRAM, 1, ["auto"]),
        ('"vllm", "serve", "m"', "", '"--max-num-seqs", "8"', 1, []),
        ('"vllm", "serve", "m"', "", NGRAM, 2, []),
        ('"vllm", "serve", "m"', '"-sc.method=ngram"', f"{NGRAM}, {FLAG}", 2, []),
        ('"vllm", "serve", "m"', "", f'{NGRAM}, "--per_request_spec_decode_metrics=none"', 2, []),
        ('"vllm", "serve", "m", "--config", "c.yaml"', "", f"{NGRAM}, {FLAG}", 2, []),
        ('"srv"', "", f"{NGRAM}, {FLAG}", 2, []),
    ],
)
def test_a_vllm_without_speculation_has_no_acceptance_to_tell(
    folder: Path, service: str, auto: str, b8: str, cells: int, warned: list[str]
) -> None:
    """The baseline needs no flag, so the groups of a sweep share a cell where those that speculate have it."""
    text = with_dataset("sample = 6", engine="vllm").replace('"srv"', service)
    head, _, rest = text.partition("[configs]\n")
    rest = rest[rest.index("[matrix]") :].replace("b16", "auto")
    text = f"{head}[configs]\nauto = {{ args = [{auto}] }}\nb8 = {{ args = [{b8}] }}\n{rest}"
    plan, warnings = parse_plan(text, folder=folder)
    assert len(expand(plan)) == 2 * cells
    told = [str(one) for one in warnings if "per-request" in str(one)]
    assert len(told) == len(warned) and all(f"{c} has --per" in t for c, t in zip(warned, told, strict=True))


@pytest.mark.parametrize(
    ("stop", "sampling", "exact"),
    [
        (None, "", True),
        ("eos", "", False),
        ("length", "ignore_eos = false", True),
        (None, "ignore_eos = false", False),
    ],
)
def test_an_answer_ends_where_the_workload_says(
    folder: Path, stop: str | None, sampling: str, exact: bool
) -> None:
    text = with_dataset(*([f'stop = "{stop}"'] if stop else [])) + f"[sampling]\n{sampling}\n"
    assert expand(read(text, folder))[0].bench.load["exact_tokens"] is exact


def test_what_is_wrong_is_named(folder: Path) -> None:
    def said(*lines: str, file: str = "file:mine.jsonl") -> str:
        (only,) = faults(with_dataset(*lines, file=file), folder)
        return only

    assert 'no prompts in "cod"; did you mean `code`?' in said('groups = ["cod"]')
    assert "is an empty list" in said("groups = []")
    assert "there is no dataset `specbench`; did you mean `spec-bench`?" in said(file="specbench")
    assert "is not on this machine; ddtop dataset fetch spec-bench" in said(file="spec-bench")
    assert "prepare_data.py" in said(file="speed-bench:qualitative")
    assert "cannot be read" in said(file="file:none.jsonl")
    assert "both dataset and prompts" in said('prompts = ["a"]')
    assert "sample" in said("sample = 0") and "stop" in said('stop = "never"')
    (folder / "bad.jsonl").write_text('{"prompt": "a"}\n{"prompt": \n')
    assert "line 6: workload[0].dataset" not in said(file="file:bad.jsonl")
    assert "bad.jsonl: line 2 is no JSON" in said(file="file:bad.jsonl")
    own = with_dataset('stop = "eos"') + '[bench]\nkind = "command"\nargv = ["b", "{config}", "{result}"]\n'
    assert sum("needs ddtop's own load generator" in one for one in faults(own, folder)) == 2
    (lone,) = faults(ONE + "sample = 3\n")
    assert "workload[0].sample: stands without a dataset" in lone
    rows = [{"messages": [{"role": "user", "content": "a"}]}]
    (folder / "chat.jsonl").write_text(json.dumps(rows[0]))
    (wrong,) = faults(with_dataset(file="file:chat.jsonl") + '[sampling]\nendpoint = "completions"\n', folder)
    assert "workload[0].dataset: holds messages" in wrong


def test_more_text_than_one_job_can_carry_is_an_error(folder: Path) -> None:
    chance = random.Random(1)
    rows = [{"prompt": "".join(chance.choices("abcdefghijklmnopqrstuvwxyz ", k=60_000))} for _ in range(40)]
    (folder / "long.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (only,) = faults(with_dataset(file="file:long.jsonl"), folder)
    assert "kB packed, fib most of it" in only
    assert read(with_dataset("sample = 10", file="file:long.jsonl"), folder)


def fetched(folder: Path, text: str, name: str = "gsm8k") -> None:
    """A dataset of ddtop's as if it had been fetched."""
    file = folder / "source.jsonl"
    file.write_text(text)
    store.fetch(replace(source_of(name), sha256=""), file)


QUESTIONS = "\n".join(json.dumps({"question": f"How many {n}?", "answer": ""}) for n in range(9))


def test_a_recording_reads_again_without_the_dataset(folder: Path) -> None:
    fetched(folder, QUESTIONS)
    text = with_dataset("sample = 4", file="gsm8k")
    two = text + text[text.index("[[workload]]") :].replace('"fib"', '"other"').replace(
        "sample = 4", "sample = 2\nseed = 9"
    )
    plan = read(two, folder)
    assert plan.workloads[0].license == "MIT"
    assert plan.datasets["gsm8k"]["licence"] == "MIT" and len(plan.datasets["gsm8k"]["sha256"]) == 64
    assert 4 <= len(plan.files["gsm8k"].splitlines()) <= 6, "what is used, once"
    source = PlanSource(at_s=0, mono_s=0, files=plan.files, env=plan.env, datasets=plan.datasets)
    for file in store.folder_of("gsm8k").iterdir():
        file.unlink()
    again = recorded_plan(two, source, str(folder / "x.toml"))
    assert [c.spec.id for c in expand(again)] == [c.spec.id for c in expand(plan)]
    assert again.datasets == plan.datasets and again.files == plan.files
    written, files = plan_files(two, plan.files, plan.env, "prompts")
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)
    assert tomli.loads(written)["workload"][0]["dataset"] == "file:prompts/1-gsm8k"
    assert [c.spec.id for c in expand(read(written, folder))] == [c.spec.id for c in expand(plan)]


def test_texts_that_may_not_be_given_away_are_not_recorded(folder: Path) -> None:
    rows = "\n".join(json.dumps({"category": "coding", "turns": [f"Sort {n}."]}) for n in range(3))
    fetched(folder, rows, "speed-bench:qualitative")
    text = with_dataset(file="speed-bench:qualitative")
    plan = read(text, folder)
    assert plan.files == {} and plan.datasets["speed-bench:qualitative"]["shareable"] is False
    source = PlanSource(at_s=0, mono_s=0, datasets=plan.datasets)
    assert expand(recorded_plan(text, source))[0].spec.id == expand(plan)[0].spec.id
    fetched(folder, rows.replace("Sort", "Order"), "speed-bench:qualitative")
    with pytest.raises(Exception, match="not the one that was measured"):
        recorded_plan(text, source)
    for file in store.folder_of("speed-bench:qualitative").iterdir():
        file.unlink()
    with pytest.raises(Exception, match="is not on this machine"):
        recorded_plan(text, source)


def test_turns_of_a_dataset_are_a_conversation_where_the_plan_asks_for_turns(folder: Path) -> None:
    rows = [{"turns": [f"a {n}", f"b {n}"], "category": "x"} for n in range(3)]
    (folder / "two.jsonl").write_text("\n".join(map(json.dumps, rows)))
    first = expand(read(with_dataset(file="file:two.jsonl"), folder))[0].bench.load
    assert all("turns" not in p for p in first["prompts"]) and first["requests"] == 9
    both = expand(read(with_dataset("turns = 2", file="file:two.jsonl"), folder))[0].bench.load
    assert all(len(p["turns"]) == 1 for p in both["prompts"])
    assert both["requests"] == 12, "whole passes: three conversations of two turns"
