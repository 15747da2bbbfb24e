-- How many rows the statement before removed; MySQL has no RETURNING.
select row_count()
