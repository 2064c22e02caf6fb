"""Two elements on rank 0, three on rank 1: rank 1 reports it, rank 0 says that the connection was closed (B4)."""

import torch
from ranks import failed, is_end_of_connection, model_of, run, verdict


def body(rank):
    rank.attempt("construction", lambda: model_of("ab", 2 + rank.number))


first, second = seen = run(body)
verdict(
    shown="appears not to match" in second["construction"] and is_end_of_connection(first["construction"]),
    right=failed(seen, "construction", "match"),
)
