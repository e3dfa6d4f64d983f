"""A small sweep as events, and a hypothesis strategy for any event; used by the tests of this room."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
from hypothesis import strategies as st

from ddtop import events as ev
from ddtop.events import CellSpec, Event, Generation

KINDS: tuple[type[Event], ...] = get_args(ev.AnyEvent)


def spec(cell_id: str, config: str = "auto", **fields: Any) -> CellSpec:
    values: dict[str, Any] = {
        "id": cell_id,
        "config": config,
        "tp": 1,
        "workload": "fib",
        "output_tokens": 256,
        "concurrency": 1,
        "context": 0,
        "restart_key": f"{config}-1",
    }
    return CellSpec(**{**values, **fields})


SPECS = (
    spec("a1", "auto", baseline=True),
    spec("a2", "auto", baseline=True, output_tokens=1024),
    spec("b1", "b15"),
    spec("b2", "b15", output_tokens=1024),
    spec("c1", "b8", skip_reason="0 tok/s"),
)

NEW = Generation(boot="boot-1", id="inv-2", main_pid=77)


class Clock:
    """Gives each event the next second."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self, step: float = 1.0) -> dict[str, Any]:
        self.now += step
        return {"at_s": 1_700_000_000.0 + self.now, "mono_s": self.now, "host": "ct200"}


def measured(clock: Clock, cell_id: str, tok_s: float, seconds: float = 30.0) -> list[Event]:
    return [
        ev.CellStateSet(**clock(), cell_id=cell_id, state="running", attempt=1),
        ev.CellStarted(**clock(0), cell_id=cell_id, attempt=1, generation=NEW),
        ev.CellProgress(**clock(1), cell_id=cell_id, requests_done=1, requests_total=4),
        ev.CellMeasured(
            **clock(seconds - 1),
            cell_id=cell_id,
            attempt=1,
            validity="VALID",
            metrics={"output_tok_s": tok_s, "ttft_ms": {"p50": 41.5, "n": 8}},
            engine="sglang",
            engine_version="0.5.9",
        ),
        ev.CellStateSet(**clock(0), cell_id=cell_id, state="done", attempt=1),
    ]


def restart(clock: Clock, config: str, attempt_id: str, ready: bool = True) -> list[Event]:
    out: list[Event] = [
        ev.RestartStarted(**clock(), attempt_id=attempt_id, config=config, tp=1, unit="s.service"),
        ev.PhaseSeen(**clock(3), attempt_id=attempt_id, phase="stopping", state="done", elapsed_s=3.0),
        ev.PhaseSeen(**clock(1), attempt_id=attempt_id, phase="loading", state="running", pct=40.0),
    ]
    if ready:
        out += [
            ev.PhaseSeen(**clock(50), attempt_id=attempt_id, phase="loading", state="done", elapsed_s=51.0),
            ev.GateSeen(
                **clock(1),
                attempt_id=attempt_id,
                part="token",
                ok=True,
                evidence=ev.Evidence(source="http", text="3 tokens"),
            ),
            ev.RestartReady(
                **clock(0),
                attempt_id=attempt_id,
                generation=NEW,
                ready_s=55.0,
                engine="sglang",
                engine_version="0.5.9",
            ),
        ]
    else:
        out += [
            ev.RestartFailed(
                **clock(2),
                attempt_id=attempt_id,
                verdict="failed",
                cause="nccl-unhandled",
                kind="transient",
                alert_id="al-1",
            ),
            ev.AlertRaised(
                **clock(0),
                alert_id="al-1",
                title="NOT STARTING?",
                verdict="failed",
                cause="nccl-unhandled",
                cause_text="ct200: s.service failed 2 s after restart: NCCL unhandled system error",
                kind="transient",
                advice="retry",
                actions=(ev.Action(key="r", label="retry b15", command="retry", args={"config": "b15"}),),
                attempt_id=attempt_id,
                fault_seen_s=0.4,
                evidence=(ev.Evidence(source="log", text="NCCL error", cursor="s=1"),),
            ),
        ]
    return out


