#!/usr/bin/env python3
"""Runs every code block of README.md and of the guides in docs/en, in order, as a newcomer would.

Each page has a scratch folder and a database of its own. A block is run by its language:

- php, python: by the built extension and module. sh: line by line. crontab: five fields, then the command is run.
- sql: with a file's name behind the language in that SQLite file, otherwise on the private MariaDB.
- A name behind the language (```php send.php) saves the block as a file, which a later block has to use.
- text: a block that follows another with at most one line between is what that one prints, to the letter.
- rust: doc tests of the crate (see core/src/lib.rs), only counted here.

In the guides each PHP and Python block that is run is followed by what it prints, so that none passes by printing
nothing. A block that cannot be run has the line `*Not run by the tests: …*` above it; there may be few of them. The
blocks of docs/zh are those of docs/en, byte for byte. Commands of the console in the text have to be ones that it has.
The two make commands are not run again from inside of themselves: their targets are asked for by `make -n`. Installing
lines run for real and once, with the quick build profile and the shared build folder.

    tests/readme.py [--no-install] [PAGE …]
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "target"
EXTENSION = os.environ.get("ROWCLAIM_PHP_EXTENSION", str(TARGET / "fast" / "librowclaim_php.so"))
PYTHON = os.environ.get("ROWCLAIM_PYTHON", str(TARGET / "venv" / "bin" / "python"))
GUIDES = ROOT / "docs" / "en"
TRANSLATED = ROOT / "docs" / "zh"
# The guide whose tables and mappings are those of tests/schemas.
SCHEMAS_PAGE = GUIDES / "schemas.md"
RUN_HERE = {"php", "python", "sh", "sql", "crontab"}
LANGUAGES = RUN_HERE | {"rust", "json", "ini", "text"}
MOST_NOT_RUN = 3
FENCE = re.compile(r"^```(\w+)(?: (\S+))?$")
COMMAND = re.compile(r"`(rowclaim [^`\n]+)`")
NOT_RUN = re.compile(r"^\*Not run by the tests: .+\*$")
INSTALLS = ("pip install ./py-ext", "cd php-ext")
QUICK = {"ROWCLAIM_PROFILE": "fast", "CARGO_TARGET_DIR": str(TARGET), "MATURIN_PEP517_ARGS": "--profile fast"}

# SQL runs in a process of its own: two SQLite libraries in one do not see each other's locks.
SQL = r"""
import os, re, sys
if sys.argv[1] == "sqlite":
    import sqlite3
    connection = sqlite3.connect(sys.argv[2], isolation_level=None)
else:
    import pymysql
    from urllib.parse import urlsplit
    at = urlsplit(sys.argv[2])
    connection = pymysql.connect(host=at.hostname, port=at.port, user=at.username, password=at.password or "",
                                 database=at.path.strip("/") or None, charset="utf8mb4", autocommit=True)
cursor = connection.cursor()
for statement in re.split(r";[^\S\n]*(?:--[^\n]*)?\n", sys.stdin.read() + "\n"):
    if statement.strip():
        cursor.execute(statement)
        for row in cursor.fetchall() if cursor.description else ():
            print("|".join("" if value is None else str(value) for value in row))
