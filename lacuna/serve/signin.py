"""Signing in with a browser: a token is given once, and kept in a cookie that no script reads."""

from __future__ import annotations

from html import escape
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from lacuna.serve.auth import COOKIE, Auth
from lacuna.serve.body import read_body

MOST_FORM = 4096
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Sign in · Lacuna</title><link rel="stylesheet" href="/static/console.css">
<link rel="icon" href="/static/icon.svg" type="image/svg+xml"></head>
<body><main><h1>Lacuna</h1>{}
<form method="post" action="/login"><label>Token <input name="token" type="password" required autofocus
autocomplete="current-password"></label><button>Sign in</button></form>
<p class="soft">Whoever looks after this system gives tokens; to see the console, one needs the right observe.</p>
</main></body></html>"""


def routes(auth: Auth) -> list[BaseRoute]:
    """Return the routes by which a person signs in and out."""

    async def show(_: Request) -> Response:
        return _page() if auth.uses_tokens else RedirectResponse("/", 303)

    async def sign_in(request: Request) -> Response:
        form = parse_qs((await read_body(request, MOST_FORM)).decode(errors="replace"))
        token = form.get("token", [""])[0].strip()
        caller = auth.holder(token) if auth.uses_tokens else None
        if caller is None:
            return _page("The token is not known. Remedy: give another.", 401)
        if "observe" not in caller.rights:
            return _page(f"The token of {caller.client} lacks the right observe. Remedy: have it granted.", 403)
        response = RedirectResponse("/", 303)
        response.set_cookie(COOKIE, token, httponly=True, secure=True, samesite="strict", path="/")
        return response

    async def sign_out(_: Request) -> Response:
        response = RedirectResponse("/login", 303)
        response.delete_cookie(COOKIE, path="/", secure=True, httponly=True, samesite="strict")
        return response

    return [
        Route("/login", show),
        Route("/login", sign_in, methods=["POST"]),
        Route("/logout", sign_out, methods=["POST"]),
    ]


def _page(trouble: str = "", status: int = 200) -> Response:
    said = f'<p class="bad" role="alert">{escape(trouble)}</p>' if trouble else ""
    return HTMLResponse(PAGE.format(said), status)
