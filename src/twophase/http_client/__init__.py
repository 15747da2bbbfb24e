"""An HTTP/1.1 client for very many small calls.

`client` is pooled on asyncio, `pipeline` sends groups of requests on one connection; `blocking` is for threads.
"""
