"""The exceptions: one class for each kind of fault, made by the native part through :func:`make`.

A program catches :class:`RowclaimError` or one of its subclasses. Expected answers (``lost``, ``exists``, an empty
claim) are return values, never exceptions.
"""

from __future__ import annotations

from typing import ClassVar


class RowclaimError(Exception):
    """Base of all errors. The text is one line, says which verb failed, and carries no password and no payload."""

    #: The kind, the same word in every language; one of ``rowclaim.ERROR_KINDS``.
    kind: ClassVar[str] = ""
    #: True when the same call can succeed later without a change of input or configuration.
    retryable: bool = False
    #: The verb that failed, for instance ``claim``; empty outside of verbs.
    operation: str = ""
    #: The database's own error code, where it gave one.
    server_code: int | None = None


class ConfigError(RowclaimError):
    """The configuration cannot work: DSN, option, password, server setting."""

    kind = "config"


class UnsupportedError(RowclaimError):
    """This server or this build cannot do it."""

    kind = "unsupported"


class SchemaError(RowclaimError):
    """Tables are missing, too old, or newer than the code."""

    kind = "schema"


class InvalidError(RowclaimError, ValueError):
    """The caller's input or use is wrong."""

    kind = "invalid"


class DuplicateError(RowclaimError):
    """A unique key is taken (only where that is not an answer)."""

    kind = "duplicate"


class NotFoundError(RowclaimError):
    """The named job or claim does not exist."""

    kind = "not_found"


class LostError(RowclaimError):
    """Somebody else owns it now (only where that is not an answer)."""

    kind = "lost"


class BusyError(RowclaimError):
    """Somebody else is at it right now (only where that is not an answer)."""

    kind = "busy"


class UnknownError(RowclaimError):
    """Whether it has happened cannot be known: a person or the provider must say."""

    kind = "unknown"


class ContentionError(RowclaimError):
    """Deadlock or lock wait; retried inside, seen only when the budget ran out."""

    kind = "contention"


class UnavailableError(RowclaimError):
    """The server cannot be reached, or went away."""

    kind = "unavailable"


class InterruptedWaitError(RowclaimError):
    """The wait was stopped. A signal handler's own exception (``KeyboardInterrupt``) is raised instead of it."""

    kind = "interrupted"


class DecodeError(RowclaimError):
    """A stored value is not what it should be."""

    kind = "decode"


class UnexpectedError(RowclaimError):
    """A fault of this code, or a server error nobody has sorted yet."""

    kind = "unexpected"


class NotSent(Exception):
    """For functions given to ``Engine.once`` to raise: the effect has surely not happened.

    ``send`` raises it when the provider has refused, so that a later call may send again; ``ask`` when the provider
    knows nothing of the key. Its text is kept in the ledger.
    """


class Reject(Exception):
    """For handlers and blocks to raise: the job or row has failed for good, whatever attempts are left.

    Its class and text become the error that is kept, as for any other exception. ``DecodeError`` means the same there:
    a payload that cannot be read.
    """


BY_KIND: dict[str, type[RowclaimError]] = {cls.kind: cls for cls in RowclaimError.__subclasses__()}


def make(kind: str, text: str, retryable: bool, operation: str, server_code: int | None) -> RowclaimError:
    """The exception for an error of the core."""
    error = BY_KIND.get(kind, UnexpectedError)(text)
    error.retryable = retryable
    error.operation = operation
    error.server_code = server_code
    return error
