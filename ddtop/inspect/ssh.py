"""`ddtop inspect ssh`: a host name against an ssh config, or the texts of a connection that failed."""

from __future__ import annotations

import re
import shlex
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ddtop.errors import HostUnreachableError
from ddtop.hosts.ssh.causes import CAUSES, fill
from ddtop.hosts.ssh.error_texts import find_hits
from ddtop.hosts.ssh.match_exec import ExecRule, harmless_exec, run_exec
from ddtop.hosts.ssh.resolve import resolve_target
from ddtop.hosts.ssh.target import SshTarget
from ddtop.hosts.ssh.text_verdict import best_cause, names_in
from ddtop.inspect.inputs import NotJudgedError, evidence, input_number, is_ssh_config, result, text_of
from ddtop.inspect.ssh_texts import is_speech, judge_texts

_LIMITS = {
    # asyncssh lost a ProxyJump that came from an include after a non-matching block (ronf/asyncssh#810).
    "asyncssh_affected_versions": "2.23.0 (fixed by 2.24.1, checked)",
    # measured: asyncssh 2.24.1 when the proxy is not there, and when it prints text of its own
    "proxy_missing_error": "FileNotFoundError: No such file or directory: 'no-such-proxy'",
    "proxy_prints_text_error": "ConnectionLost: Connection lost",
}
_ONCE = {"schema", "kind", "evidence"}
_SEVERITY = {"critical": 0, "error": 1, "warn": 2, "info": 3}


def diagnose_ssh(
    files: Mapping[str, bytes] | None = None,
    host: str | None = None,
    *,
    local_user: str | None = None,
    own_config: bool = False,
) -> dict[str, Any]:
    """The verdict on an SSH config for `host`, or on messages of ssh or asyncssh.

    `files`: name → content. `*.config` are configs (and files that they include, by name), `query.txt` the host;
    other files are texts, exceptions, captured output. Without files: the user's own config for `host`.
    `own_config` allows `Match exec` commands to run; of others' files only `true`, `false` and `test -X PATH` are
    answered. Raises NotJudgedError when there is nothing about SSH in it.
    """
    if not files:
        if not host:
            raise NotJudgedError("give a host name or a file")
        return _of_target(_resolve(host, None, None, run_exec, local_user), {})
    query = host or text_of(files.get("query.txt", b"")).strip() or None
    configs = {n: d for n, d in files.items() if n.endswith((".config", "ssh_config")) or n in {"config"}}
    if not configs:
        configs = {n: d for n, d in files.items() if n != "query.txt" and is_ssh_config(text_of(d[:65_536]))}
    texts = {
        n: text_of(d) for n, d in files.items() if n not in configs and n not in {"query.txt", "meta.toml"}
    }
    if configs:
        return _of_configs(
            files, configs, texts, query, run_exec if own_config else harmless_exec, local_user
        )
    return judge_texts(files, texts, text_of(files.get("meta.toml", b"")))


def _resolve(
    host: str, paths: list[Path] | None, include_dir: Path | None, rule: ExecRule, local_user: str | None
) -> SshTarget:
    return resolve_target(
        host, config_paths=paths, include_dir=include_dir, exec_rule=rule, local_user=local_user
    )


# ------------------------------------------------------------------------------------------------ configs


def included_files(path: Path, *, depth: int = 4) -> dict[str, bytes]:
    """Files that a config includes by a relative name, from beside it: relative name → content."""
    out: dict[str, bytes] = {}
    if depth:
        text = text_of(path.read_bytes())
        for row in re.finditer(r"^\s{0,40}Include[\s=]{1,20}(?P<names>.{1,1000})$", text, re.I | re.M):
            for name in row["names"].replace('"', "").split():
                if name.startswith(("/", "~", "$")) or ".." in name:
                    continue
                for file in sorted(path.parent.glob(name))[:100]:
                    if file.is_file():
                        out[file.relative_to(path.parent).as_posix()] = file.read_bytes()
                        out.update(
                            included_files(file, depth=depth - 1) if file.parent == path.parent else {}
                        )
    return out


def default_query(text: str) -> str | None:
    """The host a config is about: its first concrete Host name, without a canonical domain."""
    domains = [
        d
        for m in re.finditer(r"^\s{0,40}CanonicalDomains[\s=]+(.{1,500})$", text, re.I | re.M)
        for d in m[1].split()
    ]
    for row in re.finditer(
        r"^\s{0,40}Host(?:\s{1,20}=?\s{0,20}|\s{0,20}=\s{0,20})(?P<names>\S.{0,1000}?)\s{0,20}$",
        text,
        re.I | re.M,
    ):
        for name in row["names"].replace('"', "").split():
            if not re.search(r"[*?!]", name):
                return next((name[: -len(d) - 1] for d in domains if name.endswith("." + d)), name)
    found = re.search(
        r"^\s{0,40}Match\s.{0,400}?\b(?:original)?host\s{1,20}([\w.\-]{1,255})", text, re.I | re.M
    )
    return found[1] if found else None


