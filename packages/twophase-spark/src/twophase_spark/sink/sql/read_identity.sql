-- Primary key.
select value from twophase_meta where name = 'identity'
