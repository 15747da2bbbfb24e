"""An explicit-state check of the protocol over the real lifecycle table.

It explores every interleaving of a small world.
"""
