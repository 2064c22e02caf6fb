"""torchft's PureDistributedDataParallel with its Manager: an all-reduce for each gradient. Nothing waits for it, and what
divides the sums runs when somebody does: this profile waits."""

from profiles import example, guess, uneven_order

managed = example("torchft_managed")


class Pure(managed.Managed):
    def __init__(self, module, waits):
        super().__init__(module)
        self.begun = []
        allreduce = self.manager.allreduce

        def noted(tensor, **options):
            self.begun.append(allreduce(tensor, **options))
            return self.begun[-1]

        if waits:
            self.manager.allreduce = noted

    def make_wrapped(self, module):
        return managed.torchft.ddp.PureDistributedDataParallel(self.manager, module)

    def after_backward(self):
        for work in self.begun:
            work.wait()
        self.begun.clear()
        super().after_backward()


def wrap(module):
    return Pure(module, waits=True)


wrap.can = ""  # it raises for parameters that are frozen
wrap.excludes = [uneven_order]


@guess("", "bits", excludes=[uneven_order])
def gradients_are_averages(module):
    return Pure(module, waits=False)
