"""Every other route: the rest of dtm's API, and twophase's own.

dtm's HTTP, JSON-RPC and gRPC, operators' requests, many messages at once, takeovers.
"""
