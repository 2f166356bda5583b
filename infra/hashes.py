"""Write the hashes of every file of each pinned package into the two lock files: `python -m infra.hashes`.

`requirements.lock` builds and runs Lacuna, `requirements-dev.lock` tests and checks it. With hashes in them, pip
installs only what had these contents when the versions were pinned, whichever index or mirror it comes from. Run this
again after a pin was added or changed. Files for other versions of Python are left out.
"""

import re
import sys
import urllib.request
from pathlib import Path

from pip._internal.models.index import PyPI

LOCKS = [Path(__file__).parents[1] / name for name in ("requirements.lock", "requirements-dev.lock")]
INDEX = PyPI.simple_url
"""The index that pip itself takes by default."""
PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s\\]+)", re.MULTILINE)
LINK = re.compile(r'href="[^"#]*/([^"/#]+)#sha256=([0-9a-f]{64})"')
USABLE = re.compile(r"(-(py3|py2\.py3|cp311|cp312|cp3\d*-abi3)-\S*\.whl|\.tar\.gz)$|-abi3-")


def hashes_of(page: str, name: str, version: str) -> list[str]:
    """Return the hashes of a version's files on a page of the index.

    >>> page = '<a href="x/a_b-1.0-py3-none-any.whl#sha256=' + "0" * 64 + '">'
    >>> len(hashes_of(page, "a-b", "1.0")), hashes_of(page, "a-b", "1.1")
    (1, [])
    """
    wanted = f"{_plain(name)}-{version}".lower()
    files = ((file, found) for file, found in LINK.findall(page) if USABLE.search(file))
    return sorted({found for file, found in files if re.match(rf"{re.escape(wanted)}(-|\.tar)", _file(file, name))})


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _file(file: str, name: str) -> str:
    """Return the name of a file with the package's name in its plain form."""
    return _plain(name) + file[len(name) :].lower()


def locked(text: str) -> str:
    """Return the text of a lock file with the hashes of all its pins. Raises `LookupError` if a pin has no file."""
    lines = [line for line in text.splitlines() if line.startswith("#")]
    for name, version in PIN.findall(text):
        with urllib.request.urlopen(f"{INDEX}/{_plain(name)}/", timeout=60) as answer:
            found = hashes_of(answer.read().decode(), name, version)
        if not found:
            raise LookupError(f"{name}=={version}: the index has no file of it. Remedy: correct the pin")
        lines.append(" \\\n".join([f"{name}=={version}", *(f"    --hash=sha256:{each}" for each in found)]))
    return "\n".join(lines) + "\n"


def main() -> int:
    """Rewrite the files."""
    try:
        for lock in LOCKS:
            lock.write_text(locked(lock.read_text(encoding="utf-8")), encoding="utf-8")
    except LookupError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
