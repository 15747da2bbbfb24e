-- The setting of each database of this connection, and the pragma that changes it. ATTACH takes any text for a name.
select 'pragma "' || replace(known.name, '"', '""') || '".synchronous', sync.synchronous
from pragma_database_list as known, pragma_synchronous(known.name) as sync
where known.name <> 'temp'
