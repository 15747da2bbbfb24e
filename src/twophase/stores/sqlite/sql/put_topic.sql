-- A topic's subscribers; the topic is made when there is none. ?1 name, ?2 the new revision, ?3 now, ?4 subscribers.
-- Served by: the primary key of topic.
insert into topic (name, id, version, created_ms, changed_ms, subscribers) values (?1, ?2, 1, ?3, ?3, ?4)
on conflict (name) do update set
    version = version + 1, changed_ms = excluded.changed_ms, subscribers = excluded.subscribers
