"""The durable queue between the agent and Hindsight.

`store` is its face, and each step of an entry's way is one module: `ledger` decides what is new in
a conversation (asking `known_thread`), which `recent` spares one that simply goes on; `enqueue` and
`edits` write it down within the caps of `room`, `leases` decide which process serves which bank,
`batching` what shares a request, `requests` record it, `settle` writes down what became of it;
`look` and `dead_letters` are for people. `delivery` hands it over, asking after it as `polls` says.
`place`, `engine`, `migrations`, `schema`, `foreign`, `damage` and `database` are the database under
it.
"""
