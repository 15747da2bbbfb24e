-- Primary key.
update twophase_spark_batch set given_up_ms = :now_ms where group_id = :group_id and given_up_ms is null
