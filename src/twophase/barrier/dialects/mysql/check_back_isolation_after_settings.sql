-- For the transaction that the next statement begins.
set transaction isolation level read committed
