-- By primary key alone: a range would wait for, and on InnoDB lock, rows of transactions under way. Primary key.
delete from {table} where id in (:ids)
