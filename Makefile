# Everything sets itself up: a target that needs .venv makes it, or renews it when it is stale.
.DEFAULT_GOAL := help
.PHONY: help setup ready servers demo test test-fast soak fuzz faults check trace fix bench bench-spark docs lock dependencies clean distclean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Make .venv with everything, from nothing but Python 3.11 or newer
	@scripts/setup

ready:
	@scripts/setup --quiet

servers: ## Install PostgreSQL, PgBouncer, MariaDB and Redis programs for the tests (root and apt; starts nothing)
	@scripts/install-servers

demo: ready ## Move money between two banks while their processes are killed, and audit the result
	@.venv/bin/python -m demo $(ARGS)

test: ready ## Run every test, on real database servers of its own
	@scripts/test $(ARGS)

test-fast: ready ## Run the unit tests, the model and the stores on SQLite: for everyday work
	@.venv/bin/pytest -q -n "$$(($$(nproc) + 1))" --dist worksteal -m 'not long and not postgres and not mariadb' tests/unit tests/model tests/conformance $(ARGS)

soak: parts = $(or $(PARTS),nodes queues spark power)
soak: ready ## Half a million messages through failing nodes, as many through queues, Spark's drivers killed at every point, stores whose power goes (PARTS=nodes ARGS="--messages N", PARTS=queues ARGS="--messages N", PARTS=spark ARGS="--sink N", PARTS=power ARGS="--losses N")
	@$(if $(filter-out nodes queues spark power,$(parts)),echo 'PARTS is nodes queues spark or power; unknown: $(filter-out nodes queues spark power,$(parts))' >&2; exit 2)
	@$(if $(filter nodes,$(parts)),.venv/bin/python -m tests.crash.nodes.soak $(ARGS))
	@$(if $(filter queues,$(parts)),.venv/bin/python -m tests.crash.queues.soak $(if $(filter nodes,$(parts)),,$(ARGS)))
	@$(if $(filter spark,$(parts)),.venv/bin/python -m tests.spark.soak $(if $(filter nodes queues,$(parts)),,$(ARGS)))
	@$(if $(filter power,$(parts)),.venv/bin/python -m tests.crash.power.soak $(if $(filter nodes queues spark,$(parts)),,$(ARGS)))

fuzz: ready ## Ten minutes of wrong requests, two million of changed bytes, and docs/fuzz-report.md; ARGS="--seconds N --changed N --only NAME"
	@.venv/bin/python -m tests.fuzz $(ARGS)

faults: ready ## Plant faults in a copy of the code, one at a time; the tests must notice (ARGS="--only NAME --rule N --jobs 2 --list --check --resume --json")
	@.venv/bin/python -m tests.faults $(ARGS)

check: ready ## Format, lint, types, import contracts, English, and whether the planted faults apply
	@scripts/check

trace: ready ## Trace prepare, submit and a transaction through the files, and count (ARGS=--route: every file in order)
	@scripts/trace $(ARGS)

fix: ready ## Format, and repair what the linter can repair
	@.venv/bin/ruff format . && .venv/bin/ruff check --fix .

bench: ready ## Measure everything that has a bar, and write docs/benchmarks.md (ARGS=--quick: a short look; PARTS="filled memory": only these)
	@.venv/bin/python -m benchmarks $(if $(PARTS),standard $(PARTS)) $(ARGS)

bench-spark: ready ## Audit, reads and publishing by Spark, and docs/benchmarks-spark.md (ARGS="--only audit --messages N")
	@.venv/bin/python -m benchmarks.spark $(ARGS)

docs: ready ## Write the generated pages of docs/reference anew
	@.venv/bin/python -m scripts.reference && .venv/bin/python -m scripts.lifecycle

lock: ready ## Write requirements/*.txt, the tested versions with their hashes (ARGS=--upgrade takes the newest)
	@scripts/lock $(ARGS)

dependencies: ready ## Write what the distributions depend on: build/sbom-*.cdx.json, build/licences-*.md, known vulnerabilities
	@scripts/dependencies

clean: ## Remove caches and reports
	@rm -rf .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .coverage* build dist demo-report .servers .clients
	@find . -path ./.venv -prune -o -name __pycache__ -type d -exec rm -rf {} +

distclean: clean ## Remove .venv too
	@rm -rf .venv .setup.lock
