"""The readiness gate: five parts, each with its evidence. Pure.

`/v1/models`, `/health`, an open port and `systemctl`'s exit code are never enough: an old process serves all of them
while it is being stopped. A part that cannot be proven refuses, and says what would prove it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ddtop.events import Evidence, GatePartName
from ddtop.services.readings import ListenerReading, UnitReading
from ddtop.sweep.start.answers import reachable
from ddtop.words import many

PartState = Literal["pending", "ok", "no", "unknown"]
"""`no`: refused, though waiting may still help (a listener that goes away); `unknown`: other rights are needed."""

ORDER: tuple[GatePartName, ...] = ("generation", "listener", "mark", "arguments", "token")


@dataclass(frozen=True, kw_only=True, slots=True)
class MarkReading:
    """The engine's own sign that it is ready, and the start that gave it."""

    generation: str | None
    text: str
    at: float
    source: str = "log"
    cursor: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ArgsReading:
    """The arguments that the server reports, compared with the configuration's."""

    at: float
    source: str
    """`server_info`, `cmdline`, `props`."""
    generation: str | None = None
    wrong: tuple[str, ...] = ()
    """`speculative_num_draft_tokens is 8, asked for 15`."""
    overridden: tuple[str, ...] = ()
    """What the engine silently changed, in words: no refusal, but its cells may repeat another configuration's."""
    unknown: tuple[str, ...] = ()
    """What could not be read at all."""
    tied: bool | None = None
    """False: the random_seed that HTTP gave is not the one in this start's log: another server responded."""
    compared: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenReading:
    """One real generation, on the endpoint that the load generator will use."""

    at: float
    tokens: int | None
    generation: str | None = None
    status: int | None = None
    error: str | None = None
    text: str = ""
    kind: str = ""
    """Content-Type of the response."""
    server: str = ""
    """Its `Server` header."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GateReadings:
    """Everything the gate looks at, as last read."""

    before: str | None
    """Id of the generation before the restart."""
    unit: UnitReading | None = None
    listeners: tuple[ListenerReading, ...] | None = None
    """None: not read yet."""
    listeners_at: float = 0.0
    mark: MarkReading | None = None
    log_unreadable: str | None = None
    """Why the log cannot show this start's mark; None where it can. Then the other parts prove that it is ready."""
    args: ArgsReading | None = None
    token: TokenReading | None = None
    same_generation_ok: bool = False
    """A running server is accepted as it is: no restart was requested."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GatePart:
    part: GatePartName
    state: PartState
    evidence: Evidence


@dataclass(frozen=True, kw_only=True, slots=True)
class Gate:
    parts: tuple[GatePart, ...]

    @property
    def ready(self) -> bool:
        """All five; a mark that cannot be known is proven by the others: a real generation is more than a log line."""
        return len(self.parts) == len(ORDER) and all(
            p.state == "ok" or (p.part == "mark" and p.state == "unknown") for p in self.parts
        )

    @property
    def unproven(self) -> GatePart | None:
        """The part that keeps the gate shut because it cannot be known: all before it are proven. Never the mark, which the
        others prove; what is only pending, such as a first token that compiles kernels, may still come."""
        first = next((p for p in self.parts if p.part != "mark" and p.state != "ok"), None)
        return first if first is not None and first.state == "unknown" else None

    def __getitem__(self, name: GatePartName) -> GatePart:
        return self.parts[ORDER.index(name)]


def gate(r: GateReadings) -> Gate:
    """The state of each of the five parts, in order."""
    return Gate(parts=(_generation(r), _listener(r), _mark(r), _arguments(r), _token(r)))


def _part(
    name: GatePartName, state: PartState, source: str, text: str, cursor: str | None = None
) -> GatePart:
    return GatePart(part=name, state=state, evidence=Evidence(source=source, text=text, cursor=cursor))


def _short(generation: str | None) -> str:
    return (generation or "none")[:12]


def new_generation(r: GateReadings) -> str | None:
    """Id of the start that the unit runs now, if it is not the one before the restart."""
    u = r.unit
    if u is None or not u.generation or not u.running:
        return None
    return u.generation if r.same_generation_ok or u.generation != r.before else None


def _old_start(r: GateReadings) -> bool:
    """Whether the unit can be read and runs, or ran last, the start before the restart."""
    u = r.unit
    if u is None or u.active is None or not u.generation or r.same_generation_ok:
        return False
    return u.generation == r.before


def _generation(r: GateReadings) -> GatePart:
    u = r.unit
    if u is None:
        return _part("generation", "pending", "systemctl", "not read yet")
    if u.active is None:
        return _part(
            "generation",
            "unknown",
            u.told_by,
            f"this login cannot read the state of {u.unit}: log in as root, or allow `sudo -n systemctl`",
        )
    if u.active != "active":
        return _part("generation", "pending", u.told_by, f"{u.unit} is {u.active}/{u.sub}")
    if not u.generation:
        return _part(
            "generation", "unknown", u.told_by, f"{u.unit} shows no invocation: which start runs is unknown"
        )
    if u.generation == r.before and not r.same_generation_ok:
        return _part("generation", "pending", u.told_by, f"still the old start {_short(r.before)}")
    pid = f", pid {u.main_pid}" if u.main_pid else ""
    was = f", was {_short(r.before)}" if r.before and r.before != u.generation else ""
    return _part("generation", "ok", u.told_by, f"{u.unit} is active, start {_short(u.generation)}{pid}{was}")


def _listener(r: GateReadings) -> GatePart:
    if r.listeners is None:
        return _part("listener", "pending", "ss", "not read yet")
    if not r.listeners:
        return _part("listener", "pending", "ss", "no listener yet")
    if len(r.listeners) > 1 and not _one_server(r.listeners):
        who = " and ".join(f"{item.addr}:{item.port} {item.who}" for item in r.listeners)
        return _part("listener", "no", "ss", f"{len(r.listeners)} listeners on one port: {who}")
    foreign = [item for item in r.listeners if item.owned is False]
    if foreign:
        return _part("listener", "no", "ss", f"port {foreign[0].port} belongs to {foreign[0].who}")
    if any(item.owned is None for item in r.listeners):
        return _part(
            "listener",
            "unknown",
            "ss",
            f"this login cannot see who listens on port {r.listeners[0].port}: use root or `sudo -n`",
        )
    first = r.listeners[0]
    if _old_start(r):
        return _part(
            "listener", "pending", "ss", f"{first.addr}:{first.port} belongs to the old start, {first.who}"
        )
    if r.unit is not None and r.unit.active is not None and new_generation(r) is None:
        return _part(
            "listener", "pending", "ss", f"{first.addr}:{first.port}: {first.who}, whose start has ended"
        )
    if not reachable(r.listeners):
        return _part(
            "listener", "no", "ss", f"{first.addr}:{first.port} only: requests go to 127.0.0.1:{first.port}"
        )
    return _part("listener", "ok", "ss", f"{first.addr}:{first.port} belongs to {first.who}")


def _one_server(listeners: tuple[ListenerReading, ...]) -> bool:
    """One process on several addresses (IPv4 and IPv6) is one server; one address twice is two."""
    addresses = {item.addr for item in listeners}
    pids = {item.pid for item in listeners}
    return len(addresses) == len(listeners) and len(pids) == 1 and None not in pids


def _mark(r: GateReadings) -> GatePart:
    generation = new_generation(r)
    if r.mark is None and r.log_unreadable:
        return _part(
            "mark", "unknown", "log", f"{r.log_unreadable}: a real generation proves it ready instead"
        )
    if r.mark is None:
        return _part("mark", "pending", "log", "no ready mark yet")
    if generation is None or r.mark.generation != generation:
        return _part(
            "mark",
            "pending",
            r.mark.source,
            f"the ready mark is of another start ({_short(r.mark.generation)})",
        )
    return _part("mark", "ok", r.mark.source, r.mark.text.strip()[:300], r.mark.cursor)


def _arguments(r: GateReadings) -> GatePart:
    if r.unit is not None and r.unit.need_reload:
        return _part(
            "arguments",
            "no",
            r.unit.told_by,
            f"NeedDaemonReload=yes: {r.unit.unit} was changed on disk but not loaded; the old arguments run",
        )
    a, generation = r.args, new_generation(r)
    if a is None or generation is None or a.generation not in (None, generation):
        return _part("arguments", "pending", "http", "not compared yet")
    if a.tied is False:
        return _part(
            "arguments",
            "no",
            a.source,
            "the server's random_seed is not that of this start's log: another server responded",
        )
    if a.wrong:
        return _part("arguments", "no", a.source, "; ".join(a.wrong))
    if a.unknown and not a.compared:
        return _part("arguments", "unknown", a.source, "cannot be read: " + "; ".join(a.unknown))
    extra = "; overridden by the engine: " + "; ".join(a.overridden) if a.overridden else ""
    return _part("arguments", "ok", a.source, f"{a.compared} arguments equal the cell's{extra}")


def _token(r: GateReadings) -> GatePart:
    t, generation = r.token, new_generation(r)
    if t is None or generation is None or t.generation not in (None, generation):
        return _part("token", "pending", "http", "not requested yet")
    if t.error:
        return _part("token", "no", "http", f"the trial generation failed: {t.error}")
    if t.tokens is None:
        return _part(
            "token",
            "unknown",
            "http",
            "the response has no token count (usage): it cannot be proven that a token came",
        )
    if t.tokens <= 0:
        return _part("token", "no", "http", f"HTTP {t.status}, 0 tokens from a real request")
    return _part(
        "token",
        "ok",
        "http",
        many(t.tokens, "token") + (f": {t.text.strip()[:60]!r}" if t.text.strip() else ""),
    )
