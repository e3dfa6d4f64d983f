"""Arguments against what a real SGLang 0.5.23 reports of itself: tests/data/engines, as it was answered (paths changed).

It reports every field of ServerArgs: the unused name of a pair is null beside the other's value.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from ddtop.engines import ENGINES
from ddtop.engines.args import ArgTable, account_of, parse_argv
from ddtop.engines.sglang import TABLE
from ddtop.plan import parse_plan
from ddtop.sweep.setup.from_plan import sweep_from
from tests.bed.config import REPO

SGL, VLLM, LLAMA = ENGINES["sglang"], ENGINES["vllm"], ENGINES["llamacpp"]
DATA = Path(__file__).parent.parent / "data/engines"
REAL: dict[str, Any] = json.loads((DATA / "sglang-0.5.23-ngram.server_info.json").read_text())
PLAIN: dict[str, Any] = json.loads((DATA / "sglang-0.5.23.server_info.json").read_text())
"""Another start of it, without speculation."""
COMMAND = shlex.split(
    "python3 -m sglang.launch_server --model-path /srv/models/tiny --served-model-name tiny --host 127.0.0.1 --port 8303"
    " --device cpu --attention-backend torch_native --context-length 1024 --max-total-tokens 8192"
    " --mem-fraction-static 0.3 --max-running-requests 8 --enable-metrics --speculative-algorithm NGRAM"
    " --speculative-num-draft-tokens 4"
)


def compared(wanted: list[str], info: dict[str, Any], cmdline: list[str] | None = None) -> dict[str, str]:
    running = wanted if cmdline is None else cmdline
    return {
        m.name: m.kind
        for m in SGL.compare_args(wanted, SGL.resolved_args(json.dumps(info), running), running)
    }


def test_the_real_one_has_what_this_is_about() -> None:
    assert REAL["speculative_num_draft_tokens"] == 4 and REAL["speculative_dflash_block_size"] is None
    assert REAL["version"] == "0.5.23"


def test_its_own_command_is_in_effect_whole() -> None:
    assert compared(COMMAND, REAL) == {}
    assert compared(COMMAND, REAL, []) == {}
    assert compared(shlex.split(PLAIN["launch_command"]), PLAIN) == {}


def test_speculation_that_is_not_in_effect_is_seen_and_so_is_one_that_nobody_asked_for() -> None:
    """The old server answers for the new start: with and without speculation, and the other way round."""
    plain = shlex.split(PLAIN["launch_command"])
    drafted = [*plain, "--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", "4"]
    missing = compared(drafted, PLAIN, plain)
    assert {"speculative_algorithm", "speculative_num_draft_tokens"} <= set(missing), missing
    there = compared(
        plain, {**REAL, "max_running_requests": 4, "served_model_name": "known", "port": 8951}, drafted
    )
    assert there.get("speculative_algorithm") == "unwanted", there


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        (["--speculative-num-draft-tokens", "8"], "different"),
        (["--speculative-dflash-block-size", "8"], "different"),
        (["--speculative-dflash-block-size", "4"], ""),
    ],
    ids=["another number", "by its alias", "its alias, equal"],
)
def test_another_number_of_draft_tokens_is_seen_by_either_name(changes: list[str], kind: str) -> None:
    got = compared([*COMMAND, *changes], REAL, COMMAND)
    assert got == ({"speculative_num_draft_tokens": kind} if kind else {})


@pytest.mark.parametrize("order", (1, -1), ids=["null last", "null first"])
@pytest.mark.parametrize("engine", ("sglang", "vllm", "llamacpp"))
def test_a_null_alias_never_overrides_whatever_the_order(engine: str, order: int) -> None:
    """For every alias of every engine: the canonical name's value beside a null, in either order."""
    table: ArgTable = __import__(f"ddtop.engines.{engine}", fromlist=["TABLE"]).TABLE
    for alias, name in table.aliases.items():
        info = dict([(name, 7), (alias, None)][::order])
        assert account_of(info, table) == {name: 7}, alias
        assert account_of(dict([(name, None), (alias, 7)][::order]), table) == {name: 7}, alias
        assert account_of(dict([(name, 1), (alias, 2)][::order]), table) == {name: 1}, "the canonical name's"
        assert account_of({alias: None}, table) == {name: None}, alias


def test_two_aliases_stand_in_the_order_of_the_table() -> None:
    both = {"tensor_parallel_size": 2, "tp": 4}
    assert account_of(both, TABLE) == account_of(dict(reversed(both.items())), TABLE) == {"tp_size": 4}


@pytest.mark.parametrize("name", ("ct200-qwen3.6-27b", "b300-kimi-k2.6"))
def test_the_users_plans_pass_against_the_real_fields(name: str) -> None:
    """The real answer with the values that such a server would hold: each cell's arguments are in effect, and another
    cell's are not."""
    sweep = sweep_from(parse_plan((REPO / f"plans/{name}.toml").read_text())[0])
    launches = [x for x in sweep.launches.values() if x.engine == "sglang" and x.argv]
    for launch in launches:
        argv = list(launch.argv)
        held = parse_argv(argv[argv.index("--model-path") :] if "--model-path" in argv else [], TABLE)
        real = REAL if "speculative_algorithm" in held else PLAIN
        info = {**real, "launch_command": " ".join(argv), **held}
        assert compared(argv, info, argv) == {}, launch.config
        assert compared(argv, info, []) == {}, launch.config
    if name.startswith("b300"):  # its script sets them: the unit's own command line is what is wanted
        unit = [
            *COMMAND[:3],
            "--model-path",
            "/dev/shm/Kimi-K2.6",
            "--tp",
            "8",
            "--speculative-algorithm",
            "DFLASH",
        ]
        unit += ["--speculative-dflash-block-size", "16"]
        info = REAL | {
            "model_path": "/dev/shm/Kimi-K2.6",
            "tp_size": 8,
            "speculative_algorithm": "DFLASH",
            "speculative_dflash_block_size": 16,
            "speculative_num_draft_tokens": 16,
        }
        assert compared(unit, info) == {}
        assert compared(unit, info | {"speculative_dflash_block_size": None}) == {}