"""


class Failed(Exception):
    """A block or a page is not as it must be; the message says which and why."""


@dataclasses.dataclass
class Block:
    """One block of a page: where it is, what it holds, and what it is to print."""

    line: int
    language: str
    name: str | None
    code: str
    is_run: bool = True
    prints: str | None = None


def parse(page: Path) -> list[Block]:
    """The blocks of a page."""
    blocks: list[Block] = []
    since: list[str] = []  # lines of text since the last block
    inside: list[str] | None = None
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if inside is None and line.startswith("```"):
            fence = FENCE.match(line)
            if fence is None or fence[1] not in LANGUAGES:
                raise Failed(f"{page.name}:{number}: a block has no language, or one that nothing runs: {line}")
            is_run = not (since and NOT_RUN.match(since[-1]))
            blocks.append(Block(number, fence[1], fence[2], "", is_run))
            is_answer = fence[1] == "text" and len(blocks) > 1 and len(since) <= 1
            inside = []
        elif inside is not None and line == "```":
            blocks[-1].code = "".join(f"{line}\n" for line in inside)
            if is_answer and blocks[-2].language in RUN_HERE:
                blocks[-2].prints = blocks[-1].code
            inside, since = None, []
        elif inside is not None:
            inside.append(line)
        elif line.strip():
            since.append(line)
    if inside is not None:
        raise Failed(f"{page.name}: the last block does not end")
    return blocks


class Site:
    """The scratch folder of a page, the environment of its blocks, and its database on the private server."""

    def __init__(self, folder: Path, number: int) -> None:
        self.folder = folder
        self.database = f"rowclaim_page_{os.getpid()}_{number}"
        self.is_made = False
        ini = folder / ".ini"
        ini.mkdir()
        strict = "error_reporting = -1\ndisplay_errors = 1\n"
        (ini / "rowclaim.ini").write_text(f"extension = {Path(EXTENSION).resolve()}\n{strict}", encoding="utf-8")
        path = f"{Path(PYTHON).parent}:{TARGET / 'fast'}:{os.environ['PATH']}"
        self.environment = {**os.environ, "PATH": path, "PHP_INI_SCAN_DIR": f":{ini}", "PYTHONWARNINGS": "error"}

    def run(self, command: list[str], given: str = "") -> str:
        """Runs a command that must succeed; what it printed."""
        return run(command, self.folder, self.environment, given)

    def server(self, database: str) -> str:
        """The DSN of a database of the private MariaDB."""
        if "ROWCLAIM_TEST_MARIADB" not in os.environ:
            raise Failed("a block needs the private MariaDB; run by: python3 tests/servers.py run --db mariadb -- …")
        at = urlsplit(os.environ["ROWCLAIM_TEST_MARIADB"])
        return f"mysql://root@{at.hostname}:{at.port}/{database}"

    def placed(self, code: str) -> str:
        """The code with the page's server and folder replaced by those here."""
        code = code.replace("/srv/shop", str(self.folder))
        if not re.search(r"(\(|--dsn )['\"]?mysql:", code):
            return code
        self.make()
        port = urlsplit(self.server("")).port
        code = code.replace("@127.0.0.1/shop", f"@127.0.0.1:{port}/{self.database}")
        return code.replace("host=127.0.0.1;dbname=shop", f"host=127.0.0.1;port={port};dbname={self.database}")

    def make(self) -> None:
        """Makes the page's database."""
        if not self.is_made:
            self.run([PYTHON, "-c", SQL, "server", self.server("")], f"CREATE DATABASE {self.database}")
            self.is_made = True

    def clear(self) -> None:
        """Drops the page's database."""
        if self.is_made:
            self.run([PYTHON, "-c", SQL, "server", self.server("")], f"DROP DATABASE {self.database}")

    def sql(self, block: Block) -> str:
        """Runs statements; their rows as the sqlite3 shell prints them."""
        if block.name:
            return self.run([PYTHON, "-c", SQL, "sqlite", block.name], block.code)
        self.make()
        return self.run([PYTHON, "-c", SQL, "server", self.server(self.database)], block.code)


def run(command: list[str], folder: Path, environment: dict[str, str], given: str = "") -> str:
    """Runs a command that must succeed; what it printed."""
    done = subprocess.run(
        command, check=False, cwd=folder, env=environment, text=True, capture_output=True, timeout=1200, input=given
    )
    if done.returncode != 0:
        raise Failed(f"{' '.join(command)[:200]} failed ({done.returncode}):\n{done.stdout}\n{done.stderr}")
    return done.stdout


def install(line: str, folder: Path) -> None:
    """An installing line, into the scratch folder; what was installed tells its version."""
    environment = {**os.environ, **QUICK}
    if line.startswith("pip install"):
        venv = folder / ".venv"
        run([sys.executable, "-m", "venv", str(venv)], folder, environment)
        run([str(venv / "bin" / "pip"), "install", "--quiet", str(ROOT / "py-ext")], ROOT, environment)
        told = run([str(venv / "bin" / "python"), "-c", "import rowclaim; print(rowclaim.__version__)"], folder, environment)
    else:
        installed = folder / ".extensions"
        steps = line.replace("make install", f"make install INSTALL_ROOT={installed}")
        tree = folder / ".tree"
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns("target", ".git"), symlinks=True)
        run(["sh", "-ec", steps], tree, environment)
        (library,) = installed.rglob("rowclaim.so")
        told = run(["php", "-d", f"extension={library}", "-r", "echo phpversion('rowclaim'), PHP_EOL;"], folder, environment)
    print(told, end="")


