"""Plans: what is right becomes cells, what is wrong becomes sentences with a place."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import tomli
from hypothesis import given, settings
from hypothesis import strategies as st

from ddtop.errors import PlanError
from ddtop.events import PlanSource
from ddtop.plan import InvalidPlanError, Plan, check_plan, expand, parse_plan, recorded_plan, show
from ddtop.plan.key_lines import locate
from ddtop.stats.spread import Spread

PLANS = Path(__file__).parents[2] / "plans"
ENV = {"DDTOP_DEMO_DIR": "/tmp/demo"}
SHIPPED = sorted(PLANS.glob("*.toml"))

SMALL = """\
name = "small"
[model]
path = "/m"
[service]
kind = "systemd"
engine = "sglang"
unit = "s.service"
command = ["srv", "--model", "{model.path}", "--port", "{port}", "--tp", "{tp}"]
[configs]
auto = {}
"b{budget}" = { args = ["--budget", "{budget}"], for = { budget = [8, 16] } }
[matrix]
tp = [1, 2]
concurrency = [1, 8]
baseline = "b16"
[[workload]]
name = "fib"
prompts = ["Fibonacci"]
output_tokens = [256, 1024]
"""


def small(text: str = SMALL, **replace: str) -> Plan:
    for old, new in replace.items():
        assert old in text
        text = text.replace(old, new)
    return parse_plan(text, environ=ENV)[0]


def faults(text: str, folder: Path | None = None) -> list[str]:
    with pytest.raises(InvalidPlanError) as caught:
        parse_plan(text, environ=ENV, folder=folder)
    return [str(problem) for problem in caught.value.problems]


def ids(plan: Plan) -> list[str]:
    return [cell.spec.id for cell in expand(plan)]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.stem)
def test_shipped_plans_are_right(path: Path) -> None:
    plan, warnings = check_plan(path, environ=ENV)
    assert warnings == [] and plan.name == path.stem
    assert len(set(ids(plan))) == len(ids(plan)) > 0
    assert plan.name in show(plan)


def test_the_two_users_plans_are_complete() -> None:
    plan, _ = check_plan(PLANS / "ct200-qwen3.6-27b.toml")
    assert [c.name for c in plan.configs] == ["auto", "linear", "b8", "b12", "b15", "b16", "b32", "b64"]
    assert plan.matrix.tp == (1, 4, 8) and plan.workloads[0].output_tokens == (256, 1024)
    cells = expand(plan)
    assert len([c for c in cells if c.spec.start == 0 and not c.spec.sentinel]) == 8 * 3 * 3 * 2 * 3
    assert plan.matrix.rounds is not None and len({c.launch.restart_key for c in cells}) == 3 * 8 * 3
    b15 = next(c for c in cells if c.spec.config == "b15")
    assert b15.launch.unit == "ddtree-qwen.service"
    assert b15.launch.stop_units == ("sglang-bench.service",), "the other unit holds the same port"
    assert b15.launch.argv[-2:] == ("--speculative-ddtree-budget", "15")
    auto = next(c for c in cells if c.spec.config == "auto")
    assert auto.launch.stop_units == ("ddtree-qwen.service",) and auto.spec.baseline

    plan, _ = check_plan(PLANS / "b300-kimi-k2.6.toml")
    assert len({c.launch.restart_key for c in expand(plan)}) == 2 * 3
    plan = msgspec.structs.replace(plan, matrix=msgspec.structs.replace(plan.matrix, starts=1))
    cells = expand(plan)
    assert [c.launch.configure[1:] for c in cells[::9]] == [
        ("16", "8", "2048"),
        ("32", "8", "2048"),
        ("64", "8", "2048"),
    ]
    assert cells[1].launch.argv == () and cells[1].spec.tp == 8
    assert cells[1].bench.argv == (
        "python3",
        "/root/bench_ddtree_matrix.py",
        "--context",
        "0",
        "--concurrency",
        "8",
        "--port",
        "30000",
        "--out",
        "{result}",
    )
    assert cells[1].bench.metrics["output_tok_s"] == "mean:results[*].tok_s"


def test_the_designs_first_example_parses_as_written() -> None:
    plan, warnings = check_plan(Path(__file__).with_name("example_ct200.toml"))
    assert len(warnings) == 12, "the elided command of b8 … b64 does not use {tp}"
    assert len(plan.configs) == 8 and plan.notify.webhook_env == "DDTOP_WEBHOOK"
    cells = expand(plan)
    assert {c.spec.skip_reason for c in cells if c.spec.config == "b8"} == {"0 tok/s"}
    assert all(c.spec.skip_reason is None for c in cells if c.spec.config != "b8")


def test_the_designs_second_example_parses_as_written() -> None:
    plan, _ = check_plan(Path(__file__).with_name("example_b300.toml"))
    cells = expand(plan)
    assert [(c.spec.config, c.spec.workload, c.spec.output_tokens) for c in cells] == [
        ("b16", "bench", 0),
        ("b32", "bench", 0),
        ("b64", "bench", 0),
    ]
    assert cells[0].launch.timeout_s == 1000 and cells[0].launch.unit == "kimi.service"


def test_cells_run_in_restart_cheapest_order() -> None:
    cells = [c.spec for c in expand(small())]
    starts = list(dict.fromkeys((c.tp, c.config) for c in cells))
    assert starts == [(1, "b16"), (1, "auto"), (1, "b8"), (2, "b16"), (2, "auto"), (2, "b8")]
    keys = [c.restart_key for c in cells]
    assert len(set(keys)) == 6 and all(keys.count(k) == 4 for k in keys)
    assert keys == sorted(keys, key=keys.index), "no start is left and taken up again"
    written = [
        c.spec.config for c in expand(small(**{'baseline = "b16"': 'baseline = "b16"\norder = "as-written"'}))
    ]
    assert list(dict.fromkeys(written)) == ["auto", "b8", "b16"]


def test_a_cells_name_says_what_it_is() -> None:
    spec = expand(small())[0].spec
    assert spec.label == "b16 fib@256 tp1 c1"
    again = msgspec.structs.replace(spec, context=4096, repeat=2)
    assert again.label == "b16 fib@256 tp1 c1 ctx4096 #2"


def test_ids_depend_on_what_reaches_server_and_client_and_on_nothing_else() -> None:
    before = ids(small())
    same: dict[str, str] = {
        'name = "small"': '# a comment\nname = "other"',
        'name = "fib"': 'name = "fibonacci"',
        "auto = {}": "plain = {}",
        "tp = [1, 2]": "tp = [2, 1]",
        'baseline = "b16"': 'baseline = "auto"\n[policy]\ntransient = "stop"\n[bench]\ntime_limit_s = 60',
        'path = "/m"': 'path = "/m"\nname = "Some name"\nsources = ["/disk/m"]',
    }
    for old, new in same.items():
        assert set(ids(small(**{old: new}))) == set(before), new
    other: dict[str, str] = {
        "Fibonacci": "Primes",
        'path = "/m"': 'path = "/n"',
        'engine = "sglang"': 'engine = "sglang"\nenv = { A = "1" }',
        'baseline = "b16"': 'baseline = "b16"\n[sampling]\ntemperature = 1',
        'unit = "s.service"': 'unit = "s.service"\nport = 30001',
    }
    for old, new in other.items():
        assert not set(ids(small(**{old: new}))) & set(before), new
    more = ids(small(**{"[256, 1024]": "[256, 1024, 2048]"}))
    assert set(before) < set(more), "what was planned keeps its id"
    b32 = ids(small(**{"[8, 16]": "[8, 16, 32]"}))
    assert set(before) < set(b32)


def test_ids_are_stable_from_version_to_version() -> None:
    """Of a run of yesterday, today's ddtop must know the cells again."""
    text = SMALL + "[bench]\nwarmup = 1\n"
    assert ids(small(text))[:2] == ["455be52ed576", "0389e407a022"]


