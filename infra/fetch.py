"""Fetch the pinned jars, once: `python -m infra.fetch [spark|kafka|s3|all] [--verify] [--json]`.

What the network brings is believed only after its SHA-256, and appears only when it is whole:

    .jars/.kafka.partial-*/lib  fetch ──▶ hash ──▶ stamp ──▶ rename to .jars/kafka

so a folder that exists was complete and right, whatever was killed when; a file damaged later is noticed, and the set
fetched again. One process fetches at a time (a lock per set); those that waited find the work done. With everything
there, this is some `stat` calls: no network, nothing written.

Networks without the public repository: a settings file for Ivy in `LACUNA_IVY_SETTINGS`; a proxy in
`JAVA_TOOL_OPTIONS=-Dhttps.proxyHost=... -Dhttps.proxyPort=...`.
"""

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

from infra import ivy
from infra.errors import InfraError, Say, guarded, say, writing
from infra.jars import ON_DEMAND, SETS, JarSet, pinned, root
from infra.java import find_java, require_spark_module
from infra.lock import exclusive

TRIES = 3  # connections break; what a try brought is kept for the next
ELSEWHERE = "set LACUNA_JARS to another folder"
NO_NETWORK = (
    "{name}: none of the {total} jars could be had: no network, or no way to the public Maven repository. They are "
    "fetched once, and later starts need no network: connect and run this again. Behind a proxy set JAVA_TOOL_OPTIONS="
    "'-Dhttps.proxyHost=HOST -Dhttps.proxyPort=PORT'; with a mirror set LACUNA_IVY_SETTINGS to an Ivy settings file. "
    "Ivy's own words: {log}"
)
SOME_MISSING = (
    "{name}: {count} of {total} jars could not be had: {absent}. All must be there; the connection broke, or the "
    "repository in use lacks them: run this again, or see {log}"
)
MISMATCH = (
    "{name}: what was fetched is not what infra/jars.toml pins, and was thrown away: {wrong}. A proxy or mirror altered"
    " it, or the pin is wrong: try another network, and change the pin only if you know why the file changed"
)
FULL = (
    "the disk of {root} has {free} MB free; fetching needs {needed} MB (a copy in Ivy's cache and one in place); free "
    f"some, or {ELSEWHERE}"
)


def ensure(name: str, verify: bool = False) -> bool:
    """Have the set's folder complete and right; tell whether it had to be fetched."""
    wanted = pinned(name)
    if _is_right(wanted, verify):
        return False
    with writing(root(), ELSEWHERE):
        root().mkdir(parents=True, exist_ok=True)
        with exclusive(root() / f".{name}.lock", f"{name}: another process is fetching; waiting for it"):
            fetched = not _is_right(wanted, verify, tell=say)
            if fetched:
                _fetch(wanted)
    return fetched


def _is_right(wanted: JarSet, verify: bool, tell: Say = lambda _: None) -> bool:
    if not wanted.folder.is_dir():
        return False
    if wanted.is_stamped() and not verify:
        return True
    wrong = wanted.faults(wanted.folder)
    if wrong:
        tell(f"{wanted.name}: not as pinned: {'; '.join(wrong)}")
    else:
        wanted.stamp(wanted.folder)
    return not wrong


def _fetch(wanted: JarSet) -> None:
    _check_space(wanted)
    for leftover in root().glob(f".{wanted.name}.partial-*"):  # of a fetch that was killed; its Ivy may still write
        shutil.rmtree(leftover, ignore_errors=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{wanted.name}.partial-", dir=root()))
    try:
        say(f"{wanted.name}: fetching {len(wanted.jars)} jars, {wanted.bytes >> 20} MB")
        _bring(wanted, partial)
        wrong = wanted.faults(partial / "lib")
        if wrong:
            raise InfraError(MISMATCH.format(name=wanted.name, wrong="; ".join(wrong)))
        wanted.stamp(partial / "lib")
        _put_in_place(partial / "lib", wanted.folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _check_space(wanted: JarSet, was_full: bool = False) -> None:
    needed, free = 2 * wanted.bytes + 2**20, shutil.disk_usage(root()).free
    if was_full or free < needed:
        raise InfraError(FULL.format(root=root(), free=free >> 20, needed=needed >> 20))


def _bring(wanted: JarSet, partial: Path) -> None:
    """Let Ivy fill `partial/lib`, in a few tries."""
    java, log = find_java(), root() / f"{wanted.name}.log"
    if wanted.name == "spark":
        require_spark_module(java)
    for left in reversed(range(TRIES)):
        ivy.resolve(java.path, wanted, partial, log)
        absent = _absent(wanted, partial)
        if not absent:
            return
        _check_space(wanted, was_full="No space left on device" in log.read_text(errors="replace"))
        if left:
            say(f"{wanted.name}: {len(absent)} of {len(wanted.jars)} jars could not be had; trying again")
    message = NO_NETWORK if len(absent) == len(wanted.jars) else SOME_MISSING
    count, total = len(absent), len(wanted.jars)
    raise InfraError(message.format(name=wanted.name, count=count, total=total, absent=", ".join(absent), log=log))


def _absent(wanted: JarSet, partial: Path) -> list[str]:
    """Name what is not in `lib`; as Ivy fills that only when it has everything, its cache knows which were not had."""
    cached = {path.name for path in (partial / "cache").rglob("*.jar")}
    lacking = wanted.missing(partial / "lib")
    return [name for name in lacking if name not in cached] or lacking


def _put_in_place(ready: Path, folder: Path) -> None:
    """Swap the new folder in; the old one, damaged, goes."""
    old = folder.with_name(f".{folder.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
    ready.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def main() -> int:
    """Fetch what was asked for and print where it is."""
    parser = argparse.ArgumentParser(prog="python -m infra.fetch", description="Fetch the pinned jars, once.")
    parser.add_argument(
        "which", nargs="?", default="all", choices=(*SETS, *ON_DEMAND, "all"), help="default: all, without s3"
    )
    parser.add_argument("--verify", action="store_true", help="read and hash every file again")
    parser.add_argument("--json", action="store_true", help="for programs: one JSON object on stdout")
    options = parser.parse_args()
    names = SETS if options.which == "all" else (options.which,)
    return guarded(lambda: _show({name: _report(name, options.verify) for name in names}, options.json), options.json)


def _report(name: str, verify: bool) -> dict[str, object]:
    fetched, wanted = ensure(name, verify), pinned(name)
    jars = sorted(str(wanted.folder / jar.file) for jar in wanted.jars)
    return {"folder": str(wanted.folder), "jars": jars, "fetched": fetched}


def _show(reports: dict[str, dict[str, object]], as_json: bool) -> int:
    if as_json:
        print(json.dumps(reports))
    else:
        for name, report in reports.items():
            print(f"{name}: {'fetched and verified' if report['fetched'] else 'already there'}, in {report['folder']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
