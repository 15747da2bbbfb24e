"""Measurements of this repository: `make bench`. What a figure in the documentation claims, a command here prints.

* `load`: producers, and the branch that they call; `servers`: what is measured, `null` and `plain` beside it;
  `scenarios`; `compare`: runs in turn; `results`: tables and plots. `command` is `python -m benchmarks.load`.
* `standard`: every figure with a bar; `parts`, `record`, `page` and `drawings` make docs/benchmarks.md of it.
* `core`, `grpc`, `http`, `sdk`, `store`: parts of the hot path one by one, by `measure`.
* `spark`, `spark_reading`: the data pipeline.

None of it is in a wheel.
"""
