-- dtm's columns and constraint, and twophase's: token, body, prepared_at.
-- Binary collation: `Case` and `case` are two gids.
create table if not exists {table} (
  id bigint not null auto_increment primary key,
  trans_type varchar(45) not null default '',
  gid varchar(128) not null,
  branch_id varchar(128) not null,
  op varchar(45) not null,
  barrier_id varchar(45) not null,
  reason varchar(45) not null default '',
  create_time datetime(6) default current_timestamp(6),
  update_time datetime(6) default current_timestamp(6),
  token varchar(64),
  body longblob,
  prepared_at bigint,
  constraint {constraint} unique (gid, branch_id, op, barrier_id)
) engine = InnoDB default character set utf8mb4 collate utf8mb4_bin