def _of_configs(
    files: Mapping[str, bytes],
    configs: Mapping[str, bytes],
    texts: Mapping[str, str],
    query: str | None,
    rule: ExecRule,
    local_user: str | None,
) -> dict[str, Any]:
    results: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="ddtop-inspect-") as folder:
        root = Path(folder)
        for name, data in files.items():
            place = root / name
            if ".." in Path(name).parts or (place.is_absolute() and not place.is_relative_to(root)):
                continue
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
        for name in sorted(configs, key=lambda n: (input_number(n) or 0, n)):
            host = query or default_query(text_of(configs[name]))
            if host is None:
                continue
            try:
                target = _resolve(host, [root / name], root, rule, local_user)
                results[name] = _of_target(target, texts, file=name, folder=folder)
            except HostUnreachableError as error:
                cause = CAUSES["config-parse-error"]
                results[name] = result(
                    "ssh",
                    cause.verdict,
                    cause.cause,
                    cause.severity,
                    fill(cause.do, alias=host),
                    [evidence(error.what.replace(folder + "/", ""), file=name)],
                )
    if not results:
        raise NotJudgedError("the config names no Host: give the host name")
    return _join_configs(results, texts)


def _join_configs(results: dict[str, dict[str, Any]], texts: Mapping[str, str]) -> dict[str, Any]:
    numbered = {input_number(n): r for n, r in results.items() if input_number(n) is not None}
    named = {
        n.rsplit("/", 1)[-1].removesuffix(".config"): r for n, r in results.items() if input_number(n) is None
    }
    common = {"schema", "kind", "verdict", "cause", "severity", "advice", "evidence"}
    if numbered:
        first = min(n for n in numbered if n is not None)
        out = dict(numbered[first])
        for n, other in numbered.items():
            if n != first:
                out.update(
                    (f"{k.removesuffix('_input')}_input{n}", v) for k, v in other.items() if k not in _ONCE
                )
    else:
        worst = min(named.values(), key=lambda r: _SEVERITY[r["severity"]])
        bad = _SEVERITY[worst["severity"]] < _SEVERITY["warn"]
        proof = [{**e, "file": f"{n}.config"} for n, r in named.items() for e in r["evidence"][:1]]
        out = result(
            "ssh",
            worst["verdict"] if bad else "ok",
            worst["cause"] if bad else "config-resolved",
            worst["severity"] if bad else "info",
            worst["advice"] if bad else "Nothing to do.",
            proof,
        )
    out.update(
        {
            n: {k: v for k, v in r.items() if k not in common}
            for n, r in named.items()
            if len(named) > 1 or numbered
        }
    )
    return _with_texts(out, texts)


def _with_texts(out: dict[str, Any], texts: Mapping[str, str]) -> dict[str, Any]:
    """What the texts beside a config add: a connection that failed outweighs a config that resolves."""
    hits = [(n, h) for n, t in texts.items() for h in find_hits(t) if is_speech(n)]
    grave = [(n, h) for n, h in hits if h.cause.cause not in {"remotecommand-conflict"}]
    if any(h.cause.cause == "remotecommand-conflict" for _, h in hits):
        out["ssh_rc"] = 255
    out["evidence"] = [*out["evidence"], *[evidence(h.text, h.line, n) for n, h in hits[:6]]]
    if grave and out["verdict"] == "ok":
        said = "\n".join(texts.values())
        cause = best_cause([h for _, h in grave], said)
        if cause.verdict != "ok":
            context = {
                "key": shlex.quote(str(out.get("identity_file") or "")) if out.get("identity_file") else "",
                **names_in(said, [h for _, h in grave]),
                "alias": str(out.get("query") or ""),
                "host": str(out.get("hostname") or ""),
                "port": str(out.get("port") or ""),
                "user": str(out.get("user") or ""),
                "ssh": f"`ssh {out['query']} true`" if out.get("query") else "",
            }
            out.update(
                verdict=cause.verdict,
                cause=cause.cause,
                severity=cause.severity,
                advice=fill(cause.do, **context),
                means=fill(cause.means, **context),
            )
    for name, text in texts.items():
        if name.endswith(".stdout") and (n := input_number(name)):
            out[f"line_end_input{n}" if n > 1 else "line_end"] = "CRLF" if "\r\n" in text else "LF"
    return out


