"""The identities of clients: tokens, scopes, quotas, and the sender of a request."""
