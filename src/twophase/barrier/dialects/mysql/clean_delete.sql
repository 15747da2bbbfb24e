-- One row at a time. With a list of keys the optimizer may read the whole of a small table, and would wait for, and
-- lock, the rows of transactions under way. Primary key.
delete from {table} where id = :id
