"""The inputs of an audit: the rows, their beginning, and their form."""
