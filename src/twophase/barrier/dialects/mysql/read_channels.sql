-- The channels by which this server replicates another one; none on a primary. Needs REPLICA MONITOR, or REPLICATION
-- CLIENT on MySQL, which is asked so from 8.0.22 on.
/*M! show all slaves status */ /*!80022 show replica status */
