"""What stands around the batch jobs here: cron, the provider's client, the database's address.

It claims and locks nothing, so that a job's own file shows all it does about that. ``scaled`` is the one thing to know:
jobs are written with the numbers of production, and the tests put smaller ones in their place, so that a minute lasts a
second.
"""

from __future__ import annotations

import http.client
import json
import os
import select
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pymysql
import pymysql.cursors

SHANGHAI = timezone(timedelta(hours=8))
PROVIDER = urlsplit(os.environ.get("SCHEMA_URL", "http://127.0.0.1/"))

_connection = http.client.HTTPConnection(PROVIDER.hostname or "127.0.0.1", PROVIDER.port, timeout=30)


def scaled(name: str, production: float) -> float:
    """The production value, or what the tests set instead."""
    return float(os.environ.get(f"SCALED_{name}", production))


def database(found_rows: bool = False) -> pymysql.connections.Connection:
    """A connection in autocommit; ``found_rows`` makes ``rowcount`` count matched rows instead of changed ones."""
    dsn = urlsplit(os.environ["ROWCLAIM_DSN"])
    return pymysql.connect(
        host=dsn.hostname,
        port=dsn.port,
        unix_socket=os.environ.get("SCHEMA_SOCKET"),
        user=dsn.username,
        password=dsn.password or "",
        database=dsn.path.strip("/"),
        charset="utf8mb4",
        autocommit=True,
        cursorclass=pymysql.cursors.DictCursor,
        client_flag=pymysql.constants.CLIENT.FOUND_ROWS if found_rows else 0,
    )


def mapping(file: Path) -> tuple[str, dict[str, Any]]:
    """Table and mapping of a file, for ``engine.table``."""
    read = json.loads(file.read_text(encoding="utf-8"))
    for key, value in json.loads(os.environ.get("SCALED_MAPPING", "{}")).items():
        if key in read["mapping"]:
            read["mapping"][key] = value
    return read["table"], read["mapping"]


def wake_ups() -> Iterator[int]:
    """Cron: one round of the caller's loop is one start of the job.

    Waits for the test's sign, ends when it closes our stdin.
    """
    noted("ready", os.getpid())
    goes_on, round_number = bool(os.read(0, 1024)), 0
    while goes_on:
        round_number += 1
        yield round_number
        readable, _, _ = select.select([0], [], [], 0.05)
        goes_on = not readable or bool(os.read(0, 1024))


def send(target: str) -> None:
    """Asks the provider to send; raises when it does not take it."""
    headers = {"Content-Type": "application/json", "X-Worker": os.environ["SCHEMA_WORKER"]}
    try:
        _connection.request("POST", PROVIDER.path, json.dumps({"target": target}), headers)
        response = _connection.getresponse()
        response.read()
    except (OSError, http.client.HTTPException):
        _connection.close()  # the next request opens a new one
        raise
    if response.status != 200:
        raise http.client.HTTPException(f"the provider answered {response.status}")


def noted(what: str, target: str | int) -> None:
    """Tells the test what this process believes: ready, done, refused or task_done."""
    sys.stdout.write(json.dumps({what: target}) + "\n")
    sys.stdout.flush()


def shanghai(ago: float = 0) -> str:
    """The time in Shanghai some seconds ago, to the second, as these tables keep it."""
    return (datetime.now(SHANGHAI) - timedelta(seconds=ago)).strftime("%Y-%m-%d %H:%M:%S")
