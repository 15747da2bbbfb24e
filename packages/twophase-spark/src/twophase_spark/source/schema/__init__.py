"""The tables of the source: columns, SQL, and the conversion of values."""
