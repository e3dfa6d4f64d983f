"""What the gate needs read: who listens, what the server reports of itself, and one real generation."""

from __future__ import annotations

import contextlib
import json
import re
from typing import Any

from ddtop.engines import ENGINES
from ddtop.engines.base import ArgMismatch, Engine, as_json
from ddtop.engines.simulated import (
    VARIABLES,
    simulated_by_argv,
    simulated_by_env,
    simulated_by_settings,
)
from ddtop.errors import AgentError
from ddtop.hosts.base import Host
from ddtop.services.base import Launch, Service, read_listener
from ddtop.services.kinds import OUTSIDE_SYSTEMD
from ddtop.services.readings import ListenerReading, UnitReading
from ddtop.services.unit.systemctl_show import exec_argv
from ddtop.sweep.shared.limits import TOKEN_S
from ddtop.sweep.start.answers import reachable
from ddtop.sweep.start.gate import ArgsReading, TokenReading
from ddtop.sweep.start.readings import PortOwner

PROCESSES_LOOKED_AT = 8
"""The shell of a wrapper and the server itself are among the first."""


class GateReader:
    """Reads one server of one launch. `facts` keeps what the server reported of itself."""

    def __init__(self, launch: Launch, service: Service, endpoint: str) -> None:
        self.launch = launch
        self.service = service
        self.endpoint = endpoint
        self.engine: Engine = ENGINES[launch.engine]
        self.facts: dict[str, Any] = {}
        self.model: str | None = None
        self.version: str | None = None
        self._starts: dict[int, str | None] = {}
        self._simulated = ""

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.launch.port}"

    async def listeners(self, host: Host, unit: UnitReading | None) -> tuple[ListenerReading, ...]:
        reply = await host.call("listeners", port=self.launch.port)
        return tuple(read_listener(self.service, row, unit) for row in reply["listeners"])

    async def elsewhere(self, host: Host, unit: UnitReading | None) -> tuple[ListenerReading, ...]:
        """Sockets of the service on other ports that speak HTTP as the engine does. Ports between its own processes
        do not."""
        reply = await host.call("listeners", port=None)
        rows = [read_listener(self.service, row, unit) for row in reply["listeners"]]
        found: list[ListenerReading] = []
        for item in rows:
            if item.owned is not True or item.port == self.launch.port or item.container:
                continue
            local = "127.0.0.1" if reachable((item,)) else item.addr
            at = f"[{local}]" if ":" in local else local
            answer = await host.call(
                "http", method="GET", url=f"http://{at}:{item.port}{self.engine.models_path}", timeout_s=2
            )
            if answer.get("status") == 200 and '"data"' in str(answer.get("body", "")):
                found.append(item)
        return tuple(found)

    async def output(self, host: Host, unit: UnitReading | None) -> str | None:
        """Where the unit's processes send their output: the first that is not its manager's socket. None: all to it."""
        select = self.service.activity_args(unit) if unit is not None else None
        if select is None or self.service.kind in OUTSIDE_SYSTEMD:
            return None
        rows = (await host.call("processes", **select))["processes"]
        for row in rows[:PROCESSES_LOOKED_AT]:
            said = (await host.call("ticket", pid=row["pid"])).get("stdout")
            if said and said != "socket":
                return str(said)
        return None

    async def simulated(self, host: Host, unit: UnitReading | None) -> str | None:
        """What says that this server's acceptance is simulated: its launch, its own account or log, else the environment
        of its processes. Empty: nothing does; None: nothing does, and no environment could be read."""
        known = simulated_by_env(self.launch.env) or simulated_by_argv(self.launch.argv) or self._simulated
        select = self.service.activity_args(unit) if unit is not None else None
        if known or select is None:
            return known or None
        read = False
        with contextlib.suppress(AgentError):
            for row in (await host.call("processes", **select))["processes"][:PROCESSES_LOOKED_AT]:
                env = (await host.call("ticket", pid=row["pid"], env=list(VARIABLES))).get("env")
                read = read or env is not None
                if env and (found := simulated_by_env(env)):
                    return f"{found} in the environment of process {row['pid']}"
        return "" if read else None

    async def owner(
        self, host: Host, item: ListenerReading, unit: UnitReading | None, at: float
    ) -> PortOwner:
        """Which start a listener belongs to: `new` is the unit's present one."""
        if item.owned is False:
            return PortOwner(at=at, owner="foreign", who=item.who)
        if unit is None or item.pid is None or item.owned is None:
            return PortOwner(at=at, owner="unknown", who=item.who)
        if (
            item.container
        ):  # owned: the very container that the generation names, unless its client has died meanwhile
            return PortOwner(at=at, owner="new" if unit.container else "unknown", who=item.who)
        if (
            item.pid == unit.main_pid or self.service.kind == "process"
        ):  # owned: of the group that it leads now
            return PortOwner(at=at, owner="new", who=item.who)
        if item.pid not in self._starts:
            try:
                self._starts[item.pid] = (await host.call("ticket", pid=item.pid)).get("invocation")
            except AgentError:
                return PortOwner(at=at, owner="unknown", who=item.who)
        invocation = self._starts[item.pid]
        if invocation is None or not re.fullmatch(r"[0-9a-f]{32}", (unit.generation or "").partition("/")[0]):
            return PortOwner(at=at, owner="unknown", who=item.who)
        same = (unit.generation or "").startswith(invocation)
        return PortOwner(at=at, owner="new" if same else "old", who=item.who)

    async def health(self, host: Host) -> int | None:
        """HTTP status of the health path; None when refused."""
        reply = await host.call("http", method="GET", url=self.base + self.engine.health_path, timeout_s=5)
        status = reply.get("status")
        return int(status) if status is not None else None

    async def _get(self, host: Host, path: str) -> str | None:
        reply = await host.call("http", method="GET", url=self.base + path, timeout_s=10)
        return str(reply["body"]) if reply.get("status") == 200 else None

    async def args(self, host: Host, unit: UnitReading, logged: dict[str, Any], at: float) -> ArgsReading:
        """The arguments that the server reports, compared with the wanted ones."""
        info = None
        for path in dict.fromkeys((self.engine.info_path, getattr(self.engine, "old_info_path", None))):
            if path and (info := await self._get(host, path)) is not None:
                break
        cmdline: list[str] = []
        if unit.main_pid:
            rows = (await host.call("processes", pids=[unit.main_pid]))["processes"]
            cmdline = next((row["cmdline"] for row in rows if row["pid"] == unit.main_pid), [])
        if not self.engine.is_engine_cmdline(cmdline) and info is not None:
            cmdline = []  # a wrapper or `docker run`: its arguments are not the server's
        self.facts = self.engine.resolved_args(info, cmdline)
        self._simulated = (
            simulated_by_argv(cmdline)
            or simulated_by_settings(as_json(info))
            or simulated_by_settings(logged)
        )
        await self._learn_version(host, info)
        source = "server_info" if info is not None else "cmdline"
        # The owner's script sets the arguments: then the unit, as systemd has it loaded, says what is wanted.
        wanted = list(self.launch.argv) or (exec_argv(unit.argv) if not unit.container else [])
        if not self.facts and not cmdline:
            return ArgsReading(
                at=at,
                source=source,
                generation=unit.generation,
                unknown=(f"neither {self.base} nor the command line shows them",),
            )
        found = self.engine.compare_args(wanted, self.facts, cmdline) if wanted else ()
        found += served_otherwise(self.engine, wanted, await self._get(host, self.engine.models_path))
        return args_reading(
            found, wanted, self.facts, logged, source=source, generation=unit.generation, at=at
        )

    async def _learn_version(self, host: Host, info: str | None) -> None:
        path = self.engine.version_path
        body = info if path in (None, self.engine.info_path) else await self._get(host, path or "")
        self.version = self.engine.version(body) or self.engine.version(info)

    async def token(self, host: Host, generation: str | None, at: float) -> TokenReading:
        """One real generation, on the endpoint the load generator will use."""
        models = await self._get(host, self.engine.models_path)
        self.model = (self.engine.served_model(models) if models is not None else None) or self.model or ""
        path, body = self.engine.one_token_request(self.endpoint, self.model)
        reply = await host.call(
            "http",
            method="POST",
            url=self.base + path,
            headers={"Content-Type": "application/json"},
            body=json.dumps(body),
            timeout_s=TOKEN_S,
        )
        return token_reading(self.engine, reply, generation, at)


