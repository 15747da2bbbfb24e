-- Serves read_gid, read_others and read_duplicates.
create index if not exists twophase_spark_message_gid on twophase_spark_message (gid)
