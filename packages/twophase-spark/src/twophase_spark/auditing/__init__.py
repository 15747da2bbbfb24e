"""An audit from databases to reports: once, again and again, or for good."""
