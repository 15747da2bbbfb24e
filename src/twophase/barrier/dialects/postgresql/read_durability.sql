-- What would make a confirmed commit forgettable, in words; no row when nothing would.
select 'PostgreSQL runs with fsync = off' where current_setting('fsync') = 'off'
