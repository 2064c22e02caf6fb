#!/usr/bin/env bash
# layout_debug_info.sh PROGRAM LIBRARY VERSION: compares the layout that PROGRAM (played_gpu_layouts) prints for a version, as
# ncclGetVersion returns it, with the debug information of LIBRARY, which gdb reads. 77: there is no gdb, or no such library.
set -euo pipefail
program=$1 library=$2 version=$3
command -v gdb >/dev/null || { echo "skipped: there is no gdb here" && exit 77; }
[[ -e $library ]] || { echo "skipped: there is no $library" && exit 77; }
script=$(mktemp)
trap 'rm -f -- "$script"' EXIT
cat >"$script" <<'PYTHON'
import gdb

def kind(*names):
    for name in names:
        try:
            return gdb.lookup_type(name)
        except gdb.error:
            pass
    raise gdb.error("none of " + ", ".join(names))

def find(struct, name):
    for field in struct.fields():
        if field.name == name:
            return field, field.bitpos // 8
        if field.name is None or field.name == "cbd":  # an unnamed part
            inner = find(field.type, name)
            if inner:
                return inner[0], field.bitpos // 8 + inner[1]
    return None

def offset(struct, name):
    found = find(struct, name)
    return found[1] if found else 0

def say(name, value):
    print("%s %d" % (name, value))

comm = kind("struct ncclKernelComm") if find(kind("struct ncclDevKernelArgs"), "comm")[0].type.target().name == "ncclKernelComm" else kind("struct ncclDevComm")
both = kind("struct ncclKernelCommAndChannels", "struct ncclDevCommAndChannels")
arguments, batch, p2p, coll = (kind("struct ncclDev" + n) for n in ("KernelArgs", "WorkBatch", "WorkP2p", "WorkColl"))
channel, ring, connection, fifo = (kind("struct " + n) for n in ("ncclDevChannel", "ncclRing", "ncclConnInfo", "ncclConnFifo"))
say("arguments", arguments.sizeof)
say("arguments.mask", offset(arguments, "workMask"))
say("batch", batch.sizeof)
say("batch.works", offset(batch, "offsetBitset"))
say("batch.function_bits", find(batch, "funcId")[0].bitsize)
say("p2p", p2p.sizeof)
say("p2p.send_chunk", offset(p2p, "sendChunkSize_u32fp8"))
say("coll", coll.sizeof)
say("coll.receive_buffer", offset(coll, "recvbuff"))
say("coll.send_buffer", offset(coll, "sendbuff"))
say("coll.counts", offset(coll, "countLo"))
say("coll.scalar", offset(coll, "redOpArg"))
say("comm.work_consumed", offset(comm, "workConsumed"))
say("comm.p2p_chunk", offset(comm, "p2pChunkSize"))
say("comm.abort_flag", offset(comm, "abortFlag"))
say("comm.channels", offset(both, "channels"))
say("channel", channel.sizeof)
say("channel.ring", offset(channel, "ring"))
say("channel.ring_index", offset(channel, "ring") + offset(ring, "index"))
say("connection", connection.sizeof)
say("connection.fifo", offset(connection, "connFifo"))
say("connection.step", offset(connection, "step"))
say("fifo", fifo.sizeof)
say("fifo.offset", offset(fifo, "offset"))
say("fifo.offset_bytes", find(fifo, "offset")[0].type.sizeof)
say("fifo.size", offset(fifo, "size"))
PYTHON
theirs=$(gdb -batch -nx -ex "python exec(open('$script').read())" "$library" 2>&1 | grep -E '^[a-z.0-9_]+ [0-9]+$')
ours=$("$program" "$version")
[[ -n $theirs ]] || { echo "gdb found no debug information in $library" >&2 && exit 1; }
diff <(printf '%s\n' "$ours") <(printf '%s\n' "$theirs") ||
  { echo "the layout of NCCL $version is not that of $library" >&2 && exit 1; }
echo "NCCL $version: $(wc -l <<<"$ours") offsets and sizes agree"
