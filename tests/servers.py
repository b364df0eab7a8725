#!/usr/bin/env python3
"""Private database servers for tests, the demo and the benchmarks: own folder, socket and TCP port on 127.0.0.1.

``run`` starts servers, runs a command that finds them in its environment, and leaves nothing behind, whatever ends
it. ``start`` and ``stop`` keep one server on a folder, for tests that crash and restart it. ``tests/setup.sh``
installs what is started here; a system service is never touched.

Every server has the database ``rowclaim_test``, ``root`` without a password and ``app`` with the password ``secret``.
They come from a template, made once per server version in the cache folder: a copy takes a tenth of a second.

The one thing to know: the data of a server is all in its folder, the rest of it is only a process. As root the
servers run as the user ``mysql``. mysqld lives in the chroot made by ``setup.sh --mysql``; it gets a mount namespace
of its own, in which its folder appears as /mnt of the chroot, so there is nothing to unmount afterwards.

About ``--prewrite-redo``: MariaDB preallocates ib_logfile0 without writing it, and a commit into such blocks costs
more than one into written blocks, on some disks several times as much. The copy of a template has written blocks, but
maybe not on the disk yet: the option writes them all and waits for the disk before the server starts; use it before
measuring. MySQL is left out: at each start mysqld deletes the spare files of #innodb_redo and preallocates new ones,
and commits into written and unwritten ones took the same time.
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import fcntl
import hashlib
import json
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

DATABASES = ("mariadb", "mysql")
HOST = "127.0.0.1"
# Below the range the kernel takes client ports from: a port stays free between a crash and the restart.
PORTS = range(20000, 32000)
READY_WITHIN = 60.0
STOPPED_WITHIN = 60.0
EXIT_FAILED = 1

STATE_FILE = "server.json"
LOG_FILE = "server.log"
SOCKET_FILE = "server.sock"
MAX_SOCKET_PATH = 107  # bytes of sockaddr_un.sun_path without its NUL

MYSQL_STAMP = ".rowclaim-complete"  # written by setup.sh when the chroot is complete
MYSQL_MOUNT = "mnt"  # where a server folder appears inside the chroot

# Run once, while the template is made. FLUSH makes grants possible again in MariaDB's bootstrap mode.
USERS_SQL = """\
FLUSH PRIVILEGES;
CREATE DATABASE IF NOT EXISTS rowclaim_test;
CREATE USER IF NOT EXISTS 'root'@'127.0.0.1';
GRANT ALL PRIVILEGES ON *.* TO 'root'@'127.0.0.1' WITH GRANT OPTION;
CREATE USER 'app'@'%' IDENTIFIED BY 'secret';
GRANT ALL PRIVILEGES ON *.* TO 'app'@'%';
CREATE USER 'app'@'localhost' IDENTIFIED BY 'secret';
GRANT ALL PRIVILEGES ON *.* TO 'app'@'localhost';
DROP USER IF EXISTS ''@'localhost';
"""

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1
_CLONE_NEWNS = 0x00020000
_MS_BIND, _MS_REC, _MS_PRIVATE = 0x1000, 0x4000, 0x40000


class ServerError(Exception):
    """A server could not be started or stopped; the message is one for people."""


class MissingServer(ServerError):
    """The server program is not installed; the message says which command installs it."""


class Stopped(Exception):
    """A signal asked this script to end."""

    def __init__(self, signum: int) -> None:
        super().__init__(f"signal {signum}")
        self.signum = signum


@dataclasses.dataclass(frozen=True)
class Program:
    """An installed database server: which one, its executable, and the chroot it lives in, if any."""

    database: str
    executable: str
    version: str
    chroot: Path | None = None

    def path_of(self, folder: Path, name: str) -> str:
        """The path of a file of ``folder`` as the server sees it."""
        return f"/{MYSQL_MOUNT}/{name}" if self.chroot else str(folder / name)


@dataclasses.dataclass
class Server:
    """A server on a folder, running or not; ``started`` is the process' start time, against reused process ids."""

    database: str
    folder: Path
    port: int
    options: list[str]
    pid: int = 0
    started: int = 0

    @property
    def socket(self) -> Path:
        return self.folder / SOCKET_FILE

    @property
    def dsn(self) -> str:
        return f"mysql://root@{HOST}:{self.port}/rowclaim_test"

    def save(self) -> None:
        """Writes the state file by which ``start`` and ``stop`` know the server again."""
        state = dataclasses.asdict(self)
        del state["folder"]
        (self.folder / STATE_FILE).write_text(json.dumps(state) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Server | None:
        """The server of a folder, or None if no server was ever started there."""
        try:
            state = json.loads((folder / STATE_FILE).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        return cls(folder=folder, **state)


# --- Programs ---------------------------------------------------------------------------------------------------


def cache_folder() -> Path:
    """The folder setup.sh and this script keep things in between runs."""
    named = os.environ.get("ROWCLAIM_CACHE")
    if named:
        return Path(named).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rowclaim"


def find_program(database: str) -> Program:
    """The installed server of that name; raises MissingServer with the remedy if there is none."""
    if database == "mysql":
        chroot = cache_folder() / "mysql"
        try:
            version = (chroot / MYSQL_STAMP).read_text(encoding="utf-8").strip()
        except OSError:
            raise MissingServer(f"no MySQL in {chroot}: run tests/setup.sh --mysql (as root)") from None
        if os.geteuid() != 0:
            raise MissingServer("mysqld lives in a chroot: run this as root after tests/setup.sh --mysql")
        return Program(database, "/usr/sbin/mysqld", version, chroot)
    executable = find_executable("mariadbd")
    version = subprocess.run([executable, "--version"], check=True, capture_output=True, text=True).stdout.strip()
    return Program(database, executable, version)


def find_executable(name: str) -> str:
    """The path of a program, also in the folders that only root's PATH has."""
    found = shutil.which(name, path=os.environ.get("PATH", os.defpath) + ":/usr/sbin:/usr/local/sbin")
    if found is None:
        raise MissingServer(f"{name} is not installed: run tests/setup.sh (as root)")
    return found


def server_user() -> pwd.struct_passwd | None:
    """The user the servers run as, or None for the present one: both servers refuse to run as root."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("mysql")
    except KeyError:
        raise MissingServer("there is no user mysql: run tests/setup.sh (as root)") from None


def give_to_server_user(program: Program, folder: Path) -> None:
    """Makes the user of the servers the owner of a folder and all in it, and looks that it can be reached."""
    user = server_user()
    if user is None:
        return
    for parent in folder.absolute().parents:
        if not program.chroot and not parent.stat().st_mode & 0o001:
            raise ServerError(f"the user mysql cannot enter {parent}: use a folder directly below /tmp")
    folder.chmod(0o755)
    os.chown(folder, user.pw_uid, user.pw_gid)
    for path in folder.rglob("*"):
        os.chown(path, user.pw_uid, user.pw_gid, follow_symlinks=False)


# --- Data folders -----------------------------------------------------------------------------------------------


def fill_folder(program: Program, folder: Path) -> None:
    """Puts a fresh data folder into ``folder``, copied from the template of this server version."""
    key = hashlib.sha256(f"{program.version}\n{USERS_SQL}".encode()).hexdigest()[:12]
    template = cache_folder() / f"{program.database}-template-{key}"
    template.parent.mkdir(parents=True, exist_ok=True)
    with open(cache_folder() / f"{program.database}-template.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not template.exists():
            for old in cache_folder().glob(f"{program.database}-template-*"):
                shutil.rmtree(old)
            make_template(program, template, folder)
        shutil.copytree(template, folder / "data")
    (folder / "data" / "auto.cnf").unlink(missing_ok=True)  # else all copies had the same server UUID
    (folder / "tmp").mkdir()


def make_template(program: Program, template: Path, folder: Path) -> None:
    """Initialises a data folder inside ``folder``, then moves it to ``template`` in one step."""
    unfinished = template.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        (folder / "users.sql").write_text(USERS_SQL, encoding="utf-8")
        give_to_server_user(program, folder)
        data, users = program.path_of(folder, "data"), program.path_of(folder, "users.sql")
        user = server_user()
        if program.chroot:
            command = [program.executable, "--no-defaults", "--initialize-insecure"]
            command += [f"--datadir={data}", f"--init-file={users}"]
            enter = entering(program, folder, dies_with_us=True)
        else:
            command = [find_executable("mariadb-install-db"), "--no-defaults", f"--datadir={data}"]
            command += ["--auth-root-authentication-method=normal", "--skip-test-db", f"--extra-file={users}"]
            # The host's own name need not resolve (a container without /etc/hosts).
            command += ["--skip-name-resolve", "--force"]
            command += [f"--user={user.pw_name}"] if user else []
            enter = None
        done = subprocess.run(
            command, check=False, preexec_fn=enter, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd="/"
        )
        if done.returncode != 0 or "ERROR" in done.stdout:
            raise ServerError(f"{command[0]} failed with status {done.returncode}:\n{done.stdout}")
        shutil.copytree(folder / "data", unfinished)
        unfinished.rename(template)
    finally:
        shutil.rmtree(folder / "data", ignore_errors=True)
        (folder / "users.sql").unlink(missing_ok=True)


def prewrite_redo(program: Program, folder: Path) -> None:
    """Writes every block of MariaDB's redo log once, to disk; see the module's text."""
    if program.database != "mariadb":
        return
    with open(folder / "data" / "ib_logfile0", "r+b") as log:
        while True:
            block = log.read(1 << 20)
            if not block:
                break
            log.seek(-len(block), os.SEEK_CUR)
            log.write(block)
        log.flush()
        os.fsync(log.fileno())


# --- Processes --------------------------------------------------------------------------------------------------


def entering(program: Program, folder: Path, dies_with_us: bool) -> Callable[[], None]:
    """What a server's process does between fork and exec: chroot, rights, and the bond to this script."""
    user, parent = server_user(), os.getpid()

    def call(name: str, *arguments: object) -> None:
        if getattr(_LIBC, name)(*arguments) != 0:
            error = ctypes.get_errno()
            os.write(2, f"{name} failed: {os.strerror(error)}\n".encode())
            os._exit(1)

    def enter() -> None:
        if program.chroot:
            seen_at = os.fsencode(program.chroot / MYSQL_MOUNT)
            call("unshare", _CLONE_NEWNS)
            call("mount", b"none", b"/", None, ctypes.c_ulong(_MS_REC | _MS_PRIVATE), None)
            call("mount", os.fsencode(folder.absolute()), seen_at, None, ctypes.c_ulong(_MS_BIND), None)
            call("chroot", os.fsencode(program.chroot))
        os.chdir("/")
        if user:
            os.setgroups([])
            os.setgid(user.pw_gid)
            os.setuid(user.pw_uid)
        if dies_with_us:
            # After setuid, which clears it. It is the thread that counts: servers are started in the main thread.
            call("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent:
                os._exit(1)

    return enter


def server_command(program: Program, server: Server) -> list[str]:
    """The command line; the later of two options wins, so those of the server can change every default."""
    command = [
        program.executable,
        "--no-defaults",
        f"--datadir={program.path_of(server.folder, 'data')}",
        f"--tmpdir={program.path_of(server.folder, 'tmp')}",
        f"--socket={program.path_of(server.folder, SOCKET_FILE)}",
        f"--pid-file={program.path_of(server.folder, 'server.pid')}",
        f"--port={server.port}",
        f"--bind-address={HOST}",
        "--skip-name-resolve",
        "--innodb-flush-log-at-trx-commit=1",
        "--innodb-buffer-pool-size=256M",
        "--max-connections=300",
        "--performance-schema=OFF",
    ]
    if program.database == "mysql":
        command += ["--mysqlx=OFF", "--secure-file-priv=NULL"]
    if not any(option.replace("_", "-").startswith("--log-bin") for option in server.options):
        command.append("--disable-log-bin" if program.database == "mysql" else "--skip-log-bin")
    return command + server.options


def launch(program: Program, server: Server, dies_with_us: bool) -> subprocess.Popen[bytes]:
    """Starts the process, in a session of its own so that a Ctrl-C does not reach it; it is not ready yet."""
    # After a crash MySQL would refuse to start while the process id in the lock file is taken, if only by a zombie.
    server.socket.unlink(missing_ok=True)
    server.socket.with_suffix(".sock.lock").unlink(missing_ok=True)
    with open(server.folder / LOG_FILE, "ab") as log:
        process = subprocess.Popen(
            server_command(program, server),
            preexec_fn=entering(program, server.folder, dies_with_us),  # noqa: PLW1509 - there are no threads
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "LC_ALL": "C"},
        )
    server.pid = process.pid
    server.started = start_time(process.pid) or 0
    server.save()
    return process


def start_time(pid: int) -> int | None:
    """When a process started, in the kernel's ticks; None if it is gone or a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = stat[stat.rindex(")") + 2 :].split()
    return None if fields[0] in "ZX" else int(fields[19])


def is_running(server: Server) -> bool:
    """Whether the process of a server is alive, and is that server and no later process with the same id."""
    return bool(server.pid) and start_time(server.pid) == server.started


def is_ready(server: Server) -> bool:
    """Whether the server greets: the first packet of the MySQL protocol, version 10 and no error."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(5)
        try:
            connection.connect(str(server.socket))
            return connection.recv(5)[4:] == b"\x0a"
        except OSError:
            return False


def wait_ready(server: Server, process: subprocess.Popen[bytes]) -> None:
    """Returns when the server takes connections; raises ServerError with the end of its log when it does not."""
    deadline = time.monotonic() + READY_WITHIN
    while not is_ready(server):
        if process.poll() is not None or time.monotonic() > deadline:
            lines = (server.folder / LOG_FILE).read_text(encoding="utf-8", errors="replace").splitlines()
            raise ServerError("\n".join([f"{server.database} did not come up; the end of its log:", *lines[-20:]]))
        time.sleep(0.02)


def free_port() -> int:
    """A TCP port on 127.0.0.1 that nothing listens on now."""
    for port in random.sample(PORTS, 200):
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
                return port
            except OSError:
                continue
    raise ServerError(f"no free TCP port between {PORTS.start} and {PORTS.stop}")


def prepare(program: Program, folder: Path, options: list[str], prewrite: bool) -> Server:
    """A server on ``folder``, not started: with a fresh data folder, or with the one it had before.

    Without new ``options`` it keeps its earlier ones: MariaDB, for one, cannot recover without the binary log it had.
    """
    folder.mkdir(parents=True, exist_ok=True)
    server = Server.load(folder)
    if server is None:
        if any(folder.iterdir()):
            raise ServerError(f"{folder} is neither empty nor the folder of a server")
        if len(os.fsencode(folder / SOCKET_FILE)) > MAX_SOCKET_PATH:
            raise ServerError(f"{folder} is too long for a socket path ({MAX_SOCKET_PATH} bytes): use a shorter one")
        fill_folder(program, folder)
        server = Server(program.database, folder, free_port(), options)
    elif server.database != program.database:
        raise ServerError(f"{folder} has the data of {server.database}, not of {program.database}")
    elif is_running(server):
        raise ServerError(f"{server.database} already runs in {folder}, process {server.pid}")
    server.options = options or server.options
    give_to_server_user(program, folder)
    if prewrite:
        prewrite_redo(program, folder)
    return server


# --- run --------------------------------------------------------------------------------------------------------


def start_janitor(folder: Path) -> tuple[int, int]:
    """Forks a process that cleans up when this script is gone, however it went.

    It kills the process group whose id it was sent, if any, and removes ``folder``. Returns its process id and the
    write end of the pipe whose closing tells it. The servers have died by then or die at the same moment
    (PR_SET_PDEATHSIG), hence the repeated tries.
    """
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid:
        os.close(read_end)
        return pid, write_end
    os.close(write_end)
    os.setsid()
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    with open(read_end, encoding="ascii") as pipe:
        group = pipe.read()
    if group:
        try:
            os.killpg(int(group), signal.SIGKILL)
        except ProcessLookupError:
            pass
    for _ in range(200):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            break
        time.sleep(0.05)
    os._exit(0)


def raise_stopped(signum: int, _frame: FrameType | None) -> None:
    raise Stopped(signum)


def on_signals(handler: object) -> None:
    """Sets one handler for the signals that ask for an end."""
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, handler)  # type: ignore[arg-type]


def run_command(command: Sequence[str], environment: dict[str, str], janitor_pipe: int) -> int:
    """Runs the command and passes signals on to it; returns its exit status, 128 + N after signal N.

    With a terminal the command shares our process group, and Ctrl-C reaches it by itself. Without one it leads its
    own group: a signal reaches what it has started too, and the janitor ends what it left behind.
    """
    own_group = not sys.stdin.isatty()

    def die_with_us() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)

    def send(signum: int) -> None:
        try:
            os.killpg(process.pid, signum) if own_group else process.send_signal(signum)
        except ProcessLookupError:
            pass

    try:
        process = subprocess.Popen(
            command,
            env=environment,
            start_new_session=own_group,
            preexec_fn=die_with_us,  # noqa: PLW1509 - there are no threads
        )
    except OSError as error:
        raise ServerError(f"cannot run {command[0]}: {error.strerror}") from None
    try:
        if own_group:
            os.write(janitor_pipe, str(process.pid).encode())
        status = process.wait()
    except Stopped as stopped:
        on_signals(signal.SIG_IGN)
        if own_group or stopped.signum != signal.SIGINT:
            send(stopped.signum)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            send(signal.SIGKILL)
            process.wait()
        status = process.returncode
    return status if status >= 0 else 128 - status


