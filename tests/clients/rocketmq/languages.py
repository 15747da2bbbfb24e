"""The programs around RocketMQ's official clients, by language, made ready once.

What they need comes from the package indexes that the machine's own configuration names, at the versions and hashes
that stand here, and is kept in `.clients/` of the checkout.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from tests.clients import go_program
from tests.clients.go_program import BUILT

PART: Final = "official clients of RocketMQ"
_HERE: Final = Path(__file__).parent
_SECONDS_MAX: Final = 540


class CannotBuild(Exception):
    """A program cannot be made ready here; the text names the cause."""


class Command(msgspec.Struct, frozen=True):
    """The command of a program, and the variables that it needs.

    `language`: of the client, as `LANGUAGES` has it.
    """

    language: str
    words: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()


def _python() -> Command:
    return Command("python", (sys.executable, "-m", "tests.clients.rocketmq.python_client"))


def _node() -> Command:
    node, npm = _tool("node"), _tool("npm")
    sources = [_HERE / "node" / name for name in ("package.json", "package-lock.json")]
    with _kept("node", sources) as (folder, is_there):
        if not is_there:
            for source in sources:
                shutil.copy(source, folder)
            _run([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"], folder)
    return Command("node", (node, str(_HERE / "node" / "program.js")), (("ROCKETMQ_NODE", str(folder)),))


def _java() -> Command:
    java, javac, maven = _tool("java"), _tool("javac"), _tool("mvn")
    sources = [_HERE / "java" / name for name in ("client.sha256", "Program.java")]
    digest, _, jar = sources[0].read_text().strip().partition("  ")
    name, version = jar.removesuffix(".jar").rsplit("-", 1)
    with _kept("java", sources) as (folder, is_there):
        if not is_there:
            artifact = f"org.apache.rocketmq:{name}:{version}"
            _run(
                [maven, "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={folder}"], folder
            )
            if hashlib.sha256((folder / jar).read_bytes()).hexdigest() != digest:
                raise CannotBuild(f"{jar} is another file than the one that was tested")
            _run([javac, "-d", str(folder), "-cp", str(folder / jar), str(sources[1])], folder)
    return Command("java", (java, "-Duser.home={home}", "-Xmx256m", "-cp", f"{folder / jar}:{folder}", "Program"))


def _go() -> Command:
    folder = _HERE / "go"
    try:
        built = go_program.built("rocketmq-go", folder, sorted(folder.iterdir()), ".", _SECONDS_MAX)
    except go_program.CannotBuild as error:
        raise CannotBuild(str(error)) from error
    environment = (("rocketmq.client.enableSsl", "false"), ("rocketmq.client.logRoot", "{home}/logs"))
    return Command("go", (str(built),), environment)


LANGUAGES: Final[dict[str, Callable[[], Command]]] = {"python": _python, "node": _node, "java": _java, "go": _go}


def _tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise CannotBuild(f"there is no {name} on this machine")
    return found


@contextmanager
def _kept(name: str, sources: Sequence[Path]) -> Iterator[tuple[Path, bool]]:
    """Yield the folder for what is made of these files.

    The second is True where it is there already.

    One that was not finished is made anew.
    """
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    BUILT.mkdir(exist_ok=True)
    with (BUILT / f"rocketmq-{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = BUILT / f"rocketmq-{name}-{digest}"
        whole = folder / ".whole"
        if not whole.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            yield folder, False
            whole.touch()
        else:
            yield folder, True


def _run(command: Sequence[str], folder: Path, **environment: str) -> None:
    """Run a step of making something ready; raises CannotBuild."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=_SECONDS_MAX,
        )
    except subprocess.TimeoutExpired as error:
        raise CannotBuild(f"{command[0]} took more than {_SECONDS_MAX} s") from error
    if done.returncode:
        raise CannotBuild(f"{command[0]} failed: {(done.stderr or done.stdout).strip()[-600:]}")


def main() -> None:
    """Make every program ready, ahead of the tests, and print what was done."""
    for language, make in LANGUAGES.items():
        try:
            make()
            print(f"clients: the program around RocketMQ's {language} client is ready")
        except CannotBuild as error:
            print(f"clients: the program around RocketMQ's {language} client is not ready: {error}")


if __name__ == "__main__":
    main()
