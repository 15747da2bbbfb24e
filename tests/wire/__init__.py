"""The recorded requests to a real dtm server, replayed against twophase.

Every difference of the answers is named.
"""
