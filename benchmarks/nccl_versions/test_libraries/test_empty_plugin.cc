// A net plug-in for NCCL that has none of the tables that NCCL looks for.
extern "C" __attribute__((visibility("default"))) int lockstep_empty_plugin() { return 0; }
