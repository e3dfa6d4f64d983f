"""Argument dumps of the engines: whole, wrapped, cut, with odd values."""

from __future__ import annotations

from ddtop.engines.log.server_args import is_complete, parse_server_args

DUMP = (
    "[2026-04-27 02:35:54] server_args=ServerArgs(model_path='/m, (x)', tp_size=2, mem_fraction_static=0.87, a=None, b=True, "
    "bs=[1, 2, 4], d={'k': [1, (2, 3)]}, e=<LoadFormat.AUTO: 'auto'>, f=inf, neg=-1, s='it\\'s', last='end')"
)


def test_values_are_python_literals() -> None:
    args = parse_server_args(DUMP)
    assert args == {
        "model_path": "/m, (x)",
        "tp_size": 2,
        "mem_fraction_static": 0.87,
        "a": None,
        "b": True,
        "bs": [1, 2, 4],
        "d": {"k": [1, (2, 3)]},
        "e": "<LoadFormat.AUTO: 'auto'>",
        "f": "inf",
        "neg": -1,
        "s": "it's",
        "last": "end",
    }
    assert is_complete(DUMP)


def test_a_wrapped_record_is_joined_even_inside_a_name() -> None:
    wrapped = DUMP.replace("mem_fraction_static", "mem_fra\nction_static")
    assert parse_server_args(wrapped) == parse_server_args(DUMP)


def test_a_cut_record_gives_what_is_whole() -> None:
    cut = DUMP[: DUMP.index("neg=") + 5]
    args = parse_server_args(cut)
    assert not is_complete(cut) and "neg" not in args and args["f"] == "inf" and args["tp_size"] == 2


def test_vllms_forms() -> None:
    assert parse_server_args(
        "INFO non-default args: {'host': '0.0.0.0', 'port': 5000, 'speculative_config': {'method': 'dflash'}}"
    ) == {
        "host": "0.0.0.0",
        "port": 5000,
        "speculative_config": {"method": "dflash"},
    }
    assert parse_server_args("INFO api_server.py:1] args: Namespace(host=None, port=8000)") == {
        "host": None,
        "port": 8000,
    }


def test_no_dump_is_no_args() -> None:
    assert parse_server_args("server_args are good") == {} and is_complete("nothing here")
    assert parse_server_args("server_args=ServerArgs(") == {}
