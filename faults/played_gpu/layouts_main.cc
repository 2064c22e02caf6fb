// Prints the offsets of layout.h for one version of NCCL, as layout_debug_info.sh reads them out of
// the library's debug information: a line "NAME VALUE" each.
#include <cstdio>
#include <cstdlib>

#include "faults/played_gpu/layout.h"

int main(int argc, char** argv) {
  using namespace lockstep::played;
  const auto layout = layout_of(argc == 2 ? std::atoi(argv[1]) : 0);
  if (!layout) {
    std::fprintf(stderr, "%s\n", layout.error().failure().detail.c_str());
    return 1;
  }
  const auto print = [](const char* name, std::size_t value) {
    std::printf("%s %zu\n", name, value);
  };
  print("arguments", sizeof(KernelArguments));
  print("arguments.mask", offsetof(KernelArguments, mask));
  print("batch", sizeof(WorkBatch));
  print("batch.works", offsetof(WorkBatch, works));
  print("batch.function_bits", layout->function_bits);
  print("p2p", sizeof(P2pWork));
  print("p2p.send_chunk", offsetof(P2pWork, send_chunk));
  print("coll", layout->coll_bytes);
  print("coll.receive_buffer", layout->coll_receive_buffer);
  print("coll.send_buffer", layout->coll_send_buffer);
  print("coll.counts", layout->coll_counts);
  print("coll.scalar", layout->coll_scalar);
  print("comm.work_consumed", layout->comm_work_consumed);
  print("comm.p2p_chunk", offsetof(CommBeginning, p2p_chunk_bytes));
  print("comm.abort_flag", layout->comm_abort_flag);
  print("comm.channels", layout->comm_channels);
  print("channel", layout->channel_bytes);
  print("channel.ring", offsetof(ChannelBeginning, previous));
  print("channel.ring_index", layout->ring_index);
  print("connection", sizeof(Connection));
  print("connection.fifo", offsetof(Connection, fifo));
  print("connection.step", offsetof(Connection, step));
  print("fifo", layout->fifo_entry_bytes);
  print("fifo.offset", layout->fifo_offset);
  print("fifo.offset_bytes", layout->fifo_offset_bytes);
  print("fifo.size", layout->fifo_size);
}
