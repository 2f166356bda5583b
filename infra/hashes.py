"""Write the hashes of every file of each pinned package into requirements.lock: `python -m infra.hashes`.

With hashes in the file, pip installs only what had these contents when the versions were pinned, whichever index or
mirror it comes from. Run this again after a pin was added or changed. Files for other versions of Python are left out.
"""

import re
import sys
import urllib.request
from pathlib import Path

from pip._internal.models.index import PyPI

LOCK = Path(__file__).parents[1] / "requirements.lock"
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


def main() -> int:
    """Rewrite the file."""
    text = LOCK.read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.startswith("#")]
    for name, version in PIN.findall(text):
        with urllib.request.urlopen(f"{INDEX}/{_plain(name)}/", timeout=60) as answer:
            found = hashes_of(answer.read().decode(), name, version)
        if not found:
            print(f"{name}=={version}: the index has no file of it. Remedy: correct the pin", file=sys.stderr)
            return 1
        lines.append(" \\\n".join([f"{name}=={version}", *(f"    --hash=sha256:{each}" for each in found)]))
    LOCK.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
