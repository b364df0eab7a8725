"""The package as people meet it: version, command line, names."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import rowclaim

ROOT = Path(__file__).parents[2]


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=30, check=False)


def test_the_version_is_the_workspaces() -> None:
    found = re.search(r'^version = "(.+)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)
    assert found is not None and rowclaim.__version__ == found[1]


def test_running_the_package_prints_version_and_hint() -> None:
    answer = python("-m", "rowclaim")
    assert answer.stdout.startswith(f"rowclaim {rowclaim.__version__}\n") and "rowclaim.connect" in answer.stdout
    assert python("-m", "rowclaim", "--version").stdout == rowclaim.__version__ + "\n"
    helped = python("-m", "rowclaim", "--help")
    assert helped.returncode == 0 and "usage: python -m rowclaim" in helped.stdout
    assert python("-m", "rowclaim", "nonsense").returncode == 2


def test_importing_prints_nothing_and_starts_no_thread() -> None:
    answer = python("-W", "error", "-c", "import os, rowclaim; print(len(os.listdir('/proc/self/task')))")
    assert (answer.stdout, answer.stderr) == ("1\n", "")


def test_every_public_name_exists() -> None:
    assert [name for name in rowclaim.__all__ if not hasattr(rowclaim, name)] == []
    assert sorted(set(rowclaim.__all__)) == sorted(rowclaim.__all__)
