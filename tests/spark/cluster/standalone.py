"""A small standalone cluster on this machine: one master and two workers.

They have addresses and folders of their own.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyspark

from twophase_spark._java import find_java

START_SECONDS_MAX = 120
WORKERS = 2
WORKER_MEMORY_MB = 512


class Cluster:
    """A running cluster."""

    def __init__(self, master: str, python: Path, environment: Mapping[str, str]) -> None:
        self.master = master
        self.python = python
        """The executors' Python: it has the packages that twophase needs, not twophase."""
        self.environment = dict(environment)


@contextlib.contextmanager
def standalone(folder: Path) -> Iterator[Cluster]:
    """Run the cluster for the block's time."""
    java = find_java(_made(folder / "java"))
    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "JAVA_HOME": str(java.home),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "192m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "SPARK_WORKER_DIR": str(folder),
    }
    environment.pop("PYTHONPATH", None)
    program = str(home / "bin" / "spark-class")
    with contextlib.ExitStack() as stack:

        def start(name: str, *arguments: str, host: str = "127.0.0.1") -> Path:
            log = folder / f"{name}.log"
            there = {**environment, "SPARK_LOCAL_IP": host}
            with log.open("wb") as output:
                process = subprocess.Popen([program, *arguments], env=there, stdout=output, stderr=output)
            stack.callback(_stop, process)
            return log

        log = start(
            "master",
            "org.apache.spark.deploy.master.Master",
            *("--host", "127.0.0.1", "--port", "0", "--webui-port", "0"),
        )
        _wait_for(log, "New state: ALIVE")
        master = _address(log)
        for number in range(WORKERS):
            # Hosts of their own: Spark runs no second attempt of a task on the host of the first one.
            host = f"127.0.0.{1 + number}"
            start(
                f"worker{number}",
                "org.apache.spark.deploy.worker.Worker",
                *("--host", host, "--webui-port", "0", "-c", "1", "-m", f"{WORKER_MEMORY_MB}m"),
                *("-d", str(_made(folder / f"work{number}")), master),
                host=host,
            )
        for _ in range(WORKERS):
            _wait_for(log, "Registering worker", times=WORKERS)
        yield Cluster(master, _bare_python(folder / "python"), environment)


def _bare_python(folder: Path) -> Path:
    """Make a Python with the packages that twophase depends on, and no others.

    A folder named by a .pth file is searched; its own .pth files, by which twophase itself is installed here, are not.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--symlinks", str(folder)], check=True)
    [packages] = folder.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    python = folder / "bin" / "python"
    found = subprocess.run([str(python), "-c", "import twophase"], capture_output=True, check=False, cwd=folder)
    assert found.returncode, "this Python must not have twophase, or nothing is proved"
    return python


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _address(log: Path) -> str:
    """Return the address of a master that chose its port itself.

    Another program might take a port chosen before the master listens.
    """
    [address] = set(re.findall(r"Starting Spark master at (spark://127\.0\.0\.1:\d+)", log.read_text(errors="replace")))
    return str(address)


def _wait_for(log: Path, text: str, times: int = 1) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while log.read_text(errors="replace").count(text) < times:
        assert time.monotonic() < deadline, log.read_text(errors="replace")[-2_000:]
        time.sleep(0.1)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
