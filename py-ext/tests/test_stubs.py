"""The stubs say what the native part says. Names and signatures are compared by mypy.stubtest in run.sh."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import rowclaim
from rowclaim import _native

STUB = Path(rowclaim.__file__).with_name("_native.pyi")


def documented(
    node: ast.Module | ast.ClassDef, runtime: object, path: str = ""
) -> Iterator[tuple[str, str | None, str]]:
    for child in node.body:
        if isinstance(child, (ast.ClassDef, ast.FunctionDef)) and not child.name.startswith("__"):
            there = getattr(runtime, child.name)
            yield path + child.name, ast.get_docstring(child), inspect.cleandoc(there.__doc__ or "")
            if isinstance(child, ast.ClassDef):
                yield from documented(child, there, child.name + ".")


def test_docstrings_of_the_stubs_are_those_of_the_runtime() -> None:
    found = list(documented(ast.parse(STUB.read_text()), _native))
    assert len(found) > 45
    for name, stub, runtime in found:
        assert stub == runtime and stub, name


def test_every_public_name_has_a_docstring() -> None:
    for name in rowclaim.__all__:
        if inspect.isclass(thing := getattr(rowclaim, name)) or callable(thing):
            assert thing.__doc__ and not thing.__doc__.startswith(name + "("), name


def test_the_package_is_typed() -> None:
    assert STUB.with_name("py.typed").exists()
