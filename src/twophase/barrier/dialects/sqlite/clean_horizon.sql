-- Only upwards; in the transaction of the deletes. Primary key.
insert into {meta} (name, value) values (:name, cast(:horizon as text))
on conflict (name) do update set value = cast(max(cast(value as integer), :horizon) as text)
