"""Ports of the loopback interface: is this one free, and find some that are.

Free ports are taken below 32768, not asked of the kernel: those it hands out lie in the range from which it also takes
the near end of outgoing connections, so another client may sit on one before the broker binds it, and a client that
keeps trying a closed port of that range can even connect to itself and keep the broker out.
"""

import random
import socket

HOST = "127.0.0.1"  # not "localhost": where that is ::1 first, each client would try the wrong address first
LOWEST, HIGHEST = 20000, 32767


def obstacle(port: int) -> str | None:
    """Say why a server could not listen there now, if so (connections that linger after a close do not count)."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            return error.strerror
        return None


def listens(port: int) -> bool:
    """Tell whether a server accepts connections there."""
    try:
        with socket.create_connection((HOST, port), timeout=1.0):
            return True
    except OSError:
        return False


def find_free(taken: int = 0) -> int:
    """Return a free port other than `taken`, at random so that processes started together rarely meet."""
    candidates = random.sample(range(LOWEST, HIGHEST + 1), k=HIGHEST - LOWEST + 1)
    return next(port for port in candidates if port != taken and obstacle(port) is None)
