-- The bytes of the file that are in use; pages that removed rows have left are used again first.
-- Served by: the head of the file.
select (count.page_count - free.freelist_count) * size.page_size
from pragma_page_count() as count, pragma_freelist_count() as free, pragma_page_size() as size
