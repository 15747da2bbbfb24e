-- The table as this session finds it: MariaDB's information_schema leaves temporary tables out.
show create table {table}
