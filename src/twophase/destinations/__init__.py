"""The calls of branches and check-backs: one file per scheme of an address."""
