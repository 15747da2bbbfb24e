"""One of several nodes on a store: membership, ownership, the store's clock."""
