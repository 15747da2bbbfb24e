"""Beyond one machine: what executors must be given, and whether they can do what is asked of them."""
