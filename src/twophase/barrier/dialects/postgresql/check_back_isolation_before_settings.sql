-- Must come before any query of the transaction. Above READ COMMITTED the insert meets 40001 instead of the row.
set transaction isolation level read committed, read write
