"""Commands that speak with a running server: look, explain, act, change topics, take over."""
