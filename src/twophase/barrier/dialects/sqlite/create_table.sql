-- dtm's columns and constraint, and twophase's: token, body, prepared_at. Texts compare byte by byte.
-- No id is used again.
create table {table} (
  id integer primary key autoincrement,
  trans_type text not null default '',
  gid text not null,
  branch_id text not null,
  op text not null,
  barrier_id text not null,
  reason text not null default '',
  create_time text default (strftime('%Y-%m-%d %H:%M:%f', 'now')),
  update_time text default (strftime('%Y-%m-%d %H:%M:%f', 'now')),
  token text,
  body blob,
  prepared_at integer,
  constraint {constraint} unique (gid, branch_id, op, barrier_id)
)
