"""The agent is held to the protocol: every op of wire.py is answered, in the shape it says."""

import importlib
import importlib.resources
import inspect
import json
import re

import pytest

from ddtop.agent.registry import HANDLERS
from ddtop.agent.wire import ERROR_CODES, MAX_LINE, OPS, UNIT_PROPS


def test_every_op_has_a_handler_and_none_is_unknown() -> None:
    assert set(HANDLERS) | {"ping"} == set(OPS)


@pytest.mark.parametrize("op", sorted(HANDLERS))
def test_handlers_take_what_their_kind_takes(op: str) -> None:
    module, name = HANDLERS[op]
    handler = getattr(importlib.import_module("ddtop.agent." + module), name)
    assert inspect.iscoroutinefunction(handler)
    parameters = list(inspect.signature(handler).parameters)
    assert parameters == (["context", "args", "emit"] if OPS[op][0] == "stream" else ["context", "args"])


def test_every_code_the_agent_raises_is_in_the_protocol() -> None:
    import ddtop.agent

    folder = importlib.resources.files(ddtop.agent)
    raised = set()
    for path in folder.iterdir():
        if path.name.endswith(".py"):
            raised |= set(re.findall(r'OpError\(\s*"([\w-]+)"', path.read_text()))
    assert raised <= set(ERROR_CODES)
    assert "not-permitted" in raised


def test_limits() -> None:
    assert MAX_LINE == 1 << 20
    assert "NeedDaemonReload" in UNIT_PROPS
    assert len(set(UNIT_PROPS)) == len(UNIT_PROPS)
    assert json.dumps(OPS)
