"""Payloads, requests and responses: Python values to JSON text and back, by the standard library's ``json``.

Payloads and responses are stored and handed out byte for byte. Whole numbers of any size are exact; keys of mappings
become text, as ``json.dumps`` has it.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from ._errors import DecodeError, InvalidError

_ENCODE = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode


@dataclasses.dataclass(frozen=True)
class Json:
    """JSON text as a payload, request or response: checked, kept and handed out byte for byte, never encoded again."""

    text: str


def encode(payload: object, what: str = "payload") -> str:
    """The JSON text of a payload.

    Raises InvalidError for what JSON cannot say: NaN and infinities, bytes, sets, cycles, nesting too deep.
    """
    if isinstance(payload, Json):
        return payload.text
    try:
        return _ENCODE(payload)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidError(f"{what}: {error}") from error


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def encode_response(response: object) -> str:
    """The JSON text of a provider's response, checked here: what has happened is recorded in any case.

    Raises InvalidError as ``encode``, and for ``Json`` that is none.
    """
    if isinstance(response, Json):
        try:
            json.loads(response.text, parse_constant=_refuse)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidError(f"response: {error}") from error
    return encode(response, "response")


def unencodable(response: object) -> str:
    """The JSON text in place of a response that has none."""
    return _ENCODE({"unencodable": type(response).__name__})


def decode(text: str, what: str = "payload") -> Any:
    """The value of a payload. Raises DecodeError when Python cannot represent it."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DecodeError(f"{what}: {error}") from error
