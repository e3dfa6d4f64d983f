"""What ssh, sshd and asyncssh said, and what came over a connection: one verdict."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ddtop.hosts.ssh.causes import CAUSES, fill
from ddtop.hosts.ssh.error_texts import Hit, find_hits, key_facts
from ddtop.hosts.ssh.probe_frame import read_frame
from ddtop.hosts.ssh.text_verdict import best_cause, names_in
from ddtop.inspect.inputs import NotJudgedError, evidence, input_number, result


def is_speech(name: str) -> bool:
    """Whether a file holds what a program said about the connection, not what ran over it."""
    return name.endswith((".txt", ".err", ".log", ".stderr", ".text")) and "banner" not in name


def judge_texts(files: Mapping[str, bytes], texts: Mapping[str, str], meta: str) -> dict[str, Any]:
    """The verdict on texts and captured output; `meta` is meta.toml: what is known of known_hosts."""
    framed = next(((n, f) for n, t in texts.items() if not is_speech(n) and (f := read_frame(t))), None)
    framed = framed or next(
        ((n, f) for n, t in texts.items() if "banner" not in n and (f := read_frame(t))), None
    )
    hits = {n: find_hits(t) for n, t in texts.items() if "banner" not in n}
    if framed is not None:
        return _of_frame(*framed, texts, hits)
    broken = next((n for n, d in files.items() if n.endswith((".bin", ".stdout")) and not _is_utf8(d)), None)
    if broken is not None and not any(
        h.cause.cause == "client-decode-error" for hs in hits.values() for h in hs
    ):
        hits[broken] = [Hit(1, repr(files[broken][:80]), CAUSES["client-decode-error"])]
    groups: dict[int, list[tuple[str, Hit]]] = {}
    for name, found in hits.items():
        number = input_number(name) or 1
        groups.setdefault(number, []).extend((name, _told_apart(h, name, meta)) for h in found)
    groups = {n: g for n, g in sorted(groups.items()) if g}
    bare = next((n for n in texts if n.endswith(".stdout")), None)
    if not groups and broken is None and bare is not None and texts[bare].strip():
        return _unframed(bare, texts[bare])
    if not groups:
        raise NotJudgedError("it says nothing about an SSH connection")
    first, *others = groups
    out = _group_result(
        groups[first], "\n".join(t for n, t in texts.items() if (input_number(n) or 1) == first)
    )
    for n in others:
        got = _group_result(groups[n], "\n".join(t for f, t in texts.items() if input_number(f) == n))
        out.update(
            {f"{k}_input{n}": v for k, v in got.items() if k in {"verdict", "cause", "severity", "advice"}}
        )
        out["evidence"] += got["evidence"][:2]
    if broken is not None:
        data = files[broken]
        out["stdout_expected_replace"] = data.decode("utf-8", "replace")
        out["stdout_expected_bytes"] = list(data[:4096])
    return out


def _unframed(name: str, text: str) -> dict[str, Any]:
    """Output of a probe without marks: which line is the answer can only be guessed, so it is said to be
    partial."""
    rows = [(at, line.strip()) for at, line in enumerate(text.splitlines(), 1) if line.strip()]
    answer = next(((at, line) for at, line in reversed(rows) if line[0] in "{[" and line[-1] in "}]"), None)
    noise = [row for row in rows if row != answer]
    return result(
        "ssh",
        "partial",
        "output-unframed",
        "warn",
        "No marks frame the command's output, so it cannot be separated from what the login shell prints. Print a mark "
        "before and after it, as ddtop does.",
        [evidence(line, at, name) for at, line in rows[:4]],
        payload=answer[1] if answer else None,
        noise_lines=len(noise),
        line_end="CRLF" if "\r\n" in text else "LF",
    )


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _told_apart(hit: Hit, name: str, meta: str) -> Hit:
    """asyncssh says the same for a changed and an unknown key: what is known of known_hosts tells them
    apart."""
    if hit.cause.cause != "host-key-unknown" or not meta:
        return hit
    number = input_number(name) or 1
    row = re.search(rf"^input{number if number > 1 else ''}\s*=\s*(.+)$", meta, re.M)
    if row and re.search(r"differ|changed|another key|mismatch", row[1], re.I):
        return Hit(hit.line, hit.text, CAUSES["host-key-changed"])
    return hit


_STATUS = re.compile(
    r"(?:echo \$\?\s*\n\s*|^\s*(?:rc|exit(?: ?code| ?status)?)\s*[:=]\s*|exited with (?:code |status )?)(?P<rc>\d{1,3})\s*$",
    re.MULTILINE | re.IGNORECASE,
)


def _group_result(group: list[tuple[str, Hit]], text: str) -> dict[str, Any]:
    """The verdict of one input's telling lines. The cause that explains the others wins; a status that says that it
    failed outweighs lines that tell of nothing bad."""
    hits = [hit for _, hit in group]
    best = best_cause(hits, text)
    status = int(found["rc"]) if (found := _STATUS.search(text)) else None
    facts = key_facts(text)
    proof = [evidence(hit.text, hit.line, name) for name, hit in group[:6]]
    if best.verdict == "ok" and status:
        proof.insert(
            0, evidence(f"exit status {status}", text.count("\n", 0, found.end()) + 1 if found else None)
        )
        if status == 255:
            best = CAUSES["ssh-error"]
        else:
            return result(
                "ssh",
                "error",
                "command-failed",
                "error",
                f"The login worked; the command itself ended with {status}: read its output.",
                proof,
                rc=status,
            )
    remove = facts.get("remove_command")
    context = {
        **names_in(text, hits),
        "forget": f"`{remove}`" if remove else "",
        "fingerprint": f"It showed {facts['fingerprint']}. " if "fingerprint" in facts else "",
    }
    fields: dict[str, Any] = {**facts, "means": fill(best.means, **context)}
    if best.cause in {"host-key-changed", "host-key-unknown", "host-key-revoked"}:
        fields["auto_accept"] = False
        if re.search(r"Host key verification failed|REMOTE HOST IDENTIFICATION", text):
            fields["rc"] = 255  # ssh's own status for every failure of the connection
    if best.cause in {"key-needs-passphrase-or-agent", "key-wrong-passphrase"}:
        fields["needs_extra"] = "asyncssh[bcrypt]"
    if best.cause in {"max-sessions-reached", "forwarding-prohibited"}:
        lines = [line.strip().lower() for line in text.splitlines()]
        fields.update(
            ok=sum(line == "ok" or line.startswith("ok ") for line in lines),
            failed=sum(h.cause.cause == best.cause for _, h in group),
            connection_still_usable=True,
        )
    if best.cause in {"connection-dropped", "client-decode-error"}:
        fields["raises"] = bool(re.search(r"^(?:Traceback|\w+Error:)", text, re.M))
    return result("ssh", best.verdict, best.cause, best.severity, fill(best.do, **context), proof, **fields)


def _of_frame(
    name: str, frame: Any, texts: Mapping[str, str], hits: Mapping[str, list[Hit]]
) -> dict[str, Any]:
    banner = [
        line.strip() for n, t in texts.items() if "banner" in n for line in t.splitlines() if line.strip()
    ]
    sftp = any(h.cause.cause == "sftp-broken-by-shell-noise" for hs in hits.values() for h in hs)
    proof = [evidence(line, None, name) for line in frame.noise[:4]]
    fields: dict[str, Any] = {
        "payload": frame.payload,
        "rc": frame.rc,
        "noise_lines": len(frame.noise),
        "sftp_usable": False if sftp or frame.noise else None,
        "banner_in_stdout": any(line in texts[name] for line in banner) if banner else None,
    }
    if frame.cut:
        return result(
            "ssh",
            "partial",
            "output-cut-off",
            "error",
            "The end mark is missing: the output was cut off. Run the command again.",
            proof,
            **fields,
        )
    if frame.rc not in (None, 0):
        return result(
            "ssh",
            "error",
            "command-failed",
            "error",
            f"The connection works; the command ended with exit code {frame.rc}. Read its output.",
            proof,
            **fields,
        )
    noise = "The login shell prints text; ddtop ignores it. " if frame.noise else ""
    return result(
        "ssh",
        "ok",
        "output-framed",
        "info",
        noise + "The output between the marks is complete. Nothing to do.",
        proof,
        **fields,
    )
