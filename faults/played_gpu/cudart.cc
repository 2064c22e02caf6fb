// libcudart.so of the played GPU, for an NCCL that is linked with it: it needs
// liblockstep-played-gpu.so, in which the functions are. It is built once for each name.
extern "C" __attribute__((visibility("default"))) int lockstep_played_cudart();

int lockstep_played_cudart() { return 1; }
