"""Commands that talk to a running server.

They look, explain, act, change topics, and take over from dtm.
"""