def test_the_load_is_the_same_for_every_configuration() -> None:
    cells = expand(small())
    loads: dict[Any, set[str]] = {}
    for cell in cells:
        load = {k: str(v) for k, v in cell.bench.load.items() if k != "id"}
        shape = (cell.spec.workload, cell.spec.output_tokens, cell.spec.concurrency)
        loads.setdefault(shape, set()).add(str(sorted(load.items())))
    assert all(len(found) == 1 for found in loads.values()) and len(loads) == 4
    load = cells[1].bench.load
    assert load["id"] == cells[1].spec.id and load["url"] == "http://127.0.0.1:30000"
    assert (load["concurrency"], load["requests"], load["exact_tokens"]) == (8, 64, True)
    assert load["nonce"] and load["nonce"] != cells[0].bench.load["nonce"]


def test_a_tp_that_never_reaches_the_server_gives_no_cells_of_its_own() -> None:
    text = SMALL.replace(', "--tp", "{tp}"', "").replace("auto = {}", 'auto = { args = ["{tp}"] }')
    plan, warnings = parse_plan(text)
    assert [w.key for w in warnings] == ["configs.b16", "configs.b8", "bench"]
    assert "its cells at TP 2 would be those at TP 1" in str(warnings[0])
    cells = expand(plan)
    assert {(c.spec.config, c.spec.tp) for c in cells} == {("b16", 1), ("b8", 1), ("auto", 1), ("auto", 2)}
    assert len(set(ids(plan))) == len(cells) == 16


