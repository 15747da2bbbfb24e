-- After a connection was lost: nothing of the old fence can be written any more (this waits for a flush that is being
-- committed), and what became of the last flush stands in the row (correctness 20). $1 node, $2 owner, $3 the new fence.
-- The caller says which fence, because this statement too may be given up and run late: it must not end the fence that
-- was settled on meanwhile.
-- Served by: the primary key of node.
update node set fence = greatest(fence, $3) where id = $1 and owner = $2
returning fence, flushes, seen_ms, refused
