"""`python -m benchmarks.load --server URL` measures a server.

`--help` lists the other measurements.
"""

from benchmarks.command import app

if __name__ == "__main__":
    app(prog_name="python -m benchmarks.load")
