"""The durable queue between the agent and Hindsight.

`store` is its face, and each step of an entry's way is one module: `ledger` decides what is new in
a conversation (asking `known_thread`), `enqueue` and `edits` write it down within the caps of
`room`, `leases` decide which process serves which bank, `batching` what shares a request,
`requests` record it, `settle` writes down what became of it; `look` and `dead_letters` are for
people. `delivery` hands it over. `place`, `engine`, `migrations`, `schema`, `damage` and `database`
are the database under it.
"""
