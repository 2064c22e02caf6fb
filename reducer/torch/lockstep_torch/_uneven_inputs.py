"""Training with uneven inputs: join() of one wrapper, and the part that a wrapper takes in Join([...]) of
torch.distributed.algorithms.join, beside other models and optimizers.

join() follows the reducer's own announcements, so that a rank without inputs follows whatever the others do. Join counts
forwards: in each of them the ranks tell each other whether it is synced, and whether it sends buffers.
"""

import contextlib

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join, JoinHook, _JoinConfig


class ForwardsHook(JoinHook):
    """What Join calls on a rank that is out of inputs."""

    def __init__(self, wrapper):
        self._wrapper = wrapper

    def main_hook(self):
        self._wrapper._shadow_forward()

    def post_hook(self, is_last_joiner):
        self._wrapper._end_join_by_forwards()


class UnevenInputs:
    _is_join_open = False  # whether the reducer is in a join
    _without_gradients = ()  # the parameters that had none when this rank was out of inputs

    @contextlib.contextmanager
    def join(self, divide_by_initial_world_size=True, enable=True, throw_on_early_termination=False):
        """Ranks that are out of inputs answer for those that are not. With throw_on_early_termination all ranks raise in
        the first forward that not all of them make."""
        if not enable:
            yield
            return
        if throw_on_early_termination:
            try:
                with Join([self], True, True, divide_by_initial_world_size=divide_by_initial_world_size):
                    yield
            finally:
                self._leave_join_by_forwards()
            return
        self._open_join(divide_by_initial_world_size)
        yield
        self._close_join()

    def _open_join(self, divide_by_initial_world_size):
        self._is_joining = True
        self._reducer.begin_join(not divide_by_initial_world_size, False)
        self._is_join_open = True

    def _close_join(self):
        self._note_without_gradients()
        self._reducer.end_join()
        self._is_join_open = False
        self._authoritative_rank = self._reducer.last_that_trained()
        if not self._sends_parameters:  # the reducer has sent the buffers alone
            parameters = [each.detach() for _, each in self._members.named]
            self._distributed_broadcast_coalesced(parameters, self.broadcast_bucket_size, self._authoritative_rank)
        for each in self._without_gradients:  # a rank without inputs has no gradients
            each.grad = None
        self._without_gradients = ()

    def _note_without_gradients(self):
        if not self._without_gradients:
            self._without_gradients = tuple(each for _, each in self._members.named
                                            if each.requires_grad and each.grad is None)

    # ---- Join([...]) ----

    def join_hook(self, **kwargs):
        self._is_joining = True
        self._divide_by_initial_world_size = kwargs.get("divide_by_initial_world_size", True)
        return ForwardsHook(self)

    def _tell_of_forward(self, is_synced, sends_buffers):
        """On a rank with inputs, at the begin of a forward. Raises if a rank has none, where Join was asked for that."""
        work = Join.notify_join_context(self)
        if work is not None:
            work.wait()
        if self._join_config.throw_on_early_termination:
            return  # nobody shadows
        self._open_join_by_forwards()
        self._agree_on_forward(is_synced, sends_buffers)

    def _open_join_by_forwards(self):
        if not self._is_join_open:
            self._open_join(self._divide_by_initial_world_size)

    def _agree_on_forward(self, is_synced, sends_buffers):
        flags = torch.tensor([is_synced, sends_buffers], dtype=torch.int32)
        dist.all_reduce(flags, dist.ReduceOp.MAX, self.process_group)
        return [bool(each) for each in flags.tolist()]

    def _shadow_forward(self):
        self._open_join_by_forwards()
        self._note_without_gradients()
        self._reducer.shadow_forward(*self._agree_on_forward(False, False))

    def _end_join_by_forwards(self):
        if self._is_join_open:
            self._close_join()
        self._leave_join_by_forwards()

    def _leave_join_by_forwards(self):
        self._join_config = _JoinConfig.construct_disabled_join_config()
