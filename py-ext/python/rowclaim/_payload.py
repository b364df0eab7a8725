"""Payloads: Python values to JSON text and back, by the standard library's ``json``.

The text is stored and handed out byte for byte. Whole numbers of any size are exact; keys of mappings become text, as
``json.dumps`` has it.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from ._errors import DecodeError, InvalidError

_ENCODE = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode


@dataclasses.dataclass(frozen=True)
class Json:
    """JSON text as a payload: it is checked, stored and handed out byte for byte, never encoded again."""

    text: str


def encode(payload: object) -> str:
    """The JSON text of a payload.

    Raises InvalidError for what JSON cannot say: NaN and infinities, bytes, sets, cycles, nesting too deep.
    """
    if isinstance(payload, Json):
        return payload.text
    try:
        return _ENCODE(payload)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidError(f"payload: {error}") from error


def decode(text: str) -> Any:
    """The value of a payload. Raises DecodeError when Python cannot represent it."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DecodeError(f"payload: {error}") from error
