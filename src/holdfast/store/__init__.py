"""Where logs are kept: one small protocol, three kinds of store. Imports core.

`protocol` says what a store does, `queues` what it does for workers, `acceptance` decides in all of them what may be
written. `memory` is the shortest reading of both, `sqlite` the default, `postgres` the store for several machines;
`tenants` is a part of a store as a store of its own.
"""
