-- One step of adoption, see ../adopt.sql.
-- Served by: what the function names.
select twophase_adopt($1, $2, $3, $4, $5, $6, $7)
