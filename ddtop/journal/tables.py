"""The form of a recording: its tables, and how events become rows and rows become events again.

Every event has one row in `events`; `body` is its JSON. Of the two frequent kinds, the bulk is in typed
columns instead, so that a notebook, datasette or DuckDB reads telemetry without parsing anything: `gpu` (one
row for each GPU of each sample, with `devices` for what does not change) and `log` (one row for each line).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any

import msgspec

from ddtop.events import Event, GpuReading, GpuSampled, LogLine, LogRead, decode_event, encode
from ddtop.journal.migrations import Migrations

APPLICATION_ID = 0x64647470
"""`ddtp` in ASCII."""

RECORDING = Migrations(APPLICATION_ID)


@RECORDING.step
def _first(db: sqlite3.Connection) -> None:
    for statement in (
        """CREATE TABLE events (
            seq INTEGER PRIMARY KEY, kind TEXT NOT NULL, at_s REAL NOT NULL, mono_s REAL NOT NULL,
            host TEXT NOT NULL, body TEXT)""",
        "CREATE INDEX events_kind ON events (kind, seq)",
        """CREATE TABLE devices (
            id INTEGER PRIMARY KEY, gpu INTEGER NOT NULL, uuid TEXT, name TEXT)""",
        """CREATE TABLE gpu (
            seq INTEGER NOT NULL, pos INTEGER NOT NULL, device INTEGER NOT NULL REFERENCES devices (id),
            power_w REAL, power_limit_w REAL, mem_used_mib REAL, mem_total_mib REAL,
            util_gpu_pct REAL, util_mem_pct REAL, temp_c REAL, sm_clock_mhz REAL, mem_clock_mhz REAL,
            throttle TEXT, dram_active_pct REAL, tensor_active_pct REAL, sm_active_pct REAL,
            energy_j REAL, error TEXT, PRIMARY KEY (seq, pos)) WITHOUT ROWID""",
        """CREATE TABLE log (
            seq INTEGER NOT NULL, pos INTEGER NOT NULL, at_s REAL, text TEXT NOT NULL, cursor TEXT,
            invocation TEXT, pid INTEGER, priority INTEGER, PRIMARY KEY (seq, pos)) WITHOUT ROWID""",
        """CREATE TABLE commands (
            n INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, kind TEXT NOT NULL,
            viewer TEXT NOT NULL, at_s REAL NOT NULL, body TEXT NOT NULL, answered_seq INTEGER)""",
        """CREATE VIEW gpu_samples AS
            SELECT e.seq, e.at_s, e.host, d.gpu, d.uuid, d.name, g.power_w, g.power_limit_w,
                   g.mem_used_mib, g.mem_total_mib, g.util_gpu_pct, g.util_mem_pct, g.temp_c,
                   g.sm_clock_mhz, g.mem_clock_mhz, g.throttle, g.dram_active_pct, g.tensor_active_pct,
                   g.sm_active_pct, g.energy_j, g.error
            FROM gpu g JOIN events e USING (seq) JOIN devices d ON d.id = g.device""",
        """CREATE VIEW log_lines AS
            SELECT l.seq, l.pos, l.at_s, e.host, json_extract(e.body, '$.unit') AS unit, l.text, l.cursor,
                   l.invocation, l.pid, l.priority
            FROM log l JOIN events e USING (seq)""",
    ):
        db.execute(statement)


GPU_COLUMNS = (
    "power_w",
    "power_limit_w",
    "mem_used_mib",
    "mem_total_mib",
    "util_gpu_pct",
    "util_mem_pct",
    "temp_c",
    "sm_clock_mhz",
    "mem_clock_mhz",
    "dram_active_pct",
    "tensor_active_pct",
    "sm_active_pct",
    "energy_j",
)
"""Number columns of `gpu`, each a field of GpuReading by the same name."""

_gpu_throttle = msgspec.json.Decoder(tuple[str, ...])
_insert_gpu = (
    f"INSERT INTO gpu (seq, pos, device, throttle, error, {', '.join(GPU_COLUMNS)}) "
    f"VALUES ({', '.join('?' * (5 + len(GPU_COLUMNS)))})"
)
_select_gpu = (
    f"SELECT g.seq, d.gpu, d.uuid, d.name, g.throttle, g.error, {', '.join('g.' + c for c in GPU_COLUMNS)} "
    "FROM gpu g JOIN devices d ON d.id = g.device WHERE g.seq BETWEEN ? AND ? ORDER BY g.seq, g.pos"
)
_select_drawn = (
    "SELECT seq, device, power_w, power_limit_w, util_gpu_pct, mem_used_mib FROM gpu "
    "WHERE seq BETWEEN ? AND ? ORDER BY seq, pos"
)
_select_watts = (
    "SELECT e.at_s, total(g.power_w), count(g.power_w), count(*), total(g.power_limit_w), count(g.power_limit_w) "
    "FROM events e CROSS JOIN gpu g USING (seq) WHERE e.kind = 'gpu' GROUP BY e.seq ORDER BY e.seq"
)
_insert_log = "INSERT INTO log (seq, pos, at_s, text, cursor, invocation, pid, priority) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_select_log = (
    "SELECT seq, at_s, text, cursor, invocation, pid, priority FROM log "
    "WHERE seq BETWEEN ? AND ? ORDER BY seq, pos"
)


class Rows:
    """Writes events as rows; remembers the devices it has seen."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._devices: dict[tuple[int, str | None, str | None], int] = {}
        self.reload()

    def reload(self) -> None:
        """Read the known devices from the file: at the start, and after a rollback took new ones back."""
        found = self._db.execute("SELECT gpu, uuid, name, id FROM devices")
        self._devices = {(gpu, uuid, name): number for gpu, uuid, name, number in found}

    def insert(self, seq: int, event: Event) -> int:
        """Insert one event inside the open transaction; returns the bytes of log text it brought."""
        event = clean(event)
        bare = event
        size = 0
        if isinstance(event, GpuSampled):
            bare = msgspec.structs.replace(event, gpus=())
            self._db.executemany(
                _insert_gpu, [self._gpu_row(seq, pos, gpu) for pos, gpu in enumerate(event.gpus)]
            )
        elif isinstance(event, LogRead):
            bare = msgspec.structs.replace(event, lines=())
            self._db.executemany(
                _insert_log,
                [
                    (seq, pos, x.at_s, x.text, x.cursor, x.invocation, _int64(x.pid), _int64(x.priority))
                    for pos, x in enumerate(event.lines)
                ],
            )
            size = sum(line_size(x.text, x.cursor) for x in event.lines)
        self._db.execute(
            "INSERT INTO events (seq, kind, at_s, mono_s, host, body) VALUES (?, ?, ?, ?, ?, ?)",
            (seq, kind_of(event), event.at_s, event.mono_s, event.host, encode(bare).decode()),
        )
        return size

    def _gpu_row(self, seq: int, pos: int, gpu: GpuReading) -> tuple[Any, ...]:
        key = (gpu.index, gpu.uuid, gpu.name)
        device = self._devices.get(key)
        if device is None:
            cursor = self._db.execute("INSERT INTO devices (gpu, uuid, name) VALUES (?, ?, ?)", key)
            device = self._devices[key] = int(cursor.lastrowid or 0)
        throttle = msgspec.json.encode(gpu.throttle).decode() if gpu.throttle else None
        return (seq, pos, device, throttle, gpu.error, *(getattr(gpu, name) for name in GPU_COLUMNS))


