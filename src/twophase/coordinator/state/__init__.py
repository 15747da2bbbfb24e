"""Messages in memory and their state machine: the lifecycle table applied, made durable, and only then told."""
