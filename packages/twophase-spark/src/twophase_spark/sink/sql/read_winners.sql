-- Served by twophase_spark_writer_group.
select writer from twophase_spark_writer where group_id = :group_id and won = 1 order by writer
