"""Views, dynamic mode. On rank 0 two forwards share a backward, so that a, taken for unused, receives a gradient
after its bucket was launched. Rank 0 raises; rank 1 ends without an error, with whatever of that gradient was sent
(F3)."""

import time
from ranks import failed, grad_of, model_of, run, verdict


def body(rank):
    model = model_of("ab", 500000, find_unused_parameters=True, gradient_as_bucket_view=True)
    model("a", 1.0).backward()
    model.zero_grad(set_to_none=False)
    if rank.number == 0:
        loss = model("a", 1.0) + model("b", 1.0)
    else:
        loss = model("b", 1.0)
    rank.attempt("backward", loss.backward)
    time.sleep(2)  # connections stay open, so that what was launched ends
    if rank.number == 1:
        rank.report("a (0.5 is right) and b", [sorted(set(grad_of(model, name) or [])) for name in "ab"])


first, second = seen = run(body)
verdict(
    shown=failed([first], "backward") and second["backward"] == "ok",
    right=failed(seen, "backward") or second["a (0.5 is right) and b"] == [[0.5], [1.0]],
)
