#!/usr/bin/env python3
"""Makes the package for PECL: dist/rowclaim-VERSION.tgz with package.xml, from this repository.

    php-ext/package.py [--vendor] [--date YYYY-MM-DD]

The crates go under rust/ (a folder named core at the top of a phpize tree makes configure complain), Cargo.lock is
trimmed to them. With --vendor all crates are in the package and it builds offline; otherwise cargo fetches them, with
--locked. PEAR reads GNU tars only.
"""

from __future__ import annotations

import argparse
import datetime
import io
import re
import shutil
import subprocess
import tarfile
from pathlib import Path
from xml.sax.saxutils import quoteattr

import tomllib

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "php-ext" / "dist"
CRATES = ("core", "migrations", "php-ext")
# What a build does not need.
LEFT_OUT = shutil.ignore_patterns("target", "tests", "dist", "examples", "benches", "build", "modules", "autom4te.cache", ".*")
DOCS = {"README.md", "LICENSE", "CHANGELOG.md"}


def copy_crates(rust: Path) -> None:
    """Copies the crates and a workspace of just them."""
    shutil.copytree(ROOT / "core", rust / "core", ignore=LEFT_OUT)
    shutil.copytree(ROOT / "migrations", rust / "migrations", ignore=LEFT_OUT)
    (rust / "php-ext").mkdir()
    for name in ("Cargo.toml", "build.rs"):
        shutil.copy(ROOT / "php-ext" / name, rust / "php-ext")
    shutil.copytree(ROOT / "php-ext" / "src", rust / "php-ext" / "src")
    manifest = (ROOT / "Cargo.toml").read_text()
    members = ", ".join(f'"{name}"' for name in CRATES)
    manifest = re.sub(r"^members = \[.*?\]", f"members = [{members}]", manifest, flags=re.M | re.S)
    manifest = re.sub(r"^(#[^\n]*\n)?default-members = \[.*?\]\n", "", manifest, flags=re.M | re.S)
    (rust / "Cargo.toml").write_text(manifest)
    # Tests need crates that are not in the package.
    for crate in CRATES:
        path = rust / crate / "Cargo.toml"
        path.write_text(re.sub(r"^\[dev-dependencies\]\n(?:(?!\[).*\n?)*", "", path.read_text(), flags=re.M))
    shutil.copy(ROOT / "Cargo.lock", rust)
    # --locked wants a lock file of these crates only.
    subprocess.run(["cargo", "metadata", "--offline", "--format-version", "1"], cwd=rust, check=True, stdout=subprocess.DEVNULL)


def contents(files: list[str]) -> str:
    """The <contents> of package.xml."""
    tree: dict = {}
    for file in files:
        folder = tree
        *folders, name = file.split("/")
        for part in folders:
            folder = folder.setdefault(part, {})
        folder[name] = None

    def lines(folder: dict, indent: str) -> list[str]:
        out = []
        for name, below in sorted(folder.items()):
            if below is None:
                out.append(f'{indent}<file name={quoteattr(name)} role="{"doc" if name in DOCS else "src"}"/>')
            else:
                out += [f"{indent}<dir name={quoteattr(name)}>", *lines(below, indent + " "), f"{indent}</dir>"]
        return out

    return "\n".join(lines(tree, "   "))


def package_xml(version: str, date: str, files: list[str]) -> str:
    """package.xml, version 2.1."""
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<package version="2.1" xmlns="http://pear.php.net/dtd/package-2.1">
 <name>rowclaim</name>
 <channel>pecl.php.net</channel>
 <summary>A native claim engine for batch work kept in database tables</summary>
 <description>Hands out rows of a MySQL, MariaDB or SQLite table so that a row has at most one valid owner at a time, a dead
owner's rows come back, a late owner's writes are refused, and the same job is created once.</description>
 <lead><name>The Rowclaim authors</name><user>rowclaim</user><email>rowclaim@example.org</email><active>yes</active></lead>
 <date>{date}</date>
 <version><release>{version}</release><api>{version}</api></version>
 <stability><release>beta</release><api>beta</api></stability>
 <license uri="https://opensource.org/licenses/MIT">MIT</license>
 <notes>See CHANGELOG.md.</notes>
 <contents>
  <dir name="/">
{contents(files)}
  </dir>
 </contents>
 <dependencies>
  <required>
   <php><min>8.1.0</min></php>
   <pearinstaller><min>1.10.0</min></pearinstaller>
  </required>
 </dependencies>
 <providesextension>rowclaim</providesextension>
 <extsrcrelease>
  <configureoption name="with-cargo" prompt="path of cargo (no: search PATH)" default="no"/>
 </extsrcrelease>
</package>
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="Makes the package for PECL.")
    parser.add_argument("--vendor", action="store_true", help="put all crates into the package")
    parser.add_argument("--date", default=datetime.date.today().isoformat())
    arguments = parser.parse_args()
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    name = f"rowclaim-{version}"
    tree = DIST / name
    shutil.rmtree(DIST, ignore_errors=True)
    rust = tree / "rust"
    rust.mkdir(parents=True)
    copy_crates(rust)
    for file in ("config.m4", "Makefile.frag"):
        shutil.copy(ROOT / "php-ext" / file, tree)
    shutil.copytree(ROOT / "php-ext" / "stubs", tree / "stubs")
    for file in sorted(DOCS):
        if (ROOT / file).exists():
            shutil.copy(ROOT / file, tree)
    if arguments.vendor:
        vendored = subprocess.run(["cargo", "vendor", "--locked", "vendor"], cwd=rust, check=True, capture_output=True, text=True)
        (rust / ".cargo").mkdir()
        (rust / ".cargo" / "config.toml").write_text(vendored.stdout)
    files = sorted(str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_file())
    xml = package_xml(version, arguments.date, files).encode()
    (DIST / "package.xml").write_bytes(xml)
    archive = DIST / f"{name}.tgz"
    with tarfile.open(archive, "w:gz", format=tarfile.GNU_FORMAT) as tar:
        member = tarfile.TarInfo("package.xml")
        member.size = len(xml)
        tar.addfile(member, io.BytesIO(xml))
        tar.add(tree, name)
    print(f"{archive} {archive.stat().st_size // 1024} KiB, {len(files)} files")


if __name__ == "__main__":
    main()
