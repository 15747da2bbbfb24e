"""The lifecycle table applied to what happens, made durable, and only then told."""
