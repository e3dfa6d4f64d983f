"""`[service]` and `[configs]`: how servers are started, with `for` expanded."""

from __future__ import annotations

import itertools
import re
from typing import Any, cast

from ddtop.plan.model import ENGINES, SERVICE_KINDS, Config, Engine, Scalar, Service, ServiceKind
from ddtop.plan.placeholders import BENCH_NAMES, SERVER_NAMES, check, check_all, fill, names_in
from ddtop.plan.problems import Path, Problems, key_path, shown, suggest
from ddtop.plan.read.fields import Fields
from ddtop.redact import looks_secret

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}\Z")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_UNIT = re.compile(r"[A-Za-z0-9:_.\\@-]+\Z")
_CONTAINER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*\Z")
MAX_EXPANDED = 1000


def read_service(fields: Fields, plan_name: str, configs: Any) -> Service:
    """`[service]`; `configs` is the raw `[configs]`. After a fault, something that lets the reading go on."""
    problems, path = fields.problems, fields.path
    kind = cast(
        ServiceKind, fields.choice("kind", SERVICE_KINDS, "systemd", f"one of: {', '.join(SERVICE_KINDS)}")
    )
    engine = cast(Engine, fields.choice("engine", ENGINES, "sglang", f"one of: {', '.join(ENGINES)}"))
    wanted = {
        "systemd": "the unit to restart, such as sglang.service",
        "command": "the unit that your script restarts: the gate watches it",
        "docker": "the name of the container",
        "process": "",
    }[kind]
    unit = fields.text("unit", required=wanted)
    port = fields.whole("port", 30000, 1, 65535)
    command = fields.texts("command")
    configure = fields.texts("configure")
    env = fields.named("env")
    stop_units = fields.texts("stop_units", one=True)
    timeout_s = fields.number("timeout_s", 1000.0, 1, 86_400, "s")
    user = fields.flag("user", False)
    cwd = fields.text("cwd")
    fields.done()
    check_env(problems, (*path, "env"), env)
    for key, units in (("unit", (unit,) if unit else ()), ("stop_units", stop_units or ())):
        for index, name in enumerate(units):
            check_unit(problems, (*path, key, *([index] if key == "stop_units" else [])), name, kind)
    if kind == "command" and not configure:
        fields.missing("configure", 'your script and its arguments, for kind = "command"')
    if kind != "command" and configure:
        problems.fault(
            (*path, "configure"), f'is not used by kind = "{kind}"', 'allowed with kind = "command" only'
        )
    if kind == "command" and command:
        problems.fault(
            (*path, "command"), 'is not used by kind = "command"', "there `configure` sets the arguments"
        )
    if kind in ("process", "docker") and not command and not _each_has(configs, "command"):
        fields.missing("command", f'the arguments that start the server, for kind = "{kind}"')
    return Service(
        kind=kind,
        engine=engine,
        unit=unit or f"ddtop-{plan_name}",
        port=port,
        command=command or (),
        env=env,
        stop_units=stop_units or (),
        configure=configure or (),
        timeout_s=timeout_s,
        user=user,
        cwd=cwd,
    )


def _each_has(configs: Any, key: str) -> bool:
    return (
        isinstance(configs, dict)
        and bool(configs)
        and all(isinstance(c, dict) and key in c for c in configs.values())
    )


def check_env(problems: Problems, path: Path, env: dict[str, str]) -> None:
    """Names must be valid in a shell; a value that looks like a secret is a warning."""
    for name, value in env.items():
        if not ENV_NAME.match(name):
            problems.fault(
                (*path, name), "is not the name of an environment variable", "letters, digits and _"
            )
        if "\0" in value or "\n" in value:
            problems.fault((*path, name), "has a line break or NUL in its value", "one line of text")
        if looks_secret(name, value):
            problems.warn(
                (*path, name),
                "looks like a secret, and what a plan says reaches the recording",
                "set it in the environment of the host instead (EnvironmentFile= of the unit)",
            )


def check_unit(problems: Problems, path: Path, name: str, kind: str) -> None:
    """A unit's name as systemd allows it, a container's as docker does."""
    bare = fill(name, dict.fromkeys(names_in(name), "x"))
    if kind == "docker" and not _CONTAINER.match(bare):
        problems.fault(path, f"found {shown(name)}", "allowed: a container's name (letters, digits, _ . -)")
    if kind in ("systemd", "command"):
        if not _UNIT.match(bare) or len(bare) > 255:
            problems.fault(path, f"found {shown(name)}", "allowed: a unit's name, such as sglang.service")
        elif "." not in bare:
            problems.fault(path, f"found {shown(name)}", f"a unit's name ends in its type: {name}.service")


def read_configs(fields: Fields | None, service: Service, problems: Problems) -> tuple[Config, ...]:
    """`[configs]`, in the order of the file, with every `for` expanded."""
    if fields is None or not fields.data:
        problems.fault(("configs",), "is missing or empty", "add at least one: [configs] auto = {}")
        return ()
    out: list[Config] = []
    seen: dict[str, str] = {}
    for name in fields.data:
        table = fields.table(name)
        if table is None:
            continue
        for config in _read_config(table, name, service):
            if config.name in seen:
                other = seen[config.name]
                what = (
                    f"makes {config.name} twice"
                    if other == name
                    else f"makes {config.name}, as {other!r} does"
                )
                problems.fault((*fields.path, name), what, "give each configuration its own name")
                continue
            seen[config.name] = name
            out.append(config)
    _check_service_placeholders(problems, service, out)
    return tuple(out)


