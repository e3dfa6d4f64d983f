"""Notes on options of an SSH configuration that do not act as they do under ssh."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ddtop.hosts.ssh.target import Note, Strict

_INERT = {
    "ControlMaster": "ddtop keeps one connection of its own and does not use ssh's shared one",
    "RemoteCommand": "ddtop runs its own command and ignores RemoteCommand",
    "RequestTTY": "ddtop asks for no terminal: a pty would turn line ends into CRLF and mix stderr into stdout",
    "LocalForward": "ddtop sets up the forwards it needs itself",
    "RemoteForward": "ddtop sets up no remote forwards",
    "DynamicForward": "ddtop sets up no SOCKS forwards",
    "PermitLocalCommand": "ddtop runs no LocalCommand",
    "KnownHostsCommand": "ddtop does not run KnownHostsCommand; it reads the known_hosts files only",
    "VerifyHostKeyDNS": "ddtop does not look host keys up in DNS",
    "UseKeychain": "ddtop does not use the macOS keychain; add the key to the SSH agent",
    "AddKeysToAgent": "ddtop adds no keys to the SSH agent",
}


def option_notes(
    raw: dict[str, Any], missing: Sequence[str], strict: Strict, skipped_exec: Sequence[str]
) -> list[Note]:
    """One note for each option of `raw` that does not act as it does under ssh."""
    notes = [
        Note("identity-file-missing", f"{path} does not exist: it is left out, as under ssh", "IdentityFile")
        for path in missing
    ]
    if strict == "no":
        text = "StrictHostKeyChecking no: the host key is NOT checked; the connection could be intercepted unseen"
        notes.append(Note("host-key-not-checked", text, "StrictHostKeyChecking"))
    elif strict == "accept-new":
        text = "StrictHostKeyChecking accept-new: a new host key is saved, a changed one refused"
        notes.append(Note("host-key-accept-new", text, "StrictHostKeyChecking"))
    for option, text in _INERT.items():
        if raw.get(option) not in (None, False, "no"):
            notes.append(Note(f"{option.lower()}-ignored", text, option))
    notes += [
        Note("match-exec-not-run", f"Match exec {command!r} was not run: its block is skipped", "Match")
        for command in dict.fromkeys(skipped_exec)
    ]
    return notes
