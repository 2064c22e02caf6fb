"""autograd.grad() and backward(inputs=...) give local gradients without an error; after the second the next forward
raises (P1, P5)."""

import torch
from ranks import each, failed, grad_of, model_of, run, verdict


def body(rank):
    model = model_of("ab")
    rank.attempt(
        "grad",
        lambda: rank.report(
            "a of grad", torch.autograd.grad(model("ab", 1.0 + rank.number), [model.module.a])[0].tolist()
        ),
    )
    model = model_of("ab")
    rank.attempt("backward", lambda: model("ab", 1.0 + rank.number).backward(inputs=[model.module.a]))
    rank.report("a of backward", grad_of(model, "a"))
    rank.attempt("next forward", lambda: model("ab", 1.0))


seen = run(body)
verdict(
    shown=each(seen, "grad", "ok")
    and each(seen, "a of grad", [1.0], [2.0])
    and each(seen, "backward", "ok")
    and each(seen, "a of backward", [1.0], [2.0])
    and failed(seen, "next forward", "finished reduction"),
    right=failed(seen, "grad") and failed(seen, "backward"),
)
