-- Takes numbers of a queue. ?1 topic, ?2 queue, ?3 how many.
-- Served by: the primary key of queue_counter.
insert into queue_counter (topic, queue, next_number) values (?1, ?2, ?3)
on conflict (topic, queue) do update set next_number = next_number + excluded.next_number
