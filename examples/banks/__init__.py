"""Two banks and a coordinator as real processes: the example that the demo and the crash tests share."""
