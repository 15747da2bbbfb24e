"""One of several nodes on a store: membership, ownership of rows, the store's clock."""
