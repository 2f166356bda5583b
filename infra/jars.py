"""The pinned jars: which files, where they lie, and whether what lies there is what was pinned.

    jars.toml                "org:name:revision" = { bytes, sha256 }, one line per file, in sets
    <root>/spark             a set's folder holds exactly its files and a stamp
    <root>/kafka/.verified

So that a start need not read 66 MB, a folder whose hashes were found right is stamped with the size and modification
time of each file. A file that is missing, resized, replaced or rewritten no longer fits its stamp and the
folder is hashed again. A stray jar breaks the stamp too: it would be on the class path.
`LACUNA_JARS` puts the folders elsewhere (a shared cache, a baked image); it may be read-only once it is complete.
"""

import contextlib
import hashlib
import json
import os
import tomllib
from dataclasses import dataclass
from pathlib import Path

SETS = ("spark", "kafka")
ON_DEMAND = ("s3",)
"""Sets that few need: `all` leaves them out."""
STAMP = ".verified"
_HERE = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class Jar:
    """One pinned file."""

    org: str
    name: str
    revision: str
    bytes: int
    sha256: str

    @property
    def file(self) -> str:
        """Its name on disk."""
        return f"{self.name}-{self.revision}.jar"

    def fault(self, folder: Path) -> str | None:
        """Read the file in `folder` and say what is wrong with it, if anything."""
        try:
            with (folder / self.file).open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            return f"{self.file} cannot be read ({error.strerror})"
        return None if found == self.sha256 else f"{self.file} has SHA-256 {found}, expected {self.sha256}"


@dataclass(frozen=True, slots=True)
class JarSet:
    """The pinned files of one class path, and their folder."""

    name: str
    jars: tuple[Jar, ...]

    @property
    def folder(self) -> Path:
        """Where it lies once it is fetched."""
        return root() / self.name

    @property
    def bytes(self) -> int:
        """The size of all files together."""
        return sum(jar.bytes for jar in self.jars)

    def is_stamped(self) -> bool:
        """Tell, without reading the jars, whether the folder is as it was when its hashes were found right."""
        try:
            return bool(json.loads((self.folder / STAMP).read_text(encoding="utf-8")) == self._facts(self.folder))
        except (OSError, ValueError):
            return False

    def stamp(self, folder: Path) -> None:
        """Remember that the hashes in `folder` were right; where it is read-only, they are read each time."""
        with contextlib.suppress(OSError):
            (folder / STAMP).write_text(json.dumps(self._facts(folder)), encoding="utf-8")

    def faults(self, folder: Path) -> list[str]:
        """Read every file and name each that is stray, missing or not the pinned one; empty when all is well."""
        stray = sorted({path.name for path in folder.glob("*.jar")} - {jar.file for jar in self.jars})
        return [f"{name} is not pinned" for name in stray] + [
            fault for jar in self.jars if (fault := jar.fault(folder))
        ]

    def missing(self, folder: Path) -> list[str]:
        """Name the files that are not there at all."""
        return [jar.file for jar in self.jars if not (folder / jar.file).is_file()]

    def _facts(self, folder: Path) -> dict[str, list[int | str]]:
        """What the stamp holds; a missing jar raises FileNotFoundError, so that it never fits."""
        facts: dict[str, list[int | str]] = {path.name: [] for path in folder.glob("*.jar")}
        for jar in self.jars:
            found = (folder / jar.file).stat()
            facts[jar.file] = [jar.sha256, found.st_size, found.st_mtime_ns]
        return facts


def root() -> Path:
    """Where the folders of jars lie: `LACUNA_JARS`; in a checkout `.jars`; installed, the user's cache folder."""
    if chosen := os.environ.get("LACUNA_JARS"):
        return Path(chosen).absolute()
    if (_HERE.parent / "pyproject.toml").is_file():
        return _HERE.parent / ".jars"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "lacuna" / "jars"


def pinned(name: str) -> JarSet:
    """Return one of the sets in `jars.toml`."""
    rows = tomllib.loads((_HERE / "jars.toml").read_text(encoding="utf-8"))[name]
    return JarSet(name, tuple(Jar(*coordinates.split(":"), **facts) for coordinates, facts in rows.items()))
