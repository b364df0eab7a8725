#!/usr/bin/env python3
"""Runs every code block of README.md, in order, in one scratch folder, as a newcomer would.

PHP blocks run with the built extension, Python blocks with the built module, shell lines one by one. Rust blocks
are doc tests of the crate (see core/src/lib.rs) and are only counted here. The two make commands are not run again
from inside of themselves: their targets are asked for by `make -n`. Installing lines run for real, with the quick
build profile and the shared build folder.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "target"
EXTENSION = os.environ.get("ROWCLAIM_PHP_EXTENSION", str(TARGET / "fast" / "librowclaim_php.so"))
PYTHON = os.environ.get("ROWCLAIM_PYTHON", str(TARGET / "venv" / "bin" / "python"))
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run(command: list[str], folder: Path, **more: str) -> str:
    """Runs a command that must succeed; what it printed."""
    environment = {**os.environ, "PATH": f"{TARGET / 'fast'}:{os.environ['PATH']}", **more}
    done = subprocess.run(command, check=False, cwd=folder, env=environment, text=True, capture_output=True, timeout=1200)
    if done.returncode != 0:
        raise SystemExit(f"README: {' '.join(command)[:200]} failed ({done.returncode}):\n{done.stdout}\n{done.stderr}")
    return done.stdout


def on_server(code: str) -> str:
    """The code with the README's server, user and database replaced by those of the private MariaDB."""
    server = urlsplit(os.environ["ROWCLAIM_TEST_MARIADB"])
    database = server.path.strip("/")
    code = code.replace("@127.0.0.1/shop", f"@127.0.0.1:{server.port}/{database}")
    return code.replace("host=127.0.0.1;dbname=shop", f"host=127.0.0.1;port={server.port};dbname={database}")


def shell(line: str, folder: Path) -> None:
    """One line of a shell block."""
    quick = {"ROWCLAIM_PROFILE": "fast", "CARGO_TARGET_DIR": str(TARGET), "MATURIN_PEP517_ARGS": "--profile fast"}
    if line.startswith("make "):
        run(["make", "-n", *line.split()[1:]], ROOT)
    elif line.startswith("pip install ./py-ext"):
        venv = folder / "venv"
        run([sys.executable, "-m", "venv", str(venv)], folder)
        run([str(venv / "bin" / "pip"), "install", "--quiet", str(ROOT / "py-ext")], ROOT, **quick)
        print(run([str(venv / "bin" / "python"), "-c", "import rowclaim; print(rowclaim.__version__)"], folder), end="")
    elif line.startswith("cd php-ext"):
        installed = folder / "extensions"
        steps = line.replace("make install", f"make install INSTALL_ROOT={installed}")
        tree = folder / "tree"
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns("target", ".git"), symlinks=True)
        run(["sh", "-ec", steps], tree, **quick)
        (library,) = installed.rglob("rowclaim.so")
        print(run(["php", "-d", f"extension={library}", "-r", "echo phpversion('rowclaim'), PHP_EOL;"], folder), end="")
    else:
        run(["sh", "-ec", line], folder)


def main() -> None:
    """Takes the blocks in order; the first that fails ends the run."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = BLOCK.findall(text)
    known = {"php", "python", "rust", "sh", "text"}
    unknown = {language for language, _ in blocks} - known
    if unknown or text.count("```") != 2 * len(blocks):
        raise SystemExit(f"README: a block has no language, or one that nothing runs: {unknown}")
    passed = 0
    with tempfile.TemporaryDirectory(prefix="rowclaim-readme-") as name:
        folder = Path(name)
        for number, (language, code) in enumerate(blocks):
            print(f"README block {number}: {language}", flush=True)
            if language == "php":
                script = folder / f"block{number}.php"
                script.write_text(on_server(code), encoding="utf-8")
                strict = ["-d", "error_reporting=-1", "-d", "display_errors=1"]
                out = run(["php", "-d", f"extension={EXTENSION}", *strict, str(script)], folder)
                if re.search(r"^(PHP )?(Warning|Notice|Deprecated|Fatal)", out, re.MULTILINE):
                    raise SystemExit(f"README: block {number} warns:\n{out}")
                print(out, end="")
            elif language == "python":
                print(run([PYTHON, "-W", "error", "-c", code], folder), end="")
            elif language == "sh":
                for line in code.splitlines():
                    shell(line, folder)
            passed += language not in ("text",)
    print(f"README: {passed} passed, 0 failed")


if __name__ == "__main__":
    main()
