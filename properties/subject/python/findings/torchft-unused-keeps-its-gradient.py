"""torchft. Rank 0 does not use q. torchft's DistributedDataParallel gives the reducer a group of one rank, which takes
what this rank does not use for what no rank uses: q.grad stays None on rank 0 and is the average on rank 1, without an
error, and should_commit() says yes. Expected: the average on both (G7)."""

from ranks import Model, dist, each, grad_of, import_torchft, run, torch, verdict

torchft, manager_of = import_torchft()


def body(rank):
    manager, kept = manager_of(rank)
    model = torchft.DistributedDataParallel(manager, Model(p=torch.zeros(1), q=torch.zeros(1)))
    manager.start_quorum()
    rank.attempt("backward", model("p" if rank.number == 0 else "pq", 8.0).backward)
    rank.report("commits", manager.should_commit())
    rank.report("q", grad_of(model, "q"))
    dist.barrier()


seen = run(body)
done = each(seen, "backward", "ok") and each(seen, "commits", True)
verdict(shown=done and each(seen, "q", None, [4.0]), right=done and each(seen, "q", [4.0]))
