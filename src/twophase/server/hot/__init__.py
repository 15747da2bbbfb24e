"""The HTTP port's hot path: connections, their requests, and the turns in which they are answered."""
