"""The attribute `reducer` of a wrapper: what libraries call of those that DistributedDataParallel has.

Lightning's manual optimization and Accelerate's trigger_sync_in_backward begin passes by hand in this way.
"""

import weakref


class ReducerFace:
    def __init__(self, wrapper):
        self._wrapper = weakref.ref(wrapper)

    def prepare_for_backward(self, outputs):
        """The next backward is that of a pass, whatever its outputs."""
        self._wrapper()._arm_by_hand()

    def prepare_for_forward(self):
        pass

    def _rebuild_buckets(self):
        return False  # each synced forward does what is due

    def _delay_all_reduce(self):
        pass  # a static pass ends by itself

    def _get_local_used_map(self):
        """How many ranks used each trained parameter in the last pass, with find_unused_parameters."""
        return self._wrapper()._reducer.usage_counts()

    def _ddp_graph_static(self):
        """Whether the ranks have used the same parameters in all passes so far."""
        return self._wrapper()._reducer.is_graph_static()

    def __getattr__(self, name):
        raise AttributeError("lockstep.torch.DistributedDataParallel has no reducer.%s: PyTorch's reducer is not there" % name)
