"""Measurements of this repository: `make bench`.

A command here prints every figure that the documentation claims.

* `load`: producers, and the branch that they call; `servers`: the measured servers, with `null` and `plain` beside
  them; `scenarios`; `compare`: runs in turn; `results`: tables and plots. `command` is `python -m benchmarks.load`.
* `standard`: every figure with a bar; `parts`, `record`, `page` and `drawings` write docs/benchmarks.md from it.
* `core`, `grpc`, `http`, `sdk`, `store`: parts of the hot path one by one, by `measure`.
* `spark`, `spark_reading`: the data pipeline.

None of it is in a wheel.
"""
