"""Loads the extension that was built for this PyTorch, and builds it where it was not.

PyTorch's C++ interface changes from version to version, so there is one extension for each MAJOR.MINOR, in this folder
or in the cache ($LOCKSTEP_TORCH_CACHE, or ~/.cache/lockstep). Building takes the sources that this package came from, and
some minutes.
"""

import importlib.machinery
import importlib.util
import os
import subprocess
import sys
import sysconfig

import torch

FOLDER = os.path.dirname(os.path.abspath(__file__))


def name_of_version():
    major, minor = torch.__version__.split(".")[:2]
    return "_torch_%s_%s" % (major, minor)


def cache_folder():
    default = os.path.join(os.path.expanduser("~"), ".cache", "lockstep")
    return os.path.join(os.environ.get("LOCKSTEP_TORCH_CACHE", default), sysconfig.get_config_var("SOABI") or "any")


def find(name):
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    for folder in (FOLDER, cache_folder()):
        path = os.path.join(folder, name + suffix)
        if os.path.exists(path):
            return path
    return None


def cannot(why):
    return ImportError("lockstep.torch has no extension for PyTorch %s (%s): %s" % (torch.__version__, sys.executable, why))


def sources():
    try:
        from lockstep.torch._sources import SOURCES
    except ImportError:
        SOURCES = ""
    if not os.path.isdir(os.path.join(SOURCES, "reducer", "torch")):
        raise cannot("it is built from Lockstep's sources, which are not here. Import it from the build of a checkout")
    return SOURCES


def last_lines(text, count=15):
    return "\n".join(text.strip().splitlines()[-count:])


def run(command, advice):
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    except OSError as error:
        raise cannot("%s. %s" % (error, advice)) from None
    if done.returncode != 0:
        raise cannot("`%s` failed. %s Its last lines:\n%s" % (" ".join(command), advice, last_lines(done.stdout)))


def build(name):
    """Builds it in the cache; several processes may do so at once."""
    import fcntl

    tree, folder = sources(), cache_folder()
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name + ".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        path = find(name)
        if path is not None:
            return path
        print("lockstep.torch: building the extension for PyTorch %s; this takes some minutes, once" % torch.__version__,
              file=sys.stderr)
        tools = "It takes a C++ compiler, CMake and Ninja: ci/setup installs them on Debian."
        root, work = os.path.dirname(torch.__file__), os.path.join(folder, name + ".build")
        run(["cmake", "-S", tree, "-B", work, "-G", "Ninja", "-DLOCKSTEP_TORCH=ON", "-DLOCKSTEP_CUDA=OFF",
             "-DLOCKSTEP_TORCH_ROOT=" + root, "-DLOCKSTEP_TORCH_PYTHON=" + sys.executable], tools)
        run(["cmake", "--build", work, "--target", "lockstep_torch_extension"], tools)
        made = name + sysconfig.get_config_var("EXT_SUFFIX")
        os.replace(os.path.join(work, "lockstep-python", "lockstep", "torch", made), os.path.join(folder, made))
        return os.path.join(folder, made)


def load():
    name = name_of_version()
    path = os.environ.get("LOCKSTEP_TORCH_EXTENSION") or find(name) or build(name)
    loader = importlib.machinery.ExtensionFileLoader(name, path)
    spec = importlib.util.spec_from_loader(name, loader)
    try:
        module = importlib.util.module_from_spec(spec)
    except ImportError as error:
        raise cannot("%s does not fit: %s" % (path, error)) from None
    loader.exec_module(module)
    return module


extension = load()
