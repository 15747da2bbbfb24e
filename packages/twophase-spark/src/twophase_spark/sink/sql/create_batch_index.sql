-- Serves list_batches, find_batches, read_latest and read_unpublished.
create index if not exists twophase_spark_batch_publisher on twophase_spark_batch (publisher, begun_ms)
