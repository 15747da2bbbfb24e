"""The port for RocketMQ's clients: its gRPC interface on the coordinator's queues.

`port` listens, `producing` and `consuming` answer requests, `telemetry` serves the stream over which a client sends its
settings and a producer is asked about its half messages. `outbox` has what waits
for a stream, `peculiarities` what only these clients need; their sessions are those of `server.sessions`.
"""
