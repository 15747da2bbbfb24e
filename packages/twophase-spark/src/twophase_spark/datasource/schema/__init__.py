"""The tables there are: their columns, their SQL, and how a database's values become them."""
