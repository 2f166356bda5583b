"""What `spark-submit` runs: it takes only files that end in `.py`, so the console script will not do.

    spark-submit ... infra/cluster/lacuna_job.py run --config lacuna.toml --master submit

A script that is run by its path has its folder first on the module path: hence a folder with nothing else in it.
"""

from __future__ import annotations

import sys

from lacuna.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
