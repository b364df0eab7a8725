"""A runner as a WSGI application."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

    from ._native import Runner


def respond(runner: Runner, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Gives method and token of a request to the runner, and its answer to the server."""
    method = environ["REQUEST_METHOD"]
    token = environ.get("HTTP_AUTHORIZATION")
    if token is not None:
        # WSGI hands bytes over as Latin-1.
        token = token.encode("latin-1").decode("utf-8", "replace")
    answer = runner.handle(method, token)
    body = answer.body.encode()
    headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
    if answer.status == HTTPStatus.METHOD_NOT_ALLOWED:
        headers.append(("Allow", "POST"))
    start_response(f"{answer.status} {HTTPStatus(answer.status).phrase}", headers)
    return [] if method == "HEAD" else [body]