def run(arguments: argparse.Namespace) -> int:
    """Starts the servers, runs the command, ends the servers and removes their folders."""
    environment = dict(os.environ)
    programs, skipped = [], []
    for database in dict.fromkeys(arguments.db or DATABASES):
        try:
            programs.append(find_program(database))
        except MissingServer as missing:
            if database not in arguments.allow_missing:
                raise
            print(f"SKIP {database}: {missing}", file=sys.stderr, flush=True)
            skipped.append(database)
    if skipped:
        environment["ROWCLAIM_TEST_SKIP"] = ",".join(skipped)
    base = Path(tempfile.mkdtemp(prefix="rowclaim-"))
    base.chmod(0o755)
    janitor, janitor_pipe = start_janitor(base)
    processes: list[subprocess.Popen[bytes]] = []
    try:
        servers = [prepare(program, base / program.database, [], arguments.prewrite_redo) for program in programs]
        for program, server in zip(programs, servers):
            processes.append(launch(program, server, dies_with_us=True))
        for server, process in zip(servers, processes):
            wait_ready(server, process)
            name = f"ROWCLAIM_TEST_{server.database.upper()}"
            environment.update({name: server.dsn, f"{name}_SOCKET": str(server.socket), f"{name}_PID": str(server.pid)})
        return run_command(arguments.command, environment, janitor_pipe)
    finally:
        on_signals(signal.SIG_IGN)
        # Killed, not shut down: nobody will read their data again.
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()
        os.close(janitor_pipe)
        os.waitpid(janitor, 0)


