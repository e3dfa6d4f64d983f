"""The words of a line of an ssh config, and which words ssh knows as options (readconf.c of OpenSSH 9.2 to 10.0)."""

from __future__ import annotations

import fnmatch
import re
import shlex
from collections.abc import Iterable

# Options that neither asyncssh nor ddtop acts on or names, and that ssh takes all the same: older names, options
# that were given up, and those that distributions add.
_TAKEN = """
afstokenpassing allowuserspecifiedhostkeyalgorithms canonicalizefallbacklocal certificatefile
challengeresponseauthentication cipher compressionlevel dsaauthentication enablesshkeysign fallbacktorsh
globalknownhostsfile2 gssapiauthentication gssapiclientidentity gssapidelegatecredentials gssapikexalgorithms
gssapikeyexchange gssapirenewalforcesrekey gssapiserveridentity gssapitrustdns hostbasedacceptedkeytypes
hostbasedkeytypes identityfile2 keepalive kerberosauthentication kerberostgtpassing macs pkcs11provider
protocol protocolkeepalives pubkeyacceptedkeytypes refuseconnection rhostsauthentication
rhostsrsaauthentication rsaauthentication setupaliveinterval setuptimeout skeyauthentication smartcarddevice
tisauthentication useprivilegedport userknownhostsfile2 useroaming usersh warnweakcrypto xauthlocation
""".split()  # noqa: SIM905  a list of words reads best as one


def cut_comment(line: str) -> str:
    """A line without its comment: `#` begins one where a word could begin, not within a word or quotes."""
    quote, fresh = "", True
    skip = False
    for at, char in enumerate(line):
        if skip:
            skip = False
        elif char == "\\":
            skip, fresh = True, False
        elif quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote, fresh = char, False
        elif char == "#" and fresh:
            return line[:at]
        else:
            fresh = char in " \t"
    return line


def split_words(line: str) -> list[str]:
    """The words of a line, quotes taken off and a comment left out.

    Raises ValueError for a quote that is never closed.

    >>> split_words('Host gpu1 "my box"  # the old one, don\\'t use')
    ['Host', 'gpu1', 'my box']
    """
    return shlex.split(cut_comment(line))


def option_word(line: str) -> str:
    """The option a line begins with, in lower case (`Port=22`, `Port = 22` and `"Port" 22` are `port`)."""
    word = line.strip().lstrip('"').replace("\t", " ").split(" ", 1)[0].split("=", 1)[0]
    return word.rstrip('"').lower()


def is_taken(option: str, ignored: str) -> bool:
    """Whether ssh takes an option that no handler knows; `ignored` is the value of IgnoreUnknown."""
    patterns = ignored.lower().replace(",", " ").split()
    return option in _TAKEN or any(fnmatch.fnmatchcase(option, pattern) for pattern in patterns)


def is_named(host: str, patterns: Iterable[str]) -> bool:
    """Whether a `Host` line is about `host`: one of its patterns fits, and none with `!` does. A comma is no border.

    >>> is_named("gpu1", ["gpu*", "!gpu2"]), is_named("gpu2", ["gpu*", "!gpu2"]), is_named("b", ["a,b"])
    (True, False, False)
    """
    named = False
    for pattern in patterns:
        body = re.escape(pattern.lstrip("!")).replace(r"\*", ".*").replace(r"\?", ".")
        if re.fullmatch(body, host, re.S):
            if pattern.startswith("!"):
                return False
            named = True
    return named


# Options of ssh_config(5) that asyncssh has no handler for, as people write them.
IGNORED_OPTIONS = (
    "AddKeysToAgent",
    "BatchMode",
    "BindInterface",
    "ChannelTimeout",
    "CheckHostIP",
    "ClearAllForwardings",
    "ConnectionAttempts",
    "ControlMaster",
    "ControlPath",
    "ControlPersist",
    "DynamicForward",
    "EnableEscapeCommandline",
    "EscapeChar",
    "ExitOnForwardFailure",
    "FingerprintHash",
    "ForkAfterAuthentication",
    "ForwardX11",
    "ForwardX11Timeout",
    "GatewayPorts",
    "HashKnownHosts",
    "HostbasedAcceptedAlgorithms",
    "IgnoreUnknown",
    "IPQoS",
    "KbdInteractiveDevices",
    "KnownHostsCommand",
    "LocalCommand",
    "LocalForward",
    "LogLevel",
    "LogVerbose",
    "NoHostAuthenticationForLocalhost",
    "NumberOfPasswordPrompts",
    "ObscureKeystrokeTiming",
    "PermitLocalCommand",
    "PermitRemoteOpen",
    "ProxyUseFdpass",
    "PubkeyAcceptedAlgorithms",
    "PubkeyAcceptedKeyTypes",
    "RemoteForward",
    "RequiredRSASize",
    "RevokedHostKeys",
    "SecurityKeyProvider",
    "SessionType",
    "StdinNull",
    "StreamLocalBindMask",
    "StreamLocalBindUnlink",
    "StrictHostKeyChecking",
    "SyslogFacility",
    "Tunnel",
    "TunnelDevice",
    "UpdateHostKeys",
    "UseKeychain",
    "VerifyHostKeyDNS",
    "VersionAddendum",
    "VisualHostKey",
    "XAuthLocation",
)
