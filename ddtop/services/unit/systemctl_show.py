"""Read the output of `systemctl show`: KEY=VALUE lines in any order, one or several units, odd values.

`[not set]`, `n/a`, an empty value and 2^64-1 become None, never 0. `--value` output is refused: systemd prints the
values in its own order, not in the requested one (measured).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_LINE = re.compile(r"^\s*(?P<k>[A-Z][A-Za-z0-9]{1,60})=(?P<v>.*)$")
_UNSET = {"", "[not set]", "n/a", "(null)", "[no data]", "18446744073709551615"}
_SPAN = re.compile(r"(?P<n>[\d.]+) ?(?P<u>us|µs|ms|s|sec|min|month|h|hr|d|day|w|y)?(?:\s|$)")
_UNITS = {
    "us": 1e-6,
    "µs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "sec": 1.0,
    "min": 60.0,
    "h": 3600.0,
    "hr": 3600.0,
    "d": 86400.0,
    "day": 86400.0,
    "w": 604800.0,
    "month": 2629800.0,
    "y": 31557600.0,
}
MAIN_CODES = {0: None, 1: "exited", 2: "killed", 3: "dumped"}
EXIT_NAMES = {
    200: "CHDIR",
    201: "NICE",
    202: "FDS",
    203: "EXEC",
    204: "MEMORY",
    205: "LIMITS",
    206: "OOM_ADJUST",
    207: "SIGNAL_MASK",
    208: "STDIN",
    209: "STDOUT",
    210: "CHROOT",
    211: "IOPRIO",
    212: "TIMERSLACK",
    213: "SECUREBITS",
    214: "SETSCHEDULER",
    215: "CPUAFFINITY",
    216: "GROUP",
    217: "USER",
    218: "CAPABILITIES",
    219: "CGROUP",
    220: "SETSID",
    221: "CONFIRM",
    222: "STDERR",
    224: "PAM",
    225: "NETWORK",
    226: "NAMESPACE",
    227: "NO_NEW_PRIVILEGES",
    228: "SECCOMP",
    229: "SELINUX_CONTEXT",
    230: "PERSONALITY",
    231: "APPARMOR_PROFILE",
    232: "ADDRESS_FAMILIES",
    233: "RUNTIME_DIRECTORY",
    235: "CHOWN",
    236: "SMACK_PROCESS_LABEL",
    237: "KEYRING",
    238: "STATE_DIRECTORY",
    239: "CACHE_DIRECTORY",
    240: "LOGS_DIRECTORY",
    241: "CONFIGURATION_DIRECTORY",
    242: "NUMA_POLICY",
    243: "CREDENTIALS",
    245: "BPF",
}
"""systemd's own exit codes (systemd.exec(5)): the program was never executed."""
SIGNAL_NAMES = {
    1: "HUP",
    2: "INT",
    3: "QUIT",
    4: "ILL",
    6: "ABRT",
    7: "BUS",
    8: "FPE",
    9: "KILL",
    11: "SEGV",
    13: "PIPE",
    14: "ALRM",
    15: "TERM",
    24: "XCPU",
    25: "XFSZ",
    31: "SYS",
}


@dataclass(frozen=True, slots=True)
class UnitProps:
    """One unit's properties at one moment; None if systemd did not give one.

    exec_main_code    ``exited``, ``killed``, ``dumped`` or None (nothing ended yet)
    exec_main_status  exit code, or signal number when killed or dumped
    """

    id: str | None = None
    load_state: str | None = None
    active_state: str | None = None
    sub_state: str | None = None
    result: str | None = None
    main_pid: int | None = None
    control_pid: int | None = None
    exec_main_pid: int | None = None
    exec_main_code: str | None = None
    exec_main_status: int | None = None
    n_restarts: int | None = None
    invocation_id: str | None = None
    job: int | None = None
    need_daemon_reload: bool | None = None
    condition_result: bool | None = None
    condition_at: str | None = None
    active_enter: str | None = None
    exec_main_exit: str | None = None
    raw: Mapping[str, str] | None = None


def parse_show(text: str) -> list[dict[str, str]]:
    """`systemctl show` output → one dict of raw strings per unit, in order.

    Units are separated by an empty line or by a repeated key. Lines that are not KEY=VALUE (output of a login shell)
    are ignored; a repeated key inside one unit (`ExecStart=` twice) keeps all values, joined by newlines.
    """
    units: list[dict[str, str]] = [{}]
    multi = (
        "Exec",
        "Environment",
        "Condition",
        "Assert",
        "DropIn",
        "TriggeredBy",
        "Device",
        "Timers",
        "Listen",
    )
    for line in text.replace("\r\n", "\n").split("\n"):
        if not line.strip():
            if units[-1]:
                units.append({})
            continue
        match = _LINE.match(line)
        if match is None:
            continue
        key, value = match["k"], match["v"].rstrip()
        if key in units[-1]:
            if key.startswith(multi) and not key.startswith(
                ("ExecMain", "ConditionResult", "ConditionTimestamp")
            ):
                units[-1][key] += "\n" + value
                continue
            units.append({})
        units[-1][key] = value
    return [u for u in units if u]


