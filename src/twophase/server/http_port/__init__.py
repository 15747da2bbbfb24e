"""The HTTP port: one connection object per client.

It answers prepare, submit and abort without a task.
"""
