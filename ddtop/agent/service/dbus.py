"""As much D-Bus as it takes to hear that a unit changed, on one socket, with the standard library.

Protocol: https://dbus.freedesktop.org/doc/dbus-specification.html. Bodies of signals are not read: a signal only
says "look again", and `systemctl show` gives the answer.
"""

from __future__ import annotations

import os
import socket
import struct
from typing import Dict, List, NamedTuple, Tuple

METHOD_CALL, METHOD_RETURN, ERROR, SIGNAL = 1, 2, 3, 4
PATH, INTERFACE, MEMBER, ERROR_NAME, REPLY_SERIAL, DESTINATION, SENDER, SIGNATURE = 1, 2, 3, 4, 5, 6, 7, 8
_TYPE_OF = {PATH: "o", INTERFACE: "s", MEMBER: "s", DESTINATION: "s", SIGNATURE: "g"}
_HEADER = 16
MAX_MESSAGE = 1 << 26
_BUS, _BUS_PATH = "org.freedesktop.DBus", "/org/freedesktop/DBus"
_SYSTEMD, _SYSTEMD_PATH = "org.freedesktop.systemd1", "/org/freedesktop/systemd1"
_MANAGER = _SYSTEMD + ".Manager"


class Message(NamedTuple):
    """What we look at of a message: its type, and its header fields that are strings or numbers."""

    kind: int
    fields: Dict[int, object]


def unit_path(unit: str) -> str:
    """The D-Bus object of a unit.

    >>> unit_path("sglang-bench.service")
    '/org/freedesktop/systemd1/unit/sglang_2dbench_2eservice'
    """
    escaped = "".join(
        c
        if c.isascii() and c.isalnum() and not (i == 0 and c.isdigit())
        else "".join("_%02x" % b for b in c.encode())
        for i, c in enumerate(unit)
    )
    return "/org/freedesktop/systemd1/unit/" + escaped


def _pad(data: bytes, to: int) -> bytes:
    return data + b"\0" * (-len(data) % to)


def _text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<I", len(raw)) + raw + b"\0"


def call(serial: int, destination: str, path: str, interface: str, member: str, *strings: str) -> bytes:
    """A method call whose arguments are strings."""
    body = b""
    for value in strings:
        body = _pad(body, 4) + _text(value)
    fields: List[Tuple[int, str]] = [
        (PATH, path),
        (INTERFACE, interface),
        (MEMBER, member),
        (DESTINATION, destination),
    ]
    if strings:
        fields.append((SIGNATURE, "s" * len(strings)))
    array = b""
    for code, value in fields:
        kind = _TYPE_OF[code]
        array = _pad(array, 8) + bytes([code, 1]) + kind.encode() + b"\0"
        if kind == "g":
            array += bytes([len(value)]) + value.encode() + b"\0"
        else:
            array += _text(value)
    head = struct.pack("<cBBBIII", b"l", METHOD_CALL, 0, 1, len(body), serial, len(array))
    return _pad(head + array, 8) + body


