"""A local Spark for one command: quiet, bound to 127.0.0.1, gone afterwards.

Local mode, because an audit of a day's messages fits one machine; a user with a cluster passes the functions of this
package their own SparkSession instead.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import msgspec
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext, java_gateway
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from twophase.core.errors import ConfigurationError, SparkUnavailable
from twophase_spark._java import Java, find_java

_LOG_CHARACTERS_SHOWN = 2000
_JAVA_END_SECONDS_MAX = 30
_JAVA_SEEN_SECONDS_MAX = 1
"""Bound on the wait for the exit code of a Java that has closed its connections."""
_SOCKET_FOLDER_BYTES_MAX = 60
"""Bound on a path for sockets.

A socket's path has 103 bytes at most on any system, and Spark's names of them take 43.
"""
_LOG4J = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %p %c{1}: %m%n
"""


class JobFailed(Exception):
    """A job of Spark's has failed; its text was taken from Java."""


class SessionSettings(msgspec.Struct, frozen=True):
    """The size of the local Spark."""

    cores: int = min(os.cpu_count() or 1, 8)
    memory_mb: int = 2048
    name: str = "twophase"
    rows: int | None = None
    """Rows to be read, None for any number.

    The fewer they are, the less is compiled for them.
    """
    extra: tuple[tuple[str, str], ...] = ()
    """The caller's own Spark options; they win."""


_FEW = 500_000
"""Rows up to which Spark compiles no code of its own.

Measured with 400,000: 18 s of processor time, 56 with compiled code.
"""
_FEWEST = 50_000
"""Rows up to which the first look at all of them is not compiled, either."""
_COMPILED_AT_FIRST = "spark.twophase.compiledAtFirst"
_SOME = 5_000_000
"""Rows up to which Java compiles quickly rather than well.

Measured with 4,000,000: as much processor time as with the better code, of which compiling is half.
"""
_ROWS_PER_PARTITION = 250_000
_UNCOMPILED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
_COMPILED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}


