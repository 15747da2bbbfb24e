"""Reports for people and machines: table, JSON, HTML with charts, JUnit."""
