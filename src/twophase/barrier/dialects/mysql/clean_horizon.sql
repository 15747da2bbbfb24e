-- Only upwards; in the transaction of the deletes. Primary key.
insert into {meta} (name, value) values (:name, :horizon)
on duplicate key update value = greatest(cast(value as unsigned), :horizon)
