"""Brings the ranks of a process group of torch.distributed together in a group of Lockstep's.

Each wrapper has a group of its own, so that the failure of one model does not end the others.
"""

import datetime
import os
import socket
import uuid
import warnings
import weakref

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from lockstep.torch._load import extension

DEFAULT_TIMEOUT = datetime.timedelta(minutes=30)  # as torch.distributed has it


def process_groups():
    """Those that exist, each with its backend and its store."""
    world = getattr(c10d, "_world", None)
    return world.pg_map if world is not None else c10d._pg_map


def store_of(process_group):
    """The store by which the ranks of the group have met."""
    return process_groups()[process_group][1]


def timeout_of(process_group):
    """Of the group's operations; None if it does not say."""
    import torch

    makers = (lambda: process_group._get_backend(torch.device("cpu")).options._timeout,
              lambda: process_group.options._timeout)
    for make in makers:
        try:
            return make()
        except (AttributeError, RuntimeError):
            pass
    return None


def address_of(interface):
    """The IPv4 address of an interface of this machine."""
    import fcntl
    import struct

    SIOCGIFADDR = 0x8915
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        record = fcntl.ioctl(one.fileno(), SIOCGIFADDR, struct.pack("256s", interface.encode()[:15]))
    return socket.inet_ntoa(record[20:24])


def own_address(hosts):
    """Where the other ranks reach this one. GLOO_SOCKET_IFNAME names an interface, as for torch.distributed."""
    interface = os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")[0]
    if interface:
        return address_of(interface)
    if len(set(hosts)) == 1:
        return "127.0.0.1"
    return socket.gethostbyname(socket.gethostname())


_keepers = {}  # of each wrapper, by its id, what keeps its group
_left = []  # the groups of wrappers that are gone, each with its process group


def keep(wrapper, process_group, group):
    """The group outlives the wrapper until the ranks of the process group meet again: a rank that is done with the wrapper must
    not leave while another one is still in the last collective."""
    key = id(wrapper)
    if key in _keepers:
        _keepers[key].detach()  # of the group before a reset
    _keepers[key] = weakref.finalize(wrapper, leave_later, key, process_group, group)
    _keepers[key].atexit = False


def leave_later(key, process_group, group):
    del _keepers[key]
    _left.append((process_group, group))


def meet(process_group, refusal):
    """What all ranks say, in rank order: a token, the host, and why the rank refuses (None if it does not). A collective
    operation of torch.distributed."""
    said = [None] * dist.get_world_size(process_group)
    dist.all_gather_object(said, (uuid.uuid4().hex, socket.gethostname(), refusal), group=process_group)
    return said


def connect(process_group, timeout, share_memory, store=None, refusal=None):
    """Makes the group; `store` takes the place of the process group's own. Raises on all ranks if one refuses; that rank raises its
    own error after this call. A rank that cannot share memory with the others of its host says so, once."""
    _left[:] = [entry for entry in _left if entry[0] in process_groups()]  # others were destroyed, and nobody meets there
    ending = [entry for entry in _left if entry[0] is process_group]
    said = meet(process_group, refusal)
    _left[:] = [entry for entry in _left if not any(entry is one for one in ending)]
    ending.clear()
    refusals = ["rank %d: %s" % (rank, why) for rank, (_, _, why) in enumerate(said) if why is not None]
    if refusals:
        raise RuntimeError("lockstep: the module cannot be wrapped, as a rank refuses. " + "; ".join(refusals))
    if timeout is None:
        timeout = timeout_of(process_group) or DEFAULT_TIMEOUT
    if isinstance(timeout, datetime.timedelta):
        timeout = timeout.total_seconds()
    hosts = [host for _, host, _ in said]
    group = extension.Group(store or store_of(process_group), "lockstep/" + said[0][0], dist.get_rank(process_group), len(said),
                            float(timeout), own_address(hosts), bool(share_memory))
    if share_memory and group.why_no_shared_memory and len(said) > 1 and len(set(hosts)) == 1:
        warnings.warn("lockstep: the ranks of this host share no memory, and send over TCP, which takes longer: %s. "
                      "share_memory=False asks for that" % group.why_no_shared_memory)
    return group