def options_for(rows: int, cores: int) -> dict[str, str]:
    """Return Spark's options for a number of rows, which an open session takes, too.

    >>> options_for(4_000_000, 2), options_for(400_000_000, 2)
    ({'spark.sql.shuffle.partitions': '16'}, {'spark.sql.shuffle.partitions': '32'})
    """
    if rows <= _FEW:
        is_first = str(rows > _FEWEST).lower()
        return _UNCOMPILED | {"spark.sql.shuffle.partitions": str(cores), _COMPILED_AT_FIRST: is_first}
    # Many small partitions rather than few that spill; those that turn out to be tiny are put together again.
    return {"spark.sql.shuffle.partitions": str(max(cores, min(rows // _ROWS_PER_PARTITION, 16 * cores)))}


@contextlib.contextmanager
def fitted(spark: SparkSession, rows: int, cores: int) -> Iterator[None]:
    """Have a session compile for a number of rows during the block."""
    with _set(spark, options_for(rows, cores)):
        yield


@contextlib.contextmanager
def compiled(spark: SparkSession) -> Iterator[None]:
    """Have a session compile what sees every row, though nothing else is compiled.

    A size that is not worth it changes nothing.
    """
    is_worth_it = spark.conf.get(_COMPILED_AT_FIRST, "false") == "true"
    with _set(spark, _COMPILED if is_worth_it else {}):
        yield


@contextlib.contextmanager
def _set(spark: SparkSession, options: Mapping[str, str]) -> Iterator[None]:
    before = {name: spark.conf.get(name, None) for name in options}
    for name, value in options.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, known in before.items():
            if known is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, known)


@contextlib.contextmanager
def open_session(settings: SessionSettings | None = None) -> Iterator[SparkSession]:
    """Start a local Spark, and stop it at the end of the block.

    Java's output while it runs goes to a file, not to the terminal; its end is shown when Spark fails to start.

    Raises:
        ConfigurationError: no usable Java, or no `bash` (Spark's launcher is a bash script).
        SparkUnavailable: Java was there, Spark did not start; or Java has ended in the block.
        JobFailed: in place of an error of Spark's.
    """
    settings = settings or SessionSettings()
    with tempfile.TemporaryDirectory(prefix="twophase-spark-") as folder:
        directory = Path(folder)
        _require_bash()
        java = find_java(_made(directory / "java"))
        with _environment(java), (directory / "spark.log").open("wb") as log:
            try:
                with _stderr_to(log), _no_java_left():
                    spark = _build(settings, directory)
            except Exception as error:
                shown = (directory / "spark.log").read_text(errors="replace")[-_LOG_CHARACTERS_SHOWN:]
                raise SparkUnavailable(
                    f"Spark did not start with Java {java.version}, {java.home}: {error} {shown}"
                ) from error
            try:
                with watched(), _told():
                    yield spark
            finally:
                _stop(spark)


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Take the text of an error of Spark's from Java, while there is one.

    Where no code of twophase stands in it, the line that names the error is taken, and not the whole trace.
    """
    try:
        yield
    except (Py4JError, PySparkException) as error:
        text = str(error)
        lines = [line.removeprefix(": ") for line in text.splitlines() if line.startswith(": ")]
        raise JobFailed(lines[0] if lines and "TP-" not in text else text) from None


@contextlib.contextmanager
def watched() -> Iterator[None]:
    """Report a failure in the block as the end of Java, when Java has ended.

    Each call to it is refused then, as a database refuses a connection. Other failures stay as they are.

    Raises:
        SparkUnavailable: Java has ended.
    """
    try:
        yield
    except SparkUnavailable:
        raise
    except Exception as error:
        code = _java_ended(_JAVA_SEEN_SECONDS_MAX if isinstance(error, (JobFailed, Py4JError, OSError)) else 0)
        if code is None:
            raise
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        raise SparkUnavailable(
            f"Spark's Java has ended in the middle of the work, by {how}.",
            remedy="Run it again. Signal 9 and exit code 52 may be for want of memory: see the system's log.",
        ) from error


def _java_ended(wait_s: float = 0) -> int | None:
    """Return the exit code of this process's own Java, None while it runs."""
    process = getattr(SparkContext._gateway, "proc", None)  # noqa: SLF001 -- PySpark has no public way to its Java
    if process is None:
        return None
    try:
        return int(process.wait(timeout=wait_s))
    except subprocess.TimeoutExpired:
        return None


def _require_bash() -> None:
    if shutil.which("bash") is None:
        raise ConfigurationError("Spark is started by a bash script, and there is no bash on the PATH. Install bash.")


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _build(settings: SessionSettings, directory: Path) -> SparkSession:
    log4j = directory / "log4j2.properties"
    log4j.write_text(_LOG4J)
    java_options = f"-Dlog4j2.configurationFile=file:{log4j} -Dderby.system.home={directory} -XX:+UseSerialGC"
    if settings.rows is not None and settings.rows <= _SOME:
        java_options += " -XX:TieredStopAtLevel=1"
    options = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": f"{settings.memory_mb}m",
        "spark.driver.extraJavaOptions": java_options,
        "spark.local.dir": str(directory),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Larger rows of the driver's are computed by tasks, not by the planner, which has one thread.
        "spark.sql.execution.arrow.localRelationThreshold": "1m",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
        # The position in a program where a column was named, passed at every call to Java: a second of a small audit.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.sql.dataFrameQueryContext.enabled": "false",
        "spark.hadoop.fs.permissions.umask-mode": "077",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }
    options |= options_for(sys.maxsize if settings.rows is None else settings.rows, settings.cores)
    if _is_here(settings):  # Java's ports are open to every user of the machine: a secret of this run guards them
        options["spark.authenticate"] = "true"
    if _is_here(settings) and len(os.fsencode(directory)) <= _SOCKET_FOLDER_BYTES_MAX:
        # Rows arrive through a socket of their own, which serves one connection and resets all others. A port may have
        # been another server's a moment ago, and its clients still connect.
        options |= {
            "spark.python.unix.domain.socket.enabled": "true",
            "spark.python.unix.domain.socket.dir": str(directory),
        }
    options |= dict(settings.extra)
    builder = SparkSession.builder.master(f"local[{settings.cores}]").appName(settings.name)
    for name, value in options.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _is_here(settings: SessionSettings) -> bool:
    """True when all of this Spark runs on this machine."""
    return dict(settings.extra).get("spark.master", "local").startswith("local")


@contextlib.contextmanager
def _environment(java: Java) -> Iterator[None]:
    """Set the environment that Spark reads, and restore it afterwards.

    Workers must run this very Python: by default they run the PATH's `python3`, which has none of twophase's packages.
    """
    variables = {
        "JAVA_HOME": str(java.home),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,  # Java runs it to look for data sources, and to plan with twophase's
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_HOSTNAME": "localhost",
    }
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _stderr_to(log: IO[bytes]) -> Iterator[None]:
    """Direct standard error to the log for the block's time.

    Java inherits this process' standard error when it starts, and keeps it: so it must be the log at that moment.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        os.dup2(log.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


@contextlib.contextmanager
def _no_java_left() -> Iterator[None]:
    """End a Java whose start is cut off, as by Ctrl-C.

    PySpark has removed the folder for its port by then, and a Java that cannot write there never ends. It would keep
    this command's output open.
    """
    started: list[subprocess.Popen[Any]] = []

    def start(*arguments: Any, **named: Any) -> subprocess.Popen[Any]:
        started.append(subprocess.Popen(*arguments, **named))
        return started[-1]

    module: Any = java_gateway  # PySpark has no public way to a Java that it is starting
    before, module.Popen = module.Popen, start
    try:
        yield
    except BaseException:
        if SparkContext._gateway is None:  # noqa: SLF001 -- a Java that PySpark knows ends with this process
            for process in started:
                process.kill()
                process.wait()
        raise
    finally:
        module.Popen = before


def _stop(spark: SparkSession) -> None:
    """Stop the session and its Java.

    A second audit of this process must be able to choose another Java.
    """
    try:
        spark.stop()
    except (Py4JError, OSError):
        if _java_ended() is None:
            raise
        SparkSession._instantiatedSession = None  # noqa: SLF001 -- the next one would be this, without its Java
        SparkSession._activeSession = None  # noqa: SLF001 -- the same
        SparkContext._active_spark_context = None  # noqa: SLF001 -- the same
    gateway = SparkContext._gateway  # noqa: SLF001 -- PySpark has no public way to end its Java
    if gateway is not None:
        gateway.shutdown()
        process = getattr(gateway, "proc", None)
        if process is not None:
            process.stdin.close()
            try:
                process.wait(timeout=_JAVA_END_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()  # it holds nothing that is wanted any more
                process.wait()
        SparkContext._gateway = None  # noqa: SLF001 -- the same
        SparkContext._jvm = None  # noqa: SLF001 -- the same
