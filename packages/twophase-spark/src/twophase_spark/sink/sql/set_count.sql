-- In the transaction of the decision. Primary key.
update twophase_spark_batch set message_count = :message_count where group_id = :group_id
