alter table {table} add column body longblob
