-- Serves read_duplicates and read_won.
create index if not exists twophase_spark_writer_group on twophase_spark_writer (group_id)
