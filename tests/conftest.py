"""What every test may use: the database servers, a Spark session, and the loud end of a run."""

import os

# Tests start processes by fork. With its fork support gRPC begins new threads in the child, whose files are closed a
# moment later; they then end the child ("epoll_wait error: Bad file descriptor") before it becomes another program.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

pytest_plugins = ["tests.servers.plugin", "tests.servers.summary", "tests.spark.plugin"]
