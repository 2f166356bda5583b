"""`lacuna up`: a Kafka on this machine and the job, until stopped."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

from lacuna.cli.config_file import read_config
from lacuna.cli.console import say
from lacuna.cli.options import Args, Parser, port
from lacuna.cli.run import add_engine_options, serve
from lacuna.local import keep_private, local_kafka
from state.config import Config
from state.errors import LacunaError
from state.protocol.security import Security


def declare(command: Parser) -> None:
    """Describe the command and add its options."""
    command.description = "Start a local Kafka at the configured port and run the job, until SIGTERM or Ctrl-C."
    add_engine_options(command)
    command.add_argument(
        "--port", type=port, metavar="N", help="the port of Kafka; 0: any free one (default: the configured one)"
    )
    command.add_argument("--serve", action="store_true", help="also the gateway and the console, as [serve] says")
    command.add_argument("--home", default=".lacuna/kafka", metavar="DIR", help="where Kafka keeps its files")


def run(args: Args) -> int:
    """Start Kafka and run the job with it."""
    keep_private()
    config = read_config(args.config)
    wanted = local_port(config.kafka.bootstrap) if args.port is None else args.port
    with local_kafka(Path(args.home), wanted) as bootstrap:
        if args.port is not None:
            say(f'clients find it with [kafka] bootstrap = "{bootstrap}" in their configuration')
        local = replace(config.kafka, bootstrap=bootstrap, security=Security())
        config = replace(config, kafka=local)
        with gateway(config) if args.serve else nullcontext():
            return serve(config, args)


def gateway(config: Config) -> AbstractContextManager[None]:
    """Return the gateway, beside the job in this process. Only who asks for it needs what it is made of."""
    from lacuna.cli.serve import serving

    return serving(config)


def local_port(bootstrap: str) -> int:
    """Return the port of a bootstrap address. Raises `LacunaError` if the address is not on this machine."""
    host, _, number = bootstrap.partition(":")
    if host not in ("localhost", "127.0.0.1") or not number.isdigit():
        raise LacunaError(
            f"kafka.bootstrap = {bootstrap!r}: `lacuna up` starts a Kafka on this machine, and this is another one. "
            "Remedy: write localhost:9092, or use `lacuna run` with a Kafka that is there"
        )
    return int(number)
