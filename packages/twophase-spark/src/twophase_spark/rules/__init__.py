"""The rules of the audit, as columns: facts of a gid, their meaning, and repairs."""
