-- Served by the primary key.
select gid from twophase_spark_message where writer = :writer and gid > :after order by gid limit :page_rows
