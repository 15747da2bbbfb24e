-- For the transaction that the next statement begins. READ COMMITTED locks no gaps; but with a binary log of statements
-- alone, InnoDB refuses every write there. MySQL and MariaDB name the variable differently.
set /*M! @@tx_isolation */ /*!50720 @@transaction_isolation */
  = if(@@session.binlog_format = 'STATEMENT', 'REPEATABLE-READ', 'READ-COMMITTED')