class Runner:
    """Runs pages; knows what was installed already."""

    def __init__(self, installs: bool) -> None:
        self.installs = installs
        self.installed: set[str] = set()
        self.passed = 0
        self.not_run = 0

    def page(self, page: Path, number: int) -> None:
        """Takes the blocks of a page in order; the first that fails ends the run."""
        blocks = parse(page)
        shown = page.relative_to(ROOT)
        check_commands(page)
        with tempfile.TemporaryDirectory(prefix="rowclaim-page-") as name:
            site = Site(Path(name), number)
            try:
                for position, block in enumerate(blocks):
                    print(f"{shown}:{block.line}: {block.language} {block.name or ''}".rstrip(), flush=True)
                    try:
                        self.block(block, site, blocks[position + 1 :], is_guide=page.parent == GUIDES)
                    except Failed as failed:
                        raise Failed(f"{shown}:{block.line}: {failed}") from None
            finally:
                site.clear()

    def block(self, block: Block, site: Site, later: list[Block], is_guide: bool) -> None:
        """Runs one block, and compares what it prints."""
        if not block.is_run:
            self.not_run += 1
            return
        self.passed += block.language != "text"
        if block.name and block.language != "sql":
            if block.language == "json":
                json.loads(block.code)
            if not any(Path(block.name).stem in other.code for other in later):
                raise Failed(f"no later block uses {block.name}")
            (site.folder / block.name).write_text(site.placed(block.code), encoding="utf-8")
            return
        if block.language in ("json", "ini"):
            raise Failed("a block that is only looked at has a name, or says why it is not run")
        if block.language not in RUN_HERE:
            return
        if is_guide and block.language in ("php", "python") and block.prints is None:
            raise Failed("what the block prints is missing below it")
        out = self.out(block, site)
        print(out, end="")
        if re.search(r"^(PHP )?(Warning|Notice|Deprecated|Fatal)", out, re.MULTILINE):
            raise Failed(f"warns:\n{out}")
        if block.prints is not None and out != block.prints:
            raise Failed(f"printed\n{out}but the page says\n{block.prints}")

    def out(self, block: Block, site: Site) -> str:
        """Runs one block by its language; what it prints."""
        if block.language == "sql":
            return site.sql(block)
        code = site.placed(block.code)
        if block.language == "php":
            script = site.folder / f"block{block.line}.php"
            script.write_text(code, encoding="utf-8")
            return site.run(["php", str(script)])
        if block.language == "python":
            return site.run([PYTHON, "-c", code])
        return "".join(self.shell(line, site, block.language == "crontab") for line in code.splitlines())

    def shell(self, line: str, site: Site, is_crontab: bool) -> str:
        """One line of a shell block or of a crontab; what it prints."""
        if is_crontab:
            entry = re.match(r"(?:[\d*/,-]+ ){5}(\S.*)$", line)
            if entry is None:
                raise Failed(f"no line of a crontab: {line}")
            line = entry[1]
        if line.startswith("make "):
            run(["make", "-n", *line.split()[1:]], ROOT, dict(os.environ))
        elif line.startswith(INSTALLS):
            if self.installs and line not in self.installed:
                install(line, site.folder)
                self.installed.add(line)
        else:
            return site.run(["sh", "-ec", line])
        return ""


def check_commands(page: Path) -> None:
    """Asks the console for the help of each command that the text of a page names, with its arguments."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for command in sorted(set(COMMAND.findall(text))):
        words = shlex.split(command.replace("TOKEN", str(uuid.UUID(int=0))))[1:]
        run([str(TARGET / "fast" / "rowclaim"), *words, "--help"], ROOT, dict(os.environ))


def compare_languages() -> None:
    """The blocks of the translated guides are those of the English ones, and there is one for each."""
    names = sorted(page.name for page in GUIDES.glob("*.md"))
    translated = sorted(page.name for page in TRANSLATED.glob("*.md"))
    if names != translated:
        raise Failed(f"docs/en has {names}, docs/zh has {translated}")
    for name in names:
        check_commands(TRANSLATED / name)
        english, chinese = ([(b.language, b.name, b.code) for b in parse(folder / name)] for folder in (GUIDES, TRANSLATED))
        for one, other in zip(english, chinese):
            if one != other:
                raise Failed(f"docs/zh/{name}: a block differs from docs/en:\n{other[2]}\n---\n{one[2]}")
        if len(english) != len(chinese):
            raise Failed(f"docs/zh/{name} has {len(chinese)} blocks, docs/en has {len(english)}")


def compare_schemas() -> None:
    """Tables and mappings of the guide to the schemas are those that tests/schemas runs."""
    blocks = parse(SCHEMAS_PAGE)
    folder = ROOT / "tests" / "schemas"
    mappings = [json.loads(block.code) for block in blocks if block.language == "json"]
    for file in sorted(folder.glob("?/*.json")):
        if json.loads(file.read_text(encoding="utf-8"))["mapping"] not in mappings:
            raise Failed(f"{SCHEMAS_PAGE.name} has no mapping like {file.relative_to(ROOT)}")
    shown = "".join(block.code for block in blocks if block.language == "sql")
    for file in sorted(folder.glob("?/*.sql")):
        statements = re.sub(r"^--.*\n", "", file.read_text(encoding="utf-8"), flags=re.MULTILINE).strip()
        if statements not in shown:
            raise Failed(f"{SCHEMAS_PAGE.name} does not have the statements of {file.relative_to(ROOT)}")


def main() -> None:
    """Runs the pages asked for, or all."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--no-install", action="store_true", help="leave the installing lines out")
    parser.add_argument("pages", nargs="*", type=Path, help="README.md and all of docs/en when none is named")
    options = parser.parse_args()
    pages = [page.resolve() for page in options.pages] or [ROOT / "README.md", *sorted(GUIDES.glob("*.md"))]
    runner = Runner(installs=not options.no_install)
    try:
        if not options.pages:
            compare_languages()
            compare_schemas()
        for number, page in enumerate(pages):
            runner.page(page, number)
        if runner.not_run > MOST_NOT_RUN:
            raise Failed(f"{runner.not_run} blocks are marked as not run; at most {MOST_NOT_RUN} may be")
    except Failed as failed:
        raise SystemExit(f"README: {failed}") from None
    print(f"README: {runner.passed} passed, {runner.not_run} marked as not run, 0 failed")


if __name__ == "__main__":
    main()
