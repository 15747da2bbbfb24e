alter table {table} add column body blob
