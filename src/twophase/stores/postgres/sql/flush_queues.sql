-- One flush with entries or progress of queues, see ../flush_born.sql, ../audit.sql and ../append.sql. $39 to $46 the columns
-- of acts, $47 to $60 those of queues.
-- Served by: what the functions name.
select twophase_append_owned(
    twophase_audit(
        twophase_flush_born_owned(
            $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24,
            $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38
        ),
        $1, $39, $40, $41, $42, $43, $44, $45, $46
    ),
    $1, $47, $48, $49, $50, $51, $52, $53, $54, $55, $56, $57, $58, $59, $60
)
