-- A server process takes the node's place: whoever held it is fenced from now on. ?1 node, ?2 owner, ?3 now.
-- Served by: the primary key of node.
insert into node (id, epoch, owner, seq, commit_count, seen_ms) values (?1, 1, ?2, 0, 0, ?3)
on conflict (id) do update set epoch = node.epoch + 1, owner = excluded.owner, seen_ms = excluded.seen_ms