def message_length(data: bytes) -> int:
    """Whole length in bytes of the message that begins `data` (at least 16 bytes of it)."""
    order = "<" if data[:1] == b"l" else ">"
    body, _, array = struct.unpack(order + "III", data[4:16])
    return int((_HEADER + array + 7) // 8 * 8 + body)


def parse(data: bytes) -> Message:
    """Type and header fields of one whole message."""
    order = "<" if data[:1] == b"l" else ">"
    end = _HEADER + struct.unpack(order + "I", data[12:16])[0]
    at = _HEADER
    fields: Dict[int, object] = {}
    while at < end:
        at = (at + 7) // 8 * 8
        if at >= end:
            break
        code, sig_len = data[at], data[at + 1]
        kind = data[at + 2 : at + 2 + sig_len]
        at += 3 + sig_len
        if kind in (b"s", b"o"):
            at = (at + 3) // 4 * 4
            size = struct.unpack(order + "I", data[at : at + 4])[0]
            fields[code] = data[at + 4 : at + 4 + size].decode("utf-8", "replace")
            at += 5 + size
        elif kind == b"g":
            size = data[at]
            fields[code] = data[at + 1 : at + 1 + size].decode("ascii", "replace")
            at += 2 + size
        elif kind == b"u":
            at = (at + 3) // 4 * 4
            fields[code] = struct.unpack(order + "I", data[at : at + 4])[0]
            at += 4
        else:
            break  # a field we do not know: all we look for comes before it
    return Message(data[1], fields)


def bus_address(user: bool) -> str:
    """The socket of the system bus, or of this user's own."""
    if not user:
        return "/run/dbus/system_bus_socket"
    runtime = os.environ.get("XDG_RUNTIME_DIR") or "/run/user/%d" % os.getuid()
    return runtime + "/bus"


class UnitSignals:
    """A connection on which a unit's PropertiesChanged and its job's end are heard. Blocking only in `open`."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._buffer = b""

    @classmethod
    def open(cls, unit: str, user: bool, timeout_s: float = 3.0) -> UnitSignals:
        """Connects and subscribes to a unit. Raises OSError where there is no bus or it refuses."""
        rule = (
            "type='signal',interface='org.freedesktop.DBus.Properties',member='PropertiesChanged',path='%s'"
        )
        match = call(2, _BUS, _BUS_PATH, _BUS, "AddMatch", rule % unit_path(unit))
        return cls._open(user, timeout_s, match + call(3, _SYSTEMD, _SYSTEMD_PATH, _MANAGER, "Subscribe"))

    @classmethod
    def hold(cls, unit: str, user: bool, timeout_s: float = 3.0) -> UnitSignals:
        """Refers to a unit until the connection is closed: systemd keeps it loaded, and what it remembers.

        Without it systemd forgets at once what became of a start whose condition was not met. Raises OSError.
        """
        return cls._open(user, timeout_s, call(3, _SYSTEMD, _SYSTEMD_PATH, _MANAGER, "RefUnit", unit))

    @classmethod
    def _open(cls, user: bool, timeout_s: float, calls: bytes) -> UnitSignals:
        """A connection on which `calls`, the last with serial 3, were made and answered."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(timeout_s)
            sock.connect(bus_address(user))
            sock.sendall(b"\0AUTH EXTERNAL " + str(os.getuid()).encode().hex().encode() + b"\r\n")
            if not sock.recv(4096).startswith(b"OK"):
                raise OSError("the bus refused us")
            sock.sendall(b"BEGIN\r\n" + call(1, _BUS, _BUS_PATH, _BUS, "Hello") + calls)
            self = cls(sock)
            answered = False
            while not answered:
                for message in self._receive():
                    if message.fields.get(REPLY_SERIAL) == 3:
                        answered = True
                        if message.kind == ERROR:
                            raise OSError("systemd refused: %s" % message.fields.get(ERROR_NAME))
            sock.setblocking(False)
            return self
        except BaseException:
            sock.close()
            raise

    def _receive(self) -> List[Message]:
        data = self.sock.recv(65536)
        if not data:
            raise ConnectionResetError("the bus closed the connection")
        self._buffer += data
        found = []
        while len(self._buffer) >= _HEADER:
            size = message_length(self._buffer)
            if size > MAX_MESSAGE:
                raise OSError("no D-Bus message")
            if len(self._buffer) < size:
                break
            found.append(parse(self._buffer[:size]))
            self._buffer = self._buffer[size:]
        return found

    def heard(self) -> bool:
        """Takes what has come; whether a signal of the unit was among it. Raises OSError when the bus is gone."""
        try:
            messages = self._receive()
        except BlockingIOError:
            return False
        return any(
            message.kind == SIGNAL and message.fields.get(MEMBER) == "PropertiesChanged"
            for message in messages
        )

    def close(self) -> None:
        self.sock.close()