def sweep() -> list[Event]:
    """auto measured, b15 fails to start, is retried and half measured; b8 is skipped by the plan."""
    clock = Clock()
    return [
        ev.RunStarted(**clock(), run_id="r1", name="demo", mode="sweep", segment=0, plan_toml="name='demo'"),
        ev.CellsPlanned(**clock(), cells=SPECS, baseline="auto"),
        ev.HostConnecting(**clock(), target="root@ct200"),
        ev.HostConnected(
            **clock(), agent="abc", python="3.11.2", uid=0, user="root", can=("restart",), rtt_ms=18.0
        ),
        ev.GpuSampled(
            **clock(),
            gpus=tuple(
                ev.GpuReading(index=i, power_w=400.0 + i, mem_used_mib=1000.0, util_gpu_pct=99.0)
                for i in range(2)
            ),
        ),
        ev.LogRead(**clock(), unit="s.service", lines=(ev.LogLine(text="Load weight begin", cursor="c1"),)),
        *restart(clock, "auto", "at-1"),
        *measured(clock, "a1", 26.0),
        *measured(clock, "a2", 26.3, 90.0),
        *restart(clock, "b15", "at-2", ready=False),
        ev.CommandSeen(**clock(20), command_id="k1", viewer="v1", command="retry", outcome="obeyed"),
        ev.AlertResolved(**clock(0), alert_id="al-1", how="retry", by="v1"),
        *restart(clock, "b15", "at-3"),
        *measured(clock, "b1", 143.0),
        ev.CellStateSet(**clock(), cell_id="b2", state="running", attempt=1),
        ev.CellStarted(**clock(0), cell_id="b2", attempt=1),
        ev.CellProgress(**clock(5), cell_id="b2", requests_done=2, requests_total=8),
    ]


_scalars = (
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(-1e9, 1e9) | st.text(max_size=8)
)
_bodies = st.dictionaries(
    st.text(max_size=6),
    _scalars | st.lists(_scalars, max_size=2) | st.dictionaries(st.text(max_size=4), _scalars),
    max_size=3,
)


def _strategy(kind: Any) -> st.SearchStrategy[Any]:
    info = msgspec.inspect.type_info(kind)
    return _of(info)


def _of(info: Any) -> st.SearchStrategy[Any]:
    insp = msgspec.inspect
    if isinstance(info, insp.StructType):
        required = {f.name: _of(f.type) for f in info.fields if f.required}
        optional = {f.name: _of(f.type) for f in info.fields if not f.required}
        return st.fixed_dictionaries(required, optional=optional).map(lambda kw: info.cls(**kw))
    table: dict[Any, st.SearchStrategy[Any]] = {
        insp.StrType: st.text(max_size=12),
        insp.IntType: st.integers(-(2**53), 2**53),
        insp.FloatType: st.floats(allow_nan=False, allow_infinity=False),
        insp.BoolType: st.booleans(),
        insp.BytesType: st.binary(max_size=24),
        insp.NoneType: st.none(),
    }
    if type(info) in table:
        return table[type(info)]
    if isinstance(info, insp.LiteralType):
        return st.sampled_from(info.values)
    if isinstance(info, insp.VarTupleType):
        return st.lists(_of(info.item_type), max_size=3).map(tuple)
    if isinstance(info, insp.TupleType):
        return st.tuples(*(_of(item) for item in info.item_types))
    if isinstance(info, insp.DictType):
        if isinstance(info.value_type, insp.AnyType):
            return _bodies
        plain = isinstance(info.key_type, msgspec.inspect.StrType)
        keys = st.text(max_size=6) if plain else _of(info.key_type)
        return st.dictionaries(keys, _of(info.value_type), max_size=3)
    if isinstance(info, insp.UnionType):
        return st.one_of([_of(t) for t in info.types])
    if isinstance(info, insp.TupleType):
        return st.tuples(*(_of(t) for t in info.item_types))
    raise AssertionError(f"no strategy for {info}")


def any_event() -> st.SearchStrategy[Event]:
    """Any event of the vocabulary, with any fields its types allow."""
    return st.one_of([_strategy(kind) for kind in KINDS])
