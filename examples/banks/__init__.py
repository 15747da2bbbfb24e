"""Two banks and a coordinator as real processes.

The demo and the crash tests share this example.
"""
