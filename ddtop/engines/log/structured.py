"""Log records written as JSON, one a line (structured logging): their fields as the plain lines that they stand for. Pure."""

from __future__ import annotations

import json
import re
from typing import Any

_MESSAGE = ("message", "msg", "event", "log", "text")
_LEVEL = ("level", "levelname", "lvl", "severity", "log_level", "loglevel")
_TIME = ("timestamp", "time", "ts", "asctime", "@timestamp", "datetime", "date", "created")
_WHO = ("target", "logger", "logger_name", "name", "module", "source", "component", "filename", "caller")
_TRACE = (
    "exc_info",
    "exception",
    "exc_text",
    "stack_trace",
    "stack_info",
    "stacktrace",
    "stack",
    "traceback",
)
_WORDS = {
    "WARN": "WARNING",
    "FATAL": "CRITICAL",
    "PANIC": "CRITICAL",
    "ERR": "ERROR",
    "TRACE": "DEBUG",
    "NOTICE": "INFO",
}
_ENGINE = re.compile(
    r"\b(?:vllm|sglang|text_generation_\w+|tensorrt_llm|trtllm|lmdeploy|llama[-_.]?(?:server|cpp))\b"
)
_CLOCK = re.compile(r"(?:\d{4}-)?(?P<day>\d\d-\d\d)[T ](?P<time>\d\d:\d\d:\d\d)")
_AT = re.compile(r"\{[\"']\w")
_DOCKER = {"log", "stream", "time", "attrs", "kubernetes"}
"""Keys of docker's json-file log driver: the line is as the program wrote it."""
NO_TIME = "00-00 00:00:00"
"""In place of a record's time that is not readable as one: lines need one in their prefix, and no duration is made of it."""


def plain(line: str) -> str | None:
    """The text that a record stands for, lines joined by newlines; None where the line is no such record.

    The first line gets vLLM's prefix (`ERROR 04-23 11:13:38 [core.py:1] `) if the record names an engine as its writer, else
    uvicorn's (`ERROR:    `): only the former shows that it is an engine's log.

    >>> plain('{"level": "error", "msg": "boom", "logger": "vllm.engine"}')
    'ERROR 00-00 00:00:00 boom'
    >>> plain('{"level": "error", "msg": "boom"}')
    'ERROR:    boom'
    """
    found = _AT.search(line[:200])
    if found is None or not line.rstrip().endswith("}"):
        return None
    try:
        record = json.loads(line[found.start() :])
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    inner = record.get("fields")
    values: dict[str, Any] = {**(inner if isinstance(inner, dict) else {}), **record}
    message = _first(values, _MESSAGE)
    if set(record) <= _DOCKER and isinstance(record.get("log"), str):
        return line[: found.start()] + str(record["log"]).rstrip("\n")
    level = str(_first(values, _LEVEL) or "").upper()
    if not isinstance(message, str) or not (level or _first(values, _TIME)):
        return None
    return line[: found.start()] + _head(values, level) + _body(values, message)


def _first(values: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next((values[name] for name in names if values.get(name) not in (None, "")), None)


def _head(values: dict[str, Any], level: str) -> str:
    level = _WORDS.get(level, level)
    level = level if level in ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL") else "INFO"
    who = " ".join(str(values[name]) for name in _WHO if isinstance(values.get(name), str))
    if not _ENGINE.search(who):
        return f"{level}:    "
    when = _CLOCK.search(str(_first(values, _TIME) or ""))
    return f"{level} {when['day']} {when['time']} " if when else f"{level} {NO_TIME} "


def _body(values: dict[str, Any], message: str) -> str:
    parts = [message.rstrip("\n")]
    for name in _TRACE:
        value = values.get(name)
        text = "\n".join(map(str, value)) if isinstance(value, list) else value
        if isinstance(text, str) and "\n" in text and text not in message:
            parts.append(text.rstrip("\n"))
    return "\n".join(parts)
