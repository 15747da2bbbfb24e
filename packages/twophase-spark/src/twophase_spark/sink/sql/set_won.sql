-- In the transaction of the decision. Primary key.
update twophase_spark_writer set won = 1 where writer = :writer and group_id = :group_id
