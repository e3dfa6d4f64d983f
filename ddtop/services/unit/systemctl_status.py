"""Read what `systemctl status` prints: the properties it prints (no InvocationID, no NRestarts)."""

from __future__ import annotations

import re

from ddtop.services.unit.systemctl_show import SIGNAL_NAMES, UnitProps, unit_props

_ACTIVE = re.compile(r"^[^\S\n]*Active: (?P<a>[\w-]+)(?: \((?P<s>[^)]*)\))?", re.MULTILINE)
_LOADED = re.compile(r"^[^\S\n]*Loaded: (?P<l>[\w-]+)(?: \((?P<d>[^)]*)\))?", re.MULTILINE)
_MAIN = re.compile(
    r"^[^\S\n]*(?:Main PID|Process): (?P<pid>\d+)(?P<what> \S*?=?[^\n(]*)?\((?:code=(?P<c>\w+), (?:status|signal)=(?P<st>\d+)?/?(?P<n>\w+)?|(?P<comm>[^)]+))\)",
    re.MULTILINE,
)
_HEAD = re.compile(
    r"^[^\S\n]*(?:[●○×✗*↻x-][^\S\n]+)?(?P<id>[\w@.\\:\-]+\.(?:service|scope))(?:[^\S\n]+-[^\S\n].{0,300})?[^\S\n]*$"
    r"(?=\n[^\S\n]*Loaded:)",
    re.MULTILINE,
)


_FRAGMENT = re.compile(r"^\S*/(?P<id>[\w@.\\:\-]+\.(?:service|scope))(?=;|$)")
_BULLET = re.compile(
    r"^[^\S\n]*[●○×✗*↻][^\S\n]+(?P<id>[\w@.\\:\-]+\.(?:service|scope))\b.{0,300}\n[^\S\n]*Active: ",
    re.MULTILINE,
)
"""The head of a status of which somebody left lines out."""


def looks_like_status(text: str) -> bool:
    """Whether text is what `systemctl status` prints."""
    head = text[:20_000]
    return bool(_ACTIVE.search(head) and (_LOADED.search(head) or _BULLET.search(head)))


def parse_status(text: str) -> UnitProps:
    """`systemctl status` output → properties; what it does not print stays None."""
    raw: dict[str, str] = {}
    if head := _HEAD.search(text):
        raw["Id"] = head["id"]
    elif bullet := _BULLET.search(text):
        raw["Id"] = bullet["id"]
    if loaded := _LOADED.search(text):
        raw["LoadState"] = loaded["l"]
        if "Id" not in raw and (path := _FRAGMENT.search(loaded["d"] or "")):
            raw["Id"] = path["id"]
    if active := _ACTIVE.search(text):
        raw["ActiveState"] = active["a"]
        detail = active["s"] or ""
        line = text[active.start() : active.end() + 200].lstrip("\n").split("\n", 1)[0]
        result = re.search(
            r"\(Result: ([\w-]+)", line
        )  # `activating (auto-restart) (Result: exit-code)` has two
        raw["Result"] = result[1] if result else "success"
        sub = re.match(r"[\w-]+", detail)
        raw["SubState"] = sub[0] if sub and not detail.startswith("Result") else active["a"]
    for main in _MAIN.finditer(text):
        is_main = "Main PID" in main[0]
        if main["comm"] is not None:
            if is_main:
                raw["MainPID"] = raw["ExecMainPID"] = main["pid"]
        elif not is_main and "ExecStart=" not in main[0]:
            key = (main["what"] or "").strip().partition("=")[0]
            if key.startswith("Exec"):
                shown = f"{{ code={main['c']} ; status={main['st'] or _signal(main['n'])} }}"
                raw[key] = f"{raw[key]}\n{shown}" if key in raw else shown
        elif is_main or "ExecStart=" in main[0]:
            raw["ExecMainPID"], raw["ExecMainCode"] = main["pid"], main["c"]
            raw.setdefault("MainPID", "0")
            raw["ExecMainStatus"] = main["st"] or _signal(main["n"])
    if re.search(r"changed on disk\. Run 'systemctl daemon-reload'", text):
        raw["NeedDaemonReload"] = "yes"
    return unit_props(raw)


def _signal(name: str | None) -> str:
    return str(next((k for k, v in SIGNAL_NAMES.items() if v == name), ""))
