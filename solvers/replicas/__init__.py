"""The solver's side of replicas: `comm_param.sync` and its like (docs/shadowsync.md)."""
