-- One installer at a time. DDL commits here, so a lock of the transaction would not last.
select get_lock(concat('twophase.install.', coalesce(database(), '')), 60)
