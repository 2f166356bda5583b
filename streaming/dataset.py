"""A Delta table for pyarrow, in which files are skipped by what Delta's log says of them."""

from __future__ import annotations

from typing import Any

from deltalake import DeltaTable
from pyarrow import dataset

NO_STATISTIC = "null["
"""How the text of a condition shows a bound that is not there."""


def dataset_of(table: DeltaTable) -> Any:
    """Return a table for pyarrow, whatever version of Lacuna wrote its files.

    Where a file is older than a column, delta-rs takes the bounds of the column for null, and a filter `IS NULL` skips
    the file though all its rows are such. Here these files are never skipped.
    """
    every = table.to_pyarrow_dataset()
    files = list(every.get_fragments())
    lacking = [NO_STATISTIC in str(file.partition_expression) for file in files]
    if not any(lacking):
        return every
    kept = [
        every.format.make_fragment(file.path, file.filesystem) if lacks else file
        for file, lacks in zip(files, lacking, strict=True)
    ]
    return dataset.FileSystemDataset(kept, every.schema, every.format, every.filesystem)