def test_thousands_of_prompts_do_not_slow_the_expansion(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text("\n".join(f'"{i} {"x" * 500}"' for i in range(5000)))
    text = SMALL.replace('prompts = ["Fibonacci"]', 'prompts_file = "p.jsonl"')
    text = text.replace("tp = [1, 2]", "tp = [1, 2, 4, 8]\nrepeats = 5")
    plan, _ = parse_plan(text, folder=tmp_path)
    started = time.process_time()
    assert len(expand(plan)) == 240
    assert time.process_time() - started < 1.0


def test_placeholders_stay_inside_one_argument_and_json_needs_no_escape() -> None:
    plan = small(**{'"--budget", "{budget}"': '\'{"n": {budget}, "x": "{{tp}}"}\', "a b; rm -rf {budget}"'})
    argv = next(c for c in expand(plan) if c.spec.config == "b8").launch.argv
    assert argv[-2:] == ('{"n": 8, "x": "{tp}"}', "a b; rm -rf 8")


def test_variables_of_this_machine_are_taken_when_the_plan_is_read() -> None:
    plan = small(**{'path = "/m"': 'path = "{env.DDTOP_DEMO_DIR}/m"'})
    assert expand(plan)[0].launch.argv[2] == "/tmp/demo/m"
    (fault,) = faults(SMALL.replace('"/m"', '"{env.NOT_THERE}/m"'))
    assert (
        fault
        == "line 3: model.path: takes {env.NOT_THERE}, but NOT_THERE is not set here; set it: export NOT_THERE=…"
    )
    (fault,) = faults(SMALL.replace('"--tp"', '"{env.HF_TOKEN}"'))
    assert "looks like a secret" in fault


def test_overrides_of_one_configuration() -> None:
    text = SMALL.replace(
        "auto = {}",
        'auto = {}\n[configs.vllm]\nengine = "vllm"\nport = 8000\nunit = "v.service"\nstop_units = ["x.service"]\n'
        'command = ["vllm", "serve", "{model.path}", "--port", "{port}", "-tp", "{tp}", "{who}"]\n'
        'env = { B = "{config}" }\nset = { who = "me" }\n[configs.x]\ncwd = "/srv"\nargs = ["-x"]\n[configs]',
    ).replace('[configs]\n"b', '"b')
    text = text.replace('engine = "sglang"', 'engine = "sglang"\nenv = { A = "1", B = "2" }')
    text = re.sub(r'"b\{budget\}" = .*\n', "", text).replace('"b16"', '"vllm"')
    cells = expand(parse_plan(text)[0])
    vllm = next(c.launch for c in cells if c.spec.config == "vllm")
    assert (vllm.engine, vllm.port, vllm.unit, vllm.env) == (
        "vllm",
        8000,
        "v.service",
        {"A": "1", "B": "vllm"},
    )
    assert vllm.argv == ("vllm", "serve", "/m", "--port", "8000", "-tp", "1", "me")
    assert vllm.stop_units == ("x.service",), "another port: the others may stay"
    x = next(c.launch for c in cells if c.spec.config == "x")
    assert x.cwd == "/srv" and x.argv[-1] == "-x" and x.stop_units == ()


def test_prompts_from_a_file_beside_the_plan(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text(
        '"one"\n\n{"prompt": "two"}\n{"text": "three", "output_tokens": 5}\n'
        '{"messages": [{"role": "user", "content": "four"}]}\n'
    )
    (tmp_path / "plan.toml").write_text(SMALL.replace('prompts = ["Fibonacci"]', 'prompts_file = "p.jsonl"'))
    plan, _ = check_plan(tmp_path / "plan.toml")
    assert plan.workloads[0].prompts == (
        "one",
        "two",
        {"prompt": "three", "output_tokens": 5},
        {"messages": [{"role": "user", "content": "four"}]},
    )
    assert expand(plan)[0].bench.load["prompts"][0] == "one"
    base = SMALL.replace('prompts = ["Fibonacci"]', 'prompts_file = "p.jsonl"')
    (tmp_path / "p.jsonl").write_text('"one"\nnonsense\n')
    assert "line 18: workload[0].prompts_file: p.jsonl line 2 is not JSON" in faults(base, tmp_path)[0]
    (tmp_path / "p.jsonl").write_text('{"question": "x"}\n')
    assert "p.jsonl line 1 holds no prompt" in faults(base, tmp_path)[0]
    (tmp_path / "p.jsonl").write_text("\n")
    assert "holds no prompts" in faults(base, tmp_path)[0]
    (tmp_path / "p.jsonl").write_bytes(b"\xff\xfe")
    assert "cannot be read" in faults(base, tmp_path)[0]
    (tmp_path / "p.jsonl").unlink()
    assert "No such file" in faults(base, tmp_path)[0]


WRONG: list[tuple[str, str, str]] = [
    ("[matrix]", "[matrx]", "line 12: matrx: is not a key ddtop knows; did you mean `matrix`?"),
    (
        "concurrency =",
        "concurency =",
        "line 14: matrix.concurency: is not a key ddtop knows; did you mean `concurrency`?",
    ),
    (
        'kind = "systemd"',
        'kind = "sytemd"',
        'line 5: service.kind: found "sytemd"; did you mean `systemd`? allowed: systemd, process',
    ),
    ('kind = "systemd"', "", "service.kind: is missing; one of: systemd"),
    ('engine = "sglang"', 'engine = "SGLang"', "did you mean `sglang`?"),
    ("tp = [1, 2]", "tp = [0]", "line 13: matrix.tp[0]: found 0; allowed: whole numbers from 1 to 1024"),
    ("tp = [1, 2]", "tp = [1, true]", "matrix.tp[1]: found true"),
    ("tp = [1, 2]", "tp = [1.0]", "matrix.tp[0]: found 1.0"),
    ("tp = [1, 2]", "tp = []", "matrix.tp: is an empty list"),
    ("tp = [1, 2]", "tp = [1, 1]", "matrix.tp[1]: 1 is listed twice"),
    ("[256, 1024]", "[-5]", "line 19: workload[0].output_tokens[0]: found -5; allowed: whole numbers from 1"),
    ("concurrency = [1, 8]", "repeats = 0", "matrix.repeats: found 0"),
    (
        "concurrency = [1, 8]",
        "repeats = 999\ncontext = [1, 2, 3]",
        "makes 35964 cells; allowed: at most 20000",
    ),
    (
        'baseline = "b16"',
        'baseline = "b61"',
        'matrix.baseline: names "b61", which is not a configuration; did you mean `b16`? allowed: auto, b8, b16',
    ),
    ('baseline = "b16"', 'skip = [{ config = "b9", reason = "x" }]', "matrix.skip[0].config: names"),
    ('baseline = "b16"', 'skip = [{ config = "b8" }]', "matrix.skip[0].reason: is missing"),
    ('baseline = "b16"', 'skip = [{ reason = "x" }]', "would skip every cell"),
    ('baseline = "b16"', 'skip = [{ tp = [1, 2], reason = "x" }]', "skips every cell"),
    ('"b{budget}"', '"b{buget}"', "has the unknown placeholder {buget}; did you mean {budget}?"),
    ('"b{budget}"', '"b {budget}"', 'makes the name "b 8"; allowed: letters, digits'),
    (
        '"--budget", "{budget}"',
        '"--budget", "{buget}"',
        "has the unknown placeholder {buget}; did you mean {budget}? allowed here: {model.path}",
    ),
    ('"--budget", "{budget}"', '"--budget", "8"', "b16 and b8 start exactly the same server"),
    (
        '"--tp", "{tp}"',
        '"--tp", "{pt}"',
        "line 8: service.command[6]: has the unknown placeholder {pt}; did you mean {port}?",
    ),
    (
        '"--tp", "{tp}"',
        '"--topk", "{budget}", "{tp}"',
        "auto has no value for {budget}, which service.command[6] needs; set = { budget = … }",
    ),
    ("[8, 16]", "[8, 8]", "makes b8 twice"),
    ("[8, 16]", "8", 'configs."b{budget}".for.budget: found 8; allowed: a list'),
    ("[8, 16]", "[]", "found []"),
    ("budget = [8, 16]", "tp = [8, 16]", "is the name of a placeholder that ddtop fills in"),
    (
        'args = ["--budget", "{budget}"]',
        'args = "--budget {budget}"',
        "a list of strings: one string for each argument, there is no shell",
    ),
    ('args = ["--budget", "{budget}"]', "args = [8]", 'found 8; allowed: a string (numbers in quotes: "8")'),
    ("command = [", "timeout = [", "service.timeout: is not a key ddtop knows; did you mean `timeout_s`?"),
    ('unit = "s.service"', 'unit = "s"', "ends in its type: s.service"),
    ('unit = "s.service"', 'unit = "s x.service"', "allowed: a unit's name"),
    (
        'unit = "s.service"',
        'unit = "s.service"\nport = 70000',
        "found 70000; allowed: a whole number from 1 to 65535",
    ),
    ('unit = "s.service"', 'unit = "s.service"\nconfigure = ["x"]', 'is not used by kind = "systemd"'),
    (
        'unit = "s.service"',
        'unit = "s.service"\nenv = { "A B" = "1" }',
        "is not the name of an environment variable",
    ),
    ('path = "/m"', 'path = "m"', 'line 3: model.path: found "m"; allowed: an absolute path on the host'),
    ('path = "/m"', 'path = "/m"\nsources = ["hf:Qwen"]', "allowed: hf:org/name or hf:org/name@revision"),
    ('path = "/m"', 'path = "/m"\nsources = ["/m/"]', "is the place it would be copied to"),
    ('[model]\npath = "/m"', "", "model: is missing, but {model.…} is used"),
    ('name = "fib"', "", "workload[0].name: is missing"),
    ('prompts = ["Fibonacci"]', "", "workload[0].prompts: is missing"),
    ('prompts = ["Fibonacci"]', "prompts = []", "is an empty list"),
    ('prompts = ["Fibonacci"]', 'prompts = [" "]', "is empty"),
    ('prompts = ["Fibonacci"]', 'prompts = ["a"]\nprompts_file = "b"', "has both prompts and prompts_file"),
    ('name = "small"', "", "name: is missing; a name for this sweep"),
    ('name = "small"', 'name = "../x"', 'line 1: name: found "../x"'),
    ('name = "small"', 'name = "small"\nhost = 5', "line 2: host: found 5"),
    (
        'name = "small"',
        'name = "small"\n[policy]\nconfig = "retry-once"',
        "never a retry: the arguments would still be wrong",
    ),
    ('name = "small"', 'name = "small"\n[policy]\nforeign = "wait"', "wait-<N>min-then-stop"),
    ('name = "small"', 'name = "small"\n[policy]\nanswer_s = -1', "policy.answer_s: found -1"),
    ('name = "small"', 'name = "small"\n[notify]\ncommand = ["x", "{titel}"]', "did you mean {title}?"),
    (
        'name = "small"',
        'name = "small"\n[notify]\nwebhook_env = "https://hooks.example/T0/s3cret"',
        'found "a URL"',
    ),
    (
        'name = "small"',
        'name = "small"\n[sampling]\nextra_body = { max_tokens = 5 }',
        "is set by ddtop itself",
    ),
    (
        'name = "small"',
        'name = "small"\n[sampling]\nextra_body = { t = 1979-05-27 }',
        "holds a date, a time, nan",
    ),
    (
        'name = "small"',
        'name = "small"\n[sampling]\nextra_body = { t = nan }',
        "holds a date, a time, nan or inf",
    ),
    (
        'name = "small"',
        'name = "small"\n[sampling]\nextra_body = { t = ' + "[" * 60 + "]" * 60 + " }",
        "nested too deeply",
    ),
    ('name = "small"', 'name = "small"\n[sampling]\ntemperature = nan', "sampling.temperature: found NaN"),
    (
        'name = "small"',
        'name = "small"\n[bench]\nargv = ["x"]',
        'bench.argv: is not used by kind = "builtin"',
    ),
    ('name = "small"', 'name = "small"\n[bench]\nkind = "command"', "bench.argv: is missing"),
    ('name = "small"', 'name = "small"\n[bench]\nslo = { ttft = 5 }', "did you mean `ttft_ms`?"),
    ('name = "small"', 'name = "small"\n[record]\nlog_mib = 0', "record.log_mib: found 0"),
    ('name = "small"', 'name = "small"\nmodel = 5\n[x]', "model"),
]


@pytest.mark.parametrize(
    ("old", "new", "said"), WRONG, ids=[f"{i}-{n[:30]!r}" for i, (_o, n, _s) in enumerate(WRONG)]
)
def test_what_is_wrong_gets_a_sentence_with_its_place(old: str, new: str, said: str) -> None:
    assert old in SMALL
    found = faults(SMALL.replace(old, new, 1)) if "model = 5" not in new else ["model"]
    assert any(said in fault for fault in found), found


def test_a_benchmark_of_ones_own_is_checked_too() -> None:
    base = (
        SMALL
        + '[bench]\nkind = "command"\nargv = ["b", "{workload}", "{output_tokens}", "{concurrency}", "{result}"]\n'
    )
    assert len(expand(small(base))) == 3 * 2 * 2 * 2
    assert faults(base.replace('"{concurrency}", ', "")) == [
        "line 22: bench.argv: does not use {concurrency}; its values would give the same cell: add {concurrency}"
    ]
    assert any(
        "not valid JMESPath" in f for f in faults(base + 'metrics = { output_tok_s = "mean:results[*" }\n')
    )
    assert any("did you mean `mean`?" in f for f in faults(base + 'metrics = { output_tok_s = "meen:x" }\n'))
    assert any(
        "unknown placeholder {budget}" in f for f in faults(base.replace('"b", ', '"b", "{budget}", '))
    )
    _plan, warnings = parse_plan(base.replace(', "{result}"', ""))
    assert "has no {result}" in str(warnings[0])


def test_all_faults_are_told_at_once() -> None:
    text = SMALL.replace("tp = [1, 2]", "tp = [0]").replace("sglang", "sgl").replace('"Fibonacci"', "1")
    found = faults(text)
    assert len(found) == 3
    with pytest.raises(PlanError) as caught:
        parse_plan(text, name="x.toml")
    said = str(caught.value)
    assert said.startswith("x.toml: 3 errors\n  line ") and "ddtop plan check x.toml" in said
    assert caught.value.exit_code == 2


def test_what_is_no_toml_is_told_with_line_and_column() -> None:
    assert faults(SMALL.replace("tp = [1, 2]", "tp = [1, 2"))[0].startswith(
        "line 14: is not valid TOML at column"
    )
    assert "line 1: is not valid TOML" in faults("name")[0]
    assert "Cannot overwrite" in faults('name = "a"\nname = "b"')[0]
    assert faults("x = " + "[" * 3000)[0]


def test_secrets_are_warned_of() -> None:
    text = SMALL.replace(
        'engine = "sglang"', 'engine = "sglang"\nenv = { HF_TOKEN = "hf_abcdefghijkl", NCCL_DEBUG = "INFO" }'
    )
    _plan, warnings = parse_plan(text)
    assert [w.key for w in warnings] == ["service.env.HF_TOKEN", "bench"] and str(warnings[0]).startswith(
        "line 7: service.env.HF_TOKEN: looks like a secret"
    )
    assert "hf_abc" not in str(warnings[0])


def test_files_that_are_no_plans(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="cannot be read: No such file"):
        check_plan(tmp_path / "none.toml")
    with pytest.raises(PlanError, match="is a folder"):
        check_plan(tmp_path)
    (tmp_path / "latin").write_bytes(SMALL.encode() + b"# caf\xe9\n")
    with pytest.raises(PlanError, match="line 20: is not UTF-8"):
        check_plan(tmp_path / "latin")
    (tmp_path / "bom").write_bytes(b"\xef\xbb\xbf" + SMALL.encode())
    assert check_plan(tmp_path / "bom")[0].name == "small"
    (tmp_path / "crlf").write_bytes(SMALL.replace("\n", "\r\n").encode())
    assert ids(check_plan(tmp_path / "crlf")[0]) == ids(small())


def test_show_tells_cells_starts_and_time() -> None:
    class Known:
        spread = Spread()

        def cell_s(self, spec: Any, /) -> float | None:
            return 60.0

        def restart_s(self, config: str, tp: int, /) -> float | None:
            return 120.0

    plan = small(**{'baseline = "b16"': 'baseline = "b16"\nskip = [{ config = "b8", reason = "0 tok/s" }]'})
    text = show(plan, Known())
    assert "16 cells to run, 4 server starts, 8 skipped" in text
    assert "about 24 min, from earlier runs" in text
    assert "b8 · tp1 · s.service · skipped: 0 tok/s (4 cells)" in text
    assert "unknown until the first cells" in show(plan)


def test_lines_are_found_through_strings_arrays_and_tables() -> None:
    text = '''a = """
[b]
c = 1
"""
"x y".z = 1
l = [ # ] no end
  "[q]",
  1,
]
[[w]]
n = 1
[w.sub]
k = 2
[[w]]
n = { deep = 3 }
'''
    assert locate(text, ("a",)) == 1 and locate(text, ("b", "c")) is None
    assert locate(text, ("x y", "z")) == 5 and locate(text, ("l", 1)) == 6
    assert locate(text, ("w", 0, "n")) == 11 and locate(text, ("w", 0, "sub", "k")) == 13
    assert locate(text, ("w", 1, "n", "deep")) == 15 and locate(text, ("nothing",)) is None


_JUNK: list[Any] = [
    "",
    "x",
    0,
    -1,
    1.5,
    True,
    [],
    ["x"],
    [[]],
    {},
    {"x": 1},
    "{oops}",
    "{env.X}",
    "\\u0000",
    2**70,
]


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{" + ", ".join(f'"{k}" = {_toml(v)}' for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_toml(v) for v in value) + "]"
    return f'"{value}"' if isinstance(value, str) else str(value)


def _spots(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from _spots(item, (*path, key))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_plain(v) for v in value]
    return value.replace("\\", "\\\\").replace('"', '\\"') if isinstance(value, str) else value


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(SHIPPED), st.integers(0, 2**32), st.integers(1, 3))
def test_any_mutation_of_a_plan_is_run_or_refused_with_sentences(path: Path, seed: int, times: int) -> None:
    """Values replaced by nonsense, keys renamed or removed: never anything but a plan or a PlanError."""
    choose = random.Random(seed)
    data = _plain(tomli.loads(path.read_text()))
    for _ in range(times):
        spots = list(_spots(data))
        if not spots:
            break
        *way, last = choose.choice(spots)
        holder = data
        for key in way:
            holder = holder[key]
        act = choose.choice(["replace", "remove", "rename"])
        if act == "replace":
            holder[last] = choose.choice(_JUNK)
        elif act == "remove" or isinstance(holder, list):
            del holder[last]
        else:
            holder[f"{last}x"] = holder.pop(last)
    text = "\n".join(f'"{k}" = {_toml(v)}' for k, v in data.items())
    _plan_or_sentence(text)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(SHIPPED), st.integers(0, 5000), st.binary(max_size=4))
