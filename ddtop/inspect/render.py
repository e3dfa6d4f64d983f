"""A verdict for people, as text for a terminal: what it is, the evidence, what to do, and all that was read."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Mapping
from typing import Any

_WHAT = {
    "gpu": "the GPUs",
    "log": "the server",
    "sse": "the response",
    "unit": "the service",
    "model": "the model",
    "results": "the result",
    "ssh": "the SSH connection",
}
_URGENCY = {"warn": "check it", "error": "action needed", "critical": "act now"}
_HEAD = {"schema", "kind", "verdict", "cause", "severity", "advice", "evidence", "meaning"}
_SAYS = {
    # verdict → the sentence's verb; {is} and {has} follow the number of the subject
    "failed": "failed",
    "stalled": "{has} stalled",
    "ok": "{is} in order",
    "success": "{is} in order",
    "error": "{does} not work",
    "partial": "could be read only in part",
    "degraded": "{is} degraded",
    "wrong-config": "{has} the wrong configuration",
    "not-started": "{has} not started",
    "needs-user-decision": "{needs} your decision",
    "unknown": "cannot be judged",
    "restage-needed": "must be staged again",
}
WIDTH = 100


def to_json(result: Mapping[str, Any]) -> str:
    """The result as strict JSON, indented. NaN and Infinity are left out, as is all that is unknown."""
    return json.dumps(_clean(dict(result)), ensure_ascii=False, indent=1, default=str)


def _clean(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(k): c for k, v in value.items() if (c := _clean(v)) is not None}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_clean(v) for v in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value


def render_text(result: Mapping[str, Any]) -> str:
    """Verdict and cause, the evidence with its line numbers, what to do, then the other fields."""
    lines = [_head(result)]
    proof = [item for item in result.get("evidence") or () if str(item.get("text", "")).strip()]
    proof = [item for at, item in enumerate(proof) if item not in proof[:at]]
    if proof:
        lines += ["", "Evidence"]
        lines += [_proof(item) for item in proof[:8]]
        if len(proof) > 8:
            lines.append(f"  … and {len(proof) - 8} more")
    if result.get("advice"):
        lines += [
            "",
            "What to do",
            textwrap.fill(str(result["advice"]), WIDTH, initial_indent="  ", subsequent_indent="  "),
        ]
    if result.get("means"):
        lines += [
            "",
            "Meaning",
            textwrap.fill(str(result["means"]), WIDTH, initial_indent="  ", subsequent_indent="  "),
        ]
    fields = {
        k: v for k, v in result.items() if k not in _HEAD and k != "means" and v not in (None, [], {}, ())
    }
    if fields:
        lines += ["", "Details"]
        lines += _fields(fields)
    return "\n".join(lines)


def _head(result: Mapping[str, Any]) -> str:
    """`The server failed: GPU memory ran out while CUDA graphs were captured.`, and the fields of the JSON it is from."""
    kind, verdict, cause = str(result.get("kind", "")), str(result["verdict"]), str(result["cause"])
    phrase = _SAYS.get(verdict, "{is} " + verdict.replace("-", " "))
    for one, many in (("is", "are"), ("has", "have"), ("does", "do"), ("needs", "need")):
        phrase = phrase.replace("{" + one + "}", many if kind == "gpu" else one)
    why = str(result.get("meaning") or cause.replace("-", " ")).rstrip(".")
    urgency = _URGENCY.get(str(result["severity"]), "")
    head = f"{_WHAT.get(kind, 'it')} {phrase}: {why}."
    if verdict == "failed" and result["severity"] == "info":  # stopped by its owner: nothing failed
        head = f"{why}."
    said = textwrap.fill(head[:1].upper() + head[1:], WIDTH, break_on_hyphens=False)
    return f"{said}\n[{verdict} · {cause} · {result['severity']}{': ' + urgency if urgency else ''}]"


def _proof(item: Mapping[str, Any]) -> str:
    place = ":".join(str(item[key]) for key in ("file", "line") if item.get(key) not in (None, ""))
    if item.get("line") not in (None, "") and not item.get("file"):
        place = f"line {item['line']}"
    text = _printable(str(item["text"])).strip()
    if len(text) > 200:
        text = text[:199] + "…"
    return f"  {place}  {text}" if place else f"  {text}"


def _printable(text: str) -> str:
    """The text with control characters as escapes: a log must not move the cursor of the terminal."""
    return "".join(c if c.isprintable() else {"\t": " "}.get(c, f"\\x{ord(c):02x}") for c in text)


def _fields(fields: Mapping[str, Any]) -> list[str]:
    out: list[str] = []
    width = min(28, max(len(name) for name in fields))
    for name, value in fields.items():
        if isinstance(value, Mapping):
            out.append(f"  {name}")
            out += [f"    {k}: {_value(v)}" for k, v in value.items() if v is not None][:40]
        elif isinstance(value, (list, tuple)) and value and isinstance(value[0], Mapping):
            out.append(f"  {name}")
            out += [f"    {', '.join(f'{k} {_value(v)}' for k, v in row.items())}" for row in value[:16]]
            if len(value) > 16:
                out.append(f"    … and {len(value) - 16} more")
        else:
            out.append(f"  {name:<{width}}  {_value(value)}")
    return out


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and abs(value) >= 10**9:
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e6 else f"{value:,.0f}"
    if isinstance(value, (list, tuple)):
        shown = ", ".join(_value(v) for v in value[:8])
        return (shown + (f", … {len(value) - 8} more" if len(value) > 8 else "")) or "none"
    text = _printable(str(value))
    return text if len(text) <= 160 else text[:159] + "…"
