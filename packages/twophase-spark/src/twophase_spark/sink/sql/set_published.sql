-- Primary key.
update twophase_spark_batch set published_ms = :now_ms, contrary_count = :contrary_count
where group_id = :group_id and published_ms is null