def _check_service_placeholders(problems: Problems, service: Service, configs: list[Config]) -> None:
    """Placeholders of `[service]` are filled from each configuration: every one must have values for them."""
    anywhere = dict.fromkeys([*SERVER_NAMES, *(name for c in configs for name in c.values)])
    places: list[tuple[str, Path, str]] = [("unit", ("service", "unit"), service.unit)]
    places += [("command", ("service", "command", i), word) for i, word in enumerate(service.command)]
    places += [("configure", ("service", "configure", i), word) for i, word in enumerate(service.configure)]
    places += [("env", ("service", "env", name), text) for name, text in service.env.items()]
    places += [("stop_units", ("service", "stop_units", i), n) for i, n in enumerate(service.stop_units)]
    if service.cwd:
        places.append(("cwd", ("service", "cwd"), service.cwd))
    for key, path, text in places:
        check(problems, path, text, tuple(anywhere))
        for config in configs:
            if key != "env" and getattr(config, key) is not None:
                continue
            for name in names_in(text):
                if name in anywhere and name not in SERVER_NAMES and name not in config.values:
                    problems.fault(
                        ("configs", config.name),
                        f"{config.name} has no value for {{{name}}}, which {key_path(path)} needs",
                        f"set = {{ {name} = … }}, or for = {{ {name} = […] }}",
                    )


def _read_config(fields: Fields, template: str, service: Service) -> list[Config]:
    problems, path = fields.problems, fields.path
    constants = _values(fields, "set", lists=False)
    ranges = _values(fields, "for", lists=True)
    known = (*SERVER_NAMES, *constants, *ranges)
    args = fields.texts("args") or ()
    unit, command = fields.text("unit"), fields.texts("command")
    configure, stop_units = fields.texts("configure"), fields.texts("stop_units", one=True)
    env, cwd = fields.named("env"), fields.text("cwd")
    engine = cast("Engine | None", fields.choice("engine", ENGINES, None))
    port = fields.whole("port", 0, 1, 65535) if fields.has("port") else None
    fields.done()
    check_env(problems, (*path, "env"), env)
    check(problems, path, template, (*constants, *ranges))
    for key, texts in (
        ("args", args),
        ("command", command),
        ("configure", configure),
        ("stop_units", stop_units),
    ):
        check_all(problems, (*path, key), texts or (), known)
    for key, text in (("unit", unit), ("cwd", cwd), *((f"env.{k}", v) for k, v in env.items())):
        if text:
            check(problems, (*path, *key.split(".", 1)), text, known)
    if unit:
        check_unit(problems, (*path, "unit"), unit, service.kind)
    for index, name in enumerate(stop_units or ()):
        check_unit(problems, (*path, "stop_units", index), name, service.kind)
    if args and service.kind == "command":
        problems.fault(
            (*path, "args"),
            'is not used by kind = "command"',
            "your script sets the arguments: give it values by `set` and placeholders in service.configure",
        )
    elif args and not command and not service.command:
        problems.fault((*path, "args"), "has no command to go with", "add service.command, or this one's own")
    out: list[Config] = []
    for values in _products(problems, path, ranges):
        filled: dict[str, Scalar] = {**constants, **values}
        name = fill(template, filled)
        if not NAME.match(name):
            problems.fault(
                path, f"makes the name {shown(name)}", "allowed: letters, digits and . _ + -, at most 64"
            )
        out.append(
            Config(
                name=name,
                args=args,
                values=filled,
                unit=unit,
                command=command,
                env=env,
                stop_units=stop_units,
                configure=configure,
                engine=engine,
                port=port,
                cwd=cwd,
            )
        )
    return out


def _values(fields: Fields, key: str, *, lists: bool) -> dict[str, Any]:
    """`set` (name → value) or `for` (name → list of values)."""
    table = fields.table(key)
    out: dict[str, Any] = {}
    if table is None:
        return out
    for name, value in table.data.items():
        where = (*table.path, name)
        if not VARIABLE.match(name):
            fields.problems.fault(where, "is not a placeholder name", "letters, digits and _")
        elif name in BENCH_NAMES:
            fields.problems.fault(
                where, "is the name of a placeholder that ddtop fills in", "take another name"
            )
        items = value if lists and isinstance(value, list) else [value]
        good = [x for x in items if isinstance(x, str | int | float) and not isinstance(x, bool)]
        if len(good) < len(items) or not items or (lists and not isinstance(value, list)):
            allowed = "a list of numbers or strings, not empty" if lists else "a number or a string"
            fields.problems.fault(where, f"found {shown(value)}", f"allowed: {allowed}")
        if good:
            out[name] = good if lists else good[0]
    return out


def _products(problems: Problems, path: Path, ranges: dict[str, Any]) -> list[dict[str, Scalar]]:
    count = 1
    for values in ranges.values():
        count *= len(values)
    if count > MAX_EXPANDED:
        problems.fault(
            (*path, "for"), f"makes {count} configurations", f"allowed: at most {MAX_EXPANDED} from one entry"
        )
        return []
    return [
        dict(zip(ranges, combination, strict=True)) for combination in itertools.product(*ranges.values())
    ]


def suggest_config(name: str, configs: tuple[Config, ...]) -> str:
    """Words for a configuration that is not there."""
    return suggest(name, [c.name for c in configs])
