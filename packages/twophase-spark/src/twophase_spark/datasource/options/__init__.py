"""What a read asks for: options, columns and filters, checked against the database."""
