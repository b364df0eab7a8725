"""``python -m rowclaim``: the version, and where to go on."""

import argparse

from . import __version__

HINT = """\
In Python: rowclaim.connect("mysql://user:password@host/database") or "sqlite:///absolute/path", then help(engine).
The operator's commands (migrate, doctor, stats, work) are in the program rowclaim, which comes apart from this package.
"""


def main() -> None:
    """Prints the version and a hint."""
    parser = argparse.ArgumentParser(prog="python -m rowclaim", description="Prints the version and a hint.")
    parser.add_argument("--version", action="version", version=__version__)
    parser.parse_args()
    print(f"rowclaim {__version__}\n{HINT}", end="")


if __name__ == "__main__":
    main()
