-- Primary key.
delete from twophase_spark_message where writer = :writer and gid = :gid
