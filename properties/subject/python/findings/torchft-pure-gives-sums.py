"""torchft's PureDistributedDataParallel begins an all-reduce for each gradient, and waits for none: what divides the
sum runs when somebody waits. After backward and should_commit() the gradient is the sum of the ranks, or what has
arrived of it. Expected: the mean, as torchft's DistributedDataParallel has it."""

from ranks import Model, dist, import_torchft, run, torch, verdict

torchft, manager_of = import_torchft()


def body(rank):
    manager, kept = manager_of(rank)
    module = Model(p=torch.zeros(1))
    model = torchft.ddp.PureDistributedDataParallel(manager, module)
    manager.start_quorum()
    model("p", 1.0 + 2 * rank.number).backward()
    rank.report("commits", manager.should_commit())
    rank.report("gradient", module.p.grad.item())
    dist.barrier()


seen = run(body)
got, commits = [one["gradient"] for one in seen], [one["commits"] for one in seen] == [True, True]
verdict(shown=commits and got != [2.0, 2.0] and None not in got, right=commits and got == [2.0, 2.0])
