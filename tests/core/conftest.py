"""Hypothesis for this folder: the same examples on every run; `--hypothesis-profile=deep` looks further."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

SLOW = [HealthCheck.too_slow]  # the first example may have to wait for numba

settings.register_profile("fast", deadline=None, derandomize=True, max_examples=40, suppress_health_check=SLOW)
settings.register_profile("deep", deadline=None, max_examples=3000, suppress_health_check=SLOW)
settings.load_profile("fast")
