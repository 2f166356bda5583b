"""Bodies of requests: read whole, but not beyond a size nor longer than a time."""

from __future__ import annotations

import asyncio

from starlette.requests import ClientDisconnect, Request

from lacuna.serve.problems import Problem

PATIENCE = 10.0
"""Seconds within which a body must have arrived."""


async def read_body(request: Request, most: int) -> bytes:
    """Return the body. Raises `Problem` if it is longer than `most` bytes, or late."""
    too_long = Problem(413, "body", f"the body is longer than {most:,} bytes", "send less at once")
    given = request.headers.get("content-length", "0")
    if given.isdigit() and int(given) > most:
        raise too_long
    body = bytearray()
    try:
        async with asyncio.timeout(PATIENCE):
            async for part in request.stream():
                body += part
                if len(body) > most:
                    raise too_long
    except TimeoutError:
        message = f"the body did not arrive within {PATIENCE:g} s"
        raise Problem(408, "body", message, "send it faster, or less at once") from None
    except ClientDisconnect:
        raise Problem(400, "body", "the body ended too early", "send it whole") from None
    return bytes(body)
