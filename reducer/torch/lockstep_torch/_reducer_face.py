"""The attribute `reducer` and `logger` of a wrapper: what libraries call of those that DistributedDataParallel has.

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

    def __getattr__(self, name):
        raise AttributeError("lockstep.torch.DistributedDataParallel has no reducer.%s: PyTorch's reducer is not there" % name)


class LoggerFace:
    """DistributedDataParallel's logger gathers statistics and the last error; see _get_ddp_logging_data()."""

    error = ""

    def set_error_and_log(self, error):
        self.error = error

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *arguments, **options: None
