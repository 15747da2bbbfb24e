"""The plugins of every test.

They are the database servers, a Spark session, the tests' order and the garbage collector.
The summary names the parts that were not tested at the end of a run.
"""

import os

from hypothesis import HealthCheck, settings

# Tests start processes by fork. With its fork support gRPC begins new threads in the child, whose files are closed a
# moment later; they then end the child ("epoll_wait error: Bad file descriptor") before it becomes another program.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

# Property tests judge results, not the speed of a busy machine: no deadline for a single example.
settings.register_profile("twophase", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("twophase-few", settings.get_profile("twophase"), max_examples=10)
settings.load_profile(os.environ.get("TWOPHASE_TESTS_PROFILE", "twophase"))

pytest_plugins = [
    "tests.servers.plugin",
    "tests.servers.summary",
    "tests.spark.plugin",
    "tests.order",
    "tests.collector",
]
