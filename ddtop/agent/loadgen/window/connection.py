"""A client connection: non-blocking connect, TLS over memory BIOs, prebuilt buffers out, stamped bytes in.

TLS runs over memory BIOs on purpose: the encrypted bytes still come by recvmsg(), so they carry kernel stamps too.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
import time
from typing import Any

from ..response.exchange import Exchange
from .clock import ANCILLARY, STAMP, ask_for_stamps

CONNECTING, HANDSHAKE, IDLE, SENDING, READING, CLOSED = range(6)
READ_SIZE = 65536
TCP_QUICKACK = getattr(socket, "TCP_QUICKACK", 12)
now = time.monotonic_ns


class Address:
    """Where to connect: resolved once, before the clock. `tls` is None or the client context with its server name."""

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None) -> None:
        self.host, self.port, self.tls = host, port, tls
        self.choices = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        self.best = 0

    @property
    def current(self) -> Any:
        """(family, type, proto, name, sockaddr) to try now."""
        return self.choices[self.best % len(self.choices)]


def tls_context(verify: bool) -> ssl.SSLContext:
    """The client context: the system's trust store, HTTP/1.1 only."""
    context = ssl.create_default_context()
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    return context


class Connection:
    """One TCP connection. `state` is one of the module's constants; `exchange` is the request it carries."""

    __slots__ = (
        "begun_ns",
        "connect_ns",
        "done_ns",
        "exchange",
        "fd",
        "incoming",
        "outgoing",
        "pending",
        "quick",
        "recvmsg",
        "reusable",
        "sock",
        "state",
        "tls",
        "used",
        "why",
    )

    def __init__(self, address: Address, quick: bool) -> None:
        family, kind, proto, _, where = address.current
        self.begun_ns = now()
        self.connect_ns = 0
        self.sock = socket.socket(family, kind, proto)
        self.fd = self.sock.fileno()
        self.state = CONNECTING
        self.exchange: Exchange | None = None
        self.used = 0
        self.done_ns = 0
        self.why = ""
        self.reusable = True
        self.quick = quick  # acknowledge at once: a forwarding hop with Nagle on else holds chunks for 40 ms
        self.pending: list[Any] = []
        self.tls: ssl.SSLObject | None = None
        self.incoming = self.outgoing = None
        if address.tls is not None:
            self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            self.tls = address.tls.wrap_bio(self.incoming, self.outgoing, server_hostname=address.host)
        self.recvmsg = self.sock.recvmsg
        self.sock.setblocking(False)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        ask_for_stamps(self.sock)
        code = self.sock.connect_ex(where)
        if code not in (0, errno.EINPROGRESS, errno.EWOULDBLOCK):
            self.why = os.strerror(code)

    def is_up(self) -> bool:
        """Whether TCP stands already, without waiting for it."""
        try:
            self.sock.getpeername()
        except OSError:
            return False
        return True

    def connected(self) -> bool:
        """The socket became writable while connecting: True if TCP (and TLS) stand. Sets `why` on failure."""
        if self.state == CONNECTING:
            code = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                self.why = os.strerror(code)
                return False
            if self.tls is None:
                return self._stands()
            self.state = HANDSHAKE
        return self._handshake()

    def _stands(self) -> bool:
        self.connect_ns = now() - self.begun_ns
        self.state = IDLE
        if self.quick:
            self.acknowledge()
        return True

    def _handshake(self) -> bool:
        assert self.tls is not None and self.incoming is not None
        try:
            data = self.sock.recv(READ_SIZE)
            if not data:
                self.why = "closed during the TLS handshake"
                return False
            self.incoming.write(data)
        except BlockingIOError:
            pass  # our turn to speak
        except OSError as error:
            self.why = "during the TLS handshake: %s" % error
            return False
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            self.flush()
            return False
        except ssl.SSLError as error:
            self.why = "TLS: %s" % (getattr(error, "reason", None) or error)
            self.flush()
            return False
        self.flush()
        return self._stands()

    def acknowledge(self) -> None:
        """Send the acknowledgement now instead of up to 40 ms later (Linux only)."""
        try:
            self.sock.setsockopt(socket.IPPROTO_TCP, TCP_QUICKACK, 1)
        except OSError:
            self.quick = False

    def send(self, head: bytes, tail: bytes) -> bool:
        """Begin to send; True if all of it is out, else `flush` when the socket is writable. Raises OSError."""
        if self.tls is not None:
            self.tls.write(head)
            self.tls.write(tail)
            return self.flush()
        self.pending = [head, tail]
        return self.flush()

    def flush(self) -> bool:
        """Send what is pending; True when nothing is left. Raises OSError."""
        if self.outgoing is not None and self.outgoing.pending:
            self.pending.append(self.outgoing.read())
        while self.pending:
            try:
                count = self.sock.sendmsg(self.pending)
            except BlockingIOError:
                return False
            while self.pending and count >= len(self.pending[0]):
                count -= len(self.pending.pop(0))
            if count:
                self.pending[0] = memoryview(self.pending[0])[count:]
        return True

    def receive(self, offset: int) -> tuple[bytes | None, int, bool]:
        """One stamped read of a TLS connection: (bytes or None if none came yet, stamp ns, kernel stamp?). b"" = EOF."""
        data, control, _, _ = self.recvmsg(READ_SIZE, ANCILLARY)
        stamped = bool(control) and len(control[0][2]) >= 16
        if stamped:
            seconds, nanos = STAMP.unpack(control[0][2][:16])
            stamp = seconds * 1_000_000_000 + nanos - offset
        else:
            stamp = now()
        if self.tls is None:
            return data, stamp, stamped
        assert self.incoming is not None
        if data:
            self.incoming.write(data)
        else:
            self.incoming.write_eof()
        out: list[bytes] = []
        while True:
            try:
                piece = self.tls.read(READ_SIZE)
            except ssl.SSLWantReadError:
                break
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return b"".join(out) or b"", stamp, stamped
            if not piece:
                break
            out.append(piece)
        if not out:
            return (b"" if not data else None), stamp, stamped
        return b"".join(out), stamp, stamped

    def close(self) -> None:
        """Close the socket; the exchange is the caller's."""
        if self.state != CLOSED:
            self.state = CLOSED
            self.sock.close()
