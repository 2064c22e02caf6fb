"""Ctrl-C in a collective. Python notes the signal and runs its handler when the call in C++ returns, which may wait for a peer
until the timeout. A thread sees the signal at once, and ends the groups of the wrappers that are inside of such a call: it raises,
there and on the other ranks, and then Python raises KeyboardInterrupt.

It is installed with the first wrapper that the main thread makes, unless somebody else has taken signal.set_wakeup_fd().
"""

import os
import signal
import socket
import threading
import weakref

watched = weakref.WeakSet()  # of extension.Reducer
is_installed = False


def watch(reducer):
    global is_installed
    watched.add(reducer)
    if not is_installed and threading.current_thread() is threading.main_thread():
        is_installed = install()


def install():
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    if before != -1:  # an event loop's
        signal.set_wakeup_fd(before)
        return True
    threading.Thread(target=serve, args=(reader, writer), name="lockstep-interrupts", daemon=True).start()
    os.register_at_fork(after_in_child=forget)
    return True


def forget():
    """A forked child has no such thread, and must not wake that of its parent."""
    if threading.current_thread() is threading.main_thread():
        signal.set_wakeup_fd(-1)
    watched.clear()


def serve(reader, writer):
    while True:
        numbers = reader.recv(64)
        if not numbers:
            return
        if signal.SIGINT in numbers:
            for reducer in list(watched):
                if reducer.is_busy():
                    reducer.abort("the user interrupted this rank (SIGINT)")
