"""What an audit reads: which rows, from where on, into which form."""