def _of_target(
    target: SshTarget, texts: Mapping[str, str], *, file: str | None = None, folder: str = ""
) -> dict[str, Any]:
    """The verdict on one resolved config: what acts, what does not, and what ddtop does about it."""
    verdict, cause, severity, advice = config_cause(target, folder)
    proof = [evidence("route: " + " > ".join(target.route), file=file)]
    proof += [evidence(note.text.replace(f"{folder}/", ""), file=file) for note in target.notes]
    slugs = {note.slug for note in target.notes}
    fields: dict[str, Any] = {
        "query": target.alias,
        "hostname": target.hostname,
        "port": target.port,
        "user": target.user,
        "tcp_target": target.tcp_target,
        "host_key_alias": target.host_key_alias,
        "expected_route": list(target.route),
        "proxy_jump": target.proxy_jump,
        "asyncssh_tunnel_input": target.proxy_jump,
        "argv": list(target.proxy_command) if target.proxy_command else None,
        "identity_file": target.identity_files_named[0] if target.identity_files_named else None,
        "missing_identity_files": list(target.missing_identity_files) or None,
        "asyncssh_error": "FileNotFoundError" if target.missing_identity_files else None,
        "strict_host_key_checking": target.strict,
        "multiplexed_by_asyncssh": False,
        "notes": [note.text.replace(f"{folder}/", "") for note in target.notes] or None,
    }
    for option, value in target.options.items():
        if isinstance(value, (str, int, list)):
            fields.setdefault(
                re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", option).lower(), value
            )
    if target.strict in {"no", "accept-new"}:
        fields["asyncssh_honours_stricthostkeychecking"] = False
    if target.proxy_from and target.proxy_jump:
        fields["asyncssh_affected_versions"] = _LIMITS["asyncssh_affected_versions"]
    if target.proxy_command:
        fields.update({k: v for k, v in _LIMITS.items() if k.startswith("proxy_")})
    unknown = [note.option for note in target.notes if note.slug == "config-option-unknown"]
    if unknown:
        fields.update(ssh_rc=255, unknown_options=unknown)
    if "remotecommand-ignored" in slugs:
        fields["asyncssh_runs_given_command"] = True
    if target.options.get("CanonicalizeHostname"):
        fields["canonicalized"] = target.alias != target.hostname
    if "tagged" in str(target.options.get("Tag", "")) or _uses_tagged(texts, file, folder):
        # `Match tagged` came with OpenSSH 9.4; 9.2 refuses the file with status 255, asyncssh takes it.
        fields.update(ssh92_rc=255, asyncssh_hostname=target.hostname)
    return result("ssh", verdict, cause, severity, advice, proof, **fields)


def _uses_tagged(texts: Mapping[str, str], file: str | None, folder: str) -> bool:
    place = Path(folder, file) if file and folder else None
    return bool(
        place
        and place.is_file()
        and re.search(rb"^[^\S\n]*Match[^\S\n].*\btagged\b", place.read_bytes(), re.I | re.M)
    )


def config_cause(target: SshTarget, folder: str) -> tuple[str, str, str, str]:
    """(verdict, cause, severity, advice) of a resolved config: the one thing that most needs to be known."""
    slugs = {note.slug for note in target.notes}
    if "config-option-unknown" in slugs:
        names = ", ".join(n.option or "" for n in target.notes if n.slug == "config-option-unknown")
        return (
            "degraded",
            "config-option-unknown",
            "warn",
            (
                f"ssh refuses this file because of an unknown option: {names}. ddtop ignores the option. Correct its "
                "spelling, or add it to IgnoreUnknown."
            ),
        )
    if target.nested_jump:
        return (
            "degraded",
            "nested-proxyjump-unsupported",
            "warn",
            (
                "asyncssh resolves only the first level of a nested ProxyJump, so ddtop connects hop by hop: "
                f"{' > '.join(target.route)}. For other asyncssh programs, list all hops in one ProxyJump."
            ),
        )
    if target.missing_identity_files:
        return (
            "ok",
            "identity-file-missing-tolerated",
            "warn",
            (
                "An IdentityFile does not exist. ddtop ignores it, as ssh does, and tries the SSH agent and the other "
                "keys. Correct the path if you need that key."
            ),
        )
    if "host-key-not-checked" in slugs or "host-key-accept-new" in slugs:
        return (
            "ok",
            "host-key-checking-translated",
            "warn",
            next(note.text + "." for note in target.notes if note.slug.startswith("host-key-")),
        )
    if target.proxy_command:
        return (
            "ok",
            "proxycommand",
            "info",
            (
                f"ddtop connects through ProxyCommand {target.proxy_command[0]}. It cannot test the host's port by TCP: "
                "only the proxy can reach it."
            ),
        )
    if "remotecommand-ignored" in slugs or "requesttty-ignored" in slugs:
        return (
            "ok",
            "remotecommand-ignored",
            "info",
            "ddtop runs its own command, without a terminal. Nothing to do.",
        )
    if target.proxy_jump:
        included = bool(target.proxy_from) and any(
            Path(str(target.proxy_from)) == Path(i) for i in target.included
        )
        name = "proxyjump-from-include" if included else "proxyjump"
        return "ok", name, "info", f"ddtop connects over {' > '.join(target.route)}. Nothing to do."
    if "match-exec-not-run" in slugs:
        return (
            "partial",
            "match-exec-not-run",
            "warn",
            (
                "A Match exec command in this file was not run, because the file is not your own config. Run "
                "`ddtop inspect ssh HOST` to resolve the host by your config."
            ),
        )
    if target.used_match:
        return (
            "ok",
            "match-supported",
            "info",
            "Match blocks work as in ssh; exec commands run once per connection. Nothing to do.",
        )
    return "ok", "config-resolved", "info", "The config resolves as in ssh. Nothing to do."
