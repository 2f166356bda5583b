"""The way to Kafka: a relay on this machine that can be cut, or made slow."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from typing import Self

PIECE = 1 << 16


class Proxy:
    """Connections to `port` are relayed to `target`; each piece waits for `delay`, and while `cut` none is relayed."""

    def __init__(self) -> None:
        self.target, self.delay, self.cut = 0, 0.0, False
        self.relayed = 0
        """Bytes."""
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        """Relay."""
        return self

    def __exit__(self, *_: object) -> None:
        """Relay no more."""
        self._listener.close()
        self.drop()

    def drop(self) -> None:
        """Break all connections."""
        for end in list(self._open):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        try:
            if self.cut:
                raise ConnectionRefusedError
            server = socket.create_connection(("127.0.0.1", self.target), timeout=10)
            server.settimeout(None)
        except OSError:
            client.close()
            return
        for a, b in ((client, server), (server, client)):
            threading.Thread(target=self._relay, args=(a, b), daemon=True).start()

    def _relay(self, source: socket.socket, target: socket.socket) -> None:
        self._open.add(source)
        try:
            while piece := source.recv(PIECE):
                if self.delay:
                    time.sleep(self.delay)
                if self.cut:
                    break
                self.relayed += len(piece)
                target.sendall(piece)
        except OSError:
            pass
        finally:
            self._open.discard(source)
            for end in (source, target):
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
            source.close()
