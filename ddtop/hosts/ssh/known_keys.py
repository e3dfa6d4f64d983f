"""Whether a presented host key is in known_hosts. asyncssh reports "changed" and "never seen" by the same error, and
fails on a file that does not exist or has one bad line."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import asyncssh
import msgspec

from ddtop.hosts.ssh.target import SshTarget

KeyState = Literal["known", "changed", "unknown", "revoked"]


class KeyFinding(msgspec.Struct, frozen=True, kw_only=True):
    """What known_hosts says about a presented host key. `where` are `file:line` places of other (or revoked)
    keys of this host; `fingerprint` is ssh's SHA256 form of the presented key."""

    state: KeyState
    algorithm: str
    fingerprint: str
    where: tuple[str, ...] = ()


class KeyDecision(msgspec.Struct, frozen=True, kw_only=True):
    """What ddtop does about it: accept or not, and save the key or not. A changed key is never
    accepted, whatever the config says."""

    accept: bool
    write_to: str | None
    finding: KeyFinding


def known_lines(files: Iterable[str]) -> list[tuple[str, int, str]]:
    """(file, 1-based line number, text) of all entries; unreadable files and comments are skipped."""
    out: list[tuple[str, int, str]] = []
    for name in files:
        try:
            text = Path(name).read_bytes().decode("utf-8", "replace")
        except OSError:
            continue
        for at, line in enumerate(text.splitlines(), 1):
            if line.strip() and not line.lstrip().startswith("#"):
                out.append((name, at, line.strip()))
    return out


def load_known_hosts(target: SshTarget) -> asyncssh.SSHKnownHosts | None:
    """The known_hosts for asyncssh's `known_hosts=`; None (no check) only for StrictHostKeyChecking no.

    Lines that cannot be read are skipped, as ssh does; a missing file counts as empty.
    """
    if target.strict == "no":
        return None
    known = asyncssh.SSHKnownHosts()
    for _, _, line in known_lines(target.known_hosts):
        try:
            known.load(line)
        except (ValueError, AssertionError, IndexError):
            continue
    return known


def find_key(target: SshTarget, key: asyncssh.SSHKey, address: str = "") -> KeyFinding:
    """Look for `key` of `target` in its known_hosts files. `address` is the IP that was connected to, if
    known."""
    algorithm = str(key.get_algorithm())
    fingerprint = key.get_fingerprint()
    port = None if target.port == 22 or target.host_key_alias else target.port
    name = target.host_key_alias or target.hostname
    known: list[str] = []
    other: list[str] = []
    revoked: list[str] = []
    for file, at, line in known_lines(target.known_hosts):
        try:
            hosts, _, bad, *_ = asyncssh.import_known_hosts(line).match(name, address, port)
        except (ValueError, AssertionError, IndexError):
            continue
        # By public data: a key loaded from a file need not be equal, as an object, to the one presented.
        if key.public_data in {k.public_data for k in bad}:
            revoked.append(f"{file}:{at}")
        elif key.public_data in {k.public_data for k in hosts}:
            known.append(f"{file}:{at}")
        elif hosts:
            other.append(f"{file}:{at}")
    state: KeyState
    if revoked:
        state, where = "revoked", revoked
    elif known:
        state, where = "known", known
    else:
        state, where = ("changed", other) if other else ("unknown", [])
    return KeyFinding(state=state, algorithm=algorithm, fingerprint=fingerprint, where=tuple(where))


def decide_key(target: SshTarget, key: asyncssh.SSHKey, address: str = "") -> KeyDecision:
    """For `SSHClient.validate_host_public_key`: accept a known key, and a new one only where the config says
    so.

    A changed or revoked key is never accepted (StrictHostKeyChecking no skips this check altogether).
    """
    finding = find_key(target, key, address)
    if finding.state == "known" or (target.strict == "no" and finding.state != "revoked"):
        return KeyDecision(accept=True, write_to=None, finding=finding)
    if finding.state == "unknown" and target.strict == "accept-new":
        return KeyDecision(accept=True, write_to=target.known_hosts_new, finding=finding)
    return KeyDecision(accept=False, write_to=None, finding=finding)


def write_key(target: SshTarget, key: asyncssh.SSHKey, path: str) -> None:
    """Append the key to a known_hosts file (made with mode 0600, its folder 0700). Raises OSError."""
    file = Path(path)
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    line = f"{target.key_name} {key.export_public_key('openssh').decode('ascii').strip()}\n"
    file.touch(mode=0o600, exist_ok=True)
    old = file.read_bytes()
    with file.open("ab") as out:
        out.write((b"\n" if old and not old.endswith(b"\n") else b"") + line.encode())


def ssh_command(target: SshTarget) -> str:
    """The ssh command that shows the host's fingerprint and asks whether to trust it."""
    return f"ssh {shlex.quote(target.alias)} true"


def remove_commands(target: SshTarget, finding: KeyFinding | None = None) -> list[str]:
    """The ssh-keygen commands that forget the host's old key, one per file that holds it."""
    files = list(dict.fromkeys(w.rpartition(":")[0] for w in finding.where)) if finding else []
    files = files or list(target.known_hosts[:1]) or [target.known_hosts_new or "~/.ssh/known_hosts"]
    return [f"ssh-keygen -f {shlex.quote(file)} -R {shlex.quote(target.key_name)}" for file in files]