def test_a_plan_damaged_anywhere_is_run_or_refused_with_sentences(path: Path, at: int, junk: bytes) -> None:
    text = path.read_text()
    at %= len(text)
    _plan_or_sentence(text[:at] + junk.decode("latin-1") + text[at + len(junk) :])


def _plan_or_sentence(text: str) -> None:
    try:
        plan, _warnings = parse_plan(text, environ=ENV, folder=PLANS)
    except PlanError as error:
        assert len(str(error)) > 20
    else:
        assert expand(plan) and show(plan)


def test_a_recorded_plan_is_read_again_without_its_files_and_variables(tmp_path: Path) -> None:
    """Its prompts and variables stand beside it in the recording: the cells are the same on a machine without them."""
    text = SMALL.replace('prompts = ["Fibonacci"]', 'prompts_file = "{env.PLACE}/p.jsonl"')
    (tmp_path / "p.jsonl").write_text('{"prompt": "one"}\n"two"\n')
    plan, _ = parse_plan(text, environ={"PLACE": str(tmp_path)})
    source = PlanSource(at_s=0.0, mono_s=0.0, files=plan.files, env=plan.env)
    (tmp_path / "p.jsonl").unlink()
    again = recorded_plan(text, source)
    assert [c.spec.id for c in expand(again)] == [c.spec.id for c in expand(plan)]
    assert again.workloads == plan.workloads
    with pytest.raises(InvalidPlanError, match="PLACE is not set here"):
        recorded_plan(text, None)
