"""`lacuna serve`: the gateway for programs and the console for browsers, until stopped."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from socket import socket
from threading import Thread

from lacuna.cli.config_file import read_config
from lacuna.cli.console import keep_log, say_as_job
from lacuna.cli.options import Args, Parser, add_config, add_json, port
from lacuna.serve.app import build
from lacuna.serve.server import Server, listen, server, url_of
from state.config import Config, check_serve
from state.kernels import CACHE


def declare(command: Parser) -> None:
    """Describe the command and add its options."""
    command.description = (
        "Serve subscriptions, publications and deliveries over HTTP, and the console to browsers, until SIGTERM or "
        "Ctrl-C. Several gateways may stand beside each other. Without [serve] tokens_file: for this machine alone."
    )
    add_config(command)
    command.add_argument("--port", type=port, metavar="N", help="0: any free one (default: the configured one)")
    command.add_argument("--host", metavar="H", help="the address to listen on (default: the configured one)")
    add_json(command, "print one JSON object when it serves")


def run(args: Args) -> int:
    """Serve until stopped."""
    config = read_config(args.config)
    given = {"port": args.port, "host": args.host}
    chosen = replace(config.serve, **{key: value for key, value in given.items() if value is not None})
    check_serve(chosen)
    keep_log()
    serve(replace(config, serve=chosen), as_json=args.json)
    return 0


def serve(config: Config, *, as_json: bool = False) -> None:
    """Serve a configuration until a signal comes."""
    gateway, listening, url = _opened(config)
    with listening:
        if as_json:
            print(json.dumps({"serving": True, "url": url, "pid": os.getpid()}), flush=True)
        else:
            say_as_job(_where(url))
        gateway.run(sockets=[listening])


@contextmanager
def serving(config: Config) -> Iterator[None]:
    """Serve a configuration in a thread, as long as the body runs."""
    gateway, listening, url = _opened(config)
    thread = Thread(target=lambda: gateway.run(sockets=[listening]), name="gateway")
    with listening:
        keep_log()
        thread.start()
        try:
            say_as_job(_where(url))
            yield
        finally:
            gateway.should_exit = True
            thread.join()


def _opened(config: Config) -> tuple[Server, socket, str]:
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    if not CACHE.exists():
        say_as_job("compiling, once: a first try takes half a minute longer; python -m lacuna.kernels does it before")
    app = build(config)
    gateway = server(app, config.serve, app.state.drain)
    listening = listen(config.serve)
    return gateway, listening, url_of(config.serve, listening)


def _where(url: str) -> str:
    return f"serving at {url}: the console at /, the API below /v1, described by /openapi.json"
