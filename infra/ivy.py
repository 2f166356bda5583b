"""Ivy, the resolver that comes inside pyspark as a runnable jar: bring these files into that folder.

It is given every file by its exact coordinates and told to read no descriptor: one request per jar, no transitive guess
(the whole broker takes 5 s this way, 30 s with descriptors). Its own checks are off: SHA-256 comes after, in `fetch`.
Whether it brought everything is for the caller to see; its words are in the log.

    work/ivy.xml, settings.xml      what is wanted, from where
    work/cache                      what a try brought, kept for the next
    work/lib                        the result
"""

import importlib.util
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.sax.saxutils import quoteattr

from infra.errors import InfraError
from infra.jars import Jar, JarSet

SILENCE = 90.0  # seconds without a byte; Ivy's own time-outs are shorter, so this only ends a hung one
TIMEOUTS = ("-Dsun.net.client.defaultConnectTimeout=15000", "-Dsun.net.client.defaultReadTimeout=30000")
SETTINGS = """<ivysettings>
  <settings defaultResolver="public"/>
  <property name="ivy.checksums" value=""/>
  <resolvers><ibiblio name="public" m2compatible="true" usepoms="false"/></resolvers>
</ivysettings>
"""
MODULE = """<ivy-module version="2.0">
  <info organisation="lacuna" module="{name}"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>{wanted}
  </dependencies>
</ivy-module>
"""


def resolve(java: str, wanted: JarSet, work: Path, log: Path) -> None:
    """Bring as many of the wanted jars into `work/lib` as can be had."""
    settings = os.environ.get("LACUNA_IVY_SETTINGS") or _write(work / "settings.xml", SETTINGS)
    module = _write(work / "ivy.xml", MODULE.format(name=wanted.name, wanted="".join(map(_dependency, wanted.jars))))
    command = [java, *TIMEOUTS, f"-Divy.default.ivy.user.dir={work / 'user'}", "-jar", _locate()]
    command += ["-settings", settings, "-ivy", module, "-cache", str(work / "cache"), "-confs", "default"]
    command += ["-types", "jar", "bundle", "-retrieve", f"{work}/lib/[artifact]-[revision].[ext]"]
    _run(command, log, _Progress(wanted.name, len(wanted.jars)))


def _dependency(jar: Jar) -> str:
    coordinates = f"org={quoteattr(jar.org)} name={quoteattr(jar.name)} rev={quoteattr(jar.revision)}"
    return f'\n    <dependency {coordinates} transitive="false" conf="default"/>'


def _write(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def _locate() -> str:
    spec = importlib.util.find_spec("pyspark")
    folders = (spec.submodule_search_locations or []) if spec else []
    found = [path for folder in folders for path in Path(folder, "jars").glob("ivy-*.jar")]
    if not found:
        raise InfraError(
            f"no Ivy beside {sys.executable}: it comes inside pyspark (jars/ivy-*.jar), which is not installed there; "
            "run `make setup`, or use the project's own Python (.venv/bin/python)"
        )
    return str(found[0])


class _Progress:
    """How far Ivy is: a line that is rewritten on a terminal, silence elsewhere (start and end are told anyway)."""

    def __init__(self, name: str, total: int) -> None:
        self.name, self.total, self.found, self.loaded = name, total, 0, 0
        self.live = sys.stderr.isatty()

    def see(self, line: bytes) -> None:
        """Take one line of Ivy's."""
        self.found += line.startswith(b"\tfound ")
        self.loaded += line.startswith(b"downloading ")
        self._show(f"{self.name}: found {self.found}, fetched {self.loaded} of {self.total}")

    def end(self) -> None:
        """Leave the terminal with an empty line."""
        self._show("")

    def _show(self, text: str) -> None:
        if self.live:
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()


def _run(command: list[str], log: Path, progress: _Progress) -> None:
    """Run Ivy with its words in `log`; it is ended if it falls silent or if we are ended."""
    with (
        log.open("wb") as file,
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0
        ) as process,
    ):
        assert process.stdout is not None
        try:
            for line in _lines(process.stdout.fileno()):
                file.write(line)
                progress.see(line)
        except BaseException:
            process.kill()
            raise
        finally:
            progress.end()


def _lines(descriptor: int) -> Iterator[bytes]:
    """Yield lines as they come; Ivy's dots count as life although they end no line."""
    rest = b""
    while select.select([descriptor], [], [], SILENCE)[0]:
        chunk = os.read(descriptor, 65536)
        if not chunk:
            yield rest
            return
        *lines, rest = (rest + chunk).split(b"\n")
        yield from (line + b"\n" for line in lines)
    raise InfraError(f"nothing came over the network for {SILENCE:.0f} s; check the connection and run this again")
