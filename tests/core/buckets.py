"""An S3 server on this machine: that of moto, with a bucket."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyarrow import fs

from infra.ports import find_free
from tests.system.live import wait_until

BUCKET = "bucket"


@contextmanager
def served(log: Path) -> Iterator[str]:
    """The address of the bucket. How to reach the server is in the environment meanwhile."""
    port = find_free()
    address = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        try:
            with urllib.request.urlopen(address, timeout=1):
                return True
        except OSError:
            return False

    settings = {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": address,
        "AWS_ALLOW_HTTP": "true",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with log.open("wb") as said, pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        server = subprocess.Popen(command, stdout=said, stderr=said)
        try:
            wait_until(answers, "the S3 server answers", 60)
            fs.S3FileSystem(endpoint_override=address, allow_bucket_creation=True).create_dir(BUCKET)
            yield f"s3a://{BUCKET}"
        finally:
            server.terminate()
            server.wait()
