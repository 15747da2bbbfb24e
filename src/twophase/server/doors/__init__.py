"""Every other way in: dtm's HTTP, JSON-RPC and gRPC, operators' requests, many messages at once, takeovers."""