# --- start and stop ---------------------------------------------------------------------------------------------


def start(arguments: argparse.Namespace) -> int:
    """Starts one server that outlives this script, and prints where it is."""
    folder = arguments.dir.absolute()
    program = find_program(arguments.db)
    server = prepare(program, folder, arguments.arg, arguments.prewrite_redo)
    process = launch(program, server, dies_with_us=False)
    try:
        wait_ready(server, process)
    except BaseException:
        process.kill()
        process.wait()
        raise
    place = {"dsn": server.dsn, "socket": str(server.socket), "port": server.port, "pid": server.pid}
    print(json.dumps({**place, "dir": str(folder)}), flush=True)
    return 0


def stop(arguments: argparse.Namespace) -> int:
    """Stops the server of a folder, if it still runs, and removes the folder unless it is to be kept."""
    server = Server.load(arguments.dir.absolute())
    if server is None:
        raise ServerError(f"no server was ever started in {arguments.dir}")
    deadline = time.monotonic() + STOPPED_WITHIN
    if is_running(server):
        os.kill(server.pid, signal.SIGKILL if arguments.kill else signal.SIGTERM)
    while is_running(server):
        if time.monotonic() > deadline:
            raise ServerError(f"{server.database}, process {server.pid}, does not stop: use --kill")
        time.sleep(0.02)
    if not arguments.keep:
        shutil.rmtree(server.folder)
    return 0


