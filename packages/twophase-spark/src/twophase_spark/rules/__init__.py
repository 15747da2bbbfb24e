"""The rules of the audit, as columns: what is known of a gid, what that means, and how it is repaired."""
