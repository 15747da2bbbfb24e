"""An explicit-state check of the protocol: every interleaving of a small world, over the real lifecycle table."""
