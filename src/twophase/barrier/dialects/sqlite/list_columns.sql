-- Columns of a table, empty when there is none.
select name, '' from pragma_table_info(:name, coalesce(:schema, 'main'))
