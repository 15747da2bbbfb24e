-- Only upwards; in the transaction of the deletes. Primary key.
insert into {meta} as known (name, value) values (:name, cast(cast(:horizon as bigint) as text))
on conflict (name) do update set value = cast(greatest(cast(known.value as bigint), cast(:horizon as bigint)) as text)
