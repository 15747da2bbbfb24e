"""What every test may use: the database servers, and the loud end of a run."""

pytest_plugins = ["tests.servers.plugin", "tests.servers.summary"]
