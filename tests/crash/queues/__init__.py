"""Queues through RocketMQ's port, while servers are killed and frozen."""

import os

# gRPC's handlers of fork() would end a server that is started while calls are under way, before it is one.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "false"
