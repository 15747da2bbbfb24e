"""Real database servers for tests.

They start on free private ports, in a temporary directory, and stop after the run.
"""
