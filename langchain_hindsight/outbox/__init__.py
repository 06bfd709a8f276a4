"""The durable queue between the agent and Hindsight.

`store` keeps it (SQLite or PostgreSQL), `ledger` decides what is new in a conversation, `batching`
what shares a request, and `delivery` hands it over.
"""