def looks_like_show(text: str) -> bool:
    """Whether text is `systemctl show` output: at least two KEY=VALUE lines with names of unit properties."""
    keys = set(re.findall(r"^[^\S\n]*([A-Z][A-Za-z0-9]+)=", text[:60_000], re.MULTILINE))
    return (
        len(
            keys
            & {"ActiveState", "SubState", "MainPID", "LoadState", "Result", "InvocationID", "NRestarts", "Id"}
        )
        >= 2
    )


def _set(raw: Mapping[str, str], key: str) -> str | None:
    value = raw.get(key)
    return None if value is None or value.strip() in _UNSET else value.strip()


def _int(raw: Mapping[str, str], key: str) -> int | None:
    value = _set(raw, key)
    if value is None:
        return None
    match = re.match(r"-?\d{1,19}", value)
    return int(match[0]) if match else None


def _bool(raw: Mapping[str, str], key: str) -> bool | None:
    value = _set(raw, key)
    return None if value is None else value.lower() in ("yes", "true", "1", "on")


def span_s(text: str | None) -> float | None:
    """systemd time span (`1min 30s`, `4s`, `90000000` µs) → seconds; None for `infinity` or nothing."""
    if text is None or text.strip() in _UNSET or "infinity" in text:
        return None
    if text.strip().isdecimal() and len(text.strip()) < 19:
        return int(text) / 1e6
    parts = [
        (float(m["n"]), m["u"] or "s")
        for m in _SPAN.finditer(text)
        if m["n"].count(".") < 2 and m["n"] != "."
    ]
    return sum(n * _UNITS[u] for n, u in parts) if parts else None


def unit_props(raw: Mapping[str, str]) -> UnitProps:
    """Raw strings of one unit → typed properties. What is missing or cannot be read is None."""
    code = _set(raw, "ExecMainCode")
    name = MAIN_CODES.get(int(code)) if code is not None and code.isdecimal() and len(code) < 4 else code
    return UnitProps(
        id=_set(raw, "Id") or _set(raw, "Names"),
        load_state=_set(raw, "LoadState"),
        active_state=_set(raw, "ActiveState"),
        sub_state=_set(raw, "SubState"),
        result=_set(raw, "Result"),
        main_pid=_int(raw, "MainPID"),
        control_pid=_int(raw, "ControlPID"),
        exec_main_pid=_int(raw, "ExecMainPID"),
        exec_main_code=name if name in ("exited", "killed", "dumped") else None,
        exec_main_status=_int(raw, "ExecMainStatus"),
        n_restarts=_int(raw, "NRestarts"),
        invocation_id=_set(raw, "InvocationID"),
        job=_int(raw, "Job") or None,
        need_daemon_reload=_bool(raw, "NeedDaemonReload"),
        condition_result=_bool(raw, "ConditionResult"),
        condition_at=_set(raw, "ConditionTimestamp"),
        active_enter=_set(raw, "ActiveEnterTimestamp"),
        exec_main_exit=_set(raw, "ExecMainExitTimestamp"),
        raw=dict(raw),
    )


def parse_units(text: str) -> list[UnitProps]:
    """`systemctl show` output → typed properties per unit."""
    return [unit_props(raw) for raw in parse_show(text)]


_ARGV = re.compile(r"argv\[\]=(?P<argv>.*?) ; ")


def exec_argv(shown: str | None) -> list[str]:
    """The argv of `ExecStart` as `systemctl show` prints it.

    >>> exec_argv("{ path=/usr/bin/docker ; argv[]=/usr/bin/docker run --name x img ; ignore_errors=no ; }")[1:4]
    ['run', '--name', 'x']
    """
    match = _ARGV.search((shown or "").rsplit("\n", 1)[-1])
    return match["argv"].split() if match else []


_COMMAND = re.compile(
    r"\{[^{}]{0,4000}?code=(?P<code>exited|killed|dumped) ; status=(?P<st>\d{1,3})[^{}]{0,200}\}"
)


def failed_commands(props: UnitProps) -> list[tuple[str, str]]:
    """(property, status) of the commands around the main process that failed: ExecStartPre, ExecStartPost …, as
    `systemctl show` or `systemctl status` print them."""
    found: list[tuple[str, str]] = []
    for key, value in (props.raw or {}).items():
        if key.startswith("Exec") and key not in (
            "ExecStart",
            "ExecMainCode",
            "ExecMainStatus",
            "ExecMainPID",
        ):
            found += [
                (key.removesuffix("Ex"), m["st"])
                for m in _COMMAND.finditer(value)
                if m["code"] != "exited" or m["st"] != "0"
            ]
    return found