# --- Command line -----------------------------------------------------------------------------------------------


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="servers.py", description=(__doc__ or "").split("\n\n")[0])
    verbs = parser.add_subparsers(dest="verb", required=True)

    verb = verbs.add_parser("run", help="run a command with servers around it")
    verb.add_argument("--db", action="append", choices=DATABASES, help="a server to start; default: all")
    verb.add_argument("--allow-missing", action="append", default=[], choices=DATABASES, help="skip if not installed")
    verb.add_argument("--prewrite-redo", action="store_true", help="write MariaDB's redo log before the start")
    verb.add_argument("command", nargs="+", metavar="COMMAND", help="put -- before it")
    verb.set_defaults(call=run)

    verb = verbs.add_parser("start", help="start one server, again if its folder has data, and print a JSON line")
    verb.add_argument("db", choices=DATABASES)
    verb.add_argument("--dir", type=Path, required=True, help="an empty folder, or the one of an earlier start")
    verb.add_argument("--arg", action="append", default=[], metavar="OPTION", help="server option: --arg=--log-bin")
    verb.add_argument("--prewrite-redo", action="store_true", help="write MariaDB's redo log before the start")
    verb.set_defaults(call=start)

    verb = verbs.add_parser("stop", help="stop the server of a folder and remove the folder")
    verb.add_argument("--dir", type=Path, required=True)
    verb.add_argument("--kill", action="store_true", help="with SIGKILL, as in a crash")
    verb.add_argument("--keep", action="store_true", help="keep the folder, to start the server again")
    verb.set_defaults(call=stop)
    return parser.parse_args(argv)


def main() -> NoReturn:
    arguments = parse(sys.argv[1:])
    on_signals(raise_stopped)
    try:
        sys.exit(arguments.call(arguments))
    except Stopped as stopped:
        sys.exit(128 + stopped.signum)
    except ServerError as error:
        print(f"servers.py: {error}", file=sys.stderr)
        sys.exit(EXIT_FAILED)


if __name__ == "__main__":
    main()