def line_size(text: str, cursor: str | None) -> int:
    """About how many bytes one log line takes in the file."""
    return len(text) + (len(cursor) if cursor else 0) + 60


def _int64(number: int | None) -> int | None:
    """SQLite's integers have 64 bits; a larger number is neither a pid nor a priority."""
    return number if number is not None and -(2**63) <= number < 2**63 else None


def kind_of(event: Event) -> str:
    """Tag of an event's kind, as in its JSON."""
    return tag_of(type(event))


def tag_of(kind: type[Event]) -> str:
    """Tag of a kind of event, as in its JSON."""
    return str(kind.__struct_config__.tag)


def clean(event: Event) -> Event:
    """`event` with lone surrogates (of undecodable bytes) replaced: UTF-8 cannot encode them."""
    try:
        msgspec.json.encode(event)
    except UnicodeEncodeError:
        body = _clean_value(msgspec.to_builtins(event))
        cleaned: Event = msgspec.convert(body, type(event))
        return cleaned
    return event


def _clean_value(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_clean_value(k): _clean_value(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_clean_value(v) for v in value]
    return value


def read_rows(
    db: sqlite3.Connection,
    after: int,
    limit: int,
    kinds: Sequence[str] = (),
    *,
    drawn: bool = False,
) -> tuple[list[tuple[int, Event]], list[tuple[int, str]], int]:
    """Up to `limit` events after seq `after`, of these kinds if any are named: (events in order, what could not be read, last
    seq looked at). `drawn`: GPU samples before the last one have what is drawn alone, which takes a third of the time.

    An event that this version cannot read (of a newer kind, or damaged) is left out and named in the second
    list, so that the rest of the recording stays readable. Raises sqlite3.Error.
    """
    named = f" AND kind IN ({_marks(kinds)})" if kinds else ""
    query = f"SELECT seq, kind, body FROM events WHERE seq > ?{named} ORDER BY seq LIMIT ?"
    rows = db.execute(query, (after, *kinds, limit)).fetchall()
    if not rows:
        return [], [], after
    events, unread = _events(db, rows, drawn=drawn)
    return events, unread, rows[-1][0]


def read_part(
    db: sqlite3.Connection, first: int, last: int, kinds: Sequence[str]
) -> tuple[list[tuple[int, Event]], list[tuple[int, str]]]:
    """(events, what could not be read) of these kinds from seq `first` to `last`, in order; of GPUs what is drawn, as
    `read_rows` says. Raises sqlite3.Error."""
    # The plus makes SQLite find the kinds by their index, and sort: of a long recording they are a small part.
    query = f"SELECT seq, kind, body FROM events WHERE kind IN ({_marks(kinds)}) AND seq BETWEEN ? AND ? ORDER BY +seq"
    rows = db.execute(query, (*kinds, first, last)).fetchall()
    return _events(db, rows, drawn=True) if rows else ([], [])


def _marks(values: Sequence[str]) -> str:
    return ", ".join("?" * len(values))


def _events(
    db: sqlite3.Connection, rows: list[tuple[int, str, str]], *, drawn: bool
) -> tuple[list[tuple[int, Event]], list[tuple[int, str]]]:
    """The events of rows (seq, kind, body) in order, with what lies in other tables."""
    first, last = rows[0][0], rows[-1][0]
    sampled = [r[0] for r in rows if r[1] == "gpu"]
    gpus: dict[int, list[GpuReading]] = {}
    if sampled:
        whole = sampled[-1] if drawn else first
        gpus = _read_gpus(db, whole, last)
        if whole > first:
            gpus |= _read_drawn(db, first, whole - 1)
    lines = _read_lines(db, first, last) if any(r[1] == "log" for r in rows) else {}
    events: list[tuple[int, Event]] = []
    unread: list[tuple[int, str]] = []
    for seq, _kind, body in rows:
        try:
            event: Event = decode_event(body)
        except (msgspec.DecodeError, TypeError) as error:
            unread.append((seq, str(error)))
            continue
        if isinstance(event, GpuSampled):
            event = msgspec.structs.replace(event, gpus=tuple(gpus.get(seq, ())))
        elif isinstance(event, LogRead):
            event = msgspec.structs.replace(event, lines=tuple(lines.get(seq, ())))
        events.append((seq, event))
    return events, unread


def _read_gpus(db: sqlite3.Connection, first: int, last: int) -> dict[int, list[GpuReading]]:
    out: dict[int, list[GpuReading]] = {}
    for seq, index, uuid, name, throttle, error, *numbers in db.execute(_select_gpu, (first, last)):
        reading = GpuReading(
            index=index,
            uuid=uuid,
            name=name,
            throttle=_gpu_throttle.decode(throttle) if throttle else (),
            error=error,
            **dict(zip(GPU_COLUMNS, numbers, strict=True)),
        )
        out.setdefault(seq, []).append(reading)
    return out


def _read_drawn(db: sqlite3.Connection, first: int, last: int) -> dict[int, list[GpuReading]]:
    """What a GPU's history has and its power limit alone, but for the last sample, and that before one of other GPUs: what is
    known last of a GPU that is gone is whole."""
    out: dict[int, list[GpuReading]] = {}
    devices: dict[int, list[int]] = {}
    index_of = dict(db.execute("SELECT id, gpu FROM devices"))
    before, readings, ids = 0, list[GpuReading](), list[int]()
    for seq, device, power_w, limit_w, util_pct, mem_mib in db.execute(_select_drawn, (first, last)):
        if seq != before:
            before, readings, ids = seq, [], []
            out[seq], devices[seq] = readings, ids
        ids.append(device)
        readings.append(
            GpuReading(
                index=index_of[device],
                power_w=power_w,
                power_limit_w=limit_w,
                util_gpu_pct=util_pct,
                mem_used_mib=mem_mib,
            )
        )
    seqs = list(devices)
    for seq, following in zip_longest(seqs, seqs[1:]):
        if following is None or devices[seq] != devices[following]:
            out |= _read_gpus(db, seq, seq)
    return out


def _read_lines(db: sqlite3.Connection, first: int, last: int) -> dict[int, list[LogLine]]:
    out: dict[int, list[LogLine]] = {}
    for seq, at_s, text, cursor, invocation, pid, priority in db.execute(_select_log, (first, last)):
        line = LogLine(text=text, at_s=at_s, cursor=cursor, invocation=invocation, pid=pid, priority=priority)
        out.setdefault(seq, []).append(line)
    return out


def last_seq(db: sqlite3.Connection) -> int:
    """Seq of the last event; 0 where there is none."""
    return int(db.execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()[0])


def read_kinds(db: sqlite3.Connection, kinds: Iterable[str], after: int = 0) -> list[tuple[int, Event]]:
    """All events of a few rare kinds after seq `after`, in order: what a list of recordings needs, without the bulk."""
    wanted = tuple(kinds)
    query = f"SELECT seq, body FROM events WHERE kind IN ({_marks(wanted)}) AND seq > ? ORDER BY +seq"
    out: list[tuple[int, Event]] = []
    for seq, body in db.execute(query, (*wanted, after)):
        try:
            out.append((seq, decode_event(body)))
        except (msgspec.DecodeError, TypeError):
            continue
    return out


def read_times(db: sqlite3.Connection, limit: int | None = None) -> list[tuple[int, float]]:
    """(seq, at_s) of every event, or of the first ones, in order: what a replay needs to know of the whole."""
    query = "SELECT seq, at_s FROM events ORDER BY seq LIMIT ?"
    return db.execute(query, (-1 if limit is None else limit,)).fetchall()


def time_of(db: sqlite3.Connection, seq: int) -> float:
    """Wall time of an event; 0 where there is none. Raises sqlite3.Error."""
    found = db.execute("SELECT at_s FROM events WHERE seq = ?", (seq,)).fetchone()
    return float(found[0]) if found is not None else 0.0


def last_samples(db: sqlite3.Connection, n: int, until: int) -> int:
    """From which seq on lie the last `n` samples of every GPU that there was up to seq `until`; 0 where one has fewer."""
    query = "SELECT seq FROM gpu WHERE device = ? AND seq <= ? ORDER BY seq DESC LIMIT 1 OFFSET ?"
    first: list[int] = []
    for (device,) in db.execute("SELECT id FROM devices").fetchall():
        if db.execute(query, (device, until, 0)).fetchone() is not None:
            found = db.execute(query, (device, until, n - 1)).fetchone()
            first.append(int(found[0]) if found is not None else 0)
    return min(first, default=0)


def read_watts(db: sqlite3.Connection) -> Iterator[tuple[float, float, int, int, float, int]]:
    """Of each GPU sample, in order: wall time, power of all GPUs (W), how many said it, of how many, their limits (W), how
    many have one. Summed by SQLite: a day has 691,200 readings. Raises sqlite3.Error."""
    return db.execute(_select_watts)


def read_texts(db: sqlite3.Connection, after: int, before: int, n: int) -> list[str]:
    """The last `n` log lines that came between two places, the oldest first. Raises sqlite3.Error."""
    query = "SELECT text FROM log WHERE seq > ? AND seq < ? ORDER BY seq DESC, pos DESC LIMIT ?"
    return [text for (text,) in reversed(db.execute(query, (after, before, n)).fetchall())]


def last_lines(db: sqlite3.Connection, n: int, until: int) -> int:
    """From which seq on lie the last `n` log lines up to seq `until`; 0 where there are fewer. Raises sqlite3.Error."""
    query = "SELECT seq FROM log WHERE seq <= ? ORDER BY seq DESC, pos DESC LIMIT 1 OFFSET ?"
    found = db.execute(query, (until, n - 1)).fetchone()
    return int(found[0]) if found is not None else 0


def last_of(db: sqlite3.Connection, until: int, kind: str | None = None) -> int:
    """Seq of the last event up to seq `until`, of a kind if one is named; 0 where there is none. Raises sqlite3.Error."""
    named = "kind = ? AND " if kind is not None else ""
    values = (until,) if kind is None else (kind, until)
    return int(
        db.execute(f"SELECT coalesce(max(seq), 0) FROM events WHERE {named}seq <= ?", values).fetchone()[0]
    )