def args_reading(
    found: tuple[ArgMismatch, ...],
    wanted: list[str],
    facts: dict[str, Any],
    logged: dict[str, Any],
    *,
    source: str,
    generation: str | None,
    at: float,
) -> ArgsReading:
    """A comparison as the gate reads it. `logged`: the arguments that this start logged."""
    seeds = facts.get("random_seed"), logged.get("random_seed")
    return ArgsReading(
        at=at,
        source=source,
        generation=generation,
        wrong=tuple(str(m) for m in found if m.kind != "overridden"),
        overridden=tuple(str(m) for m in found if m.kind == "overridden"),
        tied=None if None in seeds else str(seeds[0]) == str(seeds[1]),
        compared=sum(word.startswith("-") for word in wanted),
    )


def served_otherwise(engine: Engine, wanted: list[str], models: str | None) -> tuple[ArgMismatch, ...]:
    """The name under which the model is to be served, where `/v1/models` has others only."""
    asked = engine.resolved_args(None, wanted)
    name = asked.get("served_model_name", asked.get("alias"))
    body = as_json(models)
    data = body.get("data") if isinstance(body, dict) else None
    served = [str(row.get("id")) for row in data if isinstance(row, dict)] if isinstance(data, list) else []
    names = [str(n) for n in name] if isinstance(name, list) else str(name).split(",") if name else []
    if not names or not served or set(names) & set(served):
        return ()
    return (ArgMismatch("served_model_name", names[0], served[0], why="by /v1/models"),)


def token_reading(engine: Engine, reply: dict[str, Any], generation: str | None, at: float) -> TokenReading:
    """The response to the trial request, as the gate reads it."""
    if "status" not in reply:
        word = str(reply.get("error") or "no response")
        what = word if word in ("refused", "reset") else reply.get("what") or word
        return TokenReading(at=at, tokens=None, generation=generation, error=str(what))
    status, body = int(reply["status"]), str(reply.get("body", ""))
    headers = {str(k).lower(): str(v) for k, v in dict(reply.get("headers") or {}).items()}
    kind, server = headers.get("content-type", "").partition(";")[0], headers.get("server", "")
    if status != 200 or (body.strip() and not isinstance(as_json(body), dict | list)):
        error = body[:400] if status == 200 else f"HTTP {status}: {body[:400]}"
        return TokenReading(
            at=at,
            tokens=None,
            generation=generation,
            status=status,
            error=error,
            kind=kind,
            server=server,
        )
    tokens = engine.tokens_of_answer(body)
    if tokens is None and '"error"' in body:
        return TokenReading(at=at, tokens=None, generation=generation, status=status, error=body[:200])
    return TokenReading(at=at, tokens=tokens, generation=generation, status=status)
